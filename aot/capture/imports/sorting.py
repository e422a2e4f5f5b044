"""Import rows of sorting and searching, all as counting and lookups: no kernel of their own.

Short runs are ordered by rank, the number of elements that precede an element. Longer rows are
merged from sorted runs: a place of the result finds by binary search how many elements of the first
run stand before it. All sorts are stable, so every target gives one answer; NaN counts as greatest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from aotc.aot.capture.imports.call import Call, NotSupported, Operand, Row, Rows
from aotc.aot.capture.imports.scans import MAXIMUM, scan_along
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.size import Extent, UndecidedSize, fixed, highest
from aotc.aot.ir.types import DTYPES, Scalar

RUN = 256  # elements that are compared with each other; a rank costs as many comparisons
# Elements of a dynamic dim that are sorted as one row: shorter rows are filled up to the most.
LONGEST = 1 << 15


_RANKS_LONG_ROWS: ContextVar[bool] = ContextVar("ranks_long_rows", default=False)


@contextmanager
def ranking_long_rows() -> Iterator[None]:
    """Inside, dynamic dims of any range are sorted, at a cost that grows with their square; other
    importers compile a program for each size."""
    token = _RANKS_LONG_ROWS.set(True)
    try:
        yield
    finally:
        _RANKS_LONG_ROWS.reset(token)


def precedes(left: Node, right: Node, is_descending: bool = False) -> Node:
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
    before = precedes(other, own, is_descending)
    tied_before = ~precedes(own, other, is_descending) & is_earlier
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


def _runs(keys: Node, count: Extent, is_descending: bool) -> Node:
    """`[.., n]` as `[.., count, RUN]`, filled up with what stands last."""
    rest = [0] * (keys.type.rank - 1)
    over = count * RUN - keys.shape[-1]
    padded = build.pad(keys, [*rest, 0], [*rest, over], _last(keys.dtype, is_descending))
    return build.reshape(padded, (*keys.shape[:-1], count, RUN))


def _placed(order: Node) -> Node:
    """Places inside runs `[.., runs, k]` → places in the row."""
    column = (*[1] * (order.type.rank - 2), order.shape[-2], 1)
    start = _counted(column, order.type.rank - 2) * RUN
    return order + start


def select(keys: Node, wanted: Extent, is_descending: bool) -> tuple[Node, Node]:
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
    values, among = select(kept, wanted, is_descending)
    return values, _pick(kept_places, among)


def _head(data: Node, wanted: Extent) -> Node:
    return build.slice_axis(data, data.type.rank - 1, 0, wanted)


def _merge_sort(keys: Node, is_descending: bool) -> tuple[Node, Node]:
    """Whole rows in order, filled up at the end to a power of two of runs.

    A dynamic dim that may be long is ordered by rank as a whole, since each call would sort the
    most; where it need not be dynamic, `UndecidedSize` is raised.
    """
    extent = keys.shape[-1]
    if not isinstance(extent, int) and highest(extent) > LONGEST:
        if not _RANKS_LONG_ROWS.get():
            reason = f"whether a sorted dim of `{extent}` has at most {LONGEST} elements"
            raise UndecidedSize(reason)
        order = _order(keys, extent, is_descending)
        return _pick(keys, order), order
    count = 1 << (-(-highest(extent) // RUN) - 1).bit_length()
    runs = _runs(keys, count, is_descending)
    order = _order(runs, RUN, is_descending)
    values, places = _pick(runs, order), _placed(order)
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
        is_beyond = precedes(second, first, is_descending)
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
    takes_first = has_first & (is_second_gone | ~precedes(second, first, is_descending))
    source = build.where(takes_first, low, rest + length)
    source = build.minimum(source, 2 * length - 1)
    merged = build.reshape(places, shape)
    return _pick(rows, source), _pick(merged, source)


def _at(rows: Node, place: Node, start: int, length: int) -> Node:
    inside = build.minimum(build.maximum(place, 0), length - 1)
    return _pick(rows, inside + start)


def _sorted(data: Node, dim: int, wanted: Extent | None, is_descending: bool) -> tuple[Node, Node]:
    """Values and places i64 of the first elements in order along `dim`, which stays in place."""
    rank = data.type.rank
    if rank == 0:
        return data, build.scalar(0, "i64")
    axis = dim % rank
    keys = build.cast(data, "i32") if data.dtype == "bool" else data
    wanted = data.shape[axis] if wanted is None else wanted
    found = select(build.move_axis(keys, axis, rank - 1), wanted, is_descending)
    values, places = (build.move_axis(item, rank - 1, axis) for item in found)
    return build.cast(values, data.dtype), build.cast(places, "i64")


def _sort(call: Call, data: Node, *rest: bool | int) -> tuple[Node, Node]:
    # `sort` and `sort.stable` differ in an argument before these two.
    dim, is_descending = rest[-2:]
    return _sorted(data, dim, None, bool(is_descending))


def _topk(
    call: Call, data: Node, wanted: int, dim: int = -1, is_largest: bool = True, *rest: bool
) -> tuple[Node, Node]:
    return _sorted(data, dim, wanted, is_largest)


def _kth_value(call: Call, data: Node, place: int, dim: int = -1, *rest: bool) -> tuple[Node, Node]:
    values, places = _sorted(data, dim, place, False)
    if data.type.rank == 0:
        return values, places
    axis = dim % data.type.rank
    found = (build.slice_axis(item, axis, place - 1, place) for item in (values, places))
    kth, at = (build.reshape(item, call.shape) for item in found)
    return kth, at


def _median(skips_nan: bool) -> Row:
    """The lower of two middle elements; where one is NaN, that, unless NaN does not count."""

    def row(call: Call, data: Node, *rest: bool | int) -> Node | tuple[Node, Node]:
        whole = build.reshape(data, (data.type.numel,)) if len(call.results) == 1 else data
        values, places = _middle(whole, int(rest[0]) if rest else 0, skips_nan)
        if len(call.results) == 1:
            return build.reshape(values, ())
        return build.reshape(values, call.shape), build.reshape(places, call.shape)

    return row


def _middle(data: Node, dim: int, skips_nan: bool) -> tuple[Node, Node]:
    """Element and place of the median along `dim`, which stays as a dim of 1."""
    if data.type.rank == 0:
        return data, build.scalar(0, "i64")
    values, places = _sorted(data, dim, None, False)
    axis = dim % data.type.rank
    extent = data.shape[axis]
    shape = tuple(1 if each == axis else size for each, size in enumerate(data.shape))
    at = build.expand(number((extent - 1) // 2, "i64"), shape)
    if data.type.kind == "float":
        is_nan = build.cast(build.unary("isnan", data), "i64")
        unknown = build.reduce("sum", is_nan, (axis,))
        known = number(extent, "i64") - unknown
        if skips_nan:
            less = build.maximum(known - 1, 0)
            at = less // 2
        else:
            at = build.where(unknown > 0, known, at)
    found = (make("gather", (item, at), {"axis": axis}) for item in (values, places))
    value, place = found
    return value, place


def _mode(call: Call, data: Node, dim: int = -1, keeps_dim: bool = False) -> tuple[Node, Node]:
    """The smallest of the most frequent elements, and its last place."""
    if data.type.rank == 0:
        return data, build.scalar(0, "i64")
    values, places = _sorted(data, dim, None, False)
    axis = dim % data.type.rank
    counter = build.cast(build.counter(data.type.rank, axis, data.shape[axis]), "i32")
    is_first = build.equal(counter, 0)
    low = [int(each == axis) for each in range(data.type.rank)]
    later = build.pad(values, low, [0] * data.type.rank, 0)
    before = build.slice_axis(later, axis, 0, data.shape[axis])
    is_first = is_first | build.pointwise("ne", values, before)
    starts = build.expand(build.where(is_first, counter, 0), data.shape)
    lengths = counter - scan_along(MAXIMUM, starts, axis)
    longest = build.reduce("argmax", lengths, (axis,))
    found = (make("gather", (item, longest), {"axis": axis}) for item in (values, places))
    value, place = (build.reshape(item, call.shape) for item in found)
    return value, place


def _places(call: Call, edges: Node, values: Operand, is_right: bool, order: Node | None) -> Node:
    """How many of the sorted `edges` `[.., m]` stand before each value `[.., n]`."""
    if order is not None:
        edges = make("gather", (edges, order), {"axis": edges.type.rank - 1})
    sought = values if isinstance(values, Node) else build.scalar(values, edges.dtype)
    if edges.dtype != sought.dtype:
        raise NotSupported(f"a search for {sought.dtype} among {edges.dtype}")
    lead = edges.shape[:-1]
    inner = sought.shape[len(lead) :]
    across = build.reshape(edges, (*lead, *[1] * len(inner), edges.shape[-1]))
    own = build.reshape(sought, (*sought.shape, 1))
    # Written as what is not passed, so that NaN stands behind all.
    is_passed = ~build.pointwise("gt" if is_right else "ge", across, own)
    axis = len(sought.shape)
    count = build.reduce("sum", build.cast(is_passed, "i32"), (axis,))
    return build.cast(build.reshape(count, call.shape), call.dtype)


def _search_sorted(
    call: Call,
    edges: Node,
    values: Operand,
    is_narrow: bool = False,
    is_right: bool = False,
    side: str | None = None,
    order: Node | None = None,
) -> Node:
    return _places(call, edges, values, is_right or side == "right", order)


def _bucketize(
    call: Call, values: Operand, edges: Node, is_narrow: bool = False, is_right: bool = False
) -> Node:
    return _places(call, edges, values, is_right, None)


ROWS: Rows = {
    "sort": _sort,
    "topk": _topk,
    "kthvalue": _kth_value,
    "median": _median(False),
    "nanmedian": _median(True),
    "mode": _mode,
    "searchsorted": _search_sorted,
    "bucketize": _bucketize,
}
