"""Attention: softmax(cap(q·kᵀ·scale) + mask)·v in any form, for targets with a kernel.

Scores may be scaled before or after the product, capped by a tanh (cap(s) = c · tanh(s / c)),
masked by adding or choosing, and computed wide; key heads may be repeated in memory. What a mask is
made of is looked at by `attention_masks.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.match import any_node, both_orders, call, either, match
from aotc.aot.ir.rules import Context, Rule, behind, rule_for
from aotc.aot.ir.size import Extent, Shape, fixed, is_static
from aotc.aot.ir.types import FLOATS_TO_F32
from aotc.aot.schedule.attention import LARGEST_ELEMENT

HIDDEN = -1e30  # a score at most this is meant to hide a key
FAR = -9e8  # as good as -inf in place of a score: -1e9 as 16 bits have it
OF_ROWS = ("attention", "attention_log_sum_exp")  # ops of the same operands
SEEN_WHOLE = {"causal": False, "offset": 0, "window": 0}  # each row sees all keys
Serves = Callable[[Node, Context], bool]  # whether a target has a kernel for an attention


@dataclass(frozen=True, slots=True)
class _Mask:
    """One mask: `node` broadcasts to the scores' dims `shape` where it is applied."""

    node: Node
    shape: Shape
    is_seen: bool = False  # a bool, true where the key is seen; else a number that is added


@dataclass(frozen=True, slots=True)
class _Scores:
    """Scores behind a softmax: q·k times `scale`, capped where `softcap` is not 0, then the masks;
    `shapes` are all met, inside out.

    `k` is transposed: [.., D, S].
    """

    query: Node
    key: Node
    scale: float = 1.0
    softcap: float = 0.0
    masks: tuple[_Mask, ...] = ()
    shapes: tuple[Shape, ...] = ()


x, peak, total = any_node("x"), any_node("peak"), any_node("total")
_exponential = call("exp", x - peak, name="exponential")
_SOFTMAX = either(both_orders(_exponential * call("reciprocal", total)), _exponential / total)


def plain(node: Node) -> Node:
    """Without casts between floats."""
    while node.op == "cast" and node.type.kind == node.inputs[0].type.kind == "float":
        node = node.inputs[0]
    return node


def _clamped(node: Node) -> tuple[Node, float | None]:
    """maximum(x, c) → (x, c); else (x, None)."""
    node = plain(node)
    if node.op == "maximum" and node.inputs[1].op == "scalar":
        return plain(node.inputs[0]), node.inputs[1].attr("value")
    return node, None


def softmax(weights: Node) -> tuple[Node, bool] | None:
    """(scores, whether a row that sees nothing gives zeros) of a softmax over the last axis."""
    found = match(_SOFTMAX, weights)
    if found is None:
        return None
    scores, exponential = found["x"], found["exponential"]
    largest, lowest = _clamped(found["peak"])
    summed, least = _clamped(found["total"])
    axes = (scores.type.rank - 1,)
    is_row = (largest.op, summed.op) == ("max", "sum")
    if not is_row or not largest.attr("axes") == summed.attr("axes") == axes:
        return None
    if plain(summed.inputs[0]) is not exponential or plain(largest.inputs[0]) is not plain(scores):
        return None
    if (lowest is not None and lowest > HIDDEN) or (least is not None and least > 1e-20):
        return None
    return scores, lowest is not None and least is not None


def _scores(node: Node) -> _Scores | None:
    """What the scores `node` are made of, or None where they are no product with masks."""
    found = _product(node) if node.op == "matmul" else _derived(node)
    if found is None:
        return None
    return replace(found, shapes=(*found.shapes, node.shape))


def _product(node: Node) -> _Scores:
    query, query_scale = _unscaled(node.inputs[0])
    key, key_scale = _unscaled(node.inputs[1])
    return _Scores(query, key, query_scale * key_scale)


def _unscaled(operand: Node) -> tuple[Node, float]:
    """x · c, also behind a transposition → (x, c)."""
    if operand.op == "permute":
        data, scale = _unscaled(operand.inputs[0])
        return build.permute(data, operand.attr("dims")), scale
    factor = _literal_factor(operand)
    return (operand, 1.0) if factor is None else (operand.inputs[0], factor)


