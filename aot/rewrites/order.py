"""Sorts as arithmetic, without memory of their own: `order_rows` by counting and lookups.

Short runs are sorted by rank, the number of elements that precede an element. Longer rows are
merged from sorted runs: each position of the result finds by binary search how many elements of the
first run precede it. Both fuse with the ops around them. Targets that have sort kernels use this
for short rows only.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.size import Extent, fixed, highest, is_static
from aotc.aot.ir.types import DTYPES, Scalar
from aotc.aot.rewrites import digits

RUN = 256  # elements that are compared with each other; a rank costs as many comparisons
# Elements of a dynamic dim that are sorted as one row: shorter rows are filled up to the most.
LONGEST = 1 << 15
SHORT = 8  # elements whose ranks cost less than a kernel of its own
# On a GPU, elements of a row that are put in order in registers: one program takes 3 µs for 512 and
# 70 µs for 4096 (H200), so that longer rows are sorted by digits.
FEWEST_HELD, MOST_HELD, HELD_RUN = 32, 1024, 512
HELD_NS = 0.03  # of an element of such a run, where runs are many
# Words of keys of a row, of which one element is looked for: one of 32,000 of 8 rows takes 39 µs,
# of 4,096 10 (H200).
MOST_SEARCHED = 1 << 15
SELECTED_RUN, MOST_SELECTED = 4096, 512  # elements of a run, and of it, that are found in registers


def order_where_ranks_are(graph: Graph) -> tuple[Graph, int]:
    """`graph` with elements at ranks looked up in the rows' order, and how many there were."""
    return _looked_up(graph, {node for node in graph.nodes() if node.op == "nth_places"})


def order_where_ranks_are_of_long_rows(graph: Graph) -> tuple[Graph, int]:
    """The same of rows that a program of a GPU does not hold in registers."""
    nodes = (node for node in graph.nodes() if node.op == "nth_places")
    return _looked_up(graph, {node for node in nodes if not _is_searched(node.inputs[0])})


