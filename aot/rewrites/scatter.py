"""Scatters on a GPU, in one of several forms, whichever is estimated to be fastest.

- Equal numbers that are added are counted instead.
- Integers give the same result in any order, so they are merged by atomics; many floats are merged
  as integers (`whole_numbers.py`).
- Many long rows are first sorted by their places, once for all that is added there; then a program
  adds the rows of one place.
- With few places, every row is compared with every place, which is one reduction for each place.
- Where the last of many rows at a place is wanted, the greatest number of a row there is found by
  atomics, and that row is looked up.

Otherwise the kernel of `scatter_rows` gives each program a share of the places, whose rows it goes
over in order. With few places there are few programs, with many rows each; comparing every row with
every place is more work, but all programs do it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.infer import ANY_ORDER
from aotc.aot.ir.reductions import REDUCTIONS, Reduction
from aotc.aot.ir.size import Extent, fixed, is_static, proves_at_most, typical
from aotc.aot.rewrites.digits import digits_ns, sort_by_bits
from aotc.aot.rewrites.lookups import literal_of
from aotc.aot.rewrites.whole_numbers import MOST_ROWS, OF_FLOATS, merged

LAUNCH_NS = 1500.0
BYTE_NS = 1 / 4000
TURN_NS = 3000.0  # a row's read, sum and write, on an H200
COMPARED_NS = 0.001  # a comparison, a choice and a sum there
PROGRAMS = 2048  # that a GPU runs at once
MOST_COMPARED = 1 << 30  # comparisons of one kernel, whose numbers have 32 bits
MOST_OF_DYNAMIC = 1 << 24  # of one of dynamic sizes, whatever a call's are
INNER_BLOCK = 64  # elements within an index that a program has
MANY_ROWS = 1 << 12  # from which on their order can pay for its launches
FEWEST_COUNTED = 1 << 12  # numbers that are counted
MOST_NUMBERED = (1 << 31) - 1  # rows, whose numbers have 32 bits
_OF_NUMBERS = 12  # bytes of a place or row: its number is written, merged and read
_OF_ORDERED = 8  # bytes of an element, read or written, and looked up
# Launches, bytes of an element that is merged, and of one that it is merged with.
_OF_SUMS, _OF_EXTREMES = (6, 40, 32), (3, 16, 24)


def reduce_few_places(graph: Graph) -> tuple[Graph, int]:
    """`graph` with the fastest form of each scatter on a GPU, and how many are no longer that of
    `scatter_rows` in turn."""
    wanted: dict[Node, Callable[[Node], Node]] = {}
    held = frozenset(graph.inputs[len(graph.inputs) - len(graph.states) :])
    for node in graph.nodes():
        is_replaced = node.op == "scatter_rows" and node.attr("merge") == "replace"
        if node.op == "scatter_rows" and not (is_replaced and _written_in(node) in held):
            way = _counted if _is_counted(node) else _least(node)
            if way is not None:
                wanted[node] = way

    def expand(node: Node, made: Node) -> Node:
        if node not in wanted:
            return made
        with made_for(node.source):
            return wanted[node](made)

    return graph.rebuilt(expand), len(wanted)


def _written_in(node: Node) -> Node:
    """What lies in the memory that rows are written in."""
    while node.inputs and (node.op in ("scatter_rows", "copy") or node.kind == "view"):
        node = node.inputs[0]
    return node


def _least(node: Node) -> Callable[[Node], Node] | None:
    """The fastest form by the estimates; None if it is that of programs with a share of the
    places."""
    least_ns, way = _in_turn_ns(node), None
    for fits, takes_ns, make_sums in _WAYS:
        if fits(node) and (ns := takes_ns(node)) < least_ns:
            least_ns, way = ns, make_sums
    return way


def _is_counted(node: Node) -> bool:
    """Whether one number is added to whole rows, or where an index has single elements."""
    data, index, source = node.inputs
    axis = node.attr("axis")
    if node.attr("merge") != "sum" or not is_static((*data.shape, *source.shape)):
        return False
    is_single = prod(data.shape[axis + 1 :]) == 1 and index.shape == source.shape
    is_shared = index.type.numel == source.shape[axis]
    return (
        literal_of(source) is not None
        and (is_single or is_shared)
        and typical(index.type.numel) >= FEWEST_COUNTED
    )


def _counted(node: Node) -> Node:
    """data + number · how many rows have the element's place"""
    data, index, source = node.inputs
    axis, extent = node.attr("axis"), data.shape[node.attr("axis")]
    literal = literal_of(source)
    assert literal is not None
    rows = source.shape[axis]
    is_shared = index.type.numel == rows
    outer = 1 if is_shared else prod(data.shape[:axis])
    zeros = build.expand(build.cast(build.scalar(0, "i32"), "i32"), (outer, extent))
    counts = make("count_places", (zeros, _places(index, (outer, rows), extent)))
    lead = [1] * axis if is_shared else data.shape[:axis]
    counts = build.reshape(counts, (*lead, extent, *[1] * (data.type.rank - axis - 1)))
    return make("add", (data, make("mul", (build.cast(counts, data.dtype), literal))))


