"""The order of groups, and the memory that it keeps; what nobody reads is not stored."""

from __future__ import annotations

import random

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.reference import interpret
from aotc.aot.plan.arena import assign_offsets
from aotc.aot.plan.buffer_assignment import assign_buffers
from aotc.aot.schedule import Schedule, schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

ALIGNMENT_BYTES = 256
TARGETS = {"cpu": CPU, "gpu": GPUS[90]}


def operand(name: str, *shape: int, dtype: str = "bf16") -> Node:
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def graph_of(inputs: list[Node], outputs: list[Node]) -> Graph:
    names = tuple(node.attr("name") for node in inputs)
    ends = tuple(f"r{number}" for number in range(len(outputs)))
    return Graph(tuple(inputs), tuple(outputs), names, ends, {})


def arena_bytes(found: Schedule) -> int:
    return assign_offsets(list(assign_buffers(found).buffers), ALIGNMENT_BYTES)[1]


def gradients(layers: int, rows: int, width: int) -> Graph:
    """Of the weights of layers: data that were saved, copied to other rows, by a product each."""
    slopes = operand("slopes", rows, width)
    saved = [operand(f"x{number}", rows, width) for number in range(layers)]
    left = slopes
    for x in saved:
        copy = build.stored(build.pad(x, (8, 0), (8, 0), 0))
        seen = build.transpose(build.slice_axis(copy, 0, 4, rows + 4))
        left = make("matmul", (left, make("matmul", (seen, slopes))))
    return graph_of([slopes, *saved], [left])


@pytest.mark.parametrize("target", TARGETS)
def test_copies_of_what_is_given_are_made_just_before_they_are_read(target):
    rows, width = 4096, 256
    found = {
        layers: arena_bytes(schedule(gradients(layers, rows, width), TARGETS[target]))
        for layers in (3, 12)
    }
    # The small squares are made as the graph has them.
    assert found[12] - found[3] <= 9 * 2 * width * width


def backward(layers: int, rows: int, width: int) -> Graph:
    """Of a chain of layers: at each the slopes of what comes before, then the gradient of weights,
    of a copy of data that were saved."""
    slopes = operand("slopes", rows, width)
    saved = [operand(f"x{number}", rows, width) for number in range(layers)]
    weights = [operand(f"w{number}", width, width) for number in range(layers)]
    left, ends = slopes, []
    for x, weight in zip(saved, weights, strict=True):
        before = make("matmul", (left, weight))
        copy = build.stored(build.pad(x, (8, 0), (8, 0), 0))
        seen = build.transpose(build.slice_axis(copy, 0, 4, rows + 4))
        ends.append(make("matmul", (seen, left)))
        left = before
    return graph_of([slopes, *saved, *weights], [left, *ends])


@pytest.mark.parametrize("target", TARGETS)
def test_gradients_of_weights_are_made_before_the_next_slopes(target):
    """Then the copy that one reads is not kept beside the next slopes."""
    rows, width = 8192, 128
    buffers = assign_buffers(schedule(backward(6, rows, width), TARGETS[target])).buffers
    large = [each for each in buffers if each.nbytes >= rows * width]
    assert len(large) == 5 + 6  # slopes that are no result, and copies
    last = max(each.last for each in large)
    kept = [sum(each.first <= at <= each.last for each in large) for at in range(last + 1)]
    assert max(kept) == 2


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_read_before_it_is_stored(target, seed):
    draw = random.Random(seed)
    shape = (draw.choice([4, 300, 2048]), draw.choice([64, 256, 640]))
    inputs = [operand(f"x{number}", *shape, dtype="f32") for number in range(3)]
    nodes = list(inputs)
    for _ in range(draw.randint(4, 24)):
        left, right = draw.choice(nodes), draw.choice(nodes)
        kind = draw.choice(["add", "stored", "row", "product", "exp"])
        if kind == "add":
            nodes.append(make("add", (left, right)))
        elif kind == "stored":
            nodes.append(build.stored(build.pad(left, (0, 0), (1, 0), 0)))
            nodes[-1] = build.slice_axis(nodes[-1], 0, 1, shape[0] + 1)
        elif kind == "row":
            nodes.append(make("mul", (left, build.reduce("sum", right, (1,)))))
        elif kind == "product":
            square = make("matmul", (build.transpose(left), right))
            nodes.append(make("matmul", (left, square)))
        else:
            nodes.append(make("exp", (left,)))
    outputs = draw.sample(nodes[3:], min(3, len(nodes) - 3))
    found = schedule(graph_of(inputs, outputs), TARGETS[target])
    stored = set(inputs)
    for group in found.groups:
        assert stored.issuperset(group.reads)
        stored.update(root.node for root in group.roots)
    read = {node for group in found.groups for node in group.reads}.union(found.stored)
    pointwise = [group for group in found.groups if group.kind == "pointwise"]
    assert read.issuperset(root.node for group in pointwise for root in group.roots)


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_comparison_comes_from_is_stored_once(target):
    """The largest of a window is looked for in the rounded values, which are stored anyway."""
    x, shift = operand("x", 1, 512, 64), operand("shift", 64, dtype="f32")
    exact = make("add", (build.cast(x, "f32"), build.align(shift, 3)))
    rounded = build.cast(exact, "bf16")
    attrs = {"axes": (1,), "sizes": (2,), "strides": (1,), "dilations": (1,)}
    windows = make("window", (rounded,), attrs)
    largest = build.reduce("max", windows, (3,))
    found = schedule(
        graph_of([x, shift], [rounded, build.cast(make("eq", (windows, largest)), "f32")]),
        TARGETS[target],
    )
    assert not [root for group in found.groups for root in group.roots if root.node is exact]


