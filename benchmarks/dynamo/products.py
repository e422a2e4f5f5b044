"""Products of unpacked operands beside torch's: `python -m benchmarks.dynamo.products [NAME …]`.

The shapes are those of the bench's backward graphs, large weight gradients and odd sizes. Both
sides write to the same fixed memory and take turns; a ratio above 1 says that ours is the faster
one. By default one thread's own time, which others on the machine disturb little; `--threads` more.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotc.aot.dynamo.calling import Call
from benchmarks.report import table

ROUNDS, SAMPLE_SECONDS = 25, 0.01


@dataclass(frozen=True, slots=True)
class Case:
    """left[rows, depth] · right[depth, columns]; a transposed operand lies along its columns."""

    rows: int
    columns: int
    depth: int
    is_left_turned: bool = False
    is_right_turned: bool = False

    @property
    def name(self) -> str:
        """`2048x512x64-t`: rows, columns, depth, and which operands are transposed."""
        marks = "t" if self.is_left_turned else "", "r" if self.is_right_turned else ""
        marked = "".join(marks)
        return f"{self.rows}x{self.columns}x{self.depth}" + (f"-{marked}" if marked else "")

    def operands(self) -> tuple[Tensor, Tensor]:
        """Normal numbers, as they lie in memory."""
        return (
            _matrix(self.rows, self.depth, is_turned=self.is_left_turned),
            _matrix(self.depth, self.columns, is_turned=self.is_right_turned),
        )


CASES = (
    Case(512, 2048, 64, is_left_turned=True),
    Case(2048, 512, 64, is_left_turned=True),
    Case(64, 2048, 512),
    Case(64, 2048, 512, is_right_turned=True),
    Case(768, 256, 256, is_left_turned=True),
    Case(256, 1024, 256, is_left_turned=True),
    Case(1024, 256, 256, is_left_turned=True),
    Case(256, 256, 1024),
    Case(256, 1024, 256),
    Case(256, 256, 64, is_left_turned=True),
    Case(1024, 256, 64, is_left_turned=True),
    Case(64, 256, 1024),
    Case(1024, 1024, 1024, is_left_turned=True),
    Case(1024, 1024, 1024),
    Case(1024, 1024, 1024, is_right_turned=True),
    Case(333, 517, 211, is_left_turned=True),
)


def main() -> None:
    """Measure the cases that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dynamo.products", description=__doc__
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    clock_s = time.thread_time if asked.threads == 1 else time.perf_counter
    chosen = [case for case in CASES if not asked.names or case.name in asked.names]
    rows = [_row(case, asked.threads, clock_s) for case in chosen]
    print(table(["product", "grid", "ours, us", "torch, us", "torch / ours", "GFLOP/s"], rows))


def _matrix(rows: int, columns: int, *, is_turned: bool) -> Tensor:
    return torch.randn(columns, rows).t() if is_turned else torch.randn(rows, columns)


def _row(case: Case, threads: int, clock_s: Callable[[], float]) -> list[str]:
    torch.manual_seed(0)
    left, right = case.operands()
    found = torch.empty(case.rows, case.columns)
    ours, grid = _ours(left, right, found, threads)
    wanted = (left.double() @ right.double()).float()
    distance = float((found - wanted).abs().max() / wanted.abs().max())
    assert distance < 1e-5, f"{case.name} is {distance} from double precision"
    sides: tuple[Callable[[], Any], ...] = (ours, lambda: torch.mm(left, right, out=found))
    samples = [[_sample_us(side, clock_s) for side in sides] for _ in range(ROUNDS)]
    ours_us, theirs_us = (statistics.median(column) for column in zip(*samples, strict=True))
    ratio = statistics.median(theirs / mine for mine, theirs in samples)
    rate = 2e-3 * case.rows * case.columns * case.depth / ours_us
    return [case.name, grid, f"{ours_us:.0f}", f"{theirs_us:.0f}", f"{ratio:.2f}", f"{rate:.0f}"]


def _ours(
    left: Tensor, right: Tensor, into: Tensor, threads: int
) -> tuple[Callable[[], None], str]:
    """A call of our program on fixed memory, and the grid of its product."""
    torch._dynamo.reset()
    options = {"threads": threads}
    compiled: Any = torch.compile(torch.mm, backend="aotc", dynamic=False, options=options)
    compiled(left, right)
    call = next(
        each
        for each in gc.get_objects()
        if type(each) is Call and tuple(each._program.outputs[0].shape) == tuple(into.shape)
    )
    program: Any = call._program
    session = program.session()
    addresses = [left.data_ptr(), right.data_ptr(), into.data_ptr()]
    run = session.run_at
    run(addresses)
    del call
    gc.collect()
    return lambda: run(addresses), str(program.plan.at().launches[-1].grid)


def _sample_us(call: Callable[[], Any], clock_s: Callable[[], float]) -> float:
    calls, began_s = 0, clock_s()
    while calls < 2 or clock_s() < began_s + SAMPLE_SECONDS:
        call()
        calls += 1
    return (clock_s() - began_s) / calls * 1e6


if __name__ == "__main__":
    main()
