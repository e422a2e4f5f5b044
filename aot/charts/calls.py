"""Times of calls as pictures: percentiles side by side, and the distribution of each contender."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.charts.charts import curves, intervals
from aotc.aot.charts.markup import Markup
from aotc.aot.charts.units import time_text

Row = tuple[str, Sequence[float]]  # a contender, microseconds of its calls or quantiles of them


def call_pictures(rows: Sequence[Row]) -> list[tuple[str, Markup]]:
    """Titled pictures of the times; empty where there are none."""
    rows = [(name, times) for name, times in rows if times]
    if not rows:
        return []
    box = "1st to 99th percentile (line), quarters (box), median (mark)"
    share = "share of calls that took at most so long, up to the 99th percentile"
    pictures = [(box, intervals(rows, "times of calls", time_text))]
    pictures.append((share, curves(rows, "distribution of the times of calls", time_text)))
    return pictures
