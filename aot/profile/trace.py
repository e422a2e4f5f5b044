"""A profile as a trace in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing
show: processes for host and device, a slice a launch, arrows from the host to the device.

Times are medians: one call as it goes on average, no record of a single one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aotc.aot.profile.report import LaunchRow, Profile

HOST, DEVICE = 1, 2  # processes; 0 means the idle task to some readers
CALLER, LAUNCHES = 1, 2  # threads
LEAST_US = 0.001  # of a slice: an arrow to one without length would find its neighbour

Event = dict[str, Any]


def trace(profile: Profile, bundle: str = "a bundle") -> dict[str, Any]:
    """One call and its launches, one after the other; times in microseconds.

    On the processor the launches have a track of their own below that of the call, since each was
    measured by itself. On a device they begin when the host has launched their graph.
    """
    is_device = profile.host_us is not None
    process = DEVICE if is_device else HOST
    thread = CALLER if is_device else LAUNCHES
    host_us = profile.call_us if profile.host_us is None else profile.host_us
    events = list(_names(profile, bundle, is_device))
    host_us = max(host_us, LEAST_US)
    name = "launch of the graph" if is_device else "call"
    facts = {"target": profile.target, "call_us": round(profile.call_us, 3)}
    events.append(_slice(HOST, CALLER, name, "host", 0.0, host_us, facts))
    start_us = host_us if is_device else 0.0
    for row in profile.launches:
        events += _launch(profile, row, (process, thread), start_us)
        if is_device:
            events += _arrow(row, (process, thread), host_us / 2, start_us)
        start_us += max(row.time_us, LEAST_US)
    events.append(_rate(process, start_us, 0.0))
    return {
        "displayTimeUnit": "ns",
        "otherData": {"bundle": bundle, "target": profile.target, "device": profile.device},
        "traceEvents": events,
    }


def _names(profile: Profile, bundle: str, is_device: bool) -> Iterator[Event]:
    yield from _named(HOST, f"{bundle} on the host", {CALLER: "caller"})
    if is_device:
        yield from _named(DEVICE, f"{profile.target} on {profile.device}", {CALLER: "stream"})
    else:
        yield _metadata(HOST, LAUNCHES, "thread_name", {"name": "launches, each by itself"})
        yield _metadata(HOST, LAUNCHES, "thread_sort_index", {"sort_index": LAUNCHES})


def _named(process: int, name: str, threads: dict[int, str]) -> Iterator[Event]:
    yield _metadata(process, 0, "process_name", {"name": name})
    yield _metadata(process, 0, "process_sort_index", {"sort_index": process})
    for thread, text in threads.items():
        yield _metadata(process, thread, "thread_name", {"name": text})
        yield _metadata(process, thread, "thread_sort_index", {"sort_index": thread})


def _metadata(process: int, thread: int, name: str, args: dict[str, Any]) -> Event:
    return {"ph": "M", "pid": process, "tid": thread, "name": name, "args": args}


def _slice(
    process: int,
    thread: int,
    name: str,
    category: str,
    start_us: float,
    time_us: float,
    facts: dict[str, Any],
) -> Event:
    begin, end = round(start_us, 3), round(start_us + time_us, 3)
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": name,
        "cat": category,
        "ts": begin,
        "dur": round(end - begin, 3),
        "args": {key: value for key, value in facts.items() if value is not None},
    }


def _launch(
    profile: Profile, row: LaunchRow, track: tuple[int, int], start_us: float
) -> Iterator[Event]:
    share = profile.share_of_limit([row])
    facts = {
        "launch": row.index,
        "symbol": row.symbol,
        "grid": "×".join(map(str, row.grid)),
        "bytes": row.nbytes,
        "operations": row.operations,
        "threads": row.threads,
        "registers": row.registers,
        "shared_bytes": row.shared_bytes,
        "spill_bytes": row.spill_bytes,
        "percent_of_limit": None if share is None else round(100 * share, 1),
    }
    category = "torch" if row.name.startswith("torch ") else "kernel"
    yield _slice(*track, row.name, category, start_us, max(row.time_us, LEAST_US), facts)
    rate = (row.nbytes or 0) / max(row.time_us, LEAST_US) / 1e3
    yield _rate(track[0], start_us, rate)


def _rate(process: int, at_us: float, rate: float) -> Event:
    """A point of the counter of bytes moved."""
    return {
        "ph": "C",
        "pid": process,
        "tid": 0,
        "name": "GB/s",
        "ts": round(at_us, 3),
        "args": {"GB/s": round(rate, 3)},
    }


def _arrow(row: LaunchRow, track: tuple[int, int], from_us: float, to_us: float) -> Iterator[Event]:
    """From the host's slice to the launch's."""
    both = {"cat": "launch", "name": "launch", "id": row.index + 1}
    yield {"ph": "s", "pid": HOST, "tid": CALLER, "ts": round(from_us, 3), **both}
    process, thread = track
    to = round(to_us, 3)
    yield {"ph": "f", "bp": "e", "pid": process, "tid": thread, "ts": to, **both}
