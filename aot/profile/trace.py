"""A profile as a Chrome trace: JSON that chrome://tracing and ui.perfetto.dev show."""

from __future__ import annotations

from typing import Any

from aotc.aot.profile.report import Profile


def trace(profile: Profile) -> dict[str, Any]:
    """One call, its launches one after the other; times in microseconds, medians."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": profile.target}},
        {"ph": "M", "pid": 0, "tid": 0, "name": "thread_name", "args": {"name": profile.device}},
    ]
    start_us = 0.0
    for row in profile.launches:
        share = profile.share_of_limit([row])
        facts = {
            "launch": row.index,
            "symbol": row.symbol,
            "grid": "×".join(map(str, row.grid)),
            "bytes": row.nbytes,
            "operations": row.operations,
            "registers": row.registers,
            "shared_bytes": row.shared_bytes,
            "percent_of_limit": None if share is None else round(100 * share, 1),
        }
        events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "name": row.name,
                "cat": "kernel",
                "ts": round(start_us, 3),
                "dur": round(row.time_us, 3),
                "args": {name: value for name, value in facts.items() if value is not None},
            }
        )
        start_us += row.time_us
    return {"displayTimeUnit": "ns", "traceEvents": events}
