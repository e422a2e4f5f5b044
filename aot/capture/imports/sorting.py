"""Import rows of sorting and searching, as places of rows in order, counting and lookups.

All sorts are stable, so every target gives one answer; NaN counts as greatest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from aotc.aot.capture.imports.call import Call, NotSupported, Operand, Row, Rows
from aotc.aot.capture.imports.scans import scan_along
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.size import Extent, UndecidedSize, bounds, fixed, highest

# Elements of a dynamic dim that targets without memory of a program sort as one row: shorter rows
# are filled up to the most.
LONGEST = 1 << 15
FEW_EDGES = 16  # that a value is compared with one by one

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


def _require_decided(extent: Extent) -> None:
    """Raises `UndecidedSize` for a dynamic dim that may be long where it need not be dynamic."""
    if not isinstance(extent, int) and highest(extent) > LONGEST and not _RANKS_LONG_ROWS.get():
        raise UndecidedSize(f"whether a sorted dim of `{extent}` has at most {LONGEST} elements")


def select(keys: Node, wanted: Extent, is_descending: bool) -> tuple[Node, Node]:
    """The first `wanted` elements of each row `[.., n]` in order, and their places i32.

    Raises `UndecidedSize` for a dynamic dim that may be long where it need not be dynamic.
    """
    _require_decided(keys.shape[-1])
    order = make("order_rows", (keys,), {"wanted": wanted, "descending": is_descending})
    return make("gather", (keys, order), {"axis": keys.type.rank - 1}), order


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
    if data.type.rank == 0:
        return data, build.scalar(0, "i64")
    axis = dim % data.type.rank
    found = _at_rank(data, axis, place)
    kth, at = (build.reshape(item, call.shape) for item in found)
    return kth, at


def _at_rank(data: Node, axis: int, wanted: Extent, ranks: Node | None = None) -> tuple[Node, Node]:
    """Elements along an axis and their places i64, a dim of 1 there: the last of the first `wanted`
    in order, or those at ranks i64 below that."""
    _require_decided(data.shape[axis])
    last = data.type.rank - 1
    keys = build.cast(data, "i32") if data.dtype == "bool" else data
    keys = build.move_axis(keys, axis, last)
    given = (keys,) if ranks is None else (keys, build.move_axis(ranks, axis, last))
    places = make("nth_places", given, {"wanted": wanted})
    values = make("gather", (keys, places), {"axis": last})
    values, places = (build.move_axis(each, last, axis) for each in (values, places))
    return build.cast(values, data.dtype), build.cast(places, "i64")


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
    axis = dim % data.type.rank
    extent = data.shape[axis]
    middle = (extent - 1) // 2
    if data.type.kind != "float":
        return _at_rank(data, axis, middle + 1)
    is_nan = build.cast(build.unary("isnan", data), "i64")
    unknown = build.reduce("sum", is_nan, (axis,))
    known = number(extent, "i64") - unknown
    if skips_nan:
        at = build.maximum(known - 1, 0) // 2
    else:
        at = build.where(unknown > 0, known, number(middle, "i64"))
    return _at_rank(data, axis, extent, at)


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
    lengths = counter - scan_along("max", starts, axis)
    longest = build.reduce("argmax", lengths, (axis,))
    found = (make("gather", (item, longest), {"axis": axis}) for item in (values, places))
    value, place = (build.reshape(item, call.shape) for item in found)
    return value, place


def _positions_of(
    call: Call, edges: Node, values: Operand, is_right: bool, order: Node | None
) -> Node:
    """How many of the sorted `edges` `[.., m]` stand before each value `[.., n]`."""
    if order is not None:
        edges = make("gather", (edges, order), {"axis": edges.type.rank - 1})
    sought = values if isinstance(values, Node) else build.scalar(values, edges.dtype)
    if edges.dtype != sought.dtype:
        raise NotSupported(f"a search for {sought.dtype} among {edges.dtype}")
    lead = edges.shape[:-1]
    rows = build.reshape(sought, (*lead, math.prod(sought.shape[len(lead) :])))
    is_reached = partial(build.pointwise, "gt" if is_right else "ge")
    extent = edges.shape[-1]
    is_few = isinstance(extent, int) and extent <= FEW_EDGES
    found = (_chosen if is_few else _bisected)(edges, rows, is_reached)
    return build.cast(build.reshape(found, call.shape), call.dtype)


# Both searches go by torch's steps, so that edges that are NaN or not sorted give the same: from
# `start` to `end` the middle edge ends the search behind it or before it. NaN is reached by no
# edge, so it stands behind all.


def _chosen(edges: Node, sought: Node, is_reached: Callable[[Node, Node], Node]) -> Node:
    """Places i32 of values `[.., n]` among few edges: each is compared with all of them, and the
    steps are choices between what follows."""
    axis = edges.type.rank - 1

    def search(start: int, end: int) -> Node:
        if start == end:
            return build.expand(build.scalar(start, "i32"), sought.shape)
        middle = (start + end) // 2
        edge = build.slice_axis(edges, axis, middle, middle + 1)
        follows = search(start, middle), search(middle + 1, end)
        return build.where(is_reached(edge, sought), *follows)

    return search(0, fixed(edges.shape[-1]))


def _bisected(edges: Node, sought: Node, is_reached: Callable[[Node, Node], Node]) -> Node:
    """The same among many: each step looks its edge up."""
    extent, axis = edges.shape[-1], edges.type.rank - 1
    fewest, most = bounds(extent)
    start = build.expand(build.scalar(0, "i32"), sought.shape)
    end = build.expand(number(extent, "i32"), sought.shape)
    if fewest == 0 and most > 0:  # something to look at where there is no edge
        edges = build.pad(edges, [0] * (axis + 1), [0] * axis + [1], 0)
    for _ in range(most.bit_length()):
        middle = start + build.pointwise("shift_right", end - start, 1)
        at = build.minimum(middle, build.maximum(number(extent - 1, "i32"), 0))
        edge = make("gather", (edges, at), {"axis": axis})
        is_before = is_reached(edge, sought)
        is_open = build.pointwise("lt", start, end)
        start = build.where(is_open & ~is_before, middle + 1, start)
        end = build.where(is_open & is_before, middle, end)
    return start


def _search_sorted(
    call: Call,
    edges: Node,
    values: Operand,
    is_narrow: bool = False,
    is_right: bool = False,
    side: str | None = None,
    order: Node | None = None,
) -> Node:
    return _positions_of(call, edges, values, is_right or side == "right", order)


def _bucketize(
    call: Call, values: Operand, edges: Node, is_narrow: bool = False, is_right: bool = False
) -> Node:
    return _positions_of(call, edges, values, is_right, None)


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
