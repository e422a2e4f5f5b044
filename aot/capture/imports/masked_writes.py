"""Import rows of writes where a mask holds: each element chooses between two values."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.capture.imports.call import Call, NotSupported, Rows
from aotc.aot.capture.imports.scans import SUM, scan
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make


def masked_put(data: Node, indices: Sequence[Node | None], values: Node, accumulates: bool) -> Node:
    """`index_put` with a mask in place of indices."""
    if len(indices) != 1 or indices[0] is None:
        raise NotSupported("a mask among other indices: how many elements it names depends on data")
    mask = build.cast(indices[0], "bool")
    shape = (*mask.shape, *[1] * (data.type.rank - mask.type.rank))
    where = build.expand(build.reshape(mask, shape), data.shape)
    rows = data.shape[mask.type.rank :]
    if values.type.rank > len(rows) and values.shape[0] == 1:
        values = build.reshape(values, values.shape[1:])
    if values.type.numel == 0:
        return data
    if values.type.rank <= len(rows):
        given = build.expand(build.align(values, data.type.rank), data.shape)
    else:  # one after the other, as many as the mask names: the caller's promise
        given = _in_turn(where, build.expand(values, (values.shape[0], *rows)))
    return build.where(where, data + given if accumulates else given, data)


def _masked_scatter(call: Call, data: Node, mask: Node, source: Node) -> Node:
    where = build.expand(mask, call.shape)
    whole = build.expand(data, call.shape)
    if source.type.numel == 0:
        return whole
    values = build.cast(_in_turn(where, source), data.dtype)
    return build.where(where, values, whole)


def _in_turn(where: Node, source: Node) -> Node:
    """The source's elements one after the other where the mask holds; anything elsewhere."""
    flat = build.cast(build.reshape(where, (where.type.numel,)), "i32")
    before = build.maximum(scan(SUM, flat) - 1, 0)
    place = build.minimum(before, source.type.numel - 1)
    taken = make("take", (build.reshape(source, (source.type.numel,)), place), {"axis": 0})
    return build.reshape(taken, where.shape)


ROWS: Rows = {
    "masked_scatter": _masked_scatter,
}