def _literal_factor(node: Node) -> float | None:
    """c of x · c, 1/c of x / c."""
    if node.op not in ("mul", "div") or node.inputs[1].op != "scalar":
        return None
    value = float(node.inputs[1].attr("value"))
    factor = value if node.op == "mul" else 1 / value if value else math.nan
    return factor if math.isfinite(factor) and factor > 0 else None


def _derived(node: Node) -> _Scores | None:
    if node.op == "cast" and node.type.kind == "float":
        return _scores(node.inputs[0])
    if node.op == "reshape" and node.shape[-2:] == node.inputs[0].shape[-2:]:
        return _scores(node.inputs[0])
    if node.op == "reshape":
        return _in_groups(node)
    factor = _literal_factor(node)
    if factor is None and node.op == "mul":
        return _scaled_by_row(node)
    if factor is not None:
        inner = _scores(node.inputs[0])
        # What is added before the scaling would be scaled too.
        if inner is None or any(not mask.is_seen for mask in inner.masks):
            return None
        return replace(inner, scale=inner.scale * factor, softcap=inner.softcap * factor)
    if node.op == "tanh":
        return _capped(node)
    if node.op == "add":
        return _biased(node)
    return _chosen(node) if node.op == "where" else None


def _in_groups(node: Node) -> _Scores | None:
    """(q·kᵀ) [.., G · T, S] as [.., G, T, S]: q in groups of rows that share their keys, as einsum
    multiplies them."""
    inner = _scores(node.inputs[0])
    if inner is None or inner.masks or len({*inner.shapes}) != 1:
        return None
    outer = _shared(node.shape, inner.shapes[0])
    if outer is None:
        return None
    element, ones = inner.query.shape[-1], [1] * (node.type.rank - 2 - len(outer))
    query = build.expand(inner.query, (*inner.shapes[0][:-1], element))
    key = build.expand(inner.key, (*inner.shapes[0][:-2], *inner.key.shape[-2:]))
    query = build.reshape(query, (*node.shape[:-1], element))
    key = build.reshape(key, (*outer, *ones, *inner.key.shape[-2:]))
    return replace(inner, query=query, key=key, shapes=())


def _shared(shape: Shape, merged: Shape) -> Shape | None:
    """The first dims of `shape`, [.., G, T, S], that are all of `merged`, [.., G · T, S], before
    its rows."""
    if shape[-1] != merged[-1]:
        return None
    count = prod(merged[:-2])
    return next((shape[:at] for at in range(len(shape) - 1) if prod(shape[:at]) == count), None)


def _scaled_by_row(node: Node) -> _Scores | None:
    """(q·kᵀ) · t of a t that is the same for all keys: (q · t)·kᵀ."""
    for product, factor in (node.inputs, node.inputs[::-1]):
        if product.shape != node.shape or factor.type.rank == 0 or factor.shape[-1] != 1:
            continue
        inner = _scores(product)
        if inner is None or inner.masks or inner.softcap or inner.query.type.rank < 2:
            continue
        # Of scores that were seen in other dims meanwhile, rows have other dims.
        if inner.shapes[-1] != inner.shapes[0] or factor.type.rank > len(inner.shapes[0]):
            continue
        wide = build.cast(inner.query, factor.dtype) * factor
        return replace(inner, query=build.cast(wide, inner.query.dtype))
    return None


def _capped(node: Node) -> _Scores | None:
    """tanh(s) = cap(s) of softcap 1; times c, as of any scores, cap(c · s) of softcap c."""
    inner = _scores(node.inputs[0])
    if inner is None or inner.masks or inner.softcap:  # -inf is no more hidden behind a tanh
        return None
    return replace(inner, softcap=1.0)


def _biased(node: Node) -> _Scores | None:
    """scores + mask, in either order."""
    for scores, mask in (node.inputs, node.inputs[::-1]):
        if scores.shape != node.shape:
            continue
        inner = _scores(scores)
        if inner is not None:
            return replace(inner, masks=(*inner.masks, _as_seen(_Mask(mask, node.shape))))
    return None


