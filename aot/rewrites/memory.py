"""Ops whose kernels work on memory → `placed`: which tensors of what memory they read and store.

Operands are read where they lie, heads beside each other; what has no steady step along each dim is
copied. On the CPU that goes for every attention, of lengths that vary too: those that stay
arithmetic there cost less so (`serves`), or have keys or values that are weights (whose products
are packed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.rules import Context
from aotc.aot.ir.size import Extent, divides, fixed, is_static
from aotc.aot.ir.types import FLOATS_TO_F32
from aotc.aot.ir.viewed import (
    Placed,
    dense,
    in_place,
    on_memory,
    placed,
    runs,
    spread,
    strides_of,
)
from aotc.aot.rewrites.attention_ends import has_ends
from aotc.aot.rewrites.fourier import only_clears_ends, rows_of, vectors_of, whole_or_half
from aotc.aot.schedule.attention import ends_of, is_cheaper_on_memory, mask_of, sinks_of
from aotc.aot.schedule.written_rows import is_in_any_order

_ORDERS = ("order_rows", "select_rows", "nth_places")
_OF_TARGETS = (*_ORDERS, "scan", "scan_blocks")  # that GPUs take apart first, where long
_MOVED = ("reshape", "permute", "slice")
# Elements within an index, and of all indices, of what a program of a processor writes to.
WIDEST_COPIED, LONGEST_COPIED = 64, 1 << 16
HEADS_INSIDE = (0, 2, 1, 3)  # as torch has results of attention in memory: [B, T, H, E]


def place_ops(graph: Graph, later: Container[str] = _OF_TARGETS) -> tuple[Graph, int]:
    """`graph` with the ops on memory `placed` but for those of `later`, and how many there are;
    attention is among them where its rows' sums are wanted too."""
    nodes = graph.nodes()
    summed = {(node.inputs, node.attrs) for node in nodes if node.op == "attention_log_sum_exp"}
    whole = {node for node in nodes if (node.inputs, node.attrs) in summed}
    on_memory = {node for node in nodes if node.kind == "memory" and node.op not in later}
    return _placed(graph, on_memory | whole)


def place_blocks(graph: Graph) -> tuple[Graph, int]:
    """As `place_ops`, with the scans, which are of blocks of rows by then, and rows in order."""
    graph, orders = _place_orders(graph)
    graph, others = place_ops(graph, ())
    return graph, orders + others


def place_all(graph: Graph) -> tuple[Graph, int]:
    """As `place_ops`, with every attention, all rows in order and all scans."""
    graph, searches = _place_searches(graph)
    graph, others = _placed(graph, {node for node in graph.nodes() if node.op in _PLACED})
    return graph, searches + others


def _place_searches(graph: Graph) -> tuple[Graph, int]:
    """Running extremes whose places are wanted: both by one kernel, the places in the type that
    all who read them cast them to."""
    searches = [node for node in graph.nodes() if node.op == "scan" and _is_search(node)]

    def values_of(places: Node) -> Node:
        kind = places.attr("kind").removesuffix("_place")
        return make("scan", places.inputs, {**dict(places.attrs), "kind": kind})

    return _with_values(graph, searches, values_of, _scanned)


def _place_orders(graph: Graph) -> tuple[Graph, int]:
    """Rows in order whose elements are looked up by it, likewise."""
    orders = [node for node in graph.nodes() if node.op in _ORDERS]

    def values_of(places: Node) -> Node:
        data = places.inputs[0]
        return make("gather", (data, places), {"axis": data.type.rank - 1})

    def stored(nodes: Sequence[Node], dtypes: Sequence[str]) -> list[Node]:
        return on_memory(nodes, [dense(each) for each in nodes[0].inputs], dtypes=dtypes)

    return _with_values(graph, orders, values_of, stored)


def _with_values(
    graph: Graph,
    places_of: Sequence[Node],
    values_of: Callable[[Node], Node],
    stored: Callable[[Sequence[Node], Sequence[str]], list[Node]],
) -> tuple[Graph, int]:
    """Nodes that are places, and the values at these where the graph has them, as the results of
    one kernel, the places in the type that all who read them cast them to."""
    users, outputs = graph.users(), set(graph.outputs)
    replaced: dict[Node, Node] = {}
    for places in places_of:
        values = values_of(places)
        readers = [user for user in users[places] if user is not values]
        casts = [user for user in readers if user.op == "cast" and user.dtype == "i64"]
        is_wide = len(casts) == len(readers) > 0 and places not in outputs
        with made_for(places.source):
            nodes = [places, values] if values in users else [places]
            dtypes = ["i64" if is_wide else places.dtype, values.dtype][: len(nodes)]
            found, *best = stored(nodes, dtypes)
        replaced |= dict.fromkeys(casts if is_wide else [places], found)
        if best:
            replaced[values] = best[0]
    return graph.replaced(replaced), len(places_of)