def _is_searched(data: Node) -> bool:
    """Whether programs of a GPU find an element at a rank in registers."""
    words = max(1, DTYPES[data.dtype].itemsize_bytes // 4)
    return 0 < highest(data.shape[-1]) * words <= MOST_SEARCHED


def _looked_up(graph: Graph, nodes: set[Node]) -> tuple[Graph, int]:
    def look_up(node: Node, made: Node) -> Node:
        if node not in nodes:
            return made
        with made_for(node.source):
            data, *ranks = made.inputs
            wanted = node.attr("wanted")
            order = make("order_rows", (data,), {"wanted": wanted, "descending": False})
            if ranks:
                return _pick(order, ranks[0])
            return build.slice_axis(order, order.type.rank - 1, wanted - 1, wanted)

    return graph.rebuilt(look_up), len(nodes)


def rank_rows(graph: Graph) -> tuple[Graph, int]:
    """`graph` with those `order_rows` alone whose rows a GPU puts in order in registers, and how
    many others there were."""
    orders = [node for node in graph.nodes() if node.op == "order_rows"]
    wanted = {node for node in orders if not _is_held(node.inputs[0])}
    by_digits = {node for node in wanted if not _is_selected(node) and _is_by_digits(node)}
    return _ranked(graph, wanted, by_digits)


def _is_by_digits(node: Node) -> bool:
    if _has_short_keys(node.inputs[0]):
        return digits.serves(node, HELD_RUN, HELD_NS)
    return digits.serves(node, RUN)


def _has_short_keys(data: Node) -> bool:
    return DTYPES[data.dtype].itemsize_bytes <= 4


def _is_held(data: Node) -> bool:
    """Whether programs of a GPU put such rows in order in registers."""
    return _has_short_keys(data) and FEWEST_HELD <= highest(data.shape[-1]) <= MOST_HELD


def _is_selected(node: Node) -> bool:
    """Whether few elements of long rows are wanted, which are looked for among those of runs."""
    (data,), wanted = node.inputs, node.attr("wanted")
    is_long = is_static((data.shape[-1], wanted)) and fixed(data.shape[-1]) > MOST_HELD
    return _has_short_keys(data) and is_long and 0 < fixed(wanted) <= MOST_SELECTED


def _in_registers(op: str, keys: Node, wanted: Extent, is_descending: bool) -> tuple[Node, Node]:
    """As `_select`, of rows that a program of a GPU has in registers."""
    order = make(op, (keys,), {"wanted": wanted, "descending": is_descending})
    return _pick(keys, order), order


def rank_short_rows(graph: Graph) -> tuple[Graph, int]:
    """The same of rows of at most SHORT elements."""
    nodes = (node for node in graph.nodes() if node.op == "order_rows")
    return _ranked(graph, {node for node in nodes if highest(node.inputs[0].shape[-1]) <= SHORT})


def _ranked(graph: Graph, wanted: set[Node], by_digits: Container[Node] = ()) -> tuple[Graph, int]:
    """What gathers a row's elements by their order gets the values that were merged."""
    found: dict[Node, tuple[Node, Node]] = {}

    def rank(node: Node, made: Node) -> Node:
        with made_for(node.source):
            if node in by_digits:
                return digits.order_of(made.inputs[0], node.attr("wanted"), node.attr("descending"))
            if node in wanted:
                select = _select_by_runs if _is_selected(node) else _select
                found[node] = select(made.inputs[0], node.attr("wanted"), node.attr("descending"))
                return found[node][1]
            if node.op == "gather" and node.inputs[1] in found:
                data, order = node.inputs
                if data is order.inputs[0] and node.attr("axis") == data.type.rank - 1:
                    return found[order][0]
        return made

    return graph.rebuilt(rank), len(wanted)


def _precedes(left: Node, right: Node, is_descending: bool = False) -> Node:
    """Where `left` stands strictly before `right`."""
    if is_descending:
        left, right = right, left
    less = left < right
    if left.type.kind != "float":
        return less
    is_last = build.unary("isnan", right) & ~build.unary("isnan", left)
    return less | is_last


def _counted(shape: Sequence[Extent], axis: int) -> Node:
    return build.cast(build.iota(shape, axis), "i32")


def _pick(data: Node, order: Node) -> Node:
    return make("gather", (data, order), {"axis": data.type.rank - 1})


def _order(keys: Node, wanted: Extent, is_descending: bool) -> Node:
    """Places i32 of the first `wanted` elements in order along the last axis of `[.., n]`."""
    lead, extent = keys.shape[:-1], keys.shape[-1]
    rank = len(lead) + 2
    own = build.reshape(keys, (*lead, extent, 1))
    other = build.reshape(keys, (*lead, 1, extent))
    square = (*[1] * len(lead), extent, extent)
    is_earlier = _counted(square, rank - 1) < _counted(square, rank - 2)
    before = _precedes(other, own, is_descending)
    tied_before = ~_precedes(own, other, is_descending) & is_earlier
    counts = build.cast(before | tied_before, "i32")
    ranks = build.reshape(build.reduce("sum", counts, (rank - 1,)), (*lead, 1, extent))
    table = (*[1] * len(lead), wanted, extent)
    is_there = build.equal(ranks, _counted(table, rank - 2))
    places = build.where(is_there, _counted(table, rank - 1), 0)
    return build.reshape(build.reduce("sum", places, (rank - 1,)), (*lead, wanted))


def _last(dtype: str, is_descending: bool) -> Scalar:
    """A value that nothing of the type stands behind."""
    kind = DTYPES[dtype]
    if kind.kind == "float":
        return -math.inf if is_descending else math.nan
    bits = kind.itemsize_bytes * 8
    low, high = (0, 2**bits - 1) if dtype == "u8" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return low if is_descending else high


def _runs(keys: Node, count: Extent, is_descending: bool, length: int = RUN) -> Node:
    """`[.., n]` as `[.., count, length]`, filled up with what stands last."""
    rest = [0] * (keys.type.rank - 1)
    over = count * length - keys.shape[-1]
    padded = build.pad(keys, [*rest, 0], [*rest, over], _last(keys.dtype, is_descending))
    return build.reshape(padded, (*keys.shape[:-1], count, length))


def _placed(order: Node, length: int = RUN) -> Node:
    """Places inside runs `[.., runs, k]` → places in the row."""
    column = (*[1] * (order.type.rank - 2), order.shape[-2], 1)
    start = _counted(column, order.type.rank - 2) * length
    return order + start


def _select_by_runs(keys: Node, wanted: Extent, is_descending: bool) -> tuple[Node, Node]:
    """As `_select`: what is wanted of each run, of all of that, and so on, then put in order."""
    extent, places = fixed(keys.shape[-1]), None
    while extent > max(MOST_HELD, fixed(wanted)):
        count = -(-extent // SELECTED_RUN)
        length = SELECTED_RUN if count > 1 else extent
        runs = _runs(keys, count, is_descending, length)
        values, found = _in_registers("select_rows", runs, wanted, is_descending)
        extent = count * fixed(wanted)
        keys, found = (
            build.reshape(each, (*keys.shape[:-1], extent))
            for each in (values, _placed(found, length))
        )
        places = found if places is None else _pick(places, found)
    values, order = _in_registers("order_rows", keys, wanted, is_descending)
    return values, order if places is None else _pick(places, order)


def _select(keys: Node, wanted: Extent, is_descending: bool) -> tuple[Node, Node]:
    """The first `wanted` elements of each row `[.., n]` in order, and their places i32."""
    extent = keys.shape[-1]
    if extent == 0 or highest(extent) <= RUN:
        order = _order(keys, wanted, is_descending)
        return _pick(keys, order), order
    if highest(wanted) > RUN // 2:
        values, places = _merge_sort(keys, is_descending)
        return _head(values, wanted), _head(places, wanted)
    runs = _runs(keys, (extent + (RUN - 1)) // RUN, is_descending)
    order = _order(runs, wanted, is_descending)
    flat = (*keys.shape[:-1], runs.shape[-2] * wanted)
    kept, kept_places = (build.reshape(item, flat) for item in (_pick(runs, order), _placed(order)))
    values, among = _select(kept, wanted, is_descending)
    return values, _pick(kept_places, among)


def _head(data: Node, wanted: Extent) -> Node:
    return build.slice_axis(data, data.type.rank - 1, 0, wanted)


def _merge_sort(keys: Node, is_descending: bool) -> tuple[Node, Node]:
    """Whole rows in order, filled up at the end to a power of two of runs.

    A dynamic dim that may be long is ordered by rank as a whole, since each call would sort the
    most.
    """
    extent = keys.shape[-1]
    if not isinstance(extent, int) and highest(extent) > LONGEST:
        order = _order(keys, extent, is_descending)
        return _pick(keys, order), order
    length = HELD_RUN if _has_short_keys(keys) else RUN
    count = 1 << (-(-highest(extent) // length) - 1).bit_length()
    runs = _runs(keys, count, is_descending, length)
    if _has_short_keys(keys):
        values, order = _in_registers("order_rows", runs, length, is_descending)
    else:
        order = _order(runs, length, is_descending)
        values = _pick(runs, order)
    places = _placed(order, length)
    while values.shape[-2] != 1:
        values, places = _merge(values, places, is_descending)
    row = (*keys.shape[:-1], values.shape[-1])
    return build.reshape(values, row), build.reshape(places, row)


def _merge(values: Node, places: Node, is_descending: bool) -> tuple[Node, Node]:
    """`[.., 2r, L]` → `[.., r, 2L]`: each run merged with its neighbour."""
    lead, count, length = values.shape[:-2], values.shape[-2] // 2, fixed(values.shape[-1])
    shape = (*lead, count, 2 * length)
    rows = build.reshape(values, shape)
    place = build.expand(_counted((*[1] * (len(shape) - 1), 2 * length), len(shape) - 1), shape)
    low = build.maximum(place - length, 0)
    high = build.minimum(place, length)
    for _ in range(length.bit_length()):
        middle = (low + high) // 2
        first = _at(rows, middle, 0, length)
        second = _at(rows, place - 1 - middle, length, length)
        is_open = low < high
        is_beyond = _precedes(second, first, is_descending)
        low = build.where(
            is_open & ~is_beyond,
            middle + 1,
            low,
        )
        high = build.where(is_open & is_beyond, middle, high)
    rest = place - low
    first, second = _at(rows, low, 0, length), _at(rows, rest, length, length)
    has_first = low < length
    is_second_gone = rest >= length
    takes_first = has_first & (is_second_gone | ~_precedes(second, first, is_descending))
    source = build.where(takes_first, low, rest + length)
    source = build.minimum(source, 2 * length - 1)
    merged = build.reshape(places, shape)
    return _pick(rows, source), _pick(merged, source)


def _at(rows: Node, place: Node, start: int, length: int) -> Node:
    inside = build.minimum(build.maximum(place, 0), length - 1)
    return _pick(rows, inside + start)
