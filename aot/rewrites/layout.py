"""Layout: convolutions as NHWC matmuls of windows; permutes and reshapes sunk below other work.

After these rules a buffer has the layout of the matmul that fills it, and views that lead back to
the user's layout stand at the outputs or meet their opposite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.rules import Context, Rule, rule_for
from aotc.aot.ir.size import Extent, Shape, typical
from aotc.aot.rewrites.views import POINTWISE


def _channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dims.index(dim) for dim in range(len(dims)))


def _padded_windows(root: Node) -> Node:
    """The convolution's windows over its channels-last data: [N, *positions, C, *kernel]."""
    data, weight = root.inputs
    margins = (0, *root.attr("padding"), 0)
    padded = build.pad(build.permute(data, _channels_last(data.type.rank)), margins, margins, 0.0)
    attrs = {
        "axes": tuple(range(1, 1 + len(root.attr("stride")))),
        "sizes": weight.shape[2:],
        "strides": root.attr("stride"),
        "dilations": root.attr("dilation"),
    }
    return make("window", (padded,), attrs)


def _back(rows: Node, root: Node) -> Node:
    """Rows [N · positions, Co] as the convolution's result, a view."""
    samples, channels, *positions = root.shape
    image = build.reshape(rows, (samples, *positions, channels))
    return build.permute(image, _inverse(_channels_last(root.type.rank)))


