"""Which nodes share a kernel: golden texts of the examples' graphs, and what must always hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.ir.text import parse_graph
from aotc.aot.schedule import Schedule, schedule
from aotc.aot.schedule.schedule import EmptyTensorUnsupported
from aotc.aot.targets.cpu.target import CPU

GRAPHS = sorted((Path(__file__).parent / "graphs").glob("*.txt"))


def load(path: Path) -> Graph:
    """A graph as `aotc build --dump` writes it after the rewrites, constants without data."""
    return parse_graph(path.read_text(), fill=lambda name, kind: Constant(name, kind, None))


def operand(name: str, *shape: int, dtype: str = "f32") -> Node:
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def graph_of(*outputs: Node) -> Graph:
    from aotc.aot.ir.graph import walk

    inputs = tuple(node for node in walk(outputs) if node.op == "input")
    names = tuple(node.attr("name") for node in inputs)
    return Graph(inputs, outputs, names, tuple(f"o{at}" for at in range(len(outputs))), {})


def kinds(plan: Schedule) -> list[str]:
    return [group.kind for group in plan.groups]


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.stem)
def test_examples(path, golden):
    golden(str(schedule(load(path), CPU)))


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.stem)
def test_every_read_is_there_before_its_reader(path):
    plan = schedule(load(path), CPU)
    stored: set[Node] = set()
    for group in plan.groups:
        for node in group.reads:
            assert node in stored or node.op in ("input", "constant")
        roots = {root.node for root in group.roots}
        assert not roots & stored
        assert not roots & set(group.reads)
        stored |= roots
    assert set(plan.stored) <= stored


def test_two_outputs_of_shared_work_are_one_kernel():
    power = b.unary("exp", operand("x", 1000))
    plan = schedule(graph_of(power + 1.0, power * 2.0), CPU)
    assert kinds(plan) == ["pointwise"]
    assert len(plan.groups[0].roots) == 2


def test_an_expensive_value_under_a_window_is_stored():
    power = b.unary("tanh", operand("x", 1, 64, 64, 16))
    attrs = {"axes": (1, 2), "sizes": (3, 3), "strides": (1, 1), "dilations": (1, 1)}
    largest = b.reduce("max", make("window", (power,), attrs), [4, 5])
    plan = schedule(graph_of(largest), CPU)
    assert [[root.node.op for root in group.roots] for group in plan.groups] == [["tanh"], ["max"]]


def test_a_cheap_value_under_a_small_window_is_not_stored():
    attrs = {"axes": (1,), "sizes": (2,), "strides": (2,), "dilations": (1,)}
    found = b.reduce("max", make("window", (operand("x", 8, 64) + 1.0,), attrs), [2])
    assert kinds(schedule(graph_of(found), CPU)) == ["pointwise"]


def test_a_residual_sum_is_stored_by_the_kernel_of_its_norm():
    total = operand("x", 8, 64) + operand("y", 8, 64)
    hidden = b.root_mean_square_norm(b.unary("exp", total), [1], 1e-6)
    plan = schedule(graph_of(hidden, total), CPU)
    assert kinds(plan) == ["row"]
    assert len(plan.groups[0].roots) == 2


def test_an_activation_is_not_recomputed_for_every_tile_of_a_matmul():
    hidden = b.unary("gelu", operand("x", 64, 512))
    product = make("matmul", (hidden, operand("w", 512, 1024)))
    assert kinds(schedule(graph_of(product), CPU)) == ["pointwise", "matmul"]


def test_what_rows_have_in_common_is_not_recomputed_for_each():
    matrix, column = operand("a", 64, 256, 64), b.unary("silu", operand("b", 64, 1, 64))
    plan = schedule(graph_of(b.reduce("sum", matrix * column, [2])), CPU)
    assert kinds(plan) == ["pointwise", "row"]


def test_the_places_that_many_rows_are_gathered_by_are_computed_once():
    table, far = operand("w", 4, 256, 64), b.unary("exp", operand("i", 64))
    rows = make("take", (table, b.cast(far, "i64")), {"axis": 0})
    vectors = operand("b", 64, 1, 64)
    plan = schedule(graph_of(b.reduce("sum", rows * vectors, [2])), CPU)
    assert kinds(plan) == ["pointwise", "row"]


def test_little_work_is_repeated_in_each_row():
    matrix, column = operand("a", 64, 256, 64), operand("b", 64, 1, 64) * 2.0
    assert kinds(schedule(graph_of(b.reduce("sum", matrix * column, [2])), CPU)) == ["row"]


def test_an_epilogue_reaches_over_a_value_with_two_readers():
    product = make("matmul", (operand("x", 64, 64), operand("w", 64, 64)))
    gated = product * b.unary("sigmoid", product)
    assert kinds(schedule(graph_of(gated), CPU)) == ["matmul"]


def test_heads_are_stored_in_the_order_their_reader_wants():
    left, right = operand("a", 2, 4, 16, 16), operand("b", 2, 4, 16, 32)
    heads = b.permute(make("matmul", (left, right)), (0, 2, 1, 3))
    rows = b.reshape(heads, (32, 128))
    product = make("matmul", (rows, operand("w", 128, 64)))
    plan = schedule(graph_of(product), CPU)
    assert kinds(plan) == ["matmul", "matmul"]
    assert plan.groups[0].roots[0].node is rows


def test_lanes_run_along_the_contiguous_axis():
    total = b.reduce("sum", operand("x", 4, 100, 64), [1])
    domain = schedule(graph_of(total), CPU).groups[0].domain
    assert not domain.is_reduced_in_lanes
    assert domain.lanes.extent == 64


def test_lanes_run_along_planes_of_whole_vectors():
    total = b.reduce("sum", operand("x", 8, 16, 32, 32), [0, 2, 3])
    domain = schedule(graph_of(total), CPU).groups[0].domain
    assert domain.is_reduced_in_lanes
    assert domain.rows.extent == 16


def test_an_input_as_output_is_copied():
    x = operand("x", 4, 4)
    plan = schedule(graph_of(x, x), CPU)
    roots = [root.node for group in plan.groups for root in group.roots]
    assert len(set(plan.stored)) == 2
    assert set(plan.stored) == set(roots)


def test_an_empty_tensor_is_refused_by_name():
    with pytest.raises(EmptyTensorUnsupported) as caught:
        schedule(graph_of(b.reduce("max", operand("x", 3, 0), [1])), CPU)
    assert "`max` of f32[3, 1]" in str(caught.value)


def test_a_result_without_elements_has_no_kernel():
    empty = operand("x", 3, 0) * 2.0
    plan = schedule(graph_of(b.reduce("sum", empty, [1]), b.empty(empty.type)), CPU)
    assert kinds(plan) == ["pointwise"]
    assert str(plan).endswith("f32[3, 0]\n")


def test_an_empty_part_of_a_concat_is_not():
    joined = b.concat([operand("x", 0, 4), operand("y", 2, 4)], 0)
    assert kinds(schedule(graph_of(joined), CPU)) == ["pointwise"]


def test_a_value_is_stored_as_narrow_as_it_was_rounded():
    left, right = operand("x", 64, 64, dtype="bf16"), operand("w", 64, 64, dtype="bf16")
    wide = b.cast(make("matmul", (left, right)), "f32")
    plan = schedule(graph_of(b.cast(b.standardize(wide, [1], 1e-5), "bf16")), CPU)
    assert kinds(plan) == ["matmul", "row"]
    assert plan.groups[0].roots[0].node.dtype == "bf16"
