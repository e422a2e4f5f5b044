"""Ops whose kernels work on memory: what they mean, beside torch, and that places say the same."""

from __future__ import annotations

from types import SimpleNamespace

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Graph, IllegalNodeError, make
from aotc.aot.ir.legal import violations
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.text import parse_graph, print_graph
from aotc.aot.rewrites.memory import (
    join_gradients,
    pair_rows,
    place_all,
    place_ops,
    rows_in_place,
    wide_places_in_place,
)
from aotc.aot.rewrites.rewrite import MEMORY, rewrite
from aotc.aot.schedule.calls import call_group
from aotc.aot.traits import TargetTraits

torch = pytest.importorskip("torch")

MERGED = {
    "replace": lambda old, new: new, "sum": numpy.add, "prod": numpy.multiply,
    "max": numpy.maximum, "min": numpy.minimum,
}  # fmt: skip

BATCH, HEADS, GROUPS, ROWS, KEYS, SIZE, WIDTH = 2, 4, 2, 7, 9, 8, 6
SHAPES = {
    "q": (BATCH, HEADS, ROWS, SIZE),
    "k": (BATCH, GROUPS, KEYS, SIZE),
    "v": (BATCH, GROUPS, KEYS, WIDTH),
    "g": (BATCH, HEADS, ROWS, WIDTH),
}


def leaf(name, *shape, dtype="f32"):
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def heads(name):
    """[B, H, R, D] as heads beside each other in memory; for k within a larger tensor."""
    batch, count, rows, size = SHAPES[name]
    wide = leaf(name, batch, rows, count * size + (16 if name == "k" else 0))
    part = b.slice_axis(wide, 2, 0, count * size)
    return b.permute(b.reshape(part, (batch, rows, count, size)), (0, 2, 1, 3))


def graph_of(*outputs):
    nodes = [node for node in Graph((), outputs, (), (), {}).nodes() if node.op == "input"]
    names = tuple(node.attr("name") for node in nodes)
    return Graph(tuple(nodes), outputs, names, tuple(f"o{n}" for n in range(len(outputs))), {})


def drawn(graph, seed=0):
    """Random arrays for the inputs; whole numbers are places from -2 to 12."""
    random = numpy.random.default_rng(seed)
    rows = [(node.dtype, node.shape) for node in graph.inputs]
    return [
        random.integers(-2, 12, shape).astype(dtype.replace("i", "int"))
        if dtype.startswith("i")
        else (random.random(shape) > 0.4)
        if dtype == "bool"
        else random.standard_normal(shape).astype("float32")
        for dtype, shape in rows
    ]


def scatters(merge):
    def make_rows(shape, index, axis):
        data = leaf(f"data{axis}", *shape)
        rows = list(shape)
        rows[axis] = 5
        index = [5 if at == axis else rows[at] if index else 1 for at in range(len(shape))]
        operands = (data, leaf(f"index{axis}", *index, dtype="i32"), leaf(f"source{axis}", *rows))
        return make("scatter_rows", operands, {"axis": axis, "merge": merge, "distinct": 1})

    return [make_rows((10, 3), False, 0), make_rows((2, 6, 3), True, 1)]


def grouped():
    ends = leaf("ends", 3, dtype="i64")
    matrices = b.permute(leaf("w", 3, 6, 4), (0, 2, 1))
    rows = make("grouped_matmul", (leaf("x", 12, 4), matrices, ends))
    left = b.permute(leaf("x", 12, 4), (1, 0))
    return [rows, make("grouped_matmul", (left, leaf("y", 12, 5), ends))]


def attentions(is_safe, causal, mask=None):
    how = {"scale": 0.3, "causal": causal, "offset": 1, "window": 0}
    qkv = [heads(name) for name in "qkv"]
    masks = [] if mask is None else [leaf("mask", BATCH, 1, ROWS, KEYS, dtype=mask)]
    both = [
        make(op, (*qkv, *masks), {**how, "softcap": 0.0, "has_sinks": False, "is_safe": is_safe})
        for op in ("attention", "attention_log_sum_exp")
    ]
    ends = (heads("g"), *both)
    gradients = [
        make("attention_backward", (*qkv, *ends, *masks), {**how, "result": at}) for at in range(3)
    ]
    return [*both, *gradients]


