"""Single computations beside eager and torch.compile: orders, statistics, products, images.

    python -m benchmarks.computations [WORD…] [--rounds 7] [--threads 1] [--peer eager …]
                                      [--page docs/computations.md]

Cases (`computation_cases.py`) whose name has one of the words, or whose group is named so; all
without. The contenders lie in one process and take turns, with inputs that are drawn anew; each
result is compared with eager's in f64. Ratios are medians over the rounds of the processor time of
the best peer by ours, which counts no time that other programs took.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aotc.aot.cli.contender import load_model
from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load
from benchmarks import machine
from benchmarks.computation_cases import CASES, GROUPS, Case
from benchmarks.report import table

PEERS = {"eager": "eager", "compile": "torch.compile"}
TURN_SECONDS = 0.03
MINIMAL_CALLS = 3
PAUSE_SECONDS = 0.25  # with several threads: those of a peer wait actively for a while
WARMUP_CALLS = 3
MOST_UNEQUAL = 1e-3
ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- benchmarks.computations writes from here -->", "<!-- to here -->"
Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Found:
    """One case. microseconds: of a call, by the clock; ratio: the best peer's processor time by
    ours; error: our largest difference from f64, in units of eager's, at least f32's rounding."""

    microseconds: dict[str, float]
    ratio: float
    error: float

    def cells(self, kinds: Sequence[str]) -> list[str]:
        """Its cells of the table."""
        times = [f"{self.microseconds[k]:,.0f}" if k in self.microseconds else "-" for k in kinds]
        return [*times, f"{self.ratio:.2f}×"]


def measure(case: Case, peers: Sequence[str], rounds: int, threads: int) -> Found:
    """Builds the case, compares its result, and lets the contenders take turns."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory(prefix="aotc-bench-") as name:
        spec, bundle = Path(name, "computation.py"), Path(name, "bundle")
        spec.write_text(case.spec())
        cache = Path(os.environ.get("AOTC_CACHE_DIR") or Path(name, "cache"))
        build(str(spec), bundle, ["cpu"], BuildOptions(cache))
        model, arguments, _ = load_model(str(spec), "cpu")
        with load(bundle, threads=threads) as program:
            calls: dict[str, Call] = {"aotc": lambda: program(*arguments)}
            if "eager" in peers:
                calls["eager"] = lambda: model(*arguments)
            if "compile" in peers:
                compiled = torch.compile(model)
                calls["compile"] = lambda: compiled(*arguments)
            error = error_of(calls["aotc"](), model, arguments)
            seconds = _take_turns(calls, rounds, threads)
    ratios = [
        min(row[peer][1] for peer in peers if peer in row) / row["aotc"][1] for row in seconds
    ]
    clock = {kind: statistics.median(row[kind][0] for row in seconds) * 1e6 for kind in calls}
    return Found(clock, statistics.median(ratios), error)


def _take_turns(
    calls: dict[str, Call], rounds: int, threads: int
) -> list[dict[str, tuple[float, float]]]:
    """Seconds of a call in each round: by the clock, the median, and of the processor, the mean."""
    counts = {}
    for kind in [*calls]:
        try:
            for _ in range(WARMUP_CALLS):
                calls[kind]()
        except Exception as error:  # a peer that does not take this
            print(f"{kind}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            del calls[kind]
            continue
        start = time.perf_counter()
        calls[kind]()
        took = time.perf_counter() - start
        counts[kind] = max(MINIMAL_CALLS, int(TURN_SECONDS / max(took, 1e-7)))
    found = []
    for turn in range(rounds):
        row = {}
        for kind in [*calls][:: -1 if turn % 2 else 1]:
            if threads != 1:
                time.sleep(PAUSE_SECONDS)
            row[kind] = _turn(calls[kind], counts[kind])
        found.append(row)
    return found


def _turn(call: Call, count: int) -> tuple[float, float]:
    times = []
    call()  # its inputs into the cache again
    before = time.process_time()
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times), (time.process_time() - before) / count


def error_of(
    ours: Any, model: Any, arguments: Sequence[torch.Tensor], *, has_ties: bool = False
) -> float:
    """How far our floating-point results are from f64's, relative to how far eager's are. has_ties:
    many elements are equal, whose places may be others."""
    wide = [a.double() if a.is_floating_point() else a for a in arguments]
    theirs = _leaves(model(*arguments))
    module = isinstance(model, torch.nn.Module)
    own = next((each.dtype for each in model.parameters()), torch.float32) if module else None
    exact = _leaves(model.double()(*wide) if module else model(*wide))
    if own is not None:
        model.to(own)
    worst = 0.0
    for one, other, true in zip(_leaves(ours), theirs, exact, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise AssertionError(f"{one.dtype} {one.shape}, eager {other.dtype} {other.shape}")
        if not one.is_floating_point():
            if has_ties:
                continue
            unequal = (one != other).double().mean().item() if one.numel() else 0.0
            if unequal > MOST_UNEQUAL:
                raise AssertionError(f"{unequal:.1%} of {one.dtype} {one.shape} are not eager's")
            continue
        if not one.numel():
            continue
        scale = true.abs().max().item() or 1.0
        step = torch.finfo(one.dtype).eps * scale
        away = [(each.double() - true.double()).abs().max().item() for each in (one, other)]
        worst = max(worst, away[0] / max(away[1], step))
    return worst


def _leaves(result: Any) -> list[torch.Tensor]:
    return list(torch.utils._pytree.tree_leaves(result))


def chosen(words: Sequence[str]) -> list[str]:
    """The cases that the words name."""
    named = {name for word in words for name in GROUPS.get(word, ())}
    some = [w for w in words if w not in GROUPS]
    return [n for n in CASES if not words or n in named or any(w in n for w in some)]


def main() -> None:
    """Measure the cases and print the table, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", action="append", choices=tuple(PEERS))
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.set_grad_enabled(False)
    peers = given.peer or [*PEERS]
    kinds, rows = ["aotc", *peers], []
    for name in chosen(given.words):
        try:
            found = measure(CASES[name], peers, given.rounds, given.threads)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        rows.append([name, *found.cells(kinds)])
        away = "" if found.error <= 2 else f" | error {found.error:.1f}"
        print(" | ".join(rows[-1]) + away, flush=True)
    heads = ["computation", "aotc, µs", *(f"{PEERS[p]}, µs" for p in peers), "best of these / aotc"]
    if given.page is not None:
        before, _, rest = given.page.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        middle = _measured(heads, rows, given)
        given.page.write_text(f"{before}{BEGIN}\n{middle}{END}{after}")


def _measured(heads: Sequence[str], rows: list[list[str]], given: argparse.Namespace) -> str:
    facts = machine.facts()
    threads = "1 thread" if given.threads == 1 else f"{given.threads} threads"
    ratios = [float(row[-1].removesuffix("×")) for row in rows]
    flags = f"--rounds {given.rounds}" + "".join(f" --peer {each}" for each in given.peer or ())
    lines = (
        f"{facts['date']}, {facts['processor']}, {threads}, {facts['versions']}, commit "
        f"{machine.commit(ROOT)},",
        f"`python -m benchmarks.computations {flags}`: times are medians by the clock, the last "
        "column is the median of",
        "the processor time of the best peer by ours, round by round. Of "
        f"{len(rows)} cases {sum(ratio < 1 for ratio in ratios)} are below 1; the geometric mean "
        f"is {statistics.geometric_mean(ratios):.2f}.",
        "",
        table(heads, rows),
        "",
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
