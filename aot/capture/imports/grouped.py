"""Import rows of products in groups, and of the counts that say how large the groups are.

A mixture of experts sorts its rows by expert, counts those of each (`histc`), and multiplies each
run of rows by its expert's matrix: `aten._grouped_mm`, or the op that transformers has for element
types and devices which lack it.
"""

from __future__ import annotations

import math
from typing import Any

from aotc.aot.capture.imports.call import Call, NotSupported, Operand, Rows, wide
from aotc.aot.capture.imports.indexing import ROWS as WRITES
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.size import Extent, is_static

ENDLESS = "`histc` of data that are not all finite, without a range"
MOST_GROUPS = 4096  # a program of the kernel reads all ends at once


def _histogram(
    call: Call, data: Node, bins: int = 100, low: Operand = 0, high: Operand = 0
) -> Node:
    """⌊(x − low) · bins / (high − low)⌋ is the bin of x; the last one has its end, others none.

    Equal ends mean the least and the greatest element, and equal ones again one less and one more.
    """
    flat = build.reshape(data, (data.type.numel,))
    values = flat if data.type.kind == "int" else wide(flat)
    first, last = _ends(values, low, high)
    if low == high and values.type.kind == "float":
        is_finite = tuple(abs(end) < math.inf for end in (first, last))
        call.check_assertion(make("logical_and", is_finite), ENDLESS)
    if values.type.kind == "int":
        shifted = (values - first) * bins
        place = shifted // (last - first)
    else:
        shifted = (values - first) * float(bins)
        place = shifted / (last - first)
    is_in = (values >= first) & (values <= last)
    inside = build.minimum(build.cast(build.where(is_in, place, 0), "i32"), bins - 1)
    # One bin more is of those that are in none. Both ends change nothing: they prove that no index
    # is to be checked.
    index = build.maximum(build.minimum(build.where(is_in, inside, bins), bins), 0)
    zeros = build.expand(build.scalar(0, "i32"), (bins + 1,))
    ones = build.expand(build.scalar(1, "i32"), index.shape)
    counted = WRITES["scatter_add"](call, zeros, 0, index, ones)
    assert isinstance(counted, Node)
    return build.cast(build.slice_axis(counted, 0, 0, bins), call.dtype)


def _ends(values: Node, low: Operand, high: Operand) -> tuple[Node, Node]:
    """Both ends of the range as scalars of the values' type."""
    if isinstance(low, Node) or isinstance(high, Node):
        raise NotSupported("a histogram over a range that a tensor names")
    dtype = values.dtype
    if low != high:
        return build.scalar(low, dtype), build.scalar(high, dtype)  # type: ignore[arg-type]
    if not values.type.numel:
        return build.scalar(low - 1, dtype), build.scalar(low + 1, dtype)  # type: ignore[operator]
    least, most = (build.drop(build.extreme(name, values, (0,)), (0,)) for name in ("min", "max"))
    is_flat = build.equal(least, most)
    return (build.where(is_flat, least - 1, least), build.where(is_flat, most + 1, most))


def _grouped(
    call: Call,
    left: Node,
    right: Node,
    ends: Node | None = None,
    bias: Node | None = None,
    dtype: Any = None,
) -> Node:
    """`torch._grouped_mm`: ends are of the left one's rows, the right one's columns, or of both's
    common dim."""
    if bias is not None:
        raise NotSupported("a grouped product with a bias")
    found = _product(left, right, ends)
    return build.cast(found, call.dtype)


def _product(left: Node, right: Node, ends: Node | None) -> Node:
    ranks = left.type.rank, right.type.rank
    if ends is None or ranks == (3, 3):
        return build.matmul(left, right)
    if ranks == (2, 3):
        return _by_rows(left, right, ends)
    if ranks == (3, 2):  # (B·a)ᵀ = aᵀ·Bᵀ
        return build.transpose(_by_rows(build.transpose(right), build.transpose(left), ends))
    return _by_depth(left, right, ends)


def _by_rows(data: Node, matrices: Node, ends: Node) -> Node:
    shape: tuple[Extent, ...] = (data.shape[0], matrices.shape[2])
    if not data.type.numel or not matrices.type.numel:
        return build.expand(build.scalar(0, data.dtype), shape)
    if is_static((*data.shape[1:], *matrices.shape)):
        if matrices.shape[0] > MOST_GROUPS:
            raise NotSupported(f"{matrices.shape[0]} groups, expected at most {MOST_GROUPS}")
        return make("grouped_matmul", (data, matrices, ends))
    return _by_every_matrix(data, matrices, ends)


def _by_every_matrix(data: Node, matrices: Node, ends: Node) -> Node:
    """Each row by all matrices, and of the results the one of its group."""
    rows, (groups, depth, width) = data.shape[0], matrices.shape
    joined = build.reshape(build.permute(matrices, (1, 0, 2)), (depth, groups * width))
    every = build.reshape(build.matmul(data, joined), (rows, groups, width))
    places = build.cast(build.iota((rows, 1), 0), ends.dtype)
    is_past = build.reshape(ends, (1, groups)) <= places
    group = build.reduce("sum", build.cast(is_past, "i32"), (1,))
    column = build.cast(build.iota((1, groups), 1), "i32")
    is_own = build.reshape(build.equal(group, column), (rows, groups, 1))
    zeros = build.where(is_own, every, 0.0)
    return build.drop(build.reduce("sum", zeros, (1,)), (1,))


def _by_depth(left: Node, right: Node, ends: Node) -> Node:
    if not is_static((*left.shape, *right.shape)):
        raise NotSupported("a grouped product over a dynamic number of rows")
    shape = (ends.shape[0], left.shape[0], right.shape[1])
    if not left.type.numel or not right.type.numel or not math.prod(shape):
        return build.expand(build.scalar(0, left.dtype), shape)
    return make("grouped_matmul", (left, right, ends))


def _fallback(call: Call, data: Node, matrices: Node, ends: Node) -> Node:
    return _by_rows(data, matrices, ends)


def _fallback_backward(
    call: Call, data: Node, matrices: Node, ends: Node, gradient: Node
) -> tuple[Node, Node]:
    """d(x·W) by x and by W, each group by itself."""
    of_data = _by_rows(gradient, build.transpose(matrices), ends)
    return of_data, _by_depth(build.transpose(data), gradient, ends)


ROWS: Rows = {
    "histc": _histogram,
    "_grouped_mm": _grouped,
    "transformers::grouped_mm_fallback": _fallback,
    "transformers::grouped_mm_fallback_backward": _fallback_backward,
}
