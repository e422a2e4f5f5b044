"""Import rows of ops that look up elements by indices; each call checks the indices.

Kernels never leave memory: what is out of range reads the nearest place there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from aotc.aot.capture.imports.call import Call, NotSupported, Rows, wrapped
from aotc.aot.capture.imports.scatters import flat_place
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make


def _embedding(call: Call, table: Node, indices: Node, *rest: Any) -> Node:
    call.check_index(indices, table.shape[0])
    return make("take", (table, indices), {"axis": 0})


def _index_select(call: Call, data: Node, dim: int, indices: Node) -> Node:
    call.check_index(indices, data.shape[dim] if data.type.rank else 1)
    if 0 in (data.type.rank, indices.type.rank):
        data, indices = build.align(data, 1), build.align(indices, 1)
        found = make("take", (data, indices), {"axis": dim % data.type.rank})
        return build.reshape(found, call.shape)
    return make("take", (data, indices), {"axis": dim % data.type.rank})


def _gather(call: Call, data: Node, dim: int, index: Node, *rest: Any) -> Node:
    call.check_index(index, data.shape[dim] if data.type.rank else 1)
    if 0 in (data.type.rank, index.type.rank):
        data, index = (build.align(item, 1) for item in (data, index))
        return build.reshape(make("gather", (data, index), {"axis": 0}), call.shape)
    return make("gather", (data, index), {"axis": dim % data.type.rank})


def _index(call: Call, data: Node, indices: Sequence[Node | None], is_checked: bool = True) -> Node:
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(index.dtype in ("bool", "u8") for index in given):
        raise NotSupported("a mask as index: its result's shape depends on data")
    if not axes:
        return data
    if axes != list(range(axes[0], axes[0] + len(axes))):
        # torch puts the indexed dims first where a whole dim stands between them.
        rest = [axis for axis in range(data.type.rank) if axis not in axes]
        data, axes = build.permute(data, (*axes, *rest)), list(range(len(axes)))
    extents = [data.shape[axis] for axis in axes]
    if is_checked:
        for index, extent in zip(given, extents, strict=True):
            call.check_index(index, extent, wraps=True)
    flat, _ = flat_place(given, extents)
    first, last = axes[0], axes[-1] + 1
    shape = (*data.shape[:first], math.prod(extents), *data.shape[last:])
    return make("take", (build.reshape(data, shape), flat), {"axis": first})


def _take(call: Call, data: Node, index: Node) -> Node:
    call.check_index(index, data.type.numel, wraps=True)
    flat = build.reshape(data, (data.type.numel,))
    return make("take", (flat, wrapped(index, data.type.numel)), {"axis": 0})


def _one_hot(call: Call, classes: Node, count: int = -1) -> Node:
    if isinstance(count, int) and count < 0:
        raise NotSupported("how many classes there are depends on data: give `num_classes`")
    call.check_index(classes, count)
    rank = classes.type.rank
    column = build.iota((*[1] * rank, count), rank)
    pairs = build.reshape(build.cast(classes, "i64"), (*classes.shape, 1))
    return build.cast(call.fill(build.equal(pairs, column)), call.dtype)


ROWS: Rows = {
    "embedding": _embedding,
    "gather": _gather,
    "index": _index,
    "_unsafe_index": partial(_index, is_checked=False),
    "index_select": _index_select,
    "one_hot": _one_hot,
    "take": _take,
}
