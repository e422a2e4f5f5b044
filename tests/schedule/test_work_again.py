"""What fusion would do again is stored: stencils, wide sums, concats of many parts, long chains.

The number of values that all kernels write grows with the graph, and no kernel is deeper than
Python's stack.
"""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.reference import interpret
from aotc.aot.lower import lower
from aotc.aot.schedule import Schedule, schedule
from aotc.aot.schedule.contiguous_copies import MOST_PARTS
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

SIDE = 64


def source(name: str = "x", *shape: int) -> Node:
    return make("input", (), {"name": name, "dtype": "f32", "shape": shape or (SIDE, SIDE)})


def graph_of(x: Node, result: Node) -> Graph:
    return Graph((x,), (result,), ("x",), ("y",), {})


def rolled(data: Node, shift: int, axis: int) -> Node:
    """torch.roll as slices that are joined."""
    extent = data.shape[axis]
    parts = [build.slice_axis(data, axis, extent - shift, extent)]
    return build.concat([*parts, build.slice_axis(data, axis, 0, extent - shift)], axis)


def taken(data: Node, shift: int, axis: int) -> Node:
    """torch.roll as it is captured: elements are looked up."""
    extent = data.shape[axis]
    places = build.iota((extent,), 0) + (extent - shift)
    index = places % extent
    return make("take", (data, index), {"axis": axis})


def heat(steps: int, roll) -> Graph:
    x = value = source()
    for _ in range(steps):
        around = [roll(value, shift, axis) for axis in (0, 1) for shift in (1, SIDE - 1)]
        total = around[0]
        for each in around[1:]:
            total = total + each
        value = value + (total - value * 4.0) * 0.1
    return graph_of(x, value)


def written(found: Schedule) -> int:
    """Lines of all kernels' sources."""
    specs = lower(found, CPU)
    return sum(form.source.count("\n") for spec in specs for form in spec.forms)


@pytest.mark.parametrize("roll", [rolled, taken])
def test_steps_of_a_stencil_are_kernels_of_their_own(roll):
    few, many = (schedule(heat(steps, roll), CPU) for steps in (4, 16))
    assert len(many.groups) > len(few.groups) > 1
    assert written(many) <= 5 * written(few)


def test_a_stencil_of_small_tensors_ends_too():
    """A launch costs more than all the work: what is computed again is still bounded."""
    x = value = source("x", 4, 4)
    for _ in range(24):
        value = taken(value, 1, 0) + taken(value, 1, 1) * 0.5
    assert written(schedule(graph_of(x, value), CPU)) < 24 * 200


def test_rolls_of_rolls_do_not_multiply():
    x = value = source()
    for step in range(24):
        value = rolled(value, 1 + step % 3, step % 2)
    found = schedule(graph_of(x, value), CPU)
    assert written(found) < 24 * 100
    data = numpy.random.default_rng(0).standard_normal((SIDE, SIDE)).astype("float32")
    (expected,) = interpret(found.graph, [data])
    (given,) = interpret(graph_of(x, value), [data])
    numpy.testing.assert_array_equal(expected, given)


def test_a_chain_deeper_than_the_stack_is_cut():
    x = value = source()
    for step in range(1200):
        value = build.unary("sin" if step % 2 else "cos", value)
    found = schedule(graph_of(x, value), CPU)
    assert len({spec.digest for spec in lower(found, CPU)}) <= 4
    assert 1 < len(found.groups) < 40


def test_a_chain_with_skips_is_cut_too():
    x = value = skip = source()
    for step in range(1200):
        if step % 4 == 3:
            value, skip = value + skip, value
        else:
            value = build.unary("sin" if step % 2 else "cos", value)
    found = schedule(graph_of(x, value), CPU)
    assert max(len(group.nodes) for group in found.groups) < 400
    assert len(lower(found, CPU)) < 100


