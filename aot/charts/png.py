"""Our own SVG as PNG, drawn by matplotlib: rectangles, lines, circles and text."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree

from aotc.aot.charts.charts import CLASSES, INK, TEXT_PIXELS, size_of
from aotc.aot.charts.markup import Markup

PIXELS_AN_INCH = 100  # of the picture's own; the file has twice as many
POINTS = 72 / PIXELS_AN_INCH
ALIGNMENTS = {"start": "left", "middle": "center", "end": "right"}
SPACE = "{http://www.w3.org/2000/svg}"

Place = tuple[float, float]


def png(picture: Markup) -> bytes:
    """The file's bytes. Raises ImportError where matplotlib is not installed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = size_of(picture)
    inches = (width / PIXELS_AN_INCH, height / PIXELS_AN_INCH)
    figure: Any = Figure(figsize=inches, dpi=2 * PIXELS_AN_INCH)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    # `charts` wrote the text and escaped every name in it: it has no document type, no entities.
    _draw(ElementTree.fromstring(picture), axes, (0.0, 0.0))
    file = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(file, metadata={"Software": None})
    return file.getvalue()


def _draw(element: ElementTree.Element, axes: Any, origin: Place) -> None:
    """The element and all in it; a picture inside of another begins at its own place."""
    name = element.tag.removeprefix(SPACE)
    if name == "svg":
        origin = origin[0] + _number(element, "x"), origin[1] + _number(element, "y")
    elif name in SHAPES:
        SHAPES[name](element, axes, origin)
    for child in element:
        _draw(child, axes, origin)


def _style(element: ElementTree.Element) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name in element.get("class", "").split():
        found |= CLASSES.get(name, {})
    return found


def _line_style(element: ElementTree.Element) -> dict[str, Any]:
    style = _style(element)
    width = float(style.get("stroke-width", 1))
    return {"color": style.get("stroke", INK), "linewidth": width * POINTS, "zorder": 1}


def _fill_style(element: ElementTree.Element) -> dict[str, Any]:
    alpha = float(element.get("fill-opacity", 1))
    return {"facecolor": _style(element).get("fill", INK), "alpha": alpha, "linewidth": 0}


def _number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, 0))


def _rectangle(element: ElementTree.Element, axes: Any, origin: Place) -> None:
    from matplotlib.patches import Rectangle

    corner = origin[0] + _number(element, "x"), origin[1] + _number(element, "y")
    sides = _number(element, "width"), _number(element, "height")
    axes.add_patch(Rectangle(corner, *sides, **_fill_style(element)))


def _circle(element: ElementTree.Element, axes: Any, origin: Place) -> None:
    from matplotlib.patches import Circle

    middle = origin[0] + _number(element, "cx"), origin[1] + _number(element, "cy")
    axes.add_patch(Circle(middle, _number(element, "r"), **_fill_style(element)))


def _line(element: ElementTree.Element, axes: Any, origin: Place) -> None:
    across = [origin[0] + _number(element, name) for name in ("x1", "x2")]
    down = [origin[1] + _number(element, name) for name in ("y1", "y2")]
    axes.plot(across, down, **_line_style(element))


def _polyline(element: ElementTree.Element, axes: Any, origin: Place) -> None:
    corners = [pair.split(",") for pair in element.get("points", "").split()]
    across = [origin[0] + float(x) for x, _ in corners]
    down = [origin[1] + float(y) for _, y in corners]
    axes.plot(across, down, **_line_style(element))


def _text(element: ElementTree.Element, axes: Any, origin: Place) -> None:
    style = _style(element)
    axes.text(
        origin[0] + _number(element, "x"),
        origin[1] + _number(element, "y"),
        element.text or "",
        color=style.get("fill", INK),
        fontsize=TEXT_PIXELS * POINTS,
        fontweight=style.get("font-weight", "normal"),
        horizontalalignment=ALIGNMENTS[element.get("text-anchor", "start")],
        verticalalignment="baseline",
        parse_math=False,
    )


SHAPES: Mapping[str, Callable[[ElementTree.Element, Any, Place], None]] = {
    "rect": _rectangle,
    "circle": _circle,
    "line": _line,
    "polyline": _polyline,
    "text": _text,
}
