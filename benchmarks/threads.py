"""What more threads of a call are worth: `python -m benchmarks.threads [--threads 1 2 4 8 16]`.

Each model is built for this processor without tuning. Contenders are our program and eager torch,
each with every number of threads. All are children of one process that has the model, held on as
many processors as they have threads, and take turns: the threads of one never meet another's.
Medians; a speed-up is over one thread, efficiency is the speed-up by the number of threads.

The process itself computes nothing: threads of OpenMP would be missing in its children.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from aotc import runtime
from aotc.aot.cli.contender import load_model
from aotc.aot.cli.contest import AFTER_A_TURN_S
from aotc.aot.cli.sampling import Call, sample_host
from benchmarks import cores
from benchmarks.narrow_products import SPECS
from benchmarks.report import table

BERT = "BERT-base 4×128"
WIDENED = """
narrow = build_model


def build_model():
    return narrow().float()
"""
TEXTS = {f"{name}, bf16": text for name, text in SPECS.items()}
TEXTS[f"{BERT}, f32"] = SPECS[BERT] + WIDENED
HEADS = ("threads", "aotc, ms", "speed-up", "efficiency", "eager, ms", "speed-up", "eager ÷ aotc")
WARMUP_CALLS = 3

Open = Callable[[int], runtime.Program]  # of threads


class Contender:
    """A child that runs one of the two with so many threads; `times_us` of all its turns."""

    def __init__(self, make: Callable[[int], Call], count: int) -> None:
        fork = multiprocessing.get_context("fork")
        self._end, other = fork.Pipe()
        fork.Process(target=_serve, args=(make, count, other), daemon=True).start()
        other.close()
        self.times_us: list[float] = []
        self._end.recv()  # it is warm

    def sample(self, seconds: float) -> None:
        """Let it run for this long and take its times."""
        time.sleep(AFTER_A_TURN_S)
        self._end.send(seconds)
        self.times_us += self._end.recv()


def main() -> None:
    """Print a table for each model."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of this process
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--only", default="", help="models whose names have this")
    given = parser.parse_args()
    counts = [count for count in given.threads if count <= len(_processors())]
    for name, text in TEXTS.items():
        if given.only in name:
            with tempfile.TemporaryDirectory() as folder:
                spec, bundle = Path(folder, "spec.py"), Path(folder, "bundle")
                spec.write_text(text)
                build = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec)]
                build += ["-o", str(bundle), "--tune", "off", "--quiet"]
                subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
                found = times_us(spec, counts, given.rounds, given.seconds, _opener(bundle))
            print(f"\n{name}\n\n{render(found, counts)}", flush=True)


def times_us(
    spec: Path, counts: Sequence[int], rounds: int, seconds: float, opened: Open
) -> dict[tuple[str, int], list[float]]:
    """Kind and threads → microseconds of calls."""
    import torch

    torch.set_grad_enabled(False)
    model, arguments, keywords = load_model(str(spec), "cpu")

    def ours(count: int) -> Call:
        program = opened(count)
        return lambda: program(*arguments, **keywords)

    def eager(count: int) -> Call:
        torch.set_num_threads(count)
        return lambda: model(*arguments, **keywords)

    made = (("aotc", ours), ("eager", eager))
    running = {(kind, count): Contender(make, count) for count in counts for kind, make in made}
    for turn in range(rounds):
        for contender in list(running.values())[:: -1 if turn % 2 else 1]:
            contender.sample(seconds)
    return {who: each.times_us for who, each in running.items()}


def render(found: dict[tuple[str, int], list[float]], counts: Sequence[int]) -> str:
    """A row for each number of threads."""
    ms = {who: statistics.median(each) / 1e3 for who, each in found.items()}
    first, rows = counts[0], []
    for count in counts:
        own, eager = ms["aotc", count], ms["eager", count]
        faster = ms["aotc", first] / own
        cells = [f"{own:.3f}", f"{faster:.2f}", f"{100 * faster * first / count:.0f} %"]
        cells += [f"{eager:.3f}", f"{ms['eager', first] / eager:.2f}", f"{eager / own:.2f}"]
        rows.append([str(count), *cells])
    return table(HEADS, rows)


def _opener(bundle: Path) -> Open:
    return lambda count: runtime.load(bundle, threads=count)


def _processors() -> cores.Cores:
    """All that may be used, one of each core first, so that few threads share no core."""
    first = cores.physical()
    return (*first, *sorted(os.sched_getaffinity(0) - set(first)))


def _serve(make: Callable[[int], Call], count: int, end: Connection) -> None:
    os.sched_setaffinity(0, _processors()[:count])
    call = make(count)
    for _ in range(WARMUP_CALLS):
        call()
    end.send("warm")
    while True:
        end.send(sample_host(call, end.recv())["times_us"])


if __name__ == "__main__":
    main()
