"""Single computations on a GPU beside eager torch, launch by launch and as one CUDA graph.

    python -m benchmarks.gpu.computations [WORD…] [--jobs 16] [--page docs/computations-gpu.md]
    python -m benchmarks.gpu.computations --dtype bfloat16

The cases are those of `benchmarks.computations`. All are built first, side by side; then each lies
in one process with its peers, and they take turns. Times are by the device's events around calls
that follow each other; results are compared with eager's in f64.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from aotc.aot.cli.contender import load_model
from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load
from benchmarks.computation_cases import CASES
from benchmarks.computations import chosen, error_of
from benchmarks.gpu import machine
from benchmarks.gpu.forward import CALLS, captured, round_ms
from benchmarks.report import table

DEVICE = "cuda"
HEADS = ("computation", "aotc, µs", "eager, µs", "eager + graph, µs", "best of these / aotc")


def build_case(name: str, folder: Path, dtype: str | None) -> None:
    """The bundle of a case in `folder/bundle`, beside its spec."""
    folder.mkdir()
    (folder / "computation.py").write_text(CASES[name].spec(dtype))
    options = BuildOptions(folder / "cache", jobs=1)
    build(str(folder / "computation.py"), folder / "bundle", [DEVICE], options)


def build_each(folders: dict[str, Path], jobs: int, dtype: str | None) -> None:
    """Build the cases side by side; says which do not build."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        builds = {pool.submit(build_case, *row, dtype): row[0] for row in folders.items()}
        for each in as_completed(builds):
            if error := each.exception():
                print(f"{builds[each]}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def measure(folder: Path, rounds: int, dtype: str | None) -> tuple[dict[str, float], float]:
    """Microseconds of each contender, medians, and the error of ours as multiples of eager's."""
    model, arguments, _ = load_model(str(folder / "computation.py"), DEVICE)
    with load(folder / "bundle", device=DEVICE) as program:
        has_ties = dtype is not None
        error = error_of(program(*arguments), model, arguments, has_ties=has_ties)
        ways: dict[str, Any] = {
            "aotc": program.bind(*arguments),
            "eager": lambda: model(*arguments),
        }
        try:
            ways["graph"] = captured(ways["eager"])
        except RuntimeError:  # it asks the device for a number
            torch.cuda.synchronize()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                times[name].append(1e3 * round_ms(way, *marks))
    return {name: statistics.median(row) for name, row in times.items()}, error


def row_of(name: str, microseconds: dict[str, float]) -> list[str]:
    """The cells of a case."""
    best = min(value for kind, value in microseconds.items() if kind != "aotc")
    cells = (microseconds.get(kind) for kind in ("aotc", "eager", "graph"))
    texts = ["–" if each is None else f"{each:,.1f}" for each in cells]
    return [name, *texts, f"{best / microseconds['aotc']:.2f}×"]


def main() -> None:
    """Build and measure the cases; print a row of each, or write the page too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), help="in place of the cases'")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory(prefix="aotc-bench-") as temporary:
        names = chosen(given.words)
        folders = {name: Path(temporary, str(at)) for at, name in enumerate(names)}
        build_each(folders, given.jobs, given.dtype)
        rows = list(measured(folders, given.rounds, given.dtype))
    if given.page is not None:
        given.page.write_text(page(rows))


def measured(folders: dict[str, Path], rounds: int, dtype: str | None) -> Iterator[list[str]]:
    """The row of each case that was built; prints it."""
    for name, folder in folders.items():
        if not (folder / "bundle").is_dir():
            continue
        try:
            microseconds, error = measure(folder, rounds, dtype)
        except Exception as found:  # the next case is another one
            print(f"{name}: {type(found).__name__}: {str(found)[:300]}", flush=True)
            continue
        row = row_of(name, microseconds)
        print(" | ".join(row) + ("" if error <= 2 else f" | error {error:.1f}"), flush=True)
        yield row


def page(rows: list[list[str]]) -> str:
    """The page of a run."""
    facts = "\n".join(f"| {name} | {value} |" for name, value in machine.facts().items())
    return (
        "# Single computations on a GPU\n\n"
        "Each by itself, of the sizes of [single computations on the CPU](computations.md), for "
        "which a launch is most of the\ntime: microseconds a call by the device's events around "
        f"{CALLS} calls that follow each other, medians of rounds in turns.\n"
        "Written by `python -m benchmarks.gpu.computations --page docs/computations-gpu.md`.\n\n"
        f"| what | value |\n| --- | ---: |\n{facts}\n\n{table(HEADS, rows)}\n"
    )


if __name__ == "__main__":
    main()
