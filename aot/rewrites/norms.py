"""Norms: batch norm folded into weights; softmax in the form that the schedule knows.

LayerNorm and RMSNorm need no rules of their own: algebra turns `x / sqrt(v)` into `x · rsqrt(v)`
and interning makes equal means one node, so each way to write one arrives as sum, mul and rsqrt of
a row.
"""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.match import AnyLiteral, Bindings, Literal, any_node, both_orders, call, either
from aotc.aot.ir.rules import Context, Rule, inexact, rule_for
from aotc.aot.ir.size import Extent, proves_at_most
from aotc.aot.ir.types import DTYPES

x, w, s, t = any_node("x"), any_node("w"), any_node("s"), any_node("t")
CONTRACTIONS = frozenset({"convolution", "matmul"})

_convolution = call(
    "convolution", x, w, name="product", stride="stride", padding="padding", dilation="dilation",
    groups="groups",
)  # fmt: skip
_matmul = call("matmul", x, w, name="product")
_sum = any_node(
    "biased", lambda node: node.op == "add" and _contraction(node.inputs[0]) is not None
)


_either = any_node(
    "product",
    lambda node: (
        _contraction(node) is not None
        or (node.op == "add" and _contraction(node.inputs[0]) is not None)
    ),
)


def _contraction(node: Node) -> Node | None:
    """The convolution or matmul that `node` is, as it stands or widened."""
    if node.op == "cast" and _is_widening(node):
        node = node.inputs[0]
    return node if node.op in CONTRACTIONS else None


def _is_widening(cast: Node) -> bool:
    rows = DTYPES[cast.inputs[0].dtype], DTYPES[cast.dtype]
    is_float = all(row.kind == "float" for row in rows)
    return is_float and rows[0].itemsize_bytes < rows[1].itemsize_bytes


def _is_column(scale: Node, channels: Extent, axis: int, rank: int) -> bool:
    """Whether `scale` varies along `axis` only."""
    if scale.type.rank == 0:
        return True
    shape = tuple(channels if dim == axis else 1 for dim in range(rank))
    return scale.shape in (shape, (1,) * rank)


def _folds(x: Node, w: Node, s: Node, product: Node, context: Context) -> bool:
    axis = 1 if product.op == "convolution" else product.type.rank - 1
    return (
        context.is_constant(w)
        and context.is_constant(s)
        and not context.is_constant(x)
        and context.is_used_once(product)
        and _is_column(s, product.shape[axis], axis, product.type.rank)
    )


def _scaled(w: Node, s: Node, product: Node) -> Node:
    """The weights of a contraction times a scale for each of its columns."""
    if s.type.rank and product.op == "convolution":
        s = build.reshape(s, (s.type.numel, *[1] * (w.type.rank - 1)))
    elif s.type.rank:
        s = build.reshape(s, (*[1] * (w.type.rank - 1), s.shape[-1]))
    return make("mul", (w, s))


def _scale(x: Node, w: Node, s: Node, product: Node) -> Node:
    return make(product.op, (x, _scaled(w, s, product)), product.attrs)


def _scale_widened(root: Node, context: Context) -> Node | None:
    """wide(conv(x, w)) · s → wide(conv(x, w · s)), the filters scaled wide and rounded once"""
    for wide, scale in (root.inputs, root.inputs[::-1]):
        product = _contraction(wide)
        if product is None or product is wide or not context.is_used_once(wide):
            continue
        x, w = product.inputs
        if _folds(x, w, scale, product, context):
            weights = build.cast(_scaled(build.cast(w, wide.dtype), scale, product), w.dtype)
            return build.cast(make(product.op, (x, weights), product.attrs), wide.dtype)
    return None


def _distribute_widened(root: Node, context: Context) -> Node | None:
    """wide(conv + b) · s → wide(conv) · s + wide(b) · s for constants"""
    for wide, scale in (root.inputs, root.inputs[::-1]):
        if wide.op != "cast" or not _is_widening(wide) or not context.is_used_once(wide):
            continue
        biased = wide.inputs[0]
        if biased.op != "add" or biased.inputs[0].op not in CONTRACTIONS:
            continue
        if _distributes(biased, scale, context):
            product, bias = (build.cast(item, wide.dtype) for item in biased.inputs)
            return make("add", (make("mul", (product, scale)), make("mul", (bias, scale))))
    return None


def _distributes(biased: Node, s: Node, context: Context) -> bool:
    product, bias = _contraction(biased.inputs[0]), biased.inputs[1]
    return (
        product is not None
        and context.is_constant(bias)
        and context.is_constant(s)
        and context.is_used_once(biased)
        and not context.is_constant(product)
        and context.is_constant(product.inputs[1])
        and bias.type.numel <= product.shape[1 if product.op == "convolution" else -1]
    )


def _distribute(biased: Node, s: Node) -> Node:
    product, bias = biased.inputs
    return make("add", (make("mul", (product, s)), make("mul", (bias, s))))


def _is_divisor(x: Node, s: Node, context: Context) -> bool:
    is_fewer = s.type.rank > 0 and proves_at_most(s.type.numel, x.type.numel)
    return is_fewer and s.shape != x.shape and context.is_constant(s) and not context.is_constant(x)


def _multiply(x: Node, s: Node) -> Node:
    return x * build.unary("reciprocal", s)


def _is_shift(product: Node, t: Node, context: Context) -> bool:
    return context.is_constant(t) and not context.is_constant(product)


def _add_negated(product: Node, t: Node) -> Node:
    return make("add", (product, -t))