CASES = {
    "rows added": lambda: scatters("sum"),
    "rows written": lambda: scatters("replace"),
    "grouped products": grouped,
    "attention": lambda: attentions(True, False),
    "causal attention": lambda: attentions(False, True),
    "masked attention": lambda: attentions(True, True, "bool"),
    "attention with numbers added": lambda: attentions(True, False, "f32"),
}


@pytest.mark.parametrize("name", CASES)
def test_places_change_no_result(name):
    graph = graph_of(*CASES[name]())
    arrays = drawn(graph)
    if name == "grouped products":
        arrays[graph.input_names.index("ends")] = numpy.array([3, 3, 10])
    found, count = place_ops(graph)
    assert count == len(graph.outputs)
    assert not violations(found, frozenset({"memory", "attention"}))
    for left, right in zip(interpret(graph, arrays), interpret(found, arrays), strict=True):
        numpy.testing.assert_array_equal(left, right)
    assert print_graph(parse_graph(print_graph(found))) == print_graph(found)


def test_attention_without_sums_stays_until_its_target_is_known():
    graph = graph_of(attentions(True, False)[0])
    assert place_ops(graph)[1] == 0
    assert place_all(graph)[1] == 1


@pytest.mark.parametrize("traits", [TargetTraits(), TargetTraits(is_gpu=True)])
@pytest.mark.parametrize("skip", [(), (MEMORY,)])
def test_ops_of_a_rewrite_of_the_users_have_kernels_too(traits, skip):
    """Its second turn comes after the first ops were placed; the step is never left out."""
    x = leaf("data0", 10, 3)
    (rows, _), graph = scatters("sum"), graph_of(b.unary("exp", x))
    graph = Graph(rows.inputs, graph.outputs, ("data0", "index0", "source0"), ("o",), {})
    turns = []

    def own(given):
        turns.append(given)
        log = SimpleNamespace(counts={})
        return given if len(turns) == 1 else given.with_outputs((rows, *given.outputs[1:])), log

    found, _ = rewrite(graph, traits, frozenset(skip), own)
    assert len(turns) == 2
    assert [node.op for node in found.nodes() if node.kind in ("call", "memory")] == ["placed"]


def test_gradients_beside_each_other_are_one_result():
    split = [b.permute(b.reshape(leaf(n, 2, 5, 12), (2, 5, 3, 4)), (0, 2, 1, 3)) for n in "qkv"]
    ends = (leaf("g", 2, 3, 5, 4), leaf("out", 2, 3, 5, 4), leaf("sums", 2, 3, 5))
    how = {"scale": 0.5, "causal": True, "offset": 0, "window": 0}
    found = [make("attention_backward", (*split, *ends), {**how, "result": n}) for n in (1, 0, 2)]
    graph = place_ops(graph_of(*found))[0]
    memory = [b.reshape(node.inputs[0], (2, 5, 12)) for node in graph.outputs]
    graph = graph.with_outputs((b.concat(memory, 2),))
    graph = Graph(graph.inputs, graph.outputs, graph.input_names, ("joined",), {})
    joined, count = join_gradients(graph)
    assert count == 1
    assert joined.outputs[0].op == "placed"
    arrays = drawn(graph)
    (left,), (right,) = interpret(graph, arrays), interpret(joined, arrays)
    numpy.testing.assert_array_equal(left, right)


def tensors(graph):
    given = dict(zip(graph.input_names, drawn(graph), strict=True))
    return {name: torch.from_numpy(array) for name, array in given.items()}


