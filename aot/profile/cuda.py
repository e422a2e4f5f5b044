"""Times of launches on a CUDA device, by events between the launches of a CUDA graph.

The launches then run one after the other as in a served call, each with the cache as the one before
left it.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any

from aotc.aot.profile.subject import Subject
from aotc.runtime.arrays.buffers import buffer_address
from aotc.runtime.bundle.control_steps import ControlStep

WARM_CALLS = 3


def measure(
    subject: Subject, inputs: Mapping[str, bytes | memoryview], repetitions: int
) -> tuple[list[float], float, float]:
    """Medians over `repetitions`, in microseconds: of each step, of a call, and of the host's part
    of a call. A kernel inside a loop or branch is timed for one launch; control steps count as 0.
    """
    executable = subject.executable
    device = executable.gpu
    with ExitStack() as stack:
        session = stack.enter_context(closing(executable.session()))
        for index, spec in enumerate(subject.inputs):
            session.copy_in(index, buffer_address(inputs[spec.name]))
        for index in range(len(subject.inputs), len(executable.sizes)):
            session.stage(index)
        stream = session.stream
        for _ in range(WARM_CALLS):
            session.run(stream)
        session.synchronize()
        graph, events = session.timeline()
        stack.enter_context(closing(graph))
        for event in events:
            stack.enter_context(closing(event))
        begin, end = (stack.enter_context(closing(device.event())) for _ in range(2))
        launches: list[list[float]] = []
        calls, hosts = [], []
        for _ in range(repetitions):
            graph.launch(stream)
            device.synchronize()  # an event of a graph is waited for only once it was recorded
            launches.append(_between_us(device, events))
            calls.append(_call_us(device, session, stream, begin, end))
            hosts.append(_host_us(session, stream))
    medians = [statistics.median(column) for column in zip(*launches, strict=True)]
    *times_us, event_us = medians
    times = iter([max(time_us - event_us, 0.0) for time_us in times_us])
    launches_us = [0.0 if isinstance(s, ControlStep) else next(times) for s in subject.plan.steps]
    return launches_us, statistics.median(calls), statistics.median(hosts)


def _between_us(device: Any, events: list[Any]) -> list[float]:
    pairs = itertools.pairwise(events)
    return [device.elapsed_ms(before, after) * 1e3 for before, after in pairs]


def _call_us(device: Any, session: Any, stream: int, begin: Any, end: Any) -> float:
    """Microseconds of one of several calls in a row."""
    begin.record(stream)
    for _ in range(WARM_CALLS):
        session.run(stream)
    end.record(stream)
    elapsed_ms: float = device.elapsed_ms(begin, end)
    return elapsed_ms * 1e3 / WARM_CALLS


def _host_us(session: Any, stream: int) -> float:
    """Microseconds until a call returns while the device has nothing else to do."""
    session.synchronize()
    began_s = time.perf_counter()
    session.run(stream)
    host_us = (time.perf_counter() - began_s) * 1e6
    session.synchronize()
    return host_us
