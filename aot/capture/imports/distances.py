"""Import rows of distances between vectors, and norms of any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from aotc.aot.capture.imports.call import Call, Rows, axes_of, wide
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make


def norm(data: Node, order: float, axes: Sequence[int]) -> Node:
    """The vector norm of an order over axes, which stay; in f32 or wider."""
    size = abs(wide(data))
    if order == 2:
        return build.unary("sqrt", build.reduce("sum", size * size, axes))
    if math.isinf(order):
        if not axes:
            return size
        return build.extreme("max" if order > 0 else "min", size, axes)
    if order == 0:
        different = build.cast(build.pointwise("ne", size, 0.0), size.dtype)
        return build.reduce("sum", different, axes)
    if order == 1:
        return build.reduce("sum", size, axes)
    total = build.reduce("sum", build.pointwise("pow", size, order), axes)
    return build.pointwise("pow", total, 1.0 / order)


def _vector_norm(
    call: Call, data: Node, order: float = 2, dims: Sequence[int] | None = None, *rest: Any
) -> Node:
    operand, axes = build.cast(data, call.dtype), axes_of(dims, data.type.rank)
    if order and all(data.shape[axis] == 1 for axis in axes):
        found = abs(operand)  # (x²)^½ would lose what is very large or small
    else:
        found = norm(operand, float(order), axes)
    return build.reshape(build.cast(found, call.dtype), call.shape)


def _pairwise(call: Call, left: Node, right: Node, order: float = 2.0, *rest: Any) -> Node:
    rank = max(left.type.rank, right.type.rank)
    first, second = build.align(left, rank), build.align(right, rank)
    apart = build.reshape(first, (*first.shape[:-1], 1, first.shape[-1])) - build.reshape(
        second, (*second.shape[:-2], 1, *second.shape[-2:])
    )
    found = build.reshape(norm(apart, float(order), (rank,)), call.shape)
    return build.cast(found, call.dtype)


def _condensed(call: Call, data: Node, order: float = 2.0) -> Node:
    # The pairs i < j of rows, in order.
    first, second = numpy.triu_indices(data.shape[0], 1)
    left, right = (
        make("take", (data, call.table(at, "i64")), {"axis": 0}) for at in (first, second)
    )
    found = norm(left - right, float(order), (1,))
    return build.cast(build.reshape(found, call.shape), call.dtype)


ROWS: Rows = {
    "linalg_vector_norm": _vector_norm,
    "_cdist_forward": _pairwise,
    "_pdist_forward": _condensed,
}
