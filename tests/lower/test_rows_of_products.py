"""How a processor's product reads the rows of its left operand: side by side, where they stand, or
copied next to each other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Node, make
from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, operand
from schedule_runner import Job

pytestmark = pytest.mark.triton
PANEL = 64
ROUNDINGS = 16 * 2.0**-24  # of the sum of the terms' sizes: sums are made of parts


def packed(left: Node, columns: int) -> Node:
    """A product with panels, which are an input here."""
    panels = operand("w", -(-columns // PANEL), left.shape[1], PANEL)
    return make("matmul_packed", (left, panels), {"n": columns})


def columns_of(panels: numpy.ndarray, count: int) -> numpy.ndarray:
    return panels.transpose(1, 0, 2).reshape(panels.shape[1], -1)[:, :count]


def of_planes(images: int, depth: int, rows: int, columns: int) -> list[Node]:
    """A pointwise convolution of images as they are."""
    x = operand("x", images, depth, rows)
    left = b.reshape(b.permute(x, (0, 2, 1)), (images * rows, depth))
    back = b.reshape(packed(left, columns), (images, rows, columns))
    return [b.permute(back, (0, 2, 1))]


def of_windows(images: int, depth: int, rows: int, columns: int) -> list[Node]:
    """A 3 × 3 convolution of images whose channels come last; rows: of pixels, and columns."""
    x = operand("x", images, rows + 2, rows + 2, depth)
    attrs = {"axes": (1, 2), "sizes": (3, 3), "strides": (1, 1), "dilations": (1, 1)}
    ordered = b.permute(make("window", (x,), attrs), (0, 1, 2, 4, 5, 3))
    return [packed(b.reshape(ordered, (images * rows * rows, 9 * depth)), columns)]


def of_matrices(images: int, depth: int, rows: int, columns: int) -> list[Node]:
    """Two inputs, with rows that are `depth` apart."""
    return [b.matmul(operand("x", images * rows, depth), operand("w", depth, columns))]


def exact(make_of: Callable[..., list[Node]], case: tuple[int, ...], x, w) -> numpy.ndarray:
    """The result in f64, of numbers of f64, by torch's order of the dims."""
    images, depth, rows, columns = case
    if make_of is of_planes:
        return numpy.einsum("ikr,kc->icr", x, columns_of(w, columns))
    if make_of is of_matrices:
        return x @ w
    parts = columns_of(w, columns).reshape(3, 3, depth, columns)
    found = numpy.zeros((images, rows, rows, columns))
    for high in range(3):
        for across in range(3):
            part = x[:, high : high + rows, across : across + rows]
            found += part @ parts[high, across]
    return found.reshape(-1, columns)


CASES = [
    (of_planes, (1, 48, 49, 70)),
    (of_planes, (1, 96, 333, 64)),
    (of_planes, (3, 33, 150, 96)),
    (of_planes, (2, 160, 841, 130)),
    (of_planes, (5, 24, 7, 40)),
    (of_windows, (1, 64, 20, 96)),
    (of_windows, (2, 48, 17, 64)),
    (of_windows, (3, 20, 9, 33)),
    (of_windows, (1, 128, 7, 200)),
    (of_matrices, (1, 1024, 70, 300)),
    (of_matrices, (1, 2080, 33, 256)),
    (of_matrices, (2, 1030, 300, 520)),
]


@pytest.mark.slow
@pytest.mark.parametrize("candidate", [0, 1, 2])
def test_products_have_the_numbers_of_f64(candidate, tmp_path):
    generator, job, found = numpy.random.default_rng(candidate), Job(), []
    for make_of, case in CASES:
        graph = graph_of(make_of(*case))
        given = [generator.standard_normal(each.shape).astype("float32") for each in graph.inputs]
        wide = {each.attr("name"): one.astype("float64") for each, one in
                zip(graph.inputs, given, strict=True)}  # fmt: skip
        x, w = wide["x"], wide["w"]
        right, most = (exact(make_of, case, *each) for each in ((x, w), (abs(x), abs(w))))
        found.append((make_of, case, right, most, job.add(graph, given, candidate, CPU)))
    buffers = job.run(tmp_path, "native", 2)
    assert not job.errors
    for make_of, case, right, most, ((name, shape),) in found:
        error = abs(buffers[name].reshape(shape) - right.reshape(shape))
        assert (error <= ROUNDINGS * most.reshape(shape)).all(), (make_of.__name__, case)


