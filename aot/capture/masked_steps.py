"""Ops that may be applied to all rows in place of the rows that a mask selects.

They are ops on each row by itself, whose dims are counted from the end, and reductions over the
rows, which leave out the rows that the mask does not select.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

aten = torch.ops.aten
NO_ROWS = "a mask selects no rows, of which there is no largest or smallest"
# Op of each row by itself → the place of its dim or dims.
ROW_WISE = {
    aten._log_softmax.default: 1, aten._softmax.default: 1, aten.all.dim: 1, aten.amax.default: 1,
    aten.amin.default: 1, aten.any.dim: 1, aten.argmax.default: 1, aten.argmin.default: 1,
    aten.cat.default: 1, aten.cumsum.default: 1, aten.gather.default: 1,
    aten.linalg_vector_norm.default: 2, aten.log_softmax.int: 1, aten.mean.dim: 1,
    aten.prod.dim_int: 1, aten.select.int: 1, aten.slice.Tensor: 1, aten.softmax.int: 1,
    aten.squeeze.dims: 1, aten.sum.dim_IntList: 1, aten.unsqueeze.default: 1,
    aten.var.correction: 1,
}  # fmt: skip
# Op that looks rows up → the place of their indices, which are checked, and of those of the rows.
LOOKED_UP = {aten.embedding.default: (1, (1,)), aten.gather.default: (2, (0, 2))}
# Op on the last dims of rows with what is not of rows → the place of the rows, and whether these
# have to be a matrix.
PRODUCTS = {
    aten.addmm.default: (1, True), aten.layer_norm.default: (0, False),
    aten.linear.default: (0, False), aten.matmul.default: (0, False), aten.mm.default: (0, True),
    aten.rms_norm.default: (0, False),
}  # fmt: skip
# Reduction → the place of its dims, None for all, and of whether they stay.
REDUCTIONS: dict[Any, tuple[int | None, int | None]] = {
    aten.all.default: (None, None), aten.amax.default: (1, 2), aten.amin.default: (1, 2),
    aten.any.default: (None, None), aten.any.dim: (1, 2), aten.any.dims: (1, 2),
    aten.linalg_vector_norm.default: (2, 3),
    aten.max.default: (None, None), aten.mean.default: (None, None), aten.mean.dim: (1, 2),
    aten.min.default: (None, None), aten.prod.default: (None, None),
    aten.std.correction: (1, None), aten.sum.dim_IntList: (1, 2), aten.var.correction: (1, None),
}  # fmt: skip
SQUARES = (aten.std.correction, aten.var.correction)
# Reduction → the same over any dims, in the order of its arguments.
WHOLE = {
    aten.any.default: aten.any.dims, aten.any.dim: aten.any.dims,
    aten.max.default: aten.amax.default, aten.min.default: aten.amin.default,
}  # fmt: skip
Make = Callable[..., Node]


def value_of(node: Any) -> Any:
    """What a node gives, as torch recorded it; anything else is itself."""
    return node.meta.get("val") if isinstance(node, Node) else node


def dims_from_end(node: Node) -> tuple[int, int | list[int]] | None:
    """The place of the dims of an op on each row, and these from the end; None for any other op."""
    place = ROW_WISE.get(node.target)
    if place is None or len(node.args) <= place:
        return None
    data = node.args[0][0] if node.target is aten.cat.default else node.args[0]
    rank = value_of(data).dim() + (node.target is aten.unsqueeze.default)
    given = node.args[place]
    dims = [given] if isinstance(given, int) else list(given or ())
    found = [dim if dim < 0 else dim - rank for dim in dims]
    if not dims or -rank in found:
        return None
    return place, found[0] if isinstance(given, int) else found


def is_reduction(node: Node, mask: Node) -> bool:
    """Whether this reduces rows of such a mask, and is done as well to all rows."""
    if node.target not in REDUCTIONS or value_of(node.args[0]).is_complex():
        return False
    if not value_of(mask).dim():  # one truth value selects all or nothing
        return False
    dims, stays = _dims(node)
    if dims and 0 not in dims:
        return False
    if stays and value_of(mask).dim() > 1:
        return False
    is_norm = node.target is aten.linalg_vector_norm.default
    return not is_norm or (len(node.args) < 2 or node.args[1] > 0)


def _dims(node: Node) -> tuple[list[int], bool]:
    """The dims of a reduction, none for all, and whether they stay."""
    place, kept = REDUCTIONS[node.target]
    given: Any = None
    if place is not None:
        given = node.args[place] if len(node.args) > place else node.kwargs.get("dim")
    stays = kept is not None and len(node.args) > kept and bool(node.args[kept])
    rank = value_of(node.args[0]).dim()
    given = [given] if isinstance(given, int) else given
    return [dim % rank for dim in given or ()], stays or bool(node.kwargs.get("keepdim"))


def reduced(node: Node, mask: Node, dims: Sequence[int], stays: bool, make: Make) -> Node:
    """The reduction of those rows that the mask has; dims: of all rows with the mask's dims."""
    data = node.args[0]
    wide = value_of(data).dim()
    while value_of(mask).dim() < wide:
        mask = make(aten.unsqueeze.default, mask, -1)
    op = WHOLE.get(node.target, node.target)
    if op in (aten.mean.default, aten.mean.dim, *SQUARES):
        return _of_counts(node, data, mask, dims, stays, make)
    if op in (aten.amax.default, aten.amin.default):
        make(aten._assert_async.msg, make(aten.any.default, mask), NO_ROWS)
    filled = _filled(data, mask, _identity(op, value_of(data).dtype), make)
    if op is aten.linalg_vector_norm.default:
        order = node.args[1] if len(node.args) > 1 else 2
        return make(op, filled, order, dims or None, stays, **_without_dims(node))
    if op is aten.any.dims:
        return make(op, filled, list(dims) or None, stays)
    if op in (aten.all.default, aten.prod.default):
        return make(op, filled, **node.kwargs)
    return make(op, filled, list(dims), stays, **_without_dims(node))