@pytest.mark.parametrize("mask", [None, "bool", "f32"])
def test_attention_and_its_gradients_mean_what_torch_has(mask):
    graph = graph_of(*attentions(True, False, mask))
    given = tensors(graph)
    leaves = []
    for name in "qkvg":
        batch, count, rows, size = SHAPES[name]
        part = given[name][..., : count * size].reshape(batch, rows, count, size)
        leaves.append(part.transpose(1, 2).double().requires_grad_())
    q, k, v, g = leaves
    masks = given.get("mask")
    masks = masks.double() if mask == "f32" else masks
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=masks, scale=0.3, enable_gqa=True
    )
    scores = q @ k.repeat_interleave(HEADS // GROUPS, 1).mT * 0.3
    if mask is not None:
        scores = scores.masked_fill(~masks, -torch.inf) if mask == "bool" else scores + masks
    expected = (out, scores.logsumexp(-1), *torch.autograd.grad(out, (q, k, v), g))
    for found, value in zip(interpret(graph, drawn(graph)), expected, strict=True):
        numpy.testing.assert_allclose(found, value.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("merge", MERGED)
def test_scatter_goes_over_rows_in_order_and_leaves_out_what_is_outside(merge):
    graph = graph_of(scatters(merge)[0])
    data, index, source = drawn(graph)
    expected = data.copy()
    for place, row in zip(index[:, 0], source, strict=True):
        if 0 <= place < len(data):
            expected[place] = MERGED[merge](expected[place], row)
    assert (index < 0).any() or (index >= len(data)).any() or len(set(index[:, 0])) < len(index)
    numpy.testing.assert_array_equal(interpret(graph, [data, index, source])[0], expected)


ROWS_ADDED = {"axis": 0, "merge": "sum", "distinct": 1}


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "reason"),
    [
        ("scatter_rows", [(4, 3), (2, 2), (2, 3)], ROWS_ADDED, "differ"),
        ("scatter_rows", [(4, 3), (2, 1), (2, 4)], ROWS_ADDED, "fit"),
        ("scatter_rows", [(4, 3), (5, 1), (5, 3)], ROWS_ADDED | {"distinct": 2}, "parts of 2"),
        ("grouped_matmul", [(5, 3), (2, 4, 6), (2,)], {}, "K is 3 and 4"),
        ("grouped_matmul", [(5, 3), (2, 3, 6), (3,)], {}, "2 matrices, 3 groups"),
    ],
)
def test_operands_that_do_not_fit_are_named(op, shapes, attrs, reason):
    integral = {"scatter_rows": 1, "grouped_matmul": 2}[op]
    dtypes = ["i64" if at == integral else "f32" for at in range(3)]
    operands = [
        leaf(f"x{at}", *shape, dtype=dtype)
        for at, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    with pytest.raises(IllegalNodeError, match=reason):
        make(op, tuple(operands), attrs)


SCORES = 2 * BATCH * HEADS * ROWS * KEYS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("attention", {SCORES * (SIZE + WIDTH), SCORES * (3 * SIZE + 2 * WIDTH)}),
        ("causal attention", {SCORES * (SIZE + WIDTH) // 2, SCORES * (3 * SIZE + 2 * WIDTH) // 2}),
        ("grouped products", {2 * 12 * 4 * 6, 2 * 4 * 12 * 5}),
        ("rows added", {10 * 3, 2 * 6 * 3}),
    ],
)
def test_operations_on_memory_count_products(name, expected):
    graph = place_all(graph_of(*CASES[name]()))[0] if "attention" in name else None
    graph = graph or place_ops(graph_of(*CASES[name]()))[0]
    calls = [node for node in graph.nodes() if node.op == "placed"]
    assert {call_group([node]).operations for node in calls} == expected


def test_places_lie_within_memory():
    graph = place_all(graph_of(attentions(True, False)[0]))[0]
    (node,) = (node for node in graph.nodes() if node.op == "placed")
    places = list(node.attr("operands"))
    number, start, shape, strides = places[1]
    places[1] = (number, start + 1000, shape, strides)
    with pytest.raises(IllegalNodeError, match="elements 1000 to"):
        make("placed", node.inputs, {**dict(node.attrs), "operands": tuple(places)})


def _written(data, source, axis=0, places="index"):
    """`source` written into `data` at places that tests share by their name."""
    index = leaf(
        places,
        *(source.shape[axis] if at == axis else 1 for at in range(len(data.shape))),
        dtype="i32",
    )
    how = {"axis": axis, "merge": "replace", "distinct": 1}
    return make("scatter_rows", (data, index, source), how)


def _keys_and_values():
    """Both of a step, as heads of one product: rows that have no one step."""
    wide = leaf("x", 3, 7 * 4)
    parts = [b.reshape(b.slice_axis(wide, 1, at * 4, (at + 2) * 4), (3 * 2, 4)) for at in (2, 5)]
    return [_written(leaf(name, 20, 4), part) for name, part in zip("kv", parts, strict=True)]


def test_rows_of_heads_are_read_where_the_product_has_them():
    graph = graph_of(*_keys_and_values())
    found, _ = place_ops(graph)
    for node in found.nodes():
        if node.op == "placed":
            *_, (number, start, shape, steps) = node.attr("operands")
            assert node.inputs[number].op == "input"
            assert (shape, steps) == ((3, 2, 4), (28, 4, 1))
            assert start in (8, 20)
    arrays = drawn(graph)
    for left, right in zip(interpret(graph, arrays), interpret(found, arrays), strict=True):
        numpy.testing.assert_array_equal(left, right)


def test_rows_are_found_again_in_what_their_product_became_a_part_of():
    graph = graph_of(_written(leaf("k", 20, 4), b.reshape(leaf("x", 3, 8), (6, 4))))
    placed, _ = place_ops(graph)
    (before,) = (node for node in placed.nodes() if node.op == "input" and node.attr("name") == "x")
    joined = placed.replaced({before: b.slice_axis(leaf("wide", 3, 24), 1, 8, 16)})
    found, count = rows_in_place(joined)
    assert count == 1
    assert rows_in_place(found)[1] == 0
    (node,) = (node for node in found.nodes() if node.op == "placed")
    assert node.attr("operands")[2][1:] == (8, (3, 2, 4), (24, 4, 1))
    graph = graph_of(*found.outputs)
    arrays = drawn(graph)
    again = graph_of(*joined.outputs)
    own = dict(zip(graph.input_names, arrays, strict=True))
    (left,), (right,) = (
        interpret(graph, arrays),
        interpret(again, [own[n] for n in again.input_names]),
    )
    numpy.testing.assert_array_equal(left, right)


def test_rows_of_one_step_are_found_again_too():
    """Of one sequence and one token: dims of one element have no step."""
    x = b.reshape(leaf("x", 1, 8), (1, 2, 1, 4))
    placed, _ = place_ops(graph_of(_written(leaf("k", 1, 2, 20, 4), x, axis=2)))
    (before,) = (node for node in placed.nodes() if node.op == "input" and node.attr("name") == "x")
    wide = b.reshape(leaf("wide", 1, 160), (1, 1, 160))  # of which only views have several readers
    parts = [b.reshape(b.slice_axis(wide, 2, at, at + 8), (1, 8)) for at in (8, 16)]
    joined = placed.replaced({before: parts[0]})
    found, count = rows_in_place(graph_of(*joined.outputs, b.unary("exp", parts[1])))
    assert count == 1
    (node,) = (node for node in found.nodes() if node.op == "placed")
    assert node.inputs[2].attr("name") == "wide"


def test_keys_and_values_of_a_step_are_one_op():
    graph = graph_of(*_keys_and_values())
    found, count = pair_rows(place_ops(graph)[0])
    assert count == 1
    (one, other) = (node for node in found.nodes() if node.op == "placed")
    assert one.result(0) is other.result(0)
    assert not violations(found, frozenset({"memory", "attention"}))
    assert print_graph(parse_graph(print_graph(found))) == print_graph(found)
    arrays = drawn(graph)
    for left, right in zip(interpret(graph, arrays), interpret(found, arrays), strict=True):
        numpy.testing.assert_array_equal(left, right)


def _in_turn():
    first = _written(leaf("k", 20, 4), leaf("x", 6, 4))
    return [first, _written(leaf("v", 20, 4), b.slice_axis(first, 0, 3, 9))]


ALONE = {
    "the second reads the first's result": _in_turn,
    "the first reads what the second updates": lambda: [
        _written(leaf("k", 20, 4), b.slice_axis(leaf("v", 20, 4), 0, 3, 9)),
        _written(leaf("v", 20, 4), leaf("x", 6, 4)),
    ],
    "both update one tensor": lambda: [
        _written(leaf("k", 20, 4), leaf(name, 6, 4)) for name in ("x", "y")
    ],
    "other places": lambda: [
        _written(leaf(data, 20, 4), leaf("x", 6, 4), places=data + "_at") for data in ("k", "v")
    ],
    "other shapes": lambda: [
        _written(leaf(data, rows, 4), leaf("x", 6, 4)) for data, rows in (("k", 20), ("v", 21))
    ],
}


@pytest.mark.parametrize("name", ALONE)
def test_rows_that_stay_alone(name):
    graph = graph_of(*ALONE[name]())
    found, count = pair_rows(place_ops(graph)[0])
    assert count == 0
    arrays = drawn(graph)
    for left, right in zip(interpret(graph, arrays), interpret(found, arrays), strict=True):
        numpy.testing.assert_array_equal(left, right)


def test_pairs_of_layers_have_an_order():
    """The second layer's rows hang on the first one's: two pairs, none across."""
    first = _keys_and_values()
    read = b.reshape(b.slice_axis(first[0], 0, 0, 6), (3, 8))
    second = [
        _written(leaf(name, 20, 4), b.reshape(source, (6, 4)))
        for name, source in (("k2", b.unary("exp", read)), ("v2", b.unary("neg", read)))
    ]
    graph = graph_of(*second, *first)
    found, count = pair_rows(place_ops(graph)[0])
    assert count == 2
    arrays = drawn(graph)
    for left, right in zip(interpret(graph, arrays), interpret(found, arrays), strict=True):
        numpy.testing.assert_allclose(left, right)


def _held(index, extent):
    """As `capture` narrows places of 64 bits."""
    return b.cast(b.minimum(b.maximum(index, -1), extent), "i32")


@pytest.mark.parametrize("merge", MERGED)
def test_places_of_64_bits_are_read_where_they_lie(merge):
    data, index = leaf("x", 9, 4), leaf("y", 2, 7, dtype="i64")
    places = _held(b.reshape(b.slice_axis(index, 0, 1, 2), (7, 1)), 9)
    how = {"axis": 0, "distinct": 1, "merge": merge}
    written = make("scatter_rows", (data, places, leaf("z", 7, 4)), how)
    graph = place_ops(graph_of(written))[0]
    found, count = wide_places_in_place(graph)
    assert count == 1
    assert {node.op for node in found.nodes()} == {"input", "copy", "placed"}
    (call,) = [node for node in found.nodes() if node.op == "placed"]
    number, *where = call.attr("operands")[1]
    assert (call.inputs[number], where) == (index, [7, (7, 1), (1, 1)])
    given = drawn(graph)
    given[1] = numpy.array([[0] * 7, [3, 8, -1, 9, 3, -(1 << 40) + 2, (1 << 32) + 5]])
    for meant, seen in zip(interpret(graph, given), interpret(found, given), strict=True):
        assert numpy.array_equal(meant, seen)
    assert wide_places_in_place(found)[1] == 0


def test_places_that_are_computed_or_of_another_extent_stay():
    data, rows, index = leaf("x", 9, 4), leaf("z", 7, 4), leaf("y", 7, 1, dtype="i64")
    how = {"axis": 0, "distinct": 1, "merge": "sum"}
    for places in (_held(index + 1, 9), _held(index, 8), b.cast(index, "i32")):
        graph = place_ops(graph_of(make("scatter_rows", (data, places, rows), how)))[0]
        assert wide_places_in_place(graph)[1] == 0


def test_pairs_of_rows_at_places_of_64_bits():
    index, parts = leaf("y", 7, 1, dtype="i64"), [leaf(name, 7, 4) for name in "ab"]
    how = {"axis": 0, "distinct": 1, "merge": "replace"}
    written = [
        make("scatter_rows", (leaf(name, 9, 4), _held(index, 9), rows), how)
        for name, rows in zip("cd", parts, strict=True)
    ]
    graph = pair_rows(place_ops(graph_of(*written))[0])[0]
    found, count = wide_places_in_place(graph)
    assert count == 2  # both results
    assert "cast" not in {node.op for node in found.nodes()}
    given = drawn(graph)
    given[[node.attr("name") for node in graph.inputs].index("y")] = numpy.arange(7)[::-1, None] + 4
    for meant, seen in zip(interpret(graph, given), interpret(found, given), strict=True):
        assert numpy.array_equal(meant, seen)