def _is_search(scan: Node) -> bool:
    return bool(scan.attr("kind").endswith("_place"))


def _placed(graph: Graph, wanted: Container[Node]) -> tuple[Graph, int]:
    found = [node for node in graph.nodes() if node in wanted]
    users = graph.users()
    stored: set[Node] = set()  # that several nodes read

    def place(node: Node, made: Node) -> Node:
        with made_for(node.source):
            if node in wanted:
                rows = node.op == "scatter_rows"
                made = _scatter_rows(made, stored) if rows else _PLACED[node.op](made)
            elif only_clears_ends(node) and node.inputs[0].inputs[0] in wanted:
                made = made.inputs[0].inputs[0]
        if len(users[node]) > 1:
            stored.add(_viewed(made))
        return made

    return graph.rebuilt(place), len(found)


def serves(attention: Node, context: Context) -> bool:
    """Whether the kernel on memory takes an attention, and costs less than its arithmetic, which
    reads all keys even where data say how many are seen."""
    query, key, value = attention.inputs[:3]
    if context.is_constant(key) or context.is_constant(value):
        return False
    if not is_static((query.shape[1], query.shape[3], key.shape[1], value.shape[3])):
        return False
    shapes = query.shape, key.shape, value.shape
    return has_ends(attention) or is_cheaper_on_memory(*shapes, attention.dtype)


def _attention(node: Node) -> Node:
    """Both results, of which the node is one."""
    both = [make(op, node.inputs, node.attrs) for op in ("attention", "attention_log_sum_exp")]
    places = [placed(each, may_vary=True) for each in node.inputs[:3]]
    places += _of_scores(node, mask_of(node), node.inputs[1].shape[2])
    places += _of_scores(node, ends_of(node), 1)
    places += _of_scores(node, sinks_of(node), 1)
    return on_memory(both, places, HEADS_INSIDE)[both.index(node)]


def _attention_backward(node: Node) -> Node:
    """All three gradients, of which the node is one."""
    each_of = [node.result(at) for at in range(3)]
    mask = next(iter(node.inputs[6:]), None)
    places = [placed(each, may_vary=True) for each in node.inputs[:5]]
    places.append(spread(node.inputs[5], may_vary=True))
    places += _of_scores(node, mask, node.inputs[1].shape[2])
    # Several blocks of keys add to the gradient of q, in memory.
    dtypes = ("f32", *(operand.dtype for operand in node.inputs[1:3]))
    found = on_memory(each_of, places, HEADS_INSIDE, dtypes)
    return build.cast(found[node.attr("result")], node.dtype)


def _of_scores(node: Node, operand: Node | None, columns: Extent) -> list[Placed]:
    """A mask as booleans or numbers that scores [B, H, T, S] take, or ends, or sinks; nothing if it
    is not there."""
    if operand is None:
        return []
    if operand.type.kind == "float" and operand.dtype not in FLOATS_TO_F32:
        operand = build.cast(operand, "f32")
    whole = build.expand(operand, (*node.inputs[0].shape[:3], columns))
    return [spread(whole, may_vary=True)]


def _scatter_rows(node: Node, stored: Container[Node] = ()) -> Node:
    """The rows are written into a copy of what they change."""
    data, index, source = node.inputs
    is_shared = index.type.numel == source.shape[node.attr("axis")]
    index = index if is_shared else build.expand(index, source.shape)
    before = make("copy", (data,), {"tag": node.op})
    places = [dense(before), dense(index), _rows(source, node.attr("axis"), stored)]
    return on_memory([node], places, updates=((0, 0),))[0]


def _rows(source: Node, axis: int, stored: Container[Node]) -> Placed:
    """Rows where they lie, as those of some heads among others, in two dims where they have no one
    step; else dense."""
    for rows in (source, *_in_two_dims(source, axis)):
        found = in_place(rows, stored)
        if found is None:
            continue
        inside = axis + 1 + rows.type.rank - source.type.rank
        outer, inner = (
            runs(found.shape[ends], found.strides[ends])
            for ends in (slice(axis), slice(inside, None))
        )
        if len(outer) <= 2 and (not inner or (len(inner) == 1 and inner[0][1] == 1)):
            return found
    return dense(source)


