"""Measures candidates of one kernel on the processor, through the runtime's own driver and pool."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from aotc.aot.extensions import bound_natives, extension
from aotc.aot.ir.native import CALL, NativeCall
from aotc.aot.ir.size import typical
from aotc.aot.measure.processor import device_name
from aotc.aot.measure.program import Measurement, Program, Rows
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.target import EXECUTOR
from aotc.aot.tasks.errors import DeviceDiffers
from aotc.runtime.arrays.dlpack import HOST
from aotc.runtime.bundle.native_plan import NativeLaunch
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


def measure(data: bytes) -> Rows:
    """Median microseconds of each program of a Measurement: rounds over all programs in turn.

    The parameters' contents are zeros, which are valid indices and ordinary numbers. Raises
    DeviceDiffers, and DriverFault where the code cannot be loaded.
    """
    task = Measurement.from_bytes(data)
    if task.device not in ("", own := device_name()):
        raise DeviceDiffers(found=own, expected=task.device)
    objects = {each.symbol: each.code for each in task.programs if not each.native}
    library = toolchain.link({"executor": task.files[EXECUTOR], **objects})
    sizes_bytes = [buffer.nbytes for buffer in task.buffers]
    with ExitStack() as stack:
        runs = []
        for program in task.programs:
            plan = _plan(program, sizes_bytes)
            if program.native:
                natives = extension("native libraries")
                natives.tie_bytes(NativeCall.parse(program.native).backend, program.code)
            natives = bound_natives(plan.natives, HOST)
            executable = Executable(library, plan, {}, (), (), natives=natives)
            stack.enter_context(closing(executable))
            session = executable.session()
            stack.enter_context(closing(session))
            runs.append(session.run)
        return [(seconds * 1e6, "") for seconds in interleaved(runs)]


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


def _plan(program: Program, sizes_bytes: Sequence[int]) -> LaunchPlan:
    """One launch at typical sizes whose parameters lie side by side in the arena."""
    buffers = []
    end = 0
    for index, nbytes in enumerate(sizes_bytes):
        buffers.append(Buffer(f"parameter_{index}", end, nbytes))
        end += -(-max(nbytes, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    pointers = tuple(("arena", buffer.offset) for buffer in buffers)
    sizes = tuple(("int", size) for size in program.sizes)
    step: Launch | NativeLaunch = Launch(0, program.grid, (*pointers, *sizes))
    kernels: tuple[Kernel, ...] = (Kernel(program.symbol, program.symbol),)
    if program.native:
        kernels = ()
        call = NativeCall.parse(program.native)
        step = CALL.at(call, typical).step(pointers, program.grid[0], None)
    return LaunchPlan(end, program.scratch_bytes, tuple(buffers), kernels, (step,))