def source(outputs: list[Node]) -> str:
    (spec,) = lower(schedule(graph_of(outputs), CPU), CPU)
    return spec.form(spec.candidates[0]).source


@pytest.mark.parametrize("case", [(1, 96, 3136, 64), (4, 128, 841, 256), (1, 64, 333, 96)])
def test_rows_side_by_side_have_neither_clamps_nor_masks(case):
    """The last tile ends with the rows: a clamped row is no neighbour of the one before it."""
    text = source(of_planes(*case))
    assert f"x = tl.minimum(tl.program_id(0) * BM, {case[0] * case[2]} - BM)" in text
    assert "xa" not in text
    assert "x_mask" not in text


def test_rows_along_the_depth_are_clamped_as_before():
    text = source(of_windows(1, 64, 19, 64))
    assert "xa = tl.minimum(x, 360)" in text


def test_tiles_are_no_taller_than_the_rows():
    graph = graph_of(of_planes(1, 64, 49, 64))
    (spec,) = lower(schedule(graph, CPU), CPU)
    assert {dict(each.config)["BM"] for each in spec.candidates} <= {1, 2, 4, 8, 16, 32}


def padded(stride: int, columns: int, depth: int = 32) -> list[Node]:
    """A 3 × 3 convolution with margins of what is computed, channels last."""
    x = operand("x", 2, 17, 17, depth)
    data = b.pad(b.unary("relu", x), (0, 1, 1, 0), (0, 1, 1, 0), 0.0)
    attrs = {"axes": (1, 2), "sizes": (3, 3), "strides": (stride,) * 2, "dilations": (1, 1)}
    windows = make("window", (data,), attrs)
    count = 2 * windows.shape[1] * windows.shape[2]
    ordered = b.permute(windows, (0, 1, 2, 4, 5, 3))
    return [packed(b.reshape(ordered, (count, 9 * depth)), columns)]


@pytest.mark.parametrize(
    ("stride", "columns", "is_copied"), [(1, 64, True), (2, 130, True), (2, 64, False)]
)
def test_margins_are_copied_once_where_elements_are_read_often(stride, columns, is_copied):
    groups = schedule(graph_of(padded(stride, columns)), CPU).groups
    assert [group.kind for group in groups] == ["pointwise"] * is_copied + ["matmul"]
    assert any(node.op == "pad" for node in groups[-1].nodes) != is_copied


@pytest.mark.slow
def test_convolutions_with_margins_have_the_numbers_of_f64(tmp_path):
    generator, job, found = numpy.random.default_rng(3), Job(), []
    for stride, columns in ((1, 64), (2, 130), (2, 64), (1, 200)):
        graph = graph_of(padded(stride, columns))
        given = [generator.standard_normal(each.shape).astype("float32") for each in graph.inputs]
        x, w = (each.astype("float64") for each in given)
        data = numpy.pad(x.clip(0), ((0, 0), (1, 1), (1, 1), (0, 0)))
        views = numpy.lib.stride_tricks.sliding_window_view(data, (3, 3), (1, 2))
        rows = views[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3).reshape(-1, 9 * 32)
        right, most = (rows @ columns_of(each, columns) for each in (w, abs(w)))
        found.append((right, most, job.add(graph, given, 0, CPU)))
    buffers = job.run(tmp_path, "native", 2)
    assert not job.errors
    for right, most, ((name, shape),) in found:
        assert (abs(buffers[name].reshape(shape) - right) <= ROUNDINGS * most).all()