def _places(index: Node, shape: Sequence[Extent], outside: Extent) -> Node:
    """Places i32, and one number for all that lie outside."""
    wide = build.cast(build.reshape(index, shape), "i64")
    is_inside = (wide >= 0) & (wide < outside)
    return build.cast(build.where(is_inside, wide, outside), "i32")


def _is_ordered(node: Node) -> bool:
    """Whether many rows are added, whose places all that lies outside of the axis shares."""
    data, index, source = node.inputs
    axis = node.attr("axis")
    if node.attr("merge") != "sum" or not is_static((*data.shape, *source.shape)):
        return False
    rows = source.shape[axis]
    is_shared = index.type.numel == rows and prod(data.shape[axis + 1 :]) > 1
    return is_shared and rows // node.attr("distinct") >= MANY_ROWS and data.shape[axis] > 1


def _ordered_ns(node: Node) -> float:
    """Time of sorting the places, finding where each begins, and adding its rows."""
    data, _, source = node.inputs
    axis = node.attr("axis")
    bits = fixed(data.shape[axis]).bit_length()
    nbytes = _OF_ORDERED * (typical(source.type.numel) + typical(data.type.numel))
    return digits_ns(bits, typical(source.shape[axis])) + 3 * LAUNCH_NS + nbytes * BYTE_NS


def _ordered(node: Node) -> Node:
    """data + the sums of the rows at each place, which stand beside each other"""
    data, index, source = node.inputs
    axis, extent = node.attr("axis"), fixed(data.shape[node.attr("axis")])
    rows = fixed(source.shape[axis])
    places = build.stored(_places(index, (1, rows), extent))
    order = sort_by_bits(places, 0, extent.bit_length())
    ordered = build.stored(make("gather", (places, order), {"axis": 1}))
    starts = _first_not_below(ordered, extent + 1)
    order = build.reshape(order, (rows,))
    if source.op == "take" and source.attr("axis") == axis:  # rows of a table, looked up at once
        table, looked_up = source.inputs
        if looked_up.shape == (rows,):
            order = make("gather", (build.cast(looked_up, "i32"), order), {"axis": 0})
            source = table
    lead, inner = prod(data.shape[:axis]), prod(data.shape[axis + 1 :])
    lines = build.reshape(source, (lead, source.shape[axis], inner))
    sums = make("sum_runs", (order, starts, lines))
    return make("add", (data, build.reshape(sums, data.shape)))


def _first_not_below(ordered: Node, count: int) -> Node:
    """i32 `[count]`: where the first number not below 0, 1, … stands in `[1, n]`."""
    extent = fixed(ordered.shape[1])
    wanted = build.cast(build.counter(2, 1, count), "i32")
    low = build.expand(build.cast(build.scalar(0, "i32"), "i32"), (1, count))
    high = build.expand(build.cast(build.scalar(extent, "i32"), "i32"), (1, count))
    for _ in range(extent.bit_length()):
        middle = (low + high) // 2
        at = build.minimum(middle, extent - 1)
        is_below = make("gather", (ordered, at), {"axis": 1}) < wanted
        is_open = low < high
        low = build.where(is_open & is_below, middle + 1, low)
        high = build.where(is_open & ~is_below, middle, high)
    return build.reshape(low, (count,))


def _is_replaced(node: Node) -> bool:
    """Whether the last row of each place is wanted, of one at least."""
    rows = node.inputs[2].shape[node.attr("axis")]
    is_numbered = proves_at_most(1, rows) and proves_at_most(rows, MOST_NUMBERED)
    return bool(node.attr("merge") == "replace") and is_numbered


def _looked_up_ns(node: Node) -> float:
    """Time of finding the last row of each place by atomics, and of looking it up."""
    data, index, source = node.inputs
    axis = node.attr("axis")
    is_shared = index.type.numel == source.shape[axis]
    places = data.shape[axis] if is_shared else data.type.numel
    nbytes = _OF_NUMBERS * typical(places + index.type.numel) + 2 * typical(data.type.nbytes)
    return 3 * LAUNCH_NS + nbytes * BYTE_NS


