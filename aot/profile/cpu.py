"""Times of launches on the CPU: each launch of the plan is run as a plan of its own,
alternating."""

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
from aotc.runtime.bundle.control_steps import ControlStep
from aotc.runtime.bundle.torch_calls import TorchCall
from aotc.runtime.errors import AssertionFailed, DivisionByZero, IndexOutOfRange

CALLS = 5  # of a launch for one sample; they are short


def measure(
    subject: Subject, inputs: Mapping[str, bytes | memoryview], repetitions: int
) -> tuple[list[float], float, None]:
    """Medians over `repetitions`, in microseconds: of each step of the plan, and of a call. There
    is no third number, since the caller's thread itself runs a call.

    A step finds its operands in the caches as its own last run left them, so it is faster than in a
    served call. Operands have a call's values, since all steps use the arena of one. Ops that torch
    runs are timed inside whole calls, since they may raise errors for other values: the sum over
    all iterations of a loop. A kernel inside a loop or branch is timed for one launch; control
    steps count as 0.
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
            if isinstance(step, TorchCall | ControlStep):
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
    """Runs a step and ignores data errors, because its operands may not be those of a call where
    torch computes some of them."""

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