def _as_seen(mask: _Mask) -> _Mask:
    """where(b, 0, -inf) that is added → b, reshaped or not; likewise with exchanged branches."""
    whole = node = plain(mask.node)
    if node.op == "reshape":
        node = plain(node.inputs[0])
    if node.op != "where" or any(branch.op != "scalar" for branch in node.inputs[1:]):
        return mask
    condition, (seen, hidden) = node.inputs[0], (item.attr("value") for item in node.inputs[1:])
    if {seen, hidden} != {0, -math.inf}:
        return mask
    if hidden == 0:
        condition = ~condition
    return _Mask(build.reshape(condition, whole.shape), mask.shape, is_seen=True)


def _chosen(node: Node) -> _Scores | None:
    """where(seen, scores, c) or where(hidden, c, scores) for c = -inf, or as good as."""
    condition, first, second = node.inputs
    if first.op == "scalar":
        condition, first, second = ~condition, second, first
    if second.op != "scalar" or second.attr("value") > FAR or first.shape != node.shape:
        return None
    inner = _scores(first)
    if inner is None:
        return None
    mask = _Mask(condition, node.shape, is_seen=True)
    if second.attr("value") != -math.inf:
        # A row that sees nothing then weighs all keys alike: so does one that adds c everywhere.
        added = make("where", (condition, build.scalar(0.0, "f32"), build.scalar(HIDDEN, "f32")))
        mask = _Mask(added, node.shape)
    return replace(inner, masks=(*inner.masks, mask))


@dataclass(frozen=True, slots=True)
class _Heads:
    """Batch and query heads of the result, and into how many of them one key head may go."""

    batch: Extent
    heads: int


def _heads(shapes: tuple[Shape, ...]) -> _Heads:
    """From the dims of the scores: those of rank 4 say it plainly."""
    four = [shape for shape in shapes if len(shape) == 4]
    shape = four[0] if four else shapes[-1]
    lead = shape[:-2]
    count = 2 if len(lead) > 2 else 1  # [.., key heads, query heads of each]
    if not is_static(lead[-count:]):  # one axis of all heads, or none: they count as a batch
        return _Heads(prod(lead), 1)
    return _Heads(prod(lead[:-count]), fixed(prod(lead[-count:])))


def _of_groups(value: Node, scores: Shape, outer: Shape) -> Node:
    """[.., S, E] as [outer.., G, S, E], all of a group alike: of scores [outer.., G, T, S] whose
    rows were joined to [.., G · T, S]."""
    tail = value.shape[-2:]
    ones = [1] * (len(scores) - 2 - len(outer))
    return build.expand(build.reshape(value, (*outer, *ones, *tail)), (*scores[:-2], *tail))


def _in_heads(operand: Node, batch: Shape, heads: _Heads) -> Node:
    """[batch.., R, C], batch dims broadcast, as [B, H, R, C]."""
    tail = operand.shape[-2:]
    full = build.expand(operand, (*batch, *tail))
    return build.reshape(full, (heads.batch, heads.heads, *tail))


def _mask_in_heads(mask: _Mask, heads: _Heads) -> Node:
    """A mask as rank 4; dims that repeat stay 1 where ranks allow it."""
    lead, rank = mask.shape[:-2], len(mask.shape)
    node = build.align(mask.node, rank)
    tail = node.shape[-2:]
    if lead == (heads.batch, heads.heads):
        return node
    if set(node.shape[:-2]) <= {1}:
        return build.reshape(node, (1, 1, *tail))
    return build.reshape(build.expand(node, (*lead, *tail)), (heads.batch, heads.heads, *tail))


def joined_masks(masks: Sequence[tuple[Node, bool]]) -> Node | None:
    """All masks, and whether each says what is seen, in one: bools by and, numbers by sum; where
    there are both, hidden is -inf."""
    seen = [node for node, is_seen in masks if is_seen]
    added = [node for node, is_seen in masks if not is_seen]
    both = reduce(lambda left, right: make("logical_and", (left, right)), seen) if seen else None
    if not added:
        return both
    if len(added) > 1 or both is not None:
        added = [build.cast(node, "f32") for node in added]
    bias = reduce(operator.add, added)
    if both is None:
        return bias
    return make("where", (both, bias, build.scalar(-math.inf, "f32")))


def _recognise(root: Node, context: Context) -> Node | None:
    """matmul(softmax(scores), v) → attention(q, k, v, mask), unless the weights are wanted too."""
    if root.dtype not in FLOATS_TO_F32:
        return None
    for outer in views_of_rows(root.inputs[0]):
        found = softmax(outer) if context.is_used_once(outer) else None
        made = None if found is None else of_scores(root, found[0], context, found[1])
        if made is not None:
            return made
    return None