def _looked_up(node: Node) -> Node:
    """source at the number of the last row of each place, data where there is none"""
    data, index, source = node.inputs
    axis, extent, rows = node.attr("axis"), data.shape[node.attr("axis")], source.shape
    is_shared = index.type.numel == rows[axis]
    shape = (rows[axis],) if is_shared else rows
    own, along = (1, 0) if is_shared else (data.type.rank, axis)
    numbers = build.expand(build.cast(build.counter(own, along, rows[axis]), "i32"), shape)
    none = build.expand(build.scalar(-1, "i32"), (*shape[:along], extent, *shape[along + 1 :]))
    how = {**dict(node.attrs), "axis": along, "merge": "max"}
    last = make("scatter_rows", (none, build.reshape(index, shape), numbers), how)
    at, is_written = build.maximum(last, 0), last >= 0
    if is_shared:
        found = make("take", (source, at), {"axis": axis})
        is_written = build.reshape(is_written, build.column(data.type.rank, axis, extent))
    else:
        found = make("gather", (source, at), {"axis": axis})
    return build.where(build.expand(is_written, data.shape), found, data)


def _may_be_compared(node: Node) -> bool:
    """Whether sizes are known, or so few comparisons are the most that one kernel does them in the
    time that the launches of other forms take."""
    if node.attr("merge") == "replace":
        return False
    source, places = node.inputs[2], node.shape[node.attr("axis")]
    if is_static((*node.shape, *source.shape)):
        return True
    return proves_at_most(source.type.numel * places, MOST_OF_DYNAMIC)


def _in_turn_ns(node: Node) -> float:
    """Time of programs that each go over the rows of their share of the places."""
    axis = node.attr("axis")
    outer, inner = (typical(prod(ends)) for ends in (node.shape[:axis], node.shape[axis + 1 :]))
    rows, places = typical(node.inputs[2].shape[axis]), typical(node.shape[axis])
    programs = min(places, max(1, PROGRAMS // max(1, outer * ceil(inner / INNER_BLOCK))))
    return rows / typical(node.attr("distinct")) / max(1, programs) * TURN_NS


def _compared_ns(node: Node) -> float:
    """Time of comparing each row with each place."""
    rows = typical(node.inputs[2].shape[node.attr("axis")])
    return typical(node.type.numel) * rows * COMPARED_NS


def _reductions(node: Node) -> Node:
    """data + Σ over rows of source where the row's place is the element's; so with max, min, ∏"""
    data, index, source = node.inputs
    how = REDUCTIONS[node.attr("merge")]
    axis = node.attr("axis")
    if not is_static((*node.shape, *source.shape)):
        return build.pointwise(how.combine, data, _reduced(node, how, index, source))
    rows = fixed(source.shape[axis])
    most = max(1, MOST_COMPARED * rows // fixed(source.type.numel * data.shape[axis]))
    for start in range(0, rows, most):
        end = min(start + most, rows)
        part = build.slice_axis(source, axis, start, end)
        reduced = _reduced(node, how, build.slice_axis(index, axis, start, end), part)
        data = build.pointwise(how.combine, data, reduced)
    return data


def _reduced(node: Node, how: Reduction, index: Node, source: Node) -> Node:
    """The reductions over some of the rows."""
    data, axis = node.inputs[0], node.attr("axis")
    rows = build.reshape(source, (*source.shape[:axis], 1, *source.shape[axis:]))
    places = build.reshape(index, (*index.shape[:axis], 1, *index.shape[axis:]))
    own = build.counter(rows.type.rank, axis, data.shape[axis])
    is_own = build.equal(build.cast(places, "i64"), own)
    chosen = build.where(is_own, rows, build.scalar(how.identity(data.dtype), data.dtype))
    return build.drop(build.extreme(how.name, chosen, (axis + 1,)), (axis + 1,))


def _is_in_any_order(node: Node) -> bool:
    """Whether floats can be merged as integers, in any order."""
    data, _, source = node.inputs
    rows = source.shape[node.attr("axis")]
    is_known = node.attr("merge") in ANY_ORDER and data.dtype in OF_FLOATS
    return is_known and proves_at_most(rows, MOST_ROWS)


def _at_once_ns(node: Node) -> float:
    """Time of merging floats as integers by atomics."""
    data, _, source = node.inputs
    launches, each, of_data = _OF_SUMS if node.attr("merge") == "sum" else _OF_EXTREMES
    nbytes = each * typical(source.type.numel) + of_data * typical(data.type.numel)
    return launches * LAUNCH_NS + nbytes * BYTE_NS


# When a way serves, what it takes, and what it makes.
_WAYS = (
    (_is_in_any_order, _at_once_ns, merged),
    (_is_ordered, _ordered_ns, _ordered),
    (_is_replaced, _looked_up_ns, _looked_up),
    (_may_be_compared, _compared_ns, _reductions),
)
