"""Charts as SVG: bars, points on logarithmic axes, rectangles over steps, times of calls.

Colours are classes, which the page's style or `CLASSES` names: series `s0` … `s5`, lines `l0` …
`l5`, `axis`, `grid`, `roof`. Each mark has a `title`, which browsers show and read aloud.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from aotc.aot.charts.axes import Axis, span
from aotc.aot.charts.markup import Markup, joined, tag, trusted

SERIES = 6
LABEL_LETTERS = 30
LETTER_PIXELS = 6.8  # of a wide letter of a text
MARGIN = 16.0
TEXT_PIXELS = 12
COLOURS = ("#2563a8", "#b4540a", "#2b7a3d", "#8b3fa0", "#a8233c", "#5f6b1f")
# Class → properties, of pictures that stand by themselves.
CLASSES: Mapping[str, Mapping[str, str]] = {
    "axis": {"stroke": "#6b7280"},
    "grid": {"stroke": "#e2e5e9"},
    "muted": {"fill": "#5b6470"},
    "roof": {"stroke": "#5b6470", "fill": "none", "stroke-width": "1.5"},
    "paper": {"fill": "#ffffff"},
    "title": {"font-weight": "bold"},
    **{f"s{at}": {"fill": colour} for at, colour in enumerate(COLOURS)},
    **{
        f"l{at}": {"stroke": colour, "fill": "none", "stroke-width": "2"}
        for at, colour in enumerate(COLOURS)
    },
}
INK = "#1c2024"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, length, what is written at its end, series, and where it leads to."""

    label: str
    value: float
    text: str
    series: int = 0
    href: str | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One point: its place, area by `weight` from 0 to 1, its title and where it leads; `name` is
    written beside it where there is room, the heaviest points first."""

    x: float
    y: float
    title: str
    weight: float = 0.0
    series: int = 0
    href: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A rectangle over steps `first` … `last`, both included, and bytes `low` … `high`."""

    first: int
    last: int
    low: int
    high: int
    title: str
    series: int = 0


def svg(
    width: float, height: float, label: str, *children: Markup, is_natural: bool = False
) -> Markup:
    """A picture with a name that is read aloud; as wide as its place, or as drawn where it
    `is_natural`."""
    return tag(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=width if is_natural else None,
        height=height if is_natural else None,
        role="img",
        aria_label=label,
        class_="chart",
    )


