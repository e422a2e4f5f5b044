"""Times of launches on the processor: each launch of the plan as a plan of its own, in turns."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from itertools import repeat
from typing import Any

from aotc.aot.profile.subject import Subject
from aotc.runtime.arrays.buffers import buffer_address
from aotc.runtime.bundle.marks import Mark
from aotc.runtime.bundle.torch_calls import TorchCall
from aotc.runtime.errors import AssertionFailed, DivisionByZero, IndexOutOfRange

CALLS = 5  # of a launch for one sample; they are short


def measure(
    subject: Subject, inputs: Mapping[str, bytes | memoryview], repetitions: int
) -> tuple[list[float], float, None]:
    """Microseconds of each step of the plan and of a call, medians of so many repetitions; the
    caller runs them, so that there is no third time.

    A step finds its operands as its own last call left the caches, warmer than in a served call;
    they are those of a call, since all steps have the arena of one. What torch runs is timed inside
    of whole calls, since it may refuse numbers that are not the model's: all of its runs, where a
    block repeats it. Marks of blocks take no time of their own, and of a kernel in a block one
    launch is timed.
    """
    executable, plan = subject.executable, subject.plan
    outputs = [bytearray(max(spec.nbytes, 1)) for spec in subject.outputs]
    arrays = [inputs[spec.name] for spec in subject.inputs]
    addresses = [buffer_address(array) for array in (*arrays, *outputs)]
    with ExitStack() as stack:
        shared = stack.enter_context(closing(executable.shared()))
        shared.grow(executable)
        whole = stack.enter_context(closing(executable.session(shared)))
        parts = []
        for step in plan.steps:
            if isinstance(step, TorchCall | Mark):
                continue
            part = copy.copy(executable)  # the same loaded code
            part.plan = plan.replace(steps=(step,))
            parts.append(stack.enter_context(closing(part.session(shared))))
        for session in (whole, *parts):
            session.addresses[:] = addresses
        calls = [_sample_us(whole.run) for _ in range(repetitions)]
        rounds = [[_sample_us(_unchecked(part)) for part in parts] for _ in range(repetitions)]
        timed = [whole.run_timed(_clock_us) for _ in range(repetitions)] if plan.calls else []
    launches = iter([statistics.median(column) for column in zip(*rounds, strict=True)])
    of_torch = iter([statistics.median(column) for column in zip(*timed, strict=True)])
    none = repeat(0.0)
    times = {"torch": of_torch, "control": none}
    steps = [next(times.get(each.kind, launches)) for each in plan.steps]
    return steps, statistics.median(calls), None


def _clock_us() -> float:
    return time.perf_counter() * 1e6


def _unchecked(part: Any) -> Callable[[], None]:
    """A run of a step whose operands may be none of a call's, where torch runs one before it."""

    def run() -> None:
        try:  # noqa: SIM105  # `suppress` takes as long as a small kernel
            part.run()
        except (AssertionFailed, DivisionByZero, IndexOutOfRange):
            pass

    return run


def _sample_us(run: Callable[[], None]) -> float:
    run()
    began_s = time.perf_counter()
    for _ in range(CALLS):
        run()
    return (time.perf_counter() - began_s) / CALLS * 1e6