def test_a_product_reads_what_a_copy_would_hold_where_rows_lie_at_a_pitch():
    """[T, C] in memory, read along either axis; but not channels first, whose rows have gaps."""
    slopes = operand("slopes", 8, 14, 14, 64)
    for layout, is_copied in (((0, 1, 2, 3), False), ((0, 2, 3, 1), True)):
        shape = (8, 14, 14, 32) if layout == (0, 1, 2, 3) else (8, 32, 14, 14)
        given = operand("given", *shape)
        copy = build.stored(build.permute(given, layout))
        left = build.transpose(build.reshape(copy, (8 * 14 * 14, 32)))
        product = make("matmul", (left, build.reshape(slopes, (8 * 14 * 14, 64))))
        found = schedule(graph_of([slopes, given], [product]), GPUS[90])
        assert (len(found.groups) > 1) == is_copied


def statistics(number: int, width: int) -> Graph:
    """Of that many norms what is known after one more batch: how many there were, and a mean that
    is later squared by a kernel of its own."""
    seen = [operand(f"n{at}", dtype="i64") for at in range(number)]
    means = [operand(f"m{at}", width, dtype="f32") for at in range(number)]
    one, most = build.scalar(1, "i64"), build.align(build.scalar(0.9, "f32"), 1)
    counts = [make("add", (each, one)) for each in seen]
    newer = [build.stored(make("mul", (each, most))) for each in means]
    squares = [make("mul", (each, build.stored(build.slice_axis(each, 0, 0, 1)))) for each in newer]
    return graph_of([*seen, *means], [*counts, *newer, *squares])


@pytest.mark.parametrize("number", [2, 8, 16, 53])
def test_small_kernels_that_wait_for_nothing_of_each_other_are_launched_together(number):
    graph = statistics(number, 64)
    found = schedule(graph, GPUS[90])
    assert len(found.groups) <= 4 * -(-number // 8)  # four results for each norm
    random_numbers = numpy.random.default_rng(0)
    arrays = [
        numpy.asarray(random_numbers.standard_normal(node.shape), numpy.float32)
        if node.dtype == "f32"
        else numpy.asarray(random_numbers.integers(9), numpy.int64)
        for node in graph.inputs
    ]
    expected = interpret(graph, arrays)
    for own, wanted in zip(interpret(found.graph, arrays), expected, strict=True):
        numpy.testing.assert_array_equal(own, wanted)


def test_large_ones_stay_kernels_of_their_own():
    large = [
        group for group in schedule(statistics(8, 8192), GPUS[90]).groups if group.bytes > 9000
    ]
    assert len(large) >= 8


def test_a_value_that_is_stored_for_others_is_not_computed_again_for_them():
    """Layers of sums over shifted elements: as many groups as before, none of them longer."""
    x = operand("x", 1024, dtype="f32")
    node = x
    for _ in range(5):
        node = build.stored(make("tanh", (node,)))
        node = make("add", (make("flip", (node,), {"axes": (0,)}), node))
    found = schedule(graph_of([x], [node]), GPUS[90])
    assert max(len(group.nodes) for group in found.groups) <= 6
    assert len(found.groups) >= 5


def test_both_sides_of_a_comparison_read_one_value():
    x, y = operand("x", 1024, dtype="f32"), operand("y", 1024, dtype="f32")
    value = make("add", (make("mul", (x, y)), y))
    same = make("eq", (value, make("flip", (value,), {"axes": (0,)})))
    found = schedule(graph_of([x, y], [build.cast(same, "f32")]), GPUS[90])
    assert next(group.roots[0].node for group in found.groups) is value
