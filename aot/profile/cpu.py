"""Times of launches on the processor: each launch of the plan as a plan of its own, in turns."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any

from aotc.runtime import Program
from aotc.runtime.buffers import buffer_address
from aotc.runtime.plan import LaunchPlan

CALLS = 5  # of a launch for one sample; they are short


def measure(
    program: Program, inputs: Mapping[str, bytes | memoryview], repetitions: int
) -> tuple[list[float], float]:
    """(microseconds of each launch, microseconds of a call), medians of so many repetitions.

    A launch finds its operands as its own last call left the caches, warmer than in a served call.
    """
    executable: Any = program._open().executable
    plan = program.plan
    outputs = [bytearray(max(spec.nbytes, 1)) for spec in program.outputs]
    arrays = [inputs[spec.name] for spec in program.inputs]
    addresses = [buffer_address(array) for array in (*arrays, *outputs)]
    with ExitStack() as stack:
        whole = stack.enter_context(closing(executable.session()))
        parts = []
        for launch in plan.launches:
            part = copy.copy(executable)  # the same loaded code
            part.plan = _alone(plan, launch)
            parts.append(stack.enter_context(closing(part.session())))
        for session in (whole, *parts):
            session.addresses[:] = addresses
        rounds = [[_sample_us(part) for part in parts] for _ in range(repetitions)]
        calls = [_sample_us(whole) for _ in range(repetitions)]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    return medians, statistics.median(calls)


def _alone(plan: LaunchPlan, launch: Any) -> LaunchPlan:
    return LaunchPlan(
        plan.abi,
        plan.arena_bytes,
        plan.scratch_bytes,
        plan.buffers,
        plan.kernels,
        (launch,),
        plan.zeroed_bytes,
    )


def _sample_us(session: Any) -> float:
    session.run()
    began_s = time.perf_counter()
    for _ in range(CALLS):
        session.run()
    return (time.perf_counter() - began_s) / CALLS * 1e6
