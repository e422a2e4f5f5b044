"""A roofline: what kernels reach, by how many operations they have for each byte that they move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.aot.charts.charts import Point, scatter
from aotc.aot.charts.markup import Markup
from aotc.aot.charts.units import count_text, time_text


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel: bytes moved and operations of one launch, its time in microseconds, the series of
    its colour, and where it leads to."""

    name: str
    nbytes: int
    operations: int
    time_us: float
    series: int = 0
    href: str | None = None


def roofline(works: Sequence[Work], rates: tuple[float, float] | None) -> Markup | None:
    """Each kernel as a point, as large as its time. rates: bytes and operations a second that the
    device reaches. None where no kernel has bytes, operations and a time."""
    drawn = [work for work in works if work.nbytes and work.operations and work.time_us]
    if not drawn:
        return None
    longest = max(work.time_us for work in drawn)
    points = []
    for work in drawn:
        x, y = work.operations / work.nbytes, work.operations / work.time_us * 1e6
        title = (
            f"{work.name}: {count_text(x)} operations a byte, {count_text(y)} operations a second, "
            f"{time_text(work.time_us)}"
        )
        weight = work.time_us / longest
        points.append(Point(x, y, title, weight, work.series, work.href, work.name))
    roofs = []
    if rates is not None:
        text = f"{count_text(rates[0])}B/s and {count_text(rates[1])} operations/s"
        roofs.append((*rates, text))
    names = ("operations for each byte moved", "operations a second")
    return scatter(points, "roofline", names, (count_text, count_text), roofs)
