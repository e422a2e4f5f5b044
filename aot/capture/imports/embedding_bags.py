"""Import rows of embedding bags: rows of a table looked up and reduced over each bag."""

from __future__ import annotations

import math

import numpy

from aotc.aot.capture.imports import indexing
from aotc.aot.capture.imports.call import Call, NotSupported, Rows, wide
from aotc.aot.capture.imports.reductions import norm
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, walk
from aotc.aot.ir.reference import evaluate_all

SUM, MEAN, MAX = 0, 1, 2  # torch's numbers of the modes


def _embedding_bag(
    call: Call,
    table: Node,
    indices: Node,
    offsets: Node,
    scales_gradients: bool = False,
    mode: int = SUM,
    is_sparse: bool = False,
    factors: Node | None = None,
    has_last_offset: bool = False,
    padding: int = -1,
) -> tuple[Node, None, None, None]:
    """Bags of one size are a dim of their own; others a matrix of who is in which."""
    count, bags = indices.type.numel, call.shape[0]
    call.check_index(indices, table.shape[0])
    _check_offsets(call, offsets, count)
    rows = wide(make("take", (table, indices), {"axis": 0}))
    if factors is not None:
        rows = rows * build.reshape(build.cast(factors, rows.dtype), (count, 1))
    is_counted = build.pointwise("ne", indices, padding)
    if padding < 0:
        is_counted = build.expand(build.scalar(True, "bool"), (count,))
    if has_last_offset:
        offsets = build.slice_axis(offsets, 0, 0, bags)
    if bags and count % bags == 0 and _are_even(offsets, count // bags):
        parts = build.reshape(rows, (bags, count // bags, rows.shape[1]))
        member = build.reshape(is_counted, (bags, count // bags, 1))
    else:
        member = _member(offsets, count) & _row(is_counted)
        member = build.reshape(member, (bags, count, 1))
        parts = build.reshape(rows, (1, *rows.shape))
    reduced = _reduced(parts, member, mode)
    return build.cast(build.drop(reduced, (1,)), call.dtype), None, None, None


def _check_offsets(call: Call, offsets: Node, count: int) -> None:
    """The first is 0, none is smaller than the one before it or beyond the indices."""
    bags = offsets.type.numel
    if bags:
        call.check_index(build.slice_axis(offsets, 0, 0, 1), 1)
        call.check_index(offsets, count + 1)
    if bags > 1:
        after, before = (build.slice_axis(offsets, 0, at, bags - 1 + at) for at in (1, 0))
        steps = build.cast(after, "i64") - build.cast(before, "i64")
        call.check_index(steps, count + 1)


def _are_even(offsets: Node, size: int) -> bool:
    """Whether the offsets are counted at build time and each bag has `size` indices."""
    if any(node.op in ("input", "constant") for node in walk((offsets,))):
        return False
    found = evaluate_all((offsets,), {}, {})[0]
    return bool(numpy.array_equal(found, numpy.arange(found.size) * size))


def _member(offsets: Node, count: int) -> Node:
    """bool[bags, count]: which indices are in which bag."""
    bags = offsets.shape[0]
    place = build.iota((1, count), 1)
    starts = build.cast(offsets, "i64")
    last = build.expand(build.scalar(count, "i64"), (1,))
    ends = build.concat((build.slice_axis(starts, 0, 1, bags), last), 0) if bags > 1 else last
    column = (bags, 1)
    is_begun = place >= build.reshape(starts, column)
    is_open = place < build.reshape(ends, column)
    return is_begun & is_open


def _row(data: Node) -> Node:
    return build.reshape(data, (1, data.type.numel))


def _reduced(parts: Node, member: Node, mode: int) -> Node:
    """[bags, 1, width] of the parts [bags or 1, size, width] that are members; empty bags are 0."""
    if mode not in (SUM, MEAN, MAX):
        raise NotSupported(f"bags reduced by mode {mode}")
    weights = build.cast(member, parts.dtype)
    sizes = build.reduce("sum", weights, (1,))
    if mode == MAX:
        kept = build.where(member, parts, build.scalar(-math.inf, parts.dtype))
        highest = build.reduce("max", kept, (1,))
        return build.where(sizes > 0.0, highest, 0.0)
    kept = build.where(member, parts, build.scalar(0.0, parts.dtype))
    total = build.reduce("sum", kept, (1,))
    if mode == SUM:
        return total
    return total / build.maximum(sizes, 1.0)


def _embedding_renorm(call: Call, table: Node, indices: Node, largest: float, power: float) -> Node:
    """Rows that are looked up and longer than `largest` shrunk to it."""
    rows = table.shape[0]
    unasked = build.expand(build.scalar(False, "bool"), (rows, 1))
    asked = build.reshape(indices, (indices.type.numel,))
    is_asked = indexing.ROWS["index_fill"](call, unasked, 0, asked, True)
    assert isinstance(is_asked, Node)
    length = norm(table, power, (1,))
    scale = largest / (length + 1e-7)
    is_long = is_asked & (length > largest)
    shrunk = wide(table) * build.where(is_long, scale, 1.0)
    return build.cast(shrunk, call.dtype)


ROWS: Rows = {
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "embedding_renorm": _embedding_renorm,
}
