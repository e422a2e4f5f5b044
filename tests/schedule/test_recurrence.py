"""Steps of a recurrence: each computed once, and one kernel whatever the number of steps."""

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, make
from aotc.aot.ir.size import Dim, proves_below, size_of
from aotc.aot.ir.types import TensorType
from aotc.aot.lower import lower
from aotc.aot.plan.buffer_assignment import assign_buffers
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU

ROWS, WIDTH = 4, 48
SEVERAL = size_of(Dim("rows", 1, 64, 4))


def weight(name, *shape):
    kind = TensorType("f32", shape)
    array = numpy.random.default_rng(len(name)).standard_normal(shape).astype("float32")
    return build.constant(name, kind), Constant(name, kind, array)


def recurrent(steps, rows=ROWS):
    """An LSTM's layer of these steps, as importing one gives it: f32[rows, width].

    The share of the input in the gates is computed for all steps at once.
    """
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": (rows * steps, WIDTH)})
    first, first_array = weight("first", WIDTH, 4 * WIDTH)
    again, again_array = weight("again", WIDTH, 4 * WIDTH)
    shares = build.reshape(build.matmul(x, first), (rows, steps, 4 * WIDTH))
    state = shown = None
    for step in range(steps):
        gates = build.reshape(build.slice_axis(shares, 1, step, step + 1), (rows, 4 * WIDTH))
        if shown is not None:
            gates = gates + build.matmul(shown, again)
        parts = [build.slice_axis(gates, 1, at * WIDTH, (at + 1) * WIDTH) for at in range(4)]
        enter, keep, show = (build.pointwise("sigmoid", part) for part in parts[:3])
        new = enter * build.pointwise("tanh", parts[3])
        state = new if state is None else state * keep + new
        shown = build.pointwise("tanh", state) * show
    pool = {"first": first_array, "again": again_array}
    return Graph((x,), (shown,), ("x",), ("y",), {}).with_outputs((shown,), pool)


@pytest.mark.parametrize("steps", [9, 36])
def test_no_step_is_computed_again_by_all_later_ones(steps):
    found = schedule(recurrent(steps), CPU)
    computed = [node for group in found.groups for node in group.nodes if node.op == "tanh"]
    assert len(set(computed)) == 2 * steps
    assert len(computed) <= 3 * steps


@pytest.mark.parametrize("rows", [ROWS, SEVERAL], ids=["fixed", "dynamic"])
def test_more_steps_are_no_more_kernels(rows):
    few, many = (
        {spec.digest for spec in lower(schedule(recurrent(steps, rows), CPU), CPU)}
        for steps in (12, 36)
    )
    assert len(few) == len(many)


@pytest.mark.parametrize("rows", [ROWS, SEVERAL], ids=["fixed", "dynamic"])
def test_where_a_step_reads_is_in_its_launch(rows):
    found = schedule(recurrent(5, rows), CPU)
    assignment = assign_buffers(found)
    starts = {row.start_bytes for launch in assignment.launches for row in launch.operands}
    assert starts >= {4 * 4 * WIDTH * step for step in range(2, 5)}
    for launch in assignment.launches:
        for row in launch.operands:
            assert not row.start_bytes or row.space == "buffer"
            assert proves_below(row.start_bytes, row.nbytes)


def test_a_place_that_a_size_decides_is_in_the_text():
    """Rows from the size on: no number of elements lies before them at every call."""
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": (SEVERAL * 2, WIDTH)})
    first, first_array = weight("first", WIDTH, WIDTH)
    again, again_array = weight("again", WIDTH, WIDTH)
    rows = build.slice_axis(build.matmul(x, first), 0, SEVERAL, SEVERAL * 2)
    result = build.matmul(rows, again)
    pool = {"first": first_array, "again": again_array}
    graph = Graph((x,), (result,), ("x",), ("y",), {}).with_outputs((result,), pool)
    for launch in assign_buffers(schedule(graph, CPU)).launches:
        assert not any(row.start_bytes for row in launch.operands)


def test_a_read_that_a_condition_guards_begins_where_its_buffer_does():
    """Outside its own part, the index of a part of a concatenation points anywhere."""
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": (8, 64)})
    pairs = [weight(name, 64, 64) for name in ("left", "right", "last")]
    parts = tuple(build.matmul(x, node) for node, _ in pairs)
    joined = make("concat", parts, {"axis": 0})
    result = build.matmul(build.slice_axis(joined, 0, 20, 24), pairs[0][0])
    pool = {constant.name: constant for _, constant in pairs}
    graph = Graph((x,), (result,), ("x",), ("y",), {}).with_outputs((result,), pool)
    for launch in assign_buffers(schedule(graph, CPU)).launches:
        for row in launch.operands:
            assert row.start_bytes < row.nbytes