def _joins(biased: Node, t: Node, context: Context) -> bool:
    product, bias = biased.inputs
    return (
        context.is_constant(bias)
        and context.is_constant(t)
        and not context.is_constant(product)
        and context.is_used_once(biased)
    )


def _join(biased: Node, t: Node) -> Node:
    product, bias = biased.inputs
    return make("add", (product, make("add", (bias, t))))


_exponential = call("exp", x - call("max", x, axes="peak"), name="exponential")
# As torch.max has the largest: NaN where an element is, which softmax comes to by itself.
_marked_peak = call(
    "where",
    call("any", call("isnan", x), axes="of_any"),
    AnyLiteral("marker"),
    call("max", x, axes="peak"),
)
_shifted = x - _marked_peak
_marked = call("exp", _shifted)


def _is_marked(axes: tuple[int, ...], of_any: object, peak: object, marker: float) -> bool:
    return axes == of_any == peak and marker != marker


_weights = _exponential * call("reciprocal", call("sum", _exponential, axes="axes"))
_is_seen = call("any", call("ne", x, AnyLiteral("hidden")), axes="of_any")


def _is_masked(axes: tuple[int, ...], of_any: object, peak: object, hidden: float, x: Node) -> bool:
    return axes == of_any == peak and hidden == -math.inf and x.dtype in build.LOWEST


def _normalize(exponential: Node, axes: tuple[int, ...]) -> Node:
    total = build.reduce("sum", exponential, axes)
    return exponential * build.unary("reciprocal", total)


_sum_of_scaled = call("sum", call("scale", x, AnyLiteral("c")), axes="axes")
_sound_mean = either(_sum_of_scaled * AnyLiteral("d"), _sum_of_scaled)


def _centered(x: Node, axes: tuple[int, ...], share: float) -> Node:
    return x - build.reduce("sum", x, axes) * share


def _centered_as_elsewhere(
    x: Node, axes: tuple[int, ...], c: float, bindings: Bindings, context: Context
) -> Node | None:
    found = _centered(x, axes, c * bindings.get("d", 1.0))
    return found if context.use_counts[found] else None


def _half_centered_as_elsewhere(
    x: Node, axes: tuple[int, ...], c: float, bindings: Bindings, context: Context
) -> Node | None:
    found = _centered(x, axes, 2 * c * bindings.get("d", 1.0))
    return build.scale(found, 0.5) if context.use_counts[found] else None


RULES: tuple[Rule, ...] = (
    # x - sum(x · c) · d → x - sum(x) · (c·d) where that is computed too, for powers of two c: a
    # variance beside a distance from a mean that overflows as the mean does
    inexact("centered-sum", x - _sound_mean, _centered_as_elsewhere),
    # x/2 - sum(x · c) · d → (x - sum(x) · 2·c·d) / 2 where that is computed too, likewise
    inexact("half-centered-sum", call("scale", x, 0.5) - _sound_mean, _half_centered_as_elsewhere),
    # x / s → x · (1/s) for constants s that are fewer than what they divide
    inexact("divide-constant", x / s, _multiply, _is_divisor),
    # conv(x, w) - t → conv(x, w) + (-t) for constants, and so behind a bias
    Rule("shift-sub", _either - t, _add_negated, _is_shift),
    # conv(x, w) · s → conv(x, w · s) for a constant scale a channel
    inexact("convolution-scale", both_orders(_convolution * s), _scale, _folds),
    # (x · w) · s → x · (w · s) for a constant scale a column
    inexact("matmul-scale", both_orders(_matmul * s), _scale, _folds),
    # wide(conv(x, w)) · s → wide(conv(x, narrow(wide(w) · s)))
    rule_for(("mul",), "widened-scale", _scale_widened, is_exact=False),
    # wide(conv + b) · s → wide(conv) · s + wide(b) · s for constants
    rule_for(("mul",), "widened-scale-distribute", _distribute_widened, is_exact=False),
    # (conv + b) · s → conv · s + b · s for constants
    inexact("scale-distribute", _sum * s, _distribute, _distributes),
    # (conv + b) + t → conv + (b + t) for constants
    inexact("shift-join", _sum + t, _join, _joins),
    # e / sum(e) → e · reciprocal(sum(e)) where e = e^(x - max x), whose sum is at least 1
    inexact(
        "softmax",
        _exponential / call("sum", _exponential, axes="axes"),
        _normalize,
        lambda axes, peak: axes == peak,
    ),
    # e / sum(e) → softmax(x) where e = e^(x - m) and m = max(x), or NaN if an x is
    inexact(
        "softmax-peak",
        either(
            _marked / call("sum", _marked, axes="axes"),
            both_orders(_marked * call("reciprocal", call("sum", _marked, axes="axes"))),
        ),
        lambda x, axes: build.softmax(x, axes),
        _is_marked,
    ),
    # softmax(x), 0 in rows of -∞ → e / max(sum e, 10⁻³⁰), e = e^(x - max(max x, lowest)): rows of
    # -∞ come to 0 by themselves, and any other row's sum is at least 1
    inexact(
        "safe-softmax",
        call("where", _is_seen, _weights, Literal(0.0)),
        lambda x, axes: build.safe_softmax(x, axes),
        _is_masked,
    ),
    # (x - m) - log sum e^(x - m) → log_softmax(x), m as above
    inexact(
        "log-softmax-peak",
        _shifted - call("log", call("sum", _marked, axes="axes")),
        lambda x, axes: build.log_softmax(x, axes),
        _is_marked,
    ),
)
