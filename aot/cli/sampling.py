"""How long calls take: on the processor's clock, or on a device by events in its own order.

On a device a call returns before its work is done. Its device time is the distance between the
events before and after it while calls follow each other without a pause; its host time is how long
the caller waits for the call to return while the device has nothing to do.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]
SAMPLES_LIMIT = 20_000
BATCH_CALLS = 50  # device calls between two looks at the clock
HOST_CALLS = 30
SETTLE_SHARE = 0.2  # of a turn, before which clocks of a device that was idle are not up


def sample_host(call: Call, seconds: float) -> dict[str, list[float]]:
    """`times_us`: microseconds of each call made during this many seconds."""
    times_us: list[float] = []
    end_s = time.perf_counter() + seconds
    while len(times_us) < SAMPLES_LIMIT:
        began_s = time.perf_counter()
        call()
        now_s = time.perf_counter()
        times_us.append((now_s - began_s) * 1e6)
        if now_s >= end_s:
            break
    return {"times_us": times_us}


def sample_device(call: Call, seconds: float) -> dict[str, list[float]]:
    """`times_us`: device time of each call; `host_us`: host time of some calls one by one."""
    import torch

    settled_s = time.perf_counter() + SETTLE_SHARE * seconds
    while time.perf_counter() < settled_s:
        call()
        torch.cuda.synchronize()
    end_s = time.perf_counter() + (1 - SETTLE_SHARE) * seconds
    times_us: list[float] = []
    while not times_us or (time.perf_counter() < end_s and len(times_us) < SAMPLES_LIMIT):
        times_us += _batch_us(call)
    return {"times_us": times_us, "host_us": [_host_us(call) for _ in range(HOST_CALLS)]}


def _batch_us(call: Call) -> list[float]:
    """Device microseconds of calls that follow each other; the first fills the queue."""
    import torch

    events = [torch.cuda.Event(enable_timing=True) for _ in range(BATCH_CALLS + 1)]
    call()
    for event in events[:-1]:
        event.record()
        call()
    events[-1].record()
    torch.cuda.synchronize()
    pairs = itertools.pairwise(events)
    return [begin.elapsed_time(end) * 1e3 for begin, end in pairs]


def _host_us(call: Call) -> float:
    import torch

    torch.cuda.synchronize()
    began_s = time.perf_counter()
    call()
    return (time.perf_counter() - began_s) * 1e6