def size_of(picture: Markup) -> tuple[float, float]:
    """Width and height of a picture that `svg` made."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture)
    return (float(found[1]), float(found[2])) if found else (0.0, 0.0)


def stacked(heading: str, rows: Iterable[tuple[str, Markup]]) -> Markup:
    """Pictures with a title each, one below the other, below a heading, on white."""
    made = list(rows)
    width = max((size_of(picture)[0] for _, picture in made), default=0.0) + 2 * MARGIN
    marks = [tag("text", heading, x=MARGIN, y=26.0, class_="title")]
    top = 44.0
    for title, picture in made:
        across, down = size_of(picture)
        head, _, rest = picture.partition(" ")
        placed = f'{head} x="{MARGIN:g}" y="{top + 26:g}" width="{across:g}" height="{down:g}" '
        marks.append(tag("text", title, x=MARGIN, y=top + 14, class_="muted"))
        marks.append(trusted(placed + rest))
        top += down + 44
    paper = tag("rect", width=width, height=top, class_="paper")
    return svg(width, top, heading, paper, *marks, is_natural=True)


def standalone(picture: Markup) -> str:
    """The picture as a file of its own."""
    rules = [f"text {{ font: {TEXT_PIXELS}px system-ui, sans-serif; fill: {INK}; }}"]
    for name, properties in CLASSES.items():
        inside = " ".join(f"{key}: {value};" for key, value in properties.items())
        rules.append(f".{name} {{ {inside} }}")
    head, _, rest = picture.partition(">")
    return f"{head}><style>{chr(10).join(rules)}</style>{rest}\n"


def bars(rows: Sequence[Bar], label: str, width: float = 720) -> Markup:
    """Horizontal bars, longest value at the right end."""
    left, right, height = 250.0, 130.0, 22.0
    axis = Axis(0.0, max([row.value for row in rows], default=0.0) or 1.0, left, width - right)
    marks = []
    for place, row in enumerate(rows):
        top, end = place * height + 4, axis.place(row.value)
        parts = joined(
            (
                tag("title", f"{row.label}: {row.text}"),
                tag("text", short(row.label), x=left - 8, y=top + 13, text_anchor="end"),
                tag("rect", x=left, y=top, width=max(end - left, 1.0), height=height - 6,
                    class_=f"s{row.series % SERIES}"),
                tag("text", row.text, x=max(end, left + 1) + 6, y=top + 13, class_="muted"),
            )
        )  # fmt: skip
        marks.append(_linked(parts, row.href))
    return svg(width, len(rows) * height + 8, label, *marks)


def scatter(
    points: Sequence[Point],
    label: str,
    names: tuple[str, str],
    texts: tuple[Callable[[float], str], Callable[[float], str]],
    roofs: Sequence[tuple[float, float, str]] = (),
    width: float = 720,
    height: float = 400,
) -> Markup:
    """Points on logarithmic axes. roofs: (a rate of y for each unit of x, a limit of y, its name)
    of rooflines."""
    limits = [limit for _, limit, _ in roofs]
    ridges = [limit / rate for rate, limit, _ in roofs]
    low, high = span([point.x for point in points] + ridges, is_log=True)
    bottom, top = span([point.y for point in points] + limits, is_log=True)
    across, up = Axis(low, high, 70, width - 20, True), Axis(bottom, top, height - 46, 24, True)
    marks = [*_grid(across, up, names, texts)]
    for rate, limit, name in roofs:
        ridge = min(max(limit / rate, low), high)
        start = max(low, bottom / rate)
        path = [(start, start * rate), (ridge, min(ridge * rate, limit)), (high, limit)]
        corners = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in path)
        marks.append(tag("polyline", points=corners, class_="roof"))
        marks.append(tag("text", name, x=across.end, y=up.end - 8, text_anchor="end",
                         class_="muted"))  # fmt: skip
    for point in points:
        circle = tag(
            "circle",
            tag("title", point.title),
            cx=across.place(point.x),
            cy=up.place(point.y),
            r=_radius(point),
            fill_opacity=0.7,
            class_=f"s{point.series % SERIES}",
        )
        marks.append(_linked(circle, point.href))
    marks += _point_names(points, across, up)
    return svg(width, height, label, *marks)


def _point_names(points: Sequence[Point], across: Axis, up: Axis) -> Iterator[Markup]:
    """Names beside their points, as many as lie on no other name or point."""
    taken = [_square(point, across, up) for point in points]
    for point in sorted(points, key=lambda each: -each.weight):
        text = short(point.name, 26)
        if not text:
            continue
        wide, gap = LETTER_PIXELS * len(text), 2 + _radius(point)
        x, y = across.place(point.x), up.place(point.y)
        is_left = x + gap + wide > across.end
        begin = x - gap - wide if is_left else x + gap
        box = (begin, begin + wide, y - 8, y + 6)
        if begin < across.start or any(_overlap(box, each) for each in taken):
            continue
        taken.append(box)
        side = "end" if is_left else "start"
        x += -gap if is_left else gap
        yield tag("text", text, x=x, y=y + 4, text_anchor=side, class_="muted")


def _radius(point: Point) -> float:
    return 4.0 + 8.0 * sqrt(point.weight)


def _square(point: Point, across: Axis, up: Axis) -> tuple[float, float, float, float]:
    x, y, radius = across.place(point.x), up.place(point.y), _radius(point) - 1
    return x - radius, x + radius, y - radius, y + radius


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    left, right, high, low = one
    return left < other[1] and other[0] < right and high < other[3] and other[2] < low


def timeline(
    spans: Sequence[Span],
    steps: int,
    top_bytes: int,
    label: str,
    text: Callable[[float], str],
    width: float = 720,
    height: float = 320,
) -> Markup:
    """Rectangles over steps (across) and bytes (up): which memory is in use when."""
    across = Axis(0, max(steps, 1), 80, width - 16)
    up = Axis(0, max(top_bytes, 1), height - 40, 24)
    names = ("step", "bytes")
    marks = [*_grid(across, up, names, (lambda value: f"{value:.0f}", text))]
    for each in spans:
        left, right = across.place(each.first), across.place(each.last + 1)
        high, low = up.place(each.high), up.place(each.low)
        marks.append(
            tag(
                "rect",
                tag("title", each.title),
                x=left,
                y=high,
                width=max(right - left - 0.5, 0.6),
                height=max(low - high - 0.5, 0.6),
                class_=f"s{each.series % SERIES}",
                fill_opacity=0.75,
            )
        )
    return svg(width, height, label, *marks)


def intervals(
    rows: Sequence[tuple[str, Sequence[float]]],
    label: str,
    text: Callable[[float], str],
    width: float = 720,
) -> Markup:
    """A row each: the 1st to the 99th percentile as a line, the quarters as a box, the median as a
    mark, on an axis that begins at zero unless times are far apart; behind it the median, and how
    often that of the first."""
    left, right, height = 150.0, 170.0, 44.0
    found = {name: [percentile(values, share) for share in SHARES] for name, values in rows}
    axis = _time_axis([each for row in found.values() for each in row], left, width - right)
    bottom = len(rows) * height + 10
    marks = list(_vertical(axis, 0, bottom, text))
    base = next((each[2] for each in found.values()), 0.0)
    for place, (name, (first, low, middle, upper, last)) in enumerate(found.items()):
        centre = place * height + height / 2
        colour = f"s{place % SERIES}"
        begin, start, at, end, stop = map(axis.place, (first, low, middle, upper, last))
        ratio = middle / base if place and base else 0.0
        times = f", {ratio:.3g}×" if 0 < ratio < 100 else f", {ratio:,.0f}×" if ratio else ""
        marks += [
            tag("text", short(name, 20), x=left - 8, y=centre + 4, text_anchor="end"),
            tag("line", x1=begin, x2=stop, y1=centre, y2=centre, class_="axis"),
            tag(
                "rect",
                tag("title", f"{name}: median {text(middle)}, 99th percentile {text(last)}"),
                x=start,
                y=centre - 9,
                width=max(end - start, 2),
                height=18,
                class_=colour,
            ),
            tag("rect", x=at - 1, y=centre - 12, width=2.0, height=24, class_="muted"),
            tag("text", f"median {text(middle)}{times}", x=stop + 6, y=centre + 4, class_="muted"),
        ]
    return svg(width, bottom + 22, label, *marks)


def curves(
    rows: Sequence[tuple[str, Sequence[float]]],
    label: str,
    text: Callable[[float], str],
    width: float = 720,
    height: float = 260,
) -> Markup:
    """For each row the share of values at or below a value, up to the largest 99th percentile:
    where a curve crosses 50 % is the median."""
    ends = [percentile(values, share) for _, values in rows for share in (SHARES[0], SHARES[-1])]
    across, up = _time_axis(ends, 70, width - 20), Axis(0.0, 1.0, height - 46, 24)
    marks = [*_grid(across, up, ("time of a call", "share of calls"), (text, "{:.0%}".format))]
    for place, (name, values) in enumerate(rows):
        shares = [at / CURVE_STEPS for at in range(CURVE_STEPS + 1)]
        corners = [(percentile(values, share), share) for share in shares] if values else []
        line = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in corners)
        series = place % SERIES
        marks.append(tag("polyline", tag("title", name), points=line, class_=f"l{series}"))
        y = up.start - 20.0 * (len(rows) - place) - 4  # below the curves' ends, which are high
        x = across.end - 160
        marks.append(tag("rect", x=x, y=y, width=12, height=12, class_=f"s{series}"))
        marks.append(tag("text", short(name, 22), x=x + 18, y=y + 10))
    return svg(width, height, label, *marks)


def _time_axis(times_us: Sequence[float], start: float, end: float) -> Axis:
    """From zero, or logarithmic where the longest time is many times the shortest."""
    least = min(times_us, default=0.0)
    is_log = least > 0 and max(times_us) > FAR_APART * least
    low, high = span(times_us, is_log)
    return Axis(low, high * (1.0 if is_log else 1.02), start, end, is_log)


FAR_APART = 30.0
SHARES = (0.01, 0.25, 0.5, 0.75, 0.99)
CURVE_STEPS = 200


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all lies at or below."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def short(text: str, letters: int = LABEL_LETTERS) -> str:
    """Text of so many letters at most, its end left out."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _linked(mark: Markup, href: str | None) -> Markup:
    return mark if href is None else tag("a", mark, href=href)