def of_scores(
    root: Node, node: Node, context: Context, is_safe: bool, sinks: Node | None = None
) -> Node | None:
    """The attention with the scores `node`, the values of the product `root` and the sinks [.., T,
    1]; None where these are no such scores, or others read what is rounded on the way."""
    scores = _scores(node)
    if scores is None or _is_wanted(root, scores, context):
        return None
    return _attention(root, scores, root.inputs[1], is_safe, sinks)


def _is_wanted(root: Node, scores: _Scores, context: Context) -> bool:
    """Whether other readers see 16-bit scores, or a scaled operand, rounded."""
    ends = {root.inputs[1]}
    for node in (scores.query, scores.key):
        ends |= _with_views(node)
    for mask in scores.masks:
        ends |= {mask.node, *mask.node.inputs}
    return context.is_shared(root, behind(root, ends))


def _with_views(node: Node) -> set[Node]:
    found = {node}
    while node.kind == "view":
        (node,) = node.inputs
        found.add(node)
    return found


def views_of_rows(weights: Node) -> Iterator[Node]:
    """The weights without casts and reshapes that leave rows whole, or join those of a group, one
    by one."""
    while True:
        yield weights
        is_cast = weights.op == "cast" and weights.type.kind == "float"
        is_view = weights.op == "reshape" and (
            weights.inputs[0].shape[-2:] == weights.shape[-2:]
            or _shared(weights.inputs[0].shape, weights.shape) is not None
        )
        if not (is_cast or is_view):
            return
        weights = weights.inputs[0]


def _narrowed(operand: Node, dtype: str) -> Node:
    """cast(x) of an x of `dtype`, also behind permutations and reshapes → x; kernels keep scores in
    f32."""
    if operand.op == "permute":
        return build.permute(_narrowed(operand.inputs[0], dtype), operand.attr("dims"))
    if operand.op == "reshape":
        return build.reshape(_narrowed(operand.inputs[0], dtype), operand.shape)
    is_widened = operand.op == "cast" and operand.dtype == "f32"
    return operand.inputs[0] if is_widened and operand.inputs[0].dtype == dtype else operand


def _unwidened(node: Node) -> Node:
    """x for cast(x) of 16 bits, also behind views: kernels read either."""
    if node.op in ("reshape", "expand", "permute"):
        return node.on((_unwidened(node.inputs[0]),))
    is_widened = node.op == "cast" and node.dtype == "f32"
    return node.inputs[0] if is_widened and node.inputs[0].type.kind == "float" else node


def _attention(
    root: Node, scores: _Scores, value: Node, is_safe: bool, sinks: Node | None
) -> Node | None:
    query = _narrowed(scores.query, root.dtype)
    key = build.transpose(_narrowed(scores.key, root.dtype))
    size = max(query.shape[-1], value.shape[-1])
    if not 0 < scores.scale < math.inf:
        return None  # kernels hide a key by -inf before they scale
    if not math.isfinite(scores.softcap):
        return None
    if not 0 < size <= LARGEST_ELEMENT or 0 in (root.type.numel, key.type.numel):
        return None
    if any(item.dtype != root.dtype for item in (query, key, value)):
        return None
    weights, batch = root.inputs[0].shape, scores.shapes[0][:-2]
    value = build.expand(value, (*root.shape[:-2], *value.shape[-2:]))
    if weights[-2] == scores.shapes[-1][-2]:
        heads = _heads((*scores.shapes, weights))
    else:
        outer = _shared(scores.shapes[-1], weights)
        if outer is None:
            return None
        heads = _heads(scores.shapes)
        value = _of_groups(value, scores.shapes[-1], outer)
    operands = [
        _in_heads(query, batch, heads),
        _in_heads(key, batch, heads),
        _in_heads(value, value.shape[:-2], heads),
    ]
    masks = [(_mask_in_heads(mask, heads), mask.is_seen) for mask in scores.masks]
    mask = joined_masks(masks)
    if mask is not None:
        operands.append(mask)
    if sinks is not None:
        operands.append(_mask_in_heads(_Mask(_unwidened(sinks), sinks.shape), heads))
    ends = {"softcap": scores.softcap, "has_sinks": sinks is not None, "is_safe": is_safe}
    attrs = {"scale": scores.scale, **SEEN_WHOLE, **ends}
    return build.reshape(make("attention", tuple(operands), attrs), root.shape)


