"""A layered picture of a graph without circles: each node below all that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotc.aot.charts.charts import SERIES, short, svg
from aotc.aot.charts.markup import Markup, joined, tag

BOX_WIDTH, BOX_HEIGHT = 236.0, 42.0
GAP_X, GAP_Y = 26.0, 34.0
SWEEPS = 4
ACROSS = 6  # boxes side by side; a layer of more takes several rows


@dataclass(frozen=True, slots=True)
class Box:
    """A node: two lines of text, series, its title and where it leads."""

    name: str
    detail: str
    title: str
    series: int = 0
    href: str | None = None
    is_round: bool = False  # what the caller gives or gets, no work


def draw(
    boxes: Sequence[Box], edges: Sequence[tuple[int, int, str]], label: str
) -> tuple[Markup, float]:
    """The picture and its width. edges: (from, to, title), by the places of the boxes; each leads
    to a later box or the end."""
    above: dict[int, list[int]] = {at: [] for at in range(len(boxes))}
    for start, end, _ in edges:
        above[end].append(start)
    layers = _layers(len(boxes), above)
    rows = [row[at : at + ACROSS] for row in _ordered(layers, above)
            for at in range(0, len(row), ACROSS)]  # fmt: skip
    widest = max((len(row) for row in rows), default=1)
    width = widest * (BOX_WIDTH + GAP_X) + GAP_X
    places: dict[int, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        begin = (width - len(row) * (BOX_WIDTH + GAP_X) + GAP_X) / 2
        for place, node in enumerate(row):
            places[node] = (begin + place * (BOX_WIDTH + GAP_X), number * (BOX_HEIGHT + GAP_Y) + 8)
    height = len(rows) * (BOX_HEIGHT + GAP_Y) + 8
    marks = [_edge(places[start], places[end], title) for start, end, title in edges]
    marks += [_box(box, *places[at]) for at, box in enumerate(boxes)]
    picture = svg(width, height, label, *marks, is_natural=True)
    return picture, width


def _layers(count: int, above: Mapping[int, Sequence[int]]) -> list[int]:
    """The layer of each node: below all that it reads, right above the first that reads it."""
    layers = [0] * count
    for node in range(count):
        layers[node] = max((layers[each] + 1 for each in above[node] if each < node), default=0)
    below: dict[int, int] = {}  # node → the highest layer that reads it
    for node in reversed(range(count)):
        layers[node] = max(layers[node], below.get(node, layers[node] + 1) - 1)
        for each in above[node]:
            below[each] = min(below.get(each, layers[node]), layers[node])
    return layers


def _ordered(layers: Sequence[int], above: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The nodes of each layer, near to those that they read and that read them."""
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for node, layer in enumerate(layers):
        rows[layer].append(node)
    below: dict[int, list[int]] = {node: [] for node in range(len(layers))}
    for node, starts in above.items():
        for start in starts:
            below[start].append(node)
    at: dict[int, float] = {}
    for row in rows:
        at |= {node: place - len(row) / 2 for place, node in enumerate(row)}
    for sweep in range(SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            row.sort(key=lambda node: (_middle(node, near[node], at), node))
            at |= {node: place - len(row) / 2 for place, node in enumerate(row)}
    return rows


def _middle(node: int, near: Sequence[int], at: Mapping[int, float]) -> float:
    return sum(at[each] for each in near) / len(near) if near else at[node]


def _edge(start: tuple[float, float], end: tuple[float, float], title: str) -> Markup:
    x, y = start[0] + BOX_WIDTH / 2, start[1] + BOX_HEIGHT
    to_x, to_y = end[0] + BOX_WIDTH / 2, end[1]
    bend = min(max((to_y - y) / 2, 14.0), 60.0)
    corners = ((x, y + bend), (to_x, to_y - bend), (to_x, to_y))
    curve = " ".join(f"{across:.1f},{down:.1f}" for across, down in corners)
    return tag("path", tag("title", title), d=f"M{x:.1f},{y:.1f} C{curve}", class_="edge")


def _box(box: Box, x: float, y: float) -> Markup:
    parts = joined(
        (
            tag("title", box.title),
            tag("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT,
                rx=BOX_HEIGHT / 2 if box.is_round else 5.0,
                class_="box end" if box.is_round else "box"),
            tag("rect", x=x, y=y + 6, width=4.0, height=BOX_HEIGHT - 12,
                class_=f"s{box.series % SERIES}") if not box.is_round else "",
            tag("text", short(box.name, 28), x=x + 12, y=y + 17, class_="name"),
            tag("text", short(box.detail, 36), x=x + 12, y=y + 32, class_="muted small"),
        )
    )  # fmt: skip
    return parts if box.href is None else tag("a", parts, href=box.href)