def _vertical(axis: Axis, top: float, bottom: float, text: Callable[[float], str]) -> list[Markup]:
    marks = []
    for value in axis.ticks():
        x = axis.place(value)
        marks.append(tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        marks.append(tag("text", text(value), x=x, y=bottom + 15, text_anchor="middle",
                         class_="muted"))  # fmt: skip
    return marks


def _grid(
    across: Axis,
    up: Axis,
    names: tuple[str, str],
    texts: tuple[Callable[[float], str], Callable[[float], str]],
) -> list[Markup]:
    """Lines at round values, these, and the axes' names."""
    marks = _vertical(across, up.end, up.start, texts[0])
    for value in up.ticks():
        y = up.place(value)
        marks.append(tag("line", x1=across.start, x2=across.end, y1=y, y2=y, class_="grid"))
        marks.append(tag("text", texts[1](value), x=across.start - 6, y=y + 4, text_anchor="end",
                         class_="muted"))  # fmt: skip
    middle = (across.start + across.end) / 2
    marks.append(tag("text", names[0], x=middle, y=up.start + 34, text_anchor="middle"))
    marks.append(tag("text", names[1], x=across.start, y=up.end - 8, text_anchor="start"))
    return marks


__all__ = [
    "Bar",
    "Point",
    "Span",
    "bars",
    "curves",
    "intervals",
    "scatter",
    "stacked",
    "standalone",
    "timeline",
]