def _repeated(node: Node, axis: int) -> tuple[Node, int] | None:
    """(x, n) where `node` is x with each element along `axis` n times in a row, n > 1."""
    if node.op == "permute":
        dim = node.attr("dims")[axis]
        inner = _repeated(node.inputs[0], dim)
        return inner and (build.permute(inner[0], node.attr("dims")), inner[1])
    if node.op == "expand" and node.inputs[0].shape[axis] == 1 < node.shape[axis]:
        shape = tuple(1 if at == axis else dim for at, dim in enumerate(node.shape))
        return build.expand(node.inputs[0], shape), fixed(node.shape[axis])
    if node.op == "reshape":
        return _repeated_reshape(node, axis)
    return None


def _repeated_reshape(node: Node, axis: int) -> tuple[Node, int] | None:
    source = node.inputs[0]
    before, upto = prod(node.shape[:axis]), prod(node.shape[: axis + 1])
    last = next(
        (at for at in range(source.type.rank) if prod(source.shape[: at + 1]) == upto), None
    )
    if last is None or not any(prod(source.shape[:at]) == before for at in range(last + 1)):
        return None
    inner = _repeated(source, last)
    if inner is None or prod(source.shape[:last]) < before:
        return None
    shape = tuple(dim // inner[1] if at == axis else dim for at, dim in enumerate(node.shape))
    return build.reshape(inner[0], shape), inner[1]


def _share_heads(root: Node) -> Node | None:
    """attention(q, repeated k, repeated v) → attention(q, k, v), heads shared"""
    query, key, value, *mask = root.inputs
    keys, values = _repeated(key, 1), _repeated(value, 1)
    if keys is None or values is None or keys[1] != values[1]:
        return None
    return make(root.op, (query, keys[0], values[0], *mask), root.attrs)


def _narrow_mask(root: Node) -> Node | None:
    """attention(q, k, v, expand(m)) → attention(q, k, v, m)"""
    masks = [each.inputs[0] if each.op == "expand" else each for each in root.inputs[3:]]
    if tuple(masks) == root.inputs[3:] or any(each.type.rank != 4 for each in masks):
        return None
    return make(root.op, (*root.inputs[:3], *masks), root.attrs)


def _scale_query(root: Node, context: Context) -> Node | None:
    """attention(q · c, k, v) → attention(q, k, v) scaled by c; so for k"""
    query, key, *rest = root.inputs
    attrs = dict(root.attrs)
    for place, operand in enumerate((query, key)):
        data, factor = _unscaled(operand)
        is_scaled = factor != 1.0 and 0 < factor < math.inf and data.shape == operand.shape
        if is_scaled and not context.is_shared(root, behind(operand, _with_views(data))):
            attrs["scale"] *= factor
            operands = (data, key) if place == 0 else (query, data)
            return make(root.op, (*operands, *rest), attrs)
    return None


RULES: tuple[Rule, ...] = (
    # matmul(softmax(cap(q·kᵀ·scale) + mask), v) → attention(q, k, v, mask); cap(s): s, c·tanh(s/c)
    rule_for(("matmul",), "attention", _recognise, is_exact=False),
    # attention(q, repeat(k), repeat(v)) → attention(q, k, v), heads shared
    rule_for(OF_ROWS, "attention-heads", _share_heads),
    # attention(q, k, v, expand(m)) → attention(q, k, v, m)
    rule_for(OF_ROWS, "attention-mask-expand", _narrow_mask),
    # attention(q · c, k, v) → attention(q, k, v), the scale times c
    rule_for(OF_ROWS, "attention-scale", _scale_query, is_exact=False),
)


def unviewed(node: Node) -> Node:
    return unviewed(node.inputs[0]) if node.kind == "view" else node


def rules(serves: Serves) -> tuple[Rule, ...]:
    """The table for a target that serves some attentions; others stay arithmetic."""

    def recognise(root: Node, context: Context) -> Node | None:
        found = _recognise(root, context)
        return found if found is not None and serves(unviewed(found), context) else None

    return (rule_for(("matmul",), "attention", recognise, is_exact=False), *RULES[1:])