def _without_dims(node: Node) -> dict[str, Any]:
    return {name: each for name, each in node.kwargs.items() if name not in ("dim", "keepdim")}


def _filled(data: Node, mask: Node, number: Any, make: Make) -> Node:
    value = value_of(data)
    other = make(aten.full.default, [], number, dtype=value.dtype, device=value.device)
    return make(aten.where.self, mask, data, other)


def _identity(op: Any, dtype: torch.dtype) -> Any:
    """What an element gives that a reduction leaves out."""
    if op is aten.prod.default:
        return 1
    if op not in (aten.amax.default, aten.amin.default):
        return op is aten.all.default if dtype == torch.bool else int(op is aten.all.default)
    is_most = op is aten.amax.default
    if dtype == torch.bool:
        return not is_most
    if dtype.is_floating_point:
        return -math.inf if is_most else math.inf
    return torch.iinfo(dtype).min if is_most else torch.iinfo(dtype).max


def _of_counts(
    node: Node, data: Node, mask: Node, dims: Sequence[int], stays: bool, make: Make
) -> Node:
    """A mean or a variance: sums of the rows by how many elements they have, in wide floats."""
    dtype = value_of(node).dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    data = make(aten._to_copy.default, data, dtype=wide)
    shape = make(aten.expand.default, mask, list(value_of(data).shape))
    is_variance = node.target in SQUARES
    count = make(aten.sum.dim_IntList, shape, list(dims), stays or is_variance, dtype=wide)

    def total(rows: Node, remains: bool) -> Node:
        return make(aten.sum.dim_IntList, _filled(rows, mask, 0, make), list(dims), remains)

    if not is_variance:
        return make(
            aten._to_copy.default, make(aten.div.Tensor, total(data, stays), count), dtype=dtype
        )
    mean = make(aten.div.Tensor, total(data, True), count)
    away = make(aten.sub.Tensor, data, mean)
    squares = total(make(aten.mul.Tensor, away, away), stays)
    count = make(aten.sum.dim_IntList, shape, list(dims), stays, dtype=wide)
    correction = node.kwargs.get("correction", 1)
    fewer = make(aten.sub.Tensor, count, 1 if correction is None else correction)
    share = make(aten.div.Tensor, squares, make(aten.clamp.default, fewer, 0))
    if node.target is aten.std.correction:
        share = make(aten.sqrt.default, share)
    return make(aten._to_copy.default, share, dtype=dtype)


def dims_of_reduction(node: Node, mask_rank: int) -> tuple[list[int], bool]:
    """The dims of a reduction of selected rows among those of all rows, where the mask's dims stand
    for the first one; none for all of them. And whether they stay."""
    dims, stays = _dims(node)
    rank = value_of(node.args[0]).dim()
    inner = sorted(dim - rank for dim in dims if dim)
    return ([*range(mask_rank), *inner] if dims else []), stays