def _in_two_dims(source: Node, axis: int) -> Iterator[Node]:
    """The rows as several times so many: as many as a dim has of the tensors that they view."""
    inner = math.prod(source.shape[axis + 1 :])
    rows, seen = source.shape[axis], source
    while inner and seen.op in _MOVED:
        (seen,) = seen.inputs
        for first in range(1, seen.type.rank):
            elements = math.prod(seen.shape[first:])
            if not is_static((inner, elements)) or not divides(inner, elements):
                continue
            beside = elements // inner
            if beside > 1 and beside != rows and divides(beside, rows):
                parts = (*source.shape[:axis], rows // beside, beside, *source.shape[axis + 1 :])
                yield build.reshape(source, parts)


def rows_in_place(graph: Graph) -> tuple[Graph, int]:
    """`graph` with the rows of `scatter_rows` read from where they lie now: what was a product by
    itself when they were placed may be a part of a joined one; and how many there are."""
    users = graph.users()
    stored: set[Node] = set()  # that several nodes read
    changed = 0

    def change(node: Node, made: Node) -> Node:
        nonlocal changed
        if _is_alone(node):
            found = _from_where_they_lie(made, stored)
            changed += found is not made
            made = found
        if len(users[node]) > 1:
            stored.add(_viewed(made))
        return made

    return graph.rebuilt(change), changed


def scattered_into_copies(graph: Graph) -> tuple[Graph, int]:
    """`graph` with rows written into copies of the caller's tensors that their kernel makes itself,
    where a program copies what it then writes to; and how many there are."""
    users, states = graph.users(), {*graph.inputs[len(graph.inputs) - len(graph.states) :]}
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        if not _is_alone(node) or is_in_any_order(node) or not _is_copied_by_parts(node):
            continue
        copied = node.inputs[node.attr("operands")[0][0]]
        if copied.op != "copy" or users[copied] != (node,) or copied in graph.outputs:
            continue
        (data,) = copied.inputs
        if data.op == "input" and data not in states:
            memories = tuple(data if each is copied else each for each in node.inputs)
            attrs = {**dict(node.attrs), "updates": ()}
            replaced[node] = make("placed", memories, attrs, node.source)
    return graph.replaced(replaced), len(replaced)


def _is_copied_by_parts(node: Node) -> bool:
    """Whether a program writes all rows of a contiguous part of the tensor that is short enough for
    one program to copy it fast."""
    how = dict(node.attr("stored")[0][1])
    axis, shape = how["axis"], node.attr("operands")[0][2]
    inner = math.prod(shape[axis + 1 :])
    part = shape[axis] * inner
    is_whole = is_static((inner, part)) and how["distinct"] == 1
    return is_whole and inner <= WIDEST_COPIED and part <= LONGEST_COPIED


def wide_places_in_place(graph: Graph) -> tuple[Graph, int]:
    """`graph` with places of 64 bits of the caller's read where they lie by `scatter_rows`, which
    leaves out what is beyond the tensor anyway; and how many there are. They were held to it and
    narrowed first: a kernel of its own, which reads them once and stores them."""
    changed = 0

    def change(_: Node, made: Node) -> Node:
        nonlocal changed
        if made.op == "placed" and made.attr("function") == "scatter_rows":
            found = _with_wide_places(made)
            changed += found is not made
            made = found
        return made

    return graph.rebuilt(change), changed


def _with_wide_places(node: Node) -> Node:
    memories, operands = list(node.inputs), list(node.attr("operands"))
    for _, how, (data, index, _), _ in node.attr("stored"):
        number, start, shape, strides = operands[index]
        extent = operands[data][2][dict(how)["axis"]]
        wide = _narrowed_from(memories[number], extent)
        found = None if wide is None else in_place(wide)
        if found is None or found.memory.op != "input" or start != 0:
            continue
        parts = (shape, strides), (found.shape, found.strides)
        if any(runs(*each) != runs(each[0], strides_of(each[0])) for each in parts):
            continue
        if found.memory not in memories:
            memories.append(found.memory)
        operands[index] = memories.index(found.memory), found.start, shape, strides
    read = sorted({number for number, *_ in operands})
    if tuple(memories) == node.inputs:
        return node
    operands = [(read.index(number), *rest) for number, *rest in operands]
    updates = tuple((result, read.index(number)) for result, number in node.attr("updates"))
    attrs = {**dict(node.attrs), "operands": tuple(operands), "updates": updates}
    return make("placed", tuple(memories[number] for number in read), attrs, node.source)


def _narrowed_from(index: Node, extent: Extent) -> Node | None:
    """What places of 32 bits were before they were held to a tensor and one beside it."""
    if index.op != "cast" or index.inputs[0].op != "minimum":
        return None
    below, high = index.inputs[0].inputs
    if below.op != "maximum" or below.inputs[1] is not build.scalar(-1, "i64"):
        return None
    is_end = is_static((extent,)) and high is build.scalar(fixed(extent), "i64")
    return below.inputs[0] if is_end else None


def _is_alone(node: Node) -> bool:
    """Whether a node is a `scatter_rows` that is not one of a pair."""
    is_rows = node.op == "placed" and node.attr("function") == "scatter_rows"
    return is_rows and len(node.attr("results")) == 1


def _from_where_they_lie(node: Node, stored: Container[Node]) -> Node:
    data, index, (number, start, shape, strides) = node.attr("operands")
    memory = node.inputs[number]
    is_whole = start == 0 and runs(shape, strides) == runs(shape, strides_of(shape))
    if memory.op not in _MOVED or not is_whole:
        return node
    ((_, how, *_),) = node.attr("stored")
    found = _rows(build.reshape(memory, shape), dict(how)["axis"], stored)
    if found.memory.op in _MOVED:
        return node
    memories = tuple(dict.fromkeys((*(node.inputs[at] for at, *_ in (data, index)), found.memory)))
    source = memories.index(found.memory), found.start, found.shape, found.strides
    attrs = {**dict(node.attrs), "operands": (data, index, source)}
    return make("placed", memories, attrs, node.source)


def pair_rows(graph: Graph) -> tuple[Graph, int]:
    """`graph` with each two `scatter_rows` at the same places as one op of two results, and how
    many there are: the keys and the values of a step.

    Two that need the results of the same others need none of each other, and pairs of such have an
    order.
    """
    needed: dict[Node, int] = {}  # a bit for each of those that a node hangs on
    count = 0
    waiting: dict[object, Node] = {}
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        before = 0
        for operand in node.inputs:
            before |= needed[operand]
        needed[node] = before
        if not _is_alone(node):
            continue
        needed[node], count = before | 1 << count, count + 1
        key = (before, node.inputs[node.attr("operands")[1][0]], *_alike(node))
        first = waiting.pop(key, None)
        if first is None or not _may_pair(first, node):
            waiting[key] = node
            continue
        replaced[first], replaced[node] = _pair(first, node)
    return graph.replaced(replaced), len(replaced) // 2


def _may_pair(first: Node, second: Node) -> bool:
    """Whether neither reads what the other one updates; otherwise that would have to be copied."""
    ends = [[_memory_of(operand) for operand in node.inputs] for node in (first, second)]
    (one, *of_one), (other, *of_other) = ends
    return one is not other and one not in of_other and other not in of_one


def _memory_of(node: Node) -> Node:
    node = _viewed(node)
    return _memory_of(node.inputs[0]) if node.op == "copy" else node


def _viewed(node: Node) -> Node:
    """What a view of several steps views in the end."""
    while node.op in _MOVED:
        (node,) = node.inputs
    return node


def _alike(node: Node) -> tuple[object, ...]:
    """What one kernel needs to be the same of two `scatter_rows`."""
    (op, attrs, _, (_, *result)), *_ = node.attr("stored")
    data, index, source = node.attr("operands")
    return node.dtype, op, attrs, (*result,), data[1:], index[1:], source[2]


def _pair(first: Node, second: Node) -> list[Node]:
    """Both as the results of one op."""
    memories = tuple(dict.fromkeys((*first.inputs, *second.inputs)))
    operands: list[tuple[Any, ...]] = []
    stored: list[tuple[Any, ...]] = []
    results: list[Any] = []
    updates: list[tuple[int, int]] = []
    for at, node in enumerate((first, second)):
        read = tuple(range(len(operands), len(operands) + 3))
        for number, *where in node.attr("operands"):
            operands.append((memories.index(node.inputs[number]), *where))
        ((op, attrs, _, (_, *where)),) = node.attr("stored")
        stored.append((op, attrs, read, (at, *where)))
        results += node.attr("results")
        updates.append((at, memories.index(node.inputs[0])))
    both = {
        "operands": tuple(operands),
        "stored": tuple(stored),
        "results": tuple(results),
        "updates": tuple(updates),
    }
    attrs = {**dict(first.attrs), **both}
    return [make("placed", memories, {**attrs, "result": at}, first.source) for at in range(2)]


def _count_places(node: Node) -> Node:
    """Counted in a copy of what they change."""
    data, index = node.inputs
    before = make("copy", (data,), {"tag": node.op})
    return on_memory([node], [dense(before), dense(index)], updates=((0, 0),))[0]


def _all_dense(node: Node) -> Node:
    return on_memory([node], [dense(operand) for operand in node.inputs])[0]


def _fourier(node: Node) -> Node:
    """All parts that are wanted, of which the node is one; both of them as complex numbers."""
    turns, *data = whole_or_half(node)
    how = {**dict(node.attrs), "result": 0}
    first = make("fourier", (turns, *data), how)
    parts = [first.result(at) for at in range(1 if node.attr("is_real") else 2)]
    places, order = vectors_of(data) if node.shape == data[0].shape else (rows_of(data), ())
    places = [dense(turns), *places]
    return on_memory(parts, places, order, are_pairs=len(parts) == 2)[node.attr("result")]


def _grouped_matmul(node: Node) -> Node:
    left, right, ends = node.inputs
    return on_memory([node], [spread(left), spread(right), placed(ends)])[0]


def _order_rows(node: Node) -> Node:
    return on_memory([node], [dense(node.inputs[0])])[0]


def _exchange(node: Node) -> Node:
    """Both results, of which the node is one."""
    both = [node.result(number) for number in range(2)]
    return on_memory(both, [dense(each) for each in node.inputs])[node.attr("result")]


def _scan(node: Node) -> Node:
    return _scanned([node], [node.dtype])[0]


def _scanned(nodes: Sequence[Node], dtypes: Sequence[str]) -> list[Node]:
    """Scans of the same data along runs of dims, `[outer, n, inner]`, stored as `dtypes`."""
    (data,), axis = nodes[0].inputs, nodes[0].attr("axis")
    shape = math.prod(data.shape[:axis]), data.shape[axis], math.prod(data.shape[axis + 1 :])
    flat = build.reshape(data, shape)
    rows = [make(node.op, (flat,), {**dict(node.attrs), "axis": 1}) for node in nodes]
    found = on_memory(rows, [dense(flat)], dtypes=dtypes)
    return [build.reshape(each, data.shape) for each in found]


_PLACED: dict[str, Callable[[Node], Node]] = {
    "attention": _attention,
    "attention_log_sum_exp": _attention,
    "attention_backward": _attention_backward,
    "scatter_rows": _scatter_rows,
    "count_places": _count_places,
    "sum_runs": _all_dense,
    "count_digits": _all_dense,
    "sum_digits": _all_dense,
    "order_by_digit": _all_dense,
    "sort_runs": _all_dense,
    "merge_runs": _all_dense,
    "fourier": _fourier,
    "grouped_matmul": _grouped_matmul,
    "order_rows": _order_rows,
    "select_rows": _order_rows,
    "nth_places": _all_dense,
    "scan": _scan,
    "scan_blocks": _scan,
    "exchange": _exchange,
}


def join_gradients(graph: Graph) -> tuple[Graph, int]:
    """`graph` with gradients of q, k and v that are only read beside each other stored beside each
    other, and how many such there are.

    Where one linear makes all three, its gradients read `concat(dq, dk, dv)`: one product, whose
    rows are then plain memory.
    """
    users = graph.users()
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.op != "concat" or node.attr("axis") != node.type.rank - 1:
            continue
        calls = [part.inputs[0] if part.op == "reshape" else part for part in node.inputs]
        is_read_elsewhere = any(
            len(users[each]) > 1 or each in graph.outputs for each in (*node.inputs, *calls)
        )
        found = None if is_read_elsewhere else _joined(node, calls)
        if found is not None:
            replaced[node] = found
    return graph.replaced(replaced), len(replaced)


def _joined(concat: Node, calls: Sequence[Node]) -> Node | None:
    """The results of one `attention_backward`, in any order, as one result of it."""
    first = calls[0]
    if any(call.op != "placed" or call.inputs != first.inputs for call in calls):
        return None
    numbers = [call.attr("result") for call in calls]
    is_whole = sorted(numbers) == [0, 1, 2] == list(range(len(first.attr("results"))))
    is_one = all(call.result(0) is first.result(0) for call in calls)
    if not (is_whole and is_one and first.attr("function") == "attention_backward"):
        return None
    stored = list(first.attr("stored"))
    start: Extent = 0
    rows, width = concat.shape[-2:]
    for number, part in zip(numbers, concat.inputs, strict=True):
        op, attrs, read, (_, _, shape, steps) = stored[number]
        place = (0, start, shape, (rows * width, steps[1], width, 1))
        stored[number] = op, attrs, read, place
        start += part.shape[-1]
    one = {"stored": tuple(stored), "results": ((concat.dtype, concat.shape),), "result": 0}
    return make("placed", first.inputs, {**dict(first.attrs), **one}, concat.source)