def test_many_lookups_are_cut_where_the_compiler_of_a_gpu_would_walk_long():
    """Triton's pass over loads takes 0.1 µs for each load and pair of lines: here a minute."""
    keys, *tables = (source(f"in{number}", 129 if not number else 4096) for number in range(9))
    place = build.cast(keys * 0.0, "i32")
    parts = []
    for step in range(96):
        inside = build.maximum(build.minimum(place + step, 4095), 0)
        found = make("take", (tables[step % len(tables)], inside), {"axis": 0})
        parts.append(build.cast(found < keys, "i32") * (step + 1))
    while len(parts) > 1:
        parts = [one + other for one, other in zip(parts[::2], parts[1::2], strict=False)]
    place = parts[0]
    names = tuple(str(node.attr("name")) for node in (keys, *tables))
    graph = Graph((keys, *tables), (place,), names, ("y",), {})
    texts = [spec.forms[0].source for spec in lower(schedule(graph, GPUS[90]), GPUS[90])]
    assert 1 < len(texts) <= 12
    assert max(text.count("tl.load(") * text.count("\n") ** 2 for text in texts) < 4e7


def test_sums_that_are_written_out_within_each_other_are_cut():
    """Each writes its operand once a term: the maxima of five axes of four, a thousand loads."""
    data = x = source("x", 4, 4, 4, 4, 4, 64)
    for _ in range(5):
        shifted = build.where(data < 0.0, data * 0.5, data + 1.0)
        data = build.reshape(build.reduce("max", shifted, (0,)), shifted.shape[1:])
    texts = [
        spec.forms[0].source for spec in lower(schedule(graph_of(x, data), GPUS[90]), GPUS[90])
    ]
    assert 1 < len(texts) <= 5
    assert max(text.count("tl.load(") * text.count("\n") ** 2 for text in texts) < 6e7


def windows_of_windows(times: int) -> Graph:
    """Sums over windows of 3 × 4 of a plane, of such sums, as convolutions of one channel are."""
    data = x = source("x", 4, 6)
    weight = build.reshape(build.cast(build.iota((12,), 0), "f32") * 0.1, (1, 1, 3, 4))
    for _ in range(times):
        padded = build.pad(data, (1, 1), (1, 2), 0.0)
        how = {"axes": (0, 1), "sizes": (3, 4), "strides": (1, 1), "dilations": (1, 1)}
        product = make("window", (padded,), how) * build.expand(weight, (4, 6, 3, 4))
        data = build.reshape(build.reduce("sum", product, (2, 3)), (4, 6))
    return graph_of(x, data)


@pytest.mark.parametrize("times", [2, 3, 4])
def test_windows_of_windows_are_cut_on_a_cpu(times):
    """`convolutions 202611277000560`: three had 600 KB of text and took LLVM 20 s."""
    texts = [spec.forms[0].source for spec in lower(schedule(windows_of_windows(times), CPU), CPU)]
    assert len(texts) <= times + 1  # and one of margins
    assert max(text.count("\n") for text in texts) < 1500


def test_a_sum_of_many_is_cut_into_few_kernels():
    x = source()
    value = x * 0.5
    for step in range(400):
        value = value + build.unary("sin", x * float(step))
    found = schedule(graph_of(x, value), CPU)
    assert len(lower(found, CPU)) < 20


@pytest.mark.parametrize("traits", [CPU, GPUS[90]], ids=["cpu", "cuda"])
def test_a_concat_of_many_parts_is_joined_by_and_by(traits):
    x = source()
    parts = [build.unary("sin", x) * float(number) for number in range(300)]
    joined = build.concat(parts, 0)
    weight = make("input", (), {"name": "w", "dtype": "f32", "shape": (SIDE, 32)})
    product = make("matmul", (joined, weight))
    graph = Graph((x, weight), (product,), ("x", "w"), ("y",), {})
    found = schedule(graph, traits)
    (matmul,) = (group for group in found.groups if group.kind == "matmul")
    assert len(matmul.reads) == 2
    assert max(len(group.reads) for group in found.groups) <= MOST_PARTS + 1


def test_lookups_in_a_table_that_is_computed_are_as_deep_as_both():
    """Where the table's numbers are those of places, a look-up's index is written into the table's
    text: a chain of these is as deep as all of them together."""
    x = make("input", (), {"name": "x", "dtype": "i64", "shape": (SIDE,)})
    table = build.iota((SIDE,), 0)
    for step in range(24):
        table = (table * 5 + step) % SIDE
    value = x
    for _ in range(12):
        value = make("take", (table, value % SIDE), {"axis": 0})
    found = schedule(graph_of(x, value), CPU)
    assert max(len(group.nodes) for group in found.groups) < 150
    assert len(found.groups) > 3
