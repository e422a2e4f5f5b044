"""Measures candidates of one kernel on the processor, through the runtime's own driver and pool."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing

from aotc.aot.extensions import bound_natives
from aotc.aot.ir.native import CALL, NativeCall
from aotc.aot.ir.size import typical
from aotc.aot.lower.spec import KernelSpec
from aotc.aot.targets import toolchain
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.cpu.library import EXECUTOR
from aotc.aot.tune.job import Job, Option, Report
from aotc.runtime.arrays.dlpack import HOST
from aotc.runtime.bundle.native_plan import SYMBOL, NativeLaunch
from aotc.runtime.bundle.plan import (
    ALIGNMENT_BYTES,
    Buffer,
    Kernel,
    Launch,
    LaunchPlan,
)
from aotc.runtime.drivers.cpu.driver import Executable

ROUNDS = 9
SAMPLE_S = 0.0005  # one sample is long enough for the clock
BUDGET_S = 2.0  # for one kernel; rounds end early when it is used up


class CpuMeasurer:
    """This machine's processor, as the runtime uses it."""

    is_apart = False

    def __init__(self, support_code: Mapping[str, bytes]) -> None:
        self._executor = support_code[EXECUTOR]

    def measure(self, job: Job, options: Sequence[Option], report: Report) -> list[float]:
        """Median microseconds of each option: rounds over all options in turn.

        The parameters' contents are zeros, which are valid indices and ordinary numbers. Raises
        DriverFault where the code cannot be loaded.
        """
        report(f"{len(options)} candidates in turn")
        objects = {each.binary.symbol: each.binary.code for each in options if each.binary.code}
        library = toolchain.link({"executor": self._executor, **objects})
        sizes_bytes = [operand.nbytes for operand in job.operands]
        with ExitStack() as stack:
            runs = []
            for option in options:
                plan = _plan(job.spec, option, sizes_bytes)
                natives = bound_natives(plan.natives, HOST)
                executable = Executable(library, plan, {}, (), (), natives=natives)
                stack.enter_context(closing(executable))
                session = executable.session()
                stack.enter_context(closing(session))
                runs.append(session.run)
            return [seconds * 1e6 for seconds in interleaved(runs)]

    def close(self) -> None:
        """Nothing is held between measurements."""


def interleaved(runs: Sequence[Callable[[], None]], rounds: int = ROUNDS) -> list[float]:
    """Median seconds of each function, sampled in turns so that drift strikes all alike."""
    counts = [_calls_per_sample(run) for run in runs]
    samples: list[list[float]] = [[] for _ in runs]
    started_s = time.perf_counter()
    for turn in range(rounds):
        if turn > 2 and time.perf_counter() - started_s > BUDGET_S:
            break
        for run, count, own in zip(runs, counts, samples, strict=True):
            own.append(_sample(run, count))
    return [statistics.median(own) for own in samples]


def _calls_per_sample(run: Callable[[], None]) -> int:
    run()  # the first call touches the memory
    return max(1, int(SAMPLE_S / max(_sample(run, 1), 1e-7)))


def _sample(run: Callable[[], None], count: int) -> float:
    started_s = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - started_s) / count


def _plan(spec: KernelSpec, option: Option, sizes_bytes: Sequence[int]) -> LaunchPlan:
    """One launch at typical sizes whose parameters lie side by side in the arena."""
    binary: KernelBinary = option.binary
    buffers = []
    end = 0
    for index, nbytes in enumerate(sizes_bytes):
        buffers.append(Buffer(f"parameter_{index}", end, nbytes))
        end += -(-max(nbytes, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    pointers = tuple(("arena", buffer.offset) for buffer in buffers)
    sizes = tuple(("int", dim.typical) for dim in spec.sizes)
    x, y, z = map(typical, option.candidate.grid)
    form = spec.form(option.candidate)
    step: Launch | NativeLaunch = Launch(0, (x, y, z), (*pointers, *sizes))
    kernels: tuple[Kernel, ...] = (Kernel(binary.symbol, binary.symbol),)
    if form.function == SYMBOL:
        kernels = ()
        step = CALL.at(NativeCall.parse(form.source), typical).step(pointers, x, None)
    return LaunchPlan(end, binary.scratch_bytes, tuple(buffers), kernels, (step,))
