"""A profile as pictures: the time of a call by kernel, and the roofline of the kernels."""

from __future__ import annotations

from aotc.aot.charts.charts import Bar, bars
from aotc.aot.charts.markup import Markup
from aotc.aot.charts.roofline import Work, roofline
from aotc.aot.charts.units import time_text
from aotc.aot.profile.report import Profile

BARS = 24


def profile_pictures(
    profile: Profile, figures: tuple[float, float] | None = None
) -> list[tuple[str, Markup]]:
    """Titled pictures. figures: bytes and operations a second by the cost model, for the line of
    the roofline where the device's limits were not measured; None for no line."""
    groups = list(profile.by_kernel().values())
    drawn, works = [], []
    for rows in groups:
        time_us, first = sum(row.time_us for row in rows), rows[0]
        share = time_us / max(profile.launches_us, 1e-9)
        text = f"{time_text(time_us)}, {share:.0%}, {len(rows)}×"
        drawn.append(Bar(first.name, time_us, text))
        slowest = max(rows, key=lambda row: row.time_us)
        moved, operations = slowest.nbytes or 0, slowest.operations or 0
        works.append(Work(slowest.name, moved, operations, slowest.time_us))
    title = "time of a call by kernel, share of all launches, launches of a call"
    if len(groups) > BARS:
        title += f"; the {BARS} longest of {len(groups)}"
    pictures = [(title, bars(drawn[:BARS], "time by kernel"))]
    limits, rates, line = profile.limits, figures, "the cost model's figures of one core"
    if limits is not None:
        rates = limits.bytes_per_s, limits.operations_per_s
        line = "what this device reaches, measured"
    picture = roofline(works, rates)
    if picture is not None:
        text = f"; the line: {line}" if rates is not None else ""
        pictures.append((f"kernels, each as large as its time{text}", picture))
    return pictures
