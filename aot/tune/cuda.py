"""CudaMeasurer: candidates are measured in a process of their own, which may lose its device.

A kernel that reads foreign memory ends the process's CUDA context, and one that never ends would
hang: here either costs its candidate, and the process is started anew for the others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from aotc.aot.extensions import extension
from aotc.aot.ir.native import NativeCall
from aotc.aot.ir.size import typical
from aotc.aot.lower.spec import KernelSpec
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.workers import Request, Workers
from aotc.aot.tune.cuda_bench import Bench, Buffer, Program
from aotc.aot.tune.device_lock import device_turn
from aotc.aot.tune.halving import fastest
from aotc.aot.tune.job import Job, Option, Report
from aotc.aot.tune.record import Choice
from aotc.runtime.bundle.native_plan import SYMBOL
from aotc.runtime.bundle.plan import Map
from aotc.runtime.bundle.schema import as_schema, write

TIMEOUT_SECONDS = 60.0  # of all candidates of one kernel
SPILL_LIMIT_BYTES = 256  # of one thread, beyond which a candidate is not tried
# What a launch takes roughly, for the length of the graphs that are measured.
BYTES_PER_US = 3.5e6
OPERATIONS_PER_US = 4e8

Rows = list[tuple[float, str]]  # microseconds of a launch, and why it may not be used


class CudaMeasurer:
    """A CUDA device of this machine, through the runtime's own driver."""

    is_apart = True

    def __init__(
        self,
        support_code: Mapping[str, bytes] | None = None,
        ordinal: int = 0,
        workers: Workers | None = None,
    ) -> None:
        """`workers` run the measuring (None: one process, ended by `close`); a cubin needs no
        support code."""
        self._ordinal = ordinal
        self._workers = workers or Workers(1, timeout_seconds=TIMEOUT_SECONDS)

    def measure(self, job: Job, options: Sequence[Option], report: Report) -> list[float]:
        """Microseconds of a launch of each option, with cold weights; infinite for refused ones."""
        is_tried = [option.binary.spill_bytes <= SPILL_LIMIT_BYTES for option in options]
        tried = [index for index in range(len(options)) if is_tried[index] or not any(is_tried)]
        report(f"{len(tried)} of {len(options)} candidates")
        with device_turn(self._ordinal):
            rows = self._measure(job, [options[index] for index in tried])
        times_us = [math.inf] * len(options)
        for index, (time_us, _) in zip(tried, rows, strict=True):
            times_us[index] = time_us
        best = fastest(times_us)[0]
        choice = Choice.of(options[best].candidate)
        report(
            f"best {times_us[best]:.2f} µs, the cost model's choice {times_us[0]:.2f} µs: {choice}"
        )
        return times_us

    def close(self) -> None:
        """End the measuring process."""
        self._workers.close()

    def _measure(self, job: Job, options: Sequence[Option]) -> Rows:
        rows = self._ask(job, options)
        if isinstance(rows, list):
            return rows
        if len(options) == 1:
            return [(math.inf, rows)]
        alone = [self._measure(job, [option]) for option in options]
        sound = [index for index, ((time_us, _),) in enumerate(alone) if time_us < math.inf]
        again = self._ask(job, [options[index] for index in sound]) if sound else []
        found = [row[0] for row in alone]
        if isinstance(again, list):  # else the times of each alone must do
            for index, row in zip(sound, again, strict=True):
                found[index] = row
        return found

    def _ask(self, job: Job, options: Sequence[Option]) -> Rows | str:
        """The process's answer, or why there is none; then it is ended."""
        spec = job.spec
        expected_us = max(spec.bytes / BYTES_PER_US, spec.operations / OPERATIONS_PER_US)
        buffers = [
            (param.type.removeprefix("*"), operand.nbytes, operand.role)
            for param, operand in zip(spec.params, job.operands, strict=True)
        ]
        sizes = tuple(dim.typical for dim in spec.sizes)
        programs = [_plain(spec, option, sizes) for option in options]
        arguments = (self._ordinal, buffers, programs, expected_us)
        request = Request(spec.name, f"{__name__}:measure_here", arguments)
        (outcome,) = self._workers.map([request])
        if outcome.error is not None:
            self._workers.close()
            return str(outcome.error).partition("\n")[0]
        return [tuple(row) for row in outcome.value]


def _plain(spec: KernelSpec, option: Option, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """What a program is made of at typical sizes, in types that go from process to process."""
    binary: KernelBinary = option.binary
    candidate = option.candidate
    scratch = tuple((typical(row.nbytes), row.is_zeroed) for row in candidate.scratch)
    form = spec.form(candidate)
    if form.function == SYMBOL:
        tied = extension("native libraries").tied(NativeCall.parse(form.source).backend)
        return SYMBOL, form.source, tied.data, scratch
    maps = tuple(write(Map, row.placed(typical)) for row in candidate.maps)
    grid = tuple(map(typical, candidate.grid))
    launch = (grid, binary.threads, binary.shared_bytes, binary.scratch_bytes)
    return (binary.symbol, binary.code, *launch, scratch, sizes, maps)


def measure_here(
    ordinal: int,
    buffers: Sequence[tuple[str, int, str]],
    programs: Sequence[tuple[Any, ...]],
    expected_us: float,
) -> Rows:
    """In the measuring process: times of all programs of one kernel."""
    rows = [Buffer(*row) for row in buffers]
    with Bench(_device(ordinal), rows, expected_us) as bench:
        found = bench.measure([_program(row) for row in programs])
    return [(outcome.time_us, outcome.refused) for outcome in found]


def _program(row: Sequence[Any]) -> Any:
    if row[0] == SYMBOL:
        return extension("measuring native functions").NativeProgram(*row[1:])
    values = [*row[:-1], tuple(as_schema(Map).read(each) for each in row[-1])]
    return Program(*values)


@functools.cache
def _device(ordinal: int) -> Any:
    from aotc.runtime.drivers.cuda.device import Device

    return Device(ordinal)
