"""Charts: text never becomes markup, values lie where they should, nodes below what they read."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markup_reader import read

from aotc.aot.charts.axes import Axis, round_up, span
from aotc.aot.charts.charts import (
    Bar,
    Point,
    Span,
    bars,
    curves,
    intervals,
    percentile,
    scatter,
    size_of,
    stacked,
    standalone,
    timeline,
)
from aotc.aot.charts.layered import BOX_HEIGHT, Box, _layers, draw
from aotc.aot.charts.markup import escaped, joined, tag
from aotc.aot.charts.roofline import Work, roofline


@given(st.text(), st.text())
def test_text_stays_text(text, value):
    page = read(tag("p", text, title=value))
    assert page.elements == [("p", {"title": plain(value)})]
    assert "".join(page.texts) == plain(text)


def plain(text):
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def test_markup_is_only_what_tag_made():
    inner = tag("b", "<i>")
    assert tag("p", inner, "<i>", 3) == "<p><b>&lt;i&gt;</b>&lt;i&gt;3</p>"
    assert joined(["a", inner], " & ") == "a &amp; <b>&lt;i&gt;</b>"
    assert tag("meta", name="x", hidden=True, title=None, class_="a") == (
        '<meta name="x" hidden class="a">'
    )
    assert escaped("\x1b[31m\u202eabc") == "\\x1b[31m\\u202eabc"


@given(
    st.floats(0.001, 1e6), st.floats(1.001, 1e6), st.booleans(), st.floats(0, 1), st.floats(0, 1)
)
def test_larger_values_lie_further(low, factor, is_log, one, other):
    axis = Axis(low, low * factor, 10, 110, is_log)
    one, other = (low + share * low * (factor - 1) for share in sorted((one, other)))
    assert 10 <= axis.place(one) <= axis.place(other) <= 110
    ticks = axis.ticks()
    assert ticks == sorted(ticks)
    assert len(ticks) <= 12


@given(st.floats(1e-9, 1e12))
def test_round_values_are_near(value):
    found = round_up(value)
    assert value * 0.99 <= found <= value * 10


@given(st.lists(st.floats(0, 1e12), max_size=20), st.booleans())
def test_a_span_holds_all_values(values, is_log):
    low, high = span(values, is_log)
    assert low < high
    inside = [value for value in values if value > 0 or not is_log]
    assume(all(value == 0 or value > 1e-300 for value in inside))
    assert all(low * 0.999 <= value <= high * 1.001 for value in inside)


@st.composite
def dags(draw_):
    count = draw_(st.integers(1, 25))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = draw_(st.lists(st.sampled_from(pairs), max_size=40, unique=True)) if pairs else []
    return count, edges


@given(dags())
def test_each_node_lies_below_all_that_it_reads(graph):
    count, edges = graph
    above = {at: [] for at in range(count)}
    for start, end in edges:
        above[end].append(start)
    layers = _layers(count, above)
    assert all(layers[start] < layers[end] for start, end in edges)
    assert all(layer >= 0 for layer in layers)
    boxes = [Box(f"box {at}", "<b>", "title") for at in range(count)]
    picture, _ = draw(boxes, [(start, end, "f32[2]") for start, end in edges], "a graph")
    found = [
        (float(each["x"]), float(each["y"]))
        for name, each in read(picture).elements
        if name == "rect" and each.get("class") == "box"
    ]
    assert len(set(found)) == count  # none lies on another
    assert all(found[start][1] + BOX_HEIGHT < found[end][1] for start, end in edges)


@pytest.mark.parametrize(
    "picture",
    [
        bars([Bar("<a>", 3.0, "3 µs"), Bar("b", 0.0, "0", 9)], "times"),
        bars([], "nothing"),
        scatter([Point(2.0, 5.0, "<p>", 1.0)], "points", ("x", "y"), (str, str), [(1.0, 9.0, "r")]),
        scatter([], "nothing", ("x", "y"), (str, str)),
        timeline([Span(0, 2, 0, 64, "<b>")], 3, 64, "arena", str),
        timeline([], 0, 0, "nothing", str),
        intervals([("aotc", [1.0, 2.0, 9.0]), ("<eager>", [3.0])], "calls", str),
        intervals([("fast", [1.0]), ("slow", [1e6, 2e6])], "calls", str),
        intervals([], "nothing", str),
        curves([("aotc", [1.0, 2.0, 9.0]), ("<eager>", [3.0] * 9)], "calls", str),
        curves([("none", [0.0])], "calls", str),
        curves([], "nothing", str),
        roofline([Work("<k>", 4, 8, 2.0), Work("k", 4, 8, 2.0)], (1e9, 1e10)),
        stacked("<h>", [("<t>", bars([Bar("<a>", 3.0, "3 µs")], "times")), ("u", bars([], "n"))]),
        stacked("nothing", []),
    ],
)
def test_pictures_are_well_formed_with_finite_places(picture):
    for text in (picture, standalone(picture)):
        for name, attributes in read(text).elements:
            assert name in ("svg", "title", "text", "rect", "line", "polyline", "circle", "style")
            assert "nan" not in str(attributes)
            assert "inf" not in str(attributes)
    assert "xmlns" in picture


def test_percentiles():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0


@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)), max_size=30))
def test_names_of_points_lie_on_nothing(places):
    points = [Point(x, y, "title", 0.5, name=f"kernel_{at}") for at, (x, y) in enumerate(places)]
    picture = scatter(points, "points", ("x", "y"), (str, str))
    found = read(picture)
    circles = [each for name, each in found.elements if name == "circle"]
    names = [
        each
        for (name, each), text in zip(
            [row for row in found.elements if row[0] in ("text", "title")],
            found.texts,
            strict=True,
        )
        if text.startswith("kernel_")
    ]
    assert len(circles) == len(points)
    for each in names:
        wide = -50.0 if each["text-anchor"] == "end" else 50.0
        low, high = sorted((float(each["x"]), float(each["x"]) + wide))
        assert all(
            float(circle["cx"]) <= low
            or float(circle["cx"]) >= high
            or abs(float(circle["cy"]) + 4 - float(each["y"])) > 6
            for circle in circles
        )
    heaviest = [name for name in names if name]
    assert bool(heaviest) or not points or len(points) > 1


def test_a_curve_has_the_share_of_values_below_each_place():
    picture = curves([("a", [float(at) for at in range(1, 101)])], "calls", str)
    (line,) = (each["points"] for name, each in read(picture).elements if name == "polyline")
    corners = [tuple(map(float, pair.split(","))) for pair in line.split()]
    assert corners == sorted(corners, key=lambda row: (row[0], -row[1]))
    labels = read(picture)
    middle = corners[100]  # of 201: the median
    assert middle[1] == pytest.approx((corners[0][1] + corners[-1][1]) / 2, abs=0.1)
    assert "50%" not in labels.texts or middle[0] > corners[0][0]


def test_pictures_below_each_other_do_not_overlap():
    inner = [bars([Bar("a", 3.0, "3")], "n"), scatter([Point(1.0, 2.0, "p")], "p", ("x", "y"),
                                                       (str, str))]  # fmt: skip
    whole = stacked("heading", [("one", inner[0]), ("two", inner[1])])
    (_, outer), *placed = ((name, each) for name, each in read(whole).elements if name == "svg")
    ends = [(float(each["y"]), float(each["y"]) + float(each["height"])) for _, each in placed]
    assert [size_of(each)[1] for each in inner] == [high - low for low, high in ends]
    assert ends[0][1] < ends[1][0]
    assert ends[1][1] <= float(outer["height"])


def test_a_png_has_the_picture():
    image = pytest.importorskip("matplotlib.image")
    import io

    from aotc.aot.charts.png import png

    drawn = stacked("$1 < 2$ & more", [("bars", bars([Bar("<a>", 3.0, "3 µs", 1)], "times"))])
    pixels = image.imread(io.BytesIO(png(drawn)))
    width, height = size_of(drawn)
    assert pixels.shape[:2] == (round(2 * height), round(2 * width))
    colour = [int("b4540a"[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    assert (abs(pixels[..., :3] - colour).max(axis=-1) < 0.01).mean() > 0.005  # the bar
    assert tuple(pixels[0, 0, :3]) == (1.0, 1.0, 1.0)
    for text in ("$", "\\frac{", "", "é→"):
        assert png(stacked(text, []))[:4] == b"\x89PNG"