def _convolution_matmul(root: Node) -> Node | None:
    """conv(x, w) → [windows of x as rows] · w, for one group"""
    if root.attr("groups") != 1:
        return None
    data, weight = root.inputs
    outputs, inputs, *kernel = weight.shape
    rank = len(kernel)
    is_pointwise = math.prod(kernel) == 1 and set(root.attr("stride")) == {1}
    if is_pointwise and not any(root.attr("padding")):
        rows = build.reshape(
            build.permute(data, _channels_last(rank + 2)), (data.type.numel // inputs, inputs)
        )
        columns = build.permute(build.reshape(weight, (outputs, inputs)), (1, 0))
        return _back(make("matmul", (rows, columns)), root)
    # [N, *positions, C, *kernel] → [N, *positions, *kernel, C]: channels lie together in memory.
    order = (*range(rank + 1), *range(rank + 2, 2 * rank + 2), rank + 1)
    windows = build.permute(_padded_windows(root), order)
    inner = inputs * math.prod(kernel)
    rows = build.reshape(windows, (root.type.numel // outputs, inner))
    filters = build.permute(weight, (*range(2, 2 + rank), 1, 0))
    return _back(make("matmul", (rows, build.reshape(filters, (inner, outputs)))), root)


def _convolution_depthwise(root: Node) -> Node | None:
    """conv(x, w) → sum over the kernel of window · w, for one channel a group"""
    data, weight = root.inputs
    channels, per_group, *kernel = weight.shape
    rank = len(kernel)
    if per_group != 1 or channels != data.shape[1] or root.attr("groups") == 1:
        return None
    factors = build.reshape(weight, (*[1] * (rank + 1), channels, *kernel))
    product = make("mul", (_padded_windows(root), factors))
    inner = tuple(range(rank + 2, 2 * rank + 2))
    total = build.drop(build.reduce("sum", product, inner), inner)
    return build.permute(total, _inverse(_channels_last(rank + 2)))


def _convolution_grouped(root: Node) -> Node | None:
    """conv(x, w) → one matmul a group, batched over the groups"""
    groups = root.attr("groups")
    if groups == 1:
        return None
    weight = root.inputs[1]
    outputs, inputs, *kernel = weight.shape
    rank = len(kernel)
    windows = _padded_windows(root)
    split = build.reshape(
        windows, (*windows.shape[: rank + 1], groups, inputs, *windows.shape[rank + 2 :])
    )
    order = (rank + 1, *range(rank + 1), *range(rank + 3, 2 * rank + 3), rank + 2)
    inner, rows = inputs * math.prod(kernel), root.type.numel // outputs
    left = build.reshape(build.permute(split, order), (groups, rows, inner))
    filters = build.reshape(weight, (groups, outputs // groups, inputs, *kernel))
    ordered = build.permute(filters, (0, *range(3, 3 + rank), 2, 1))
    right = build.reshape(ordered, (groups, inner, outputs // groups))
    product = build.permute(make("matmul", (left, right)), (1, 0, 2))
    return _back(build.reshape(product, (rows, outputs)), root)


def _sink_permute(root: Node, context: Context) -> Node | None:
    """op(permute(x, p), permute(y, p)) → permute(op(x, y), p)"""
    moved = [each for each in root.inputs if each.op == "permute"]
    found = {each.attr("dims") for each in moved}
    if len(found) != 1 or build.is_laid_out(root):
        return None
    dims = found.pop()
    largest = max(typical(each.type.numel) for each in moved)
    is_constant = all(map(context.is_constant, moved))
    if is_constant and not context.is_constant(root):  # it is folded where it is
        return None
    operands = [_unpermuted(each, dims, largest, is_constant, context) for each in root.inputs]
    plain = _of(root, operands)
    return None if plain is None else build.permute(plain, dims)


def _of(root: Node, operands: Sequence[Node | None]) -> Node | None:
    """The same op of other operands, where all are there; its shape may differ."""
    known = tuple(operand for operand in operands if operand is not None)
    return make(root.op, known, root.attrs) if len(known) == len(operands) else None


def _unpermuted(
    operand: Node, dims: tuple[int, ...], largest: int, is_constant: bool, context: Context
) -> Node | None:
    """The operand before `dims`, or None where that would make strided what lies together.

    A permute only goes to another operand that is much smaller than the largest permuted one, or of
    which only dims of 1 move, or from what is computed to a constant: two operands that are alike
    would hand it to each other for ever. `is_constant`: all that is permuted is.
    """
    if operand.op == "permute":
        return operand.inputs[0]
    if operand.type.rank == 0:
        return operand
    back = _inverse(dims)
    long = [dim for dim in back if operand.shape[dim] != 1]
    is_small = 0 < typical(operand.type.numel) * 8 <= largest or long == sorted(long)
    is_folded = context.is_constant(operand) and not is_constant
    return build.permute(operand, back) if is_small or is_folded else None


def _sink_permute_reduce(root: Node) -> Node | None:
    """sum(permute(x, p), axes) → permute(sum(x, p[axes]), p)"""
    (data,) = root.inputs
    if data.op != "permute" or (root.op.startswith("arg") and len(root.attr("axes")) > 1):
        return None
    dims = data.attr("dims")
    axes = tuple(sorted(dims[axis] for axis in root.attr("axes")))
    return build.permute(make(root.op, data.inputs, {"axes": axes}), dims)


def _sink_permute_move(root: Node) -> Node | None:
    """pad, slice, expand, flip of permute(x, p) → permute of the same of x"""
    (data,) = root.inputs
    if data.op != "permute":
        return None
    dims, source = data.attr("dims"), data.inputs[0]
    inverse = _inverse(dims)
    attrs = dict(root.attrs)
    if root.op == "pad":
        attrs |= {name: tuple(attrs[name][dim] for dim in inverse) for name in ("low", "high")}
    elif root.op == "expand":
        attrs["shape"] = tuple(attrs["shape"][dim] for dim in inverse)
    elif root.op == "slice":
        attrs["axis"] = dims[attrs["axis"]]
    else:
        attrs["axes"] = tuple(sorted(dims[axis] for axis in attrs["axes"]))
    return build.permute(make(root.op, (source,), attrs), dims)


def _sink_permute_take(root: Node) -> Node | None:
    """take(permute(x, p), places along an axis) → permute(take(x, places), p): reflected margins"""
    data, places = root.inputs
    if data.op != "permute" or places.type.rank != 1:
        return None
    dims = data.attr("dims")
    attrs = dict(root.attrs) | {"axis": dims[root.attr("axis")]}
    return build.permute(make("take", (data.inputs[0], places), attrs), dims)


def _sink_permute_window(root: Node) -> Node | None:
    """window(permute(x, p)) → permute(window(x), p and the inner dims)"""
    (data,) = root.inputs
    if data.op != "permute":
        return None
    dims = data.attr("dims")
    rank = len(dims)
    attrs = dict(root.attrs) | {"axes": tuple(dims[axis] for axis in root.attr("axes"))}
    windows = make("window", data.inputs, attrs)
    return build.permute(windows, (*dims, *range(rank, windows.type.rank)))


def _sink_permute_concat(root: Node) -> Node | None:
    """concat(permute(x, p), permute(y, p)) → permute(concat(x, y), p)"""
    found = {part.attr("dims") if part.op == "permute" else None for part in root.inputs}
    dims = found.pop()
    if found or dims is None:
        return None
    parts = [part.inputs[0] for part in root.inputs]
    return build.permute(build.concat(parts, dims[root.attr("axis")]), dims)


def _ones_first(source: Node, shape: Shape, dims: list[int]) -> Node:
    """permute(x, …) of `shape` whose long dims are `dims` of the source, with the ones in front."""
    places = [place for place, extent in enumerate(shape) if extent != 1]
    kept = sorted(dims)
    ones = len(shape) - len(kept)
    plain = build.reshape(source, (*[1] * ones, *(source.shape[dim] for dim in kept)))
    long_place = dict(zip(places, dims, strict=True))
    spare = iter(range(ones))
    order = [
        ones + kept.index(long_place[place]) if place in long_place else next(spare)
        for place in range(len(shape))
    ]
    return build.permute(plain, order)


def _reshape_permute_ones(root: Node) -> Node | None:
    """reshape(permute(x, p)) that only adds or drops dims of 1 → permute(reshape(x))"""
    (data,) = root.inputs
    if data.op != "permute":
        return None
    source = data.inputs[0]
    dims = [dim for dim in data.attr("dims") if source.shape[dim] != 1]
    if [source.shape[dim] for dim in dims] != [extent for extent in root.shape if extent != 1]:
        return None
    return _ones_first(source, root.shape, dims)


def _permute_ones_first(root: Node) -> Node | None:
    """permute(x, p) with dims of 1 anywhere → permute(reshape(x)) with them in front"""
    (source,) = root.inputs
    dims = [dim for dim in root.attr("dims") if source.shape[dim] != 1]
    return _ones_first(source, root.shape, dims) if 1 in source.shape else None


def _reshape_permute_split(root: Node) -> Node | None:
    """reshape(permute(x, p)) that splits dims → permute(reshape(x))"""
    (data,) = root.inputs
    if data.op != "permute" or 1 in root.shape:
        return None
    groups = _split_groups(data.shape, root.shape)
    if groups is None:
        return None
    source, dims = data.inputs[0], data.attr("dims")
    group_of = dict(zip(dims, groups, strict=True))
    ordered = [group_of[dim] for dim in range(source.type.rank)]
    split = build.reshape(source, [root.shape[place] for group in ordered for place in group])
    flat = [place for group in ordered for place in group]
    return build.permute(split, [flat.index(place) for place in range(root.type.rank)])


def _split_groups(shape: Shape, split: Shape) -> list[list[int]] | None:
    """Places of `split` that each dim of `shape` becomes, or None when dims are merged."""
    groups: list[list[int]] = []
    place = 0
    for extent in shape:
        group: list[int] = []
        product: Extent = 1
        while product != extent and place < len(split):
            product *= split[place]
            group.append(place)
            place += 1
        if product != extent:
            return None
        groups.append(group)
    return groups if place == len(split) else None


def _sink_permute_rows(root: Node) -> Node | None:
    """rows of x in another order · w → (rows of x in memory order · w) in that order"""
    rows, weight = root.inputs
    if rows.op != "reshape" or rows.inputs[0].op != "permute" or rows.type.rank != 2:
        return None
    data = rows.inputs[0]
    count = _row_dims(data.shape, rows.shape[0])
    dims = data.attr("dims")
    if count is None or list(dims[:count]) == sorted(dims[:count]):
        return None
    leading = sorted(dims[:count])
    sorted_rows = build.permute(data.inputs[0], (*leading, *dims[count:]))
    product = make(root.op, (build.reshape(sorted_rows, rows.shape), weight), root.attrs)
    columns = root.shape[1]
    shape = [data.inputs[0].shape[dim] for dim in leading]
    split = build.reshape(product, (*shape, columns))
    order = [leading.index(dim) for dim in dims[:count]]
    return build.reshape(build.permute(split, (*order, count)), root.shape)


def _row_dims(shape: Shape, rows: Extent) -> int | None:
    """How many leading dims make up `rows`."""
    for count in range(1, len(shape)):
        if math.prod(shape[:count]) == rows:
            return count
    return None


def _sink_reshape(root: Node) -> Node | None:
    """op(reshape(x), v) → reshape(op(x, v)) while the last dim stays whole, v a last-dim vector"""
    sources = {
        operand.inputs[0].shape
        for operand in root.inputs
        if operand.op == "reshape" and operand.shape == root.shape
    }
    if len(sources) != 1:
        return None
    shape = sources.pop()
    if not shape or shape[-1:] != root.shape[-1:] or len(shape) >= root.type.rank:
        return None
    operands = [_flattened(operand, shape, root) for operand in root.inputs]
    flat = _of(root, operands)
    return None if flat is None else build.reshape(flat, root.shape)


def _flattened(operand: Node, shape: Shape, root: Node) -> Node | None:
    if operand.type.rank == 0:
        return operand
    if operand.shape[:-1] == (1,) * (root.type.rank - 1):
        return build.reshape(operand, (*[1] * (len(shape) - 1), operand.shape[-1]))
    if operand.shape == (*root.shape[:-1], 1):
        return build.reshape(operand, (*shape[:-1], 1))
    is_contiguous = operand.op == "reshape" or operand.kind != "view"
    if operand.shape == root.shape and is_contiguous:
        return build.reshape(operand, shape)
    return None


def _sink_row_order(root: Node) -> Node | None:
    """op(reshape(permute(x)), v) → reshape(permute(op(x, v))) for v a scalar or last-dim vector"""
    moved = [operand for operand in root.inputs if operand.op == "reshape"]
    if len(moved) != 1 or moved[0].inputs[0].op != "permute" or moved[0].shape != root.shape:
        return None
    permuted = moved[0].inputs[0]
    rank, dims = permuted.type.rank, permuted.attr("dims")
    if dims[-1] != rank - 1 or permuted.shape[-1] != root.shape[-1]:
        return None
    operands = []
    for operand in root.inputs:
        is_vector = operand.shape[:-1] == (1,) * (root.type.rank - 1)
        if operand is moved[0]:
            operands.append(permuted.inputs[0])
        elif operand.type.rank == 0:
            operands.append(operand)
        elif is_vector:
            operands.append(build.reshape(operand, (*[1] * (rank - 1), operand.shape[-1])))
        else:
            return None
    result = make(root.op, tuple(operands), root.attrs)
    return build.reshape(build.permute(result, dims), root.shape)


def _sink_reshape_reduce(root: Node) -> Node | None:
    """sum(reshape(x), last) → reshape(sum(x, last)) while the last dim stays whole"""
    (data,) = root.inputs
    if data.op != "reshape" or root.attr("axes") != (data.type.rank - 1,):
        return None
    source = data.inputs[0]
    if not source.shape or source.shape[-1] != data.shape[-1]:
        return None
    if source.type.rank >= data.type.rank:
        return None
    reduced = make(root.op, (source,), {"axes": (source.type.rank - 1,)})
    return build.reshape(reduced, root.shape)


def _sink_merge(root: Node) -> Node | None:
    """op(reshape(permute(x)), v) → reshape(op(permute(x), v)) where the reshape merges dims: a norm
    over samples and channels as one dim, as torch has InstanceNorm"""
    moved = [operand for operand in root.inputs if _is_merge(operand)]
    shapes = {operand.inputs[0].shape for operand in moved}
    if len(shapes) != 1 or moved[0].shape != root.shape or build.is_laid_out(root):
        return None
    shape = shapes.pop()
    groups = _split_groups(root.shape, shape)
    if groups is None:
        return None
    operands = [_unmerged(operand, shape, groups, root) for operand in root.inputs]
    found = _of(root, operands)
    return None if found is None else build.reshape(found, root.shape)


def _is_merge(node: Node) -> bool:
    return node.op == "reshape" and node.inputs[0].op == "permute"


def _unmerged(operand: Node, shape: Shape, groups: list[list[int]], root: Node) -> Node | None:
    """The operand with the dims of `shape`, if that moves nothing of full size."""
    if operand.type.rank == 0:
        return operand
    if operand.op == "reshape" and operand.inputs[0].shape == shape:
        return operand.inputs[0]
    is_small = typical(operand.type.numel) * 8 <= typical(root.type.numel)
    if operand.type.rank != root.type.rank or not is_small:
        return None
    extents: list[Extent] = [1] * len(shape)
    for extent, group in zip(operand.shape, groups, strict=True):
        for place in group if extent != 1 else ():
            extents[place] = shape[place]
    return build.reshape(operand, extents)


def _sink_split(root: Node, context: Context) -> Node | None:
    """op(reshape(x), v) → reshape(op(x, v)) where dims are split, v a constant of several
    elements: the norm behind a transposed convolution, whose phases were channels"""
    moved = [each for each in root.inputs if each.op == "reshape" and each.shape == root.shape]
    if len(moved) != 1 or len(root.inputs) == 1:
        return None
    source = moved[0].inputs[0]
    groups = _split_groups(source.shape, root.shape)
    if groups is None or root.type.rank <= source.type.rank or root.shape[-1] == 1:
        return None
    operands = [
        source if each is moved[0] else _joined(each, groups, root, context) for each in root.inputs
    ]
    found = _of(root, operands)
    return None if found is None else build.reshape(found, root.shape)


def _joined(operand: Node, groups: list[list[int]], root: Node, context: Context) -> Node | None:
    """A constant with the dims of each group as one, repeated along dims that it does not have."""
    if operand.type.rank != root.type.rank or not context.is_constant(operand):
        return None
    extents = list(operand.shape)
    for group in groups:
        if any(extents[place] != 1 for place in group):
            for place in group:
                extents[place] = root.shape[place]
    if typical(math.prod(extents)) * 8 > typical(root.type.numel):
        return None
    merged = [math.prod(extents[place] for place in group) for group in groups]
    return build.reshape(build.expand(operand, extents), merged)


def _sink_merge_reduce(root: Node) -> Node | None:
    """sum(reshape(permute(x)), axes) → reshape(sum(permute(x), axes)) where dims are merged"""
    (data,) = root.inputs
    groups = _split_groups(data.shape, data.inputs[0].shape) if _is_merge(data) else None
    if groups is None or REDUCTIONS[root.op].is_search:
        return None
    axes = tuple(sorted(place for axis in root.attr("axes") for place in groups[axis]))
    return build.reshape(make(root.op, data.inputs, {"axes": axes}), root.shape)


_MOVES = ("pad", "slice", "expand", "flip")
_ROWS = ("matmul", "matmul_i8", "matmul_packed")  # whose left operand may be of rows

RULES: tuple[Rule, ...] = (
    rule_for(("convolution",), "convolution-matmul", _convolution_matmul, False),
    rule_for(("convolution",), "convolution-depthwise", _convolution_depthwise, False),
    rule_for(("convolution",), "convolution-grouped", _convolution_grouped, False),
    rule_for(("reshape",), "reshape-permute-ones", _reshape_permute_ones),
    rule_for(("reshape",), "reshape-permute-split", _reshape_permute_split),
    rule_for(("permute",), "permute-ones-first", _permute_ones_first),
    rule_for(
        ("matmul", "matmul_i8", "matmul_packed"), "permute-sink-rows", _sink_permute_rows, False
    ),
    rule_for(POINTWISE, "permute-sink", _sink_permute),
    rule_for(REDUCTIONS, "permute-sink-reduce", _sink_permute_reduce, False),
    rule_for(_MOVES, "permute-sink-move", _sink_permute_move),
    rule_for(("take",), "permute-sink-take", _sink_permute_take),
    rule_for(("window",), "permute-sink-window", _sink_permute_window),
    rule_for(("concat",), "permute-sink-concat", _sink_permute_concat),
    rule_for(POINTWISE, "reshape-sink", _sink_reshape),
    rule_for(POINTWISE, "row-order-sink", _sink_row_order),
    rule_for(REDUCTIONS, "reshape-sink-reduce", _sink_reshape_reduce, False),
    rule_for(POINTWISE, "merge-sink", _sink_merge),
    rule_for(POINTWISE, "split-sink", _sink_split),
    rule_for(REDUCTIONS, "merge-sink-reduce", _sink_merge_reduce, False),
)
