"""Our nodes as calls of torch: a row for each op, and for composites that torch has one call for.

A row of `OPS` gives an ATen op and its arguments for one node. A row of `COMPOSITES` recognises the
arithmetic that torch has a function for, whose gradient is a formula of its own and whose kernel
keeps less in memory: softmax, the norms, attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotc.aot.capture.imports.call import DTYPE_NAMES
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, walk
from aotc.aot.ir.match import (
    AnyLiteral,
    Bindings,
    Pattern,
    any_node,
    both_orders,
    call,
    either,
    match,
)
from aotc.aot.ir.size import Size
from aotc.aot.rewrites.attention import HIDDEN

aten = torch.ops.aten
ARITHMETIC = "shorter arithmetic"  # the label of what has no name of its own
SHARE_TOLERANCE = 1e-5  # how far a literal may be from 1 / count
TORCH_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class FxCall:
    """One call of torch that computes a node: `args` hold our nodes where operands stand."""

    label: str  # what a log calls it
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    # Whether its arithmetic is no slower where no gradient is taken, as Inductor compiles both for
    # the CPU: a LayerNorm there keeps its means in memory, which parts its loop over the rows from
    # that of what stands before and after it.
    is_for_gradients: bool = False
    keeps_gradients: bool = True  # whether they are those of the arithmetic

    def operands(self) -> tuple[Node, ...]:
        """The nodes among the arguments, in order."""
        leaves = torch.utils._pytree.tree_leaves((self.args, dict(self.kwargs)))
        return tuple(leaf for leaf in leaves if isinstance(leaf, Node))


def fx_call_of(node: Node) -> FxCall | None:
    """The call of the one op that the node is; None where torch has none, or it needs a size."""
    row = OPS.get(node.op)
    if row is None or (node.sizes() and node.kind != "pointwise"):
        return None
    return row(node)


def composites_of(node: Node) -> list[FxCall]:
    """The calls that compute the node and arithmetic behind it, largest first."""
    found = (row(node) for row in COMPOSITES)
    return [fx_call for fx_call in found if fx_call is not None]


# -- one op ----------------------------------------------------------------------------------------

Row = Callable[[Node], FxCall | None]


def _operand(node: Node) -> Any:
    """A literal as its number, anything else as the node."""
    return node.attr("value") if node.op == "scalar" else node


def _call(target: Any, label: str = "", **keywords: Any) -> Row:
    """A row whose operands are tensors, the second or third perhaps numbers."""

    def row(node: Node) -> FxCall | None:
        if node.inputs[0].op == "scalar":
            return None
        args = tuple(_operand(operand) for operand in node.inputs)
        return FxCall(label or ARITHMETIC, target, args, keywords)

    return row


def _by_operand(of_tensor: Any, of_number: Any) -> Row:
    """A row of an op that torch has twice: with a tensor, and with a number as second operand."""

    def row(node: Node) -> FxCall | None:
        is_number = node.inputs[1].op == "scalar"
        return _call(of_number if is_number else of_tensor)(node)

    return row


def _of_tensors(target: Any) -> Row:
    """A row of an op that torch has with tensors only."""

    def row(node: Node) -> FxCall | None:
        is_number = any(operand.op == "scalar" for operand in node.inputs)
        return None if is_number else _call(target)(node)

    return row


def _fma(node: Node) -> FxCall | None:
    left, right, start = node.inputs
    left, right = (right, left) if left.op == "scalar" else (left, right)
    if left.op == "scalar" or start.op == "scalar":
        return None
    if right.op == "scalar":
        return FxCall(ARITHMETIC, aten.add.Tensor, (start, left), {"alpha": right.attr("value")})
    return FxCall(ARITHMETIC, aten.addcmul.default, (start, left, right))


def _where(node: Node) -> FxCall | None:
    """By which of the two values are numbers."""
    condition, first, second = (operand.op == "scalar" for operand in node.inputs)
    is_default = TORCH_DTYPES[node.dtype] == torch.get_default_dtype()
    if condition or (first and second and not is_default):  # whose type torch takes for numbers
        return None
    return _call(_WHERE[first, second])(node)


_WHERE = {
    (False, False): aten.where.self,
    (False, True): aten.where.ScalarOther,
    (True, False): aten.where.ScalarSelf,
    (True, True): aten.where.Scalar,
}


def _reduction(target: Any) -> Row:
    def row(node: Node) -> FxCall:
        return FxCall(ARITHMETIC, target, (node.inputs[0], list(node.attr("axes")), True))

    return row


def _slice(node: Node) -> FxCall:
    names = ("axis", "start", "stop", "step")
    return FxCall(ARITHMETIC, aten.slice.Tensor, (node.inputs[0], *map(node.attr, names)))


def _attribute(target: Any, name: str) -> Row:
    def row(node: Node) -> FxCall:
        return FxCall(ARITHMETIC, target, (node.inputs[0], list(node.attr(name))))

    return row


def _cast(node: Node) -> FxCall:
    kind = TORCH_DTYPES[node.dtype]
    return FxCall(ARITHMETIC, aten.to.dtype, (node.inputs[0], kind))


def _bitcast(node: Node) -> FxCall:
    return FxCall(ARITHMETIC, aten.view.dtype, (node.inputs[0], TORCH_DTYPES[node.dtype]))


def _attention(node: Node) -> FxCall | None:
    query, key, value, *mask = node.inputs
    if any(each.type.kind == "int" for each in mask):
        return None
    if node.attr("softcap") or node.attr("has_sinks"):
        return None
    if node.attr("causal") and (mask or node.attr("offset") or node.attr("window")):
        return None
    if mask and mask[0].type.kind == "float" and mask[0].dtype != query.dtype:
        return None
    keywords: dict[str, Any] = {"scale": node.attr("scale")}
    if key.shape[1] != query.shape[1]:
        keywords["enable_gqa"] = True
    args = (query, key, value, mask[0] if mask else None, 0.0, node.attr("causal"))
    target = aten.scaled_dot_product_attention.default
    return FxCall("attention", target, args, keywords, keeps_gradients=not _is_chosen(mask))


def _is_chosen(mask: Sequence[Node]) -> bool:
    """Whether scores were replaced by a number, and not added to: no gradient passes those."""
    hidden = build.scalar(HIDDEN, "f32")
    return any(node.op == "where" and hidden in node.inputs[1:] for node in walk(tuple(mask)))


_UNARY = (
    "neg abs exp exp2 log log2 log1p expm1 sqrt rsqrt reciprocal sin cos tan tanh sigmoid erf erfc "
    "relu silu floor ceil round trunc sign isnan isinf logical_not"
)
_LOGIC = ("logical_and", "logical_or", "logical_xor")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

OPS: Mapping[str, Row] = {
    **{name: _call(getattr(aten, name).default) for name in _UNARY.split()},
    **{name: _call(getattr(aten, name).Tensor) for name in ("add", "sub", "mul", "div")},
    "scale": _call(aten.mul.Tensor),
    "fma": _fma,
    **{
        name: _by_operand(getattr(aten, name).Tensor, getattr(aten, name).Scalar)
        for name in _COMPARISONS
    },
    **{name: _of_tensors(getattr(aten, name).default) for name in _LOGIC},
    "gelu": _call(aten.gelu.default, "GELU"),
    "gelu_tanh": _call(aten.gelu.default, "GELU", approximate="tanh"),
    "silu": _call(aten.silu.default, "SiLU"),
    # With a number torch has `clamp` only, which takes the gradient of a tie differently.
    "maximum": _of_tensors(aten.maximum.default),
    "minimum": _of_tensors(aten.minimum.default),
    "pow": _by_operand(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar),
    "bitcast": _bitcast,
    "cast": _cast,
    "where": _where,
    "sum": _reduction(aten.sum.dim_IntList),
    "reshape": _attribute(aten.reshape.default, "shape"),
    "permute": _attribute(aten.permute.default, "dims"),
    "expand": _attribute(aten.expand.default, "shape"),
    "slice": _slice,
    "concat": lambda node: FxCall(
        ARITHMETIC, aten.cat.default, (list(node.inputs), node.attr("axis"))
    ),
    "matmul": _call(aten.matmul.default),
    "attention": _attention,
}


# -- composites ------------------------------------------------------------------------------------

x, epsilon = any_node("x"), AnyLiteral("epsilon")

_exponential = call("exp", x - call("max", x, axes="peak"), name="exponential")
_SOFTMAX = both_orders(_exponential * call("reciprocal", call("sum", _exponential, axes="axes")))
_shifted = x - call("max", x, axes="peak")
_LOG_SOFTMAX = _shifted - call("log", call("sum", call("exp", _shifted), axes="axes"))


def _mean(of: Pattern, axes: str, share: str, count: str) -> Pattern:
    """Sum times share, or sum by count."""
    total = call("sum", of, axes=axes)
    return either(total * AnyLiteral(share), total / AnyLiteral(count))


centered = any_node("centered")
_CENTERED = x - _mean(x, "axes_of_mean", "share_of_mean", "count_of_mean")
_reciprocal_deviation = call(
    "rsqrt", _mean(centered * centered, "axes", "share", "count") + epsilon
)
_STANDARD = both_orders(centered * _reciprocal_deviation)
# As `build.standardize` has it: mean(x) is sum(x · power) · rest.
_scaled = either(call("scale", x, AnyLiteral("power")), x)
_sound_mean = either(
    call("sum", _scaled, axes="axes_of_mean") * AnyLiteral("rest"),
    call("sum", _scaled, axes="axes_of_mean"),
)
_sound_centered = x - _sound_mean
_sound_deviation = call(
    "rsqrt", _mean(_sound_centered * _sound_centered, "axes", "share", "count") + epsilon
)
_SOUND_STANDARD = both_orders(
    (x - call("where", call("eq", _sound_deviation, 0.0), 0.0, _sound_mean)) * _sound_deviation
)
_ROOT_MEAN_SQUARE = both_orders(x * call("rsqrt", _mean(x * x, "axes", "share", "count") + epsilon))


def _softmax(label: str, pattern: Pattern, target: Any) -> Row:
    def row(node: Node) -> FxCall | None:
        found = match(pattern, node)
        if found is None or found["axes"] != found["peak"] or len(found["axes"]) != 1:
            return None
        return FxCall(label, target, (found["x"], found["axes"][0]))

    return row


@dataclass(frozen=True, slots=True)
class _Norm:
    """A norm over the last dims, and what it is multiplied with and added to."""

    found: Bindings
    dims: tuple[int, ...]
    weight: Node | None = None
    bias: Node | None = None


def _standard(node: Node) -> Bindings | None:
    """x, axes and epsilon of (x - mean) · rsqrt(variance + epsilon)."""
    found = match(_SOUND_STANDARD, node)
    if found is not None:
        inner = found | {"share_of_mean": found.get("power", 1.0) * found.get("rest", 1.0)}
    else:
        found = match(_STANDARD, node)
        inner = found and match(_CENTERED, found["centered"])
    if found is None or inner is None or inner["axes_of_mean"] != found["axes"]:
        return None
    of_mean = {"share": inner.get("share_of_mean"), "count": inner.get("count_of_mean")}
    if not _is_mean(inner["x"], found["axes"], of_mean):
        return None
    return found | {"x": inner["x"]}


def _root_mean_square(node: Node) -> Bindings | None:
    """x, axes and epsilon of x · rsqrt(mean(x²) + epsilon)."""
    return match(_ROOT_MEAN_SQUARE, node)


def _is_mean(data: Node, axes: tuple[int, ...], found: Mapping[str, Any]) -> bool:
    """Whether a sum was divided by the number of what it sums."""
    extents = [data.shape[axis] for axis in axes]
    if any(isinstance(extent, Size) for extent in extents):
        return False
    share, count = found.get("share"), found.get("count")
    of_one = share if share is not None else 1 / count if count else 0.0
    return abs(of_one * math.prod(extents) - 1) < SHARE_TOLERANCE


def _last_dims(found: Bindings) -> tuple[int, ...] | None:
    """Extents of the reduced dims, where they are the last ones and the mean is theirs."""
    data, axes = found["x"], found["axes"]
    are_last = axes == tuple(range(data.type.rank - len(axes), data.type.rank))
    return data.shape[-len(axes) :] if are_last and _is_mean(data, axes, found) else None


def _parameter(node: Node, dims: tuple[int, ...]) -> Node | None:
    """A weight or bias of exactly these dims, perhaps aligned to a higher rank."""
    while node.op in ("reshape", "expand") and node.shape != dims:
        node = node.inputs[0]
    return node if node.shape == dims else None


def _normed(node: Node, read: Callable[[Node], Bindings | None]) -> _Norm | None:
    """The norm that a node is, with weight and bias as far as they are its own."""
    found = read(node)
    if found is not None:
        dims = _last_dims(found)
        return None if dims is None else _Norm(found, dims)
    if node.op not in ("mul", "add"):
        return None
    node = _weighed_last(node)
    for inner, other in (node.inputs, node.inputs[::-1]):
        norm = _normed(inner, read)
        parameter = _parameter(other, norm.dims) if norm is not None else None
        if norm is None or parameter is None or parameter.dtype != node.dtype:
            continue
        if node.op == "mul" and norm.weight is None and norm.bias is None:
            return _Norm(norm.found, norm.dims, parameter)
        if node.op == "add" and norm.weight is not None and norm.bias is None:
            return _Norm(norm.found, norm.dims, norm.weight, parameter)
    return None


def _weighed_last(node: Node) -> Node:
    """(weight · x) · rsqrt(v) → (x · rsqrt(v)) · weight"""
    for product, root in (node.inputs, node.inputs[::-1]):
        if node.op == product.op == "mul" and root.op == "rsqrt":
            weight, data = sorted(product.inputs, key=lambda each: each.type.numel)
            if data.shape == node.shape and weight.shape != data.shape:
                return make("mul", (make("mul", (data, root)), weight))
    return node


def _rounded(node: Node, norm: Callable[[Node], FxCall | None]) -> FxCall | None:
    """A norm of a widened operand, rounded to the operand's own type: torch does both inside."""
    if node.op != "cast":
        return norm(node)
    fx_call = norm(node.inputs[0])
    if fx_call is None:
        return None
    data = fx_call.args[0]
    if data.op != "cast" or data.inputs[0].dtype != node.dtype or len(fx_call.operands()) > 1:
        return None
    return replace(fx_call, args=(data.inputs[0], *fx_call.args[1:]))


def _layer_norm(node: Node) -> FxCall | None:
    norm = _normed(node, _standard)
    if norm is None:
        return None
    args = (norm.found["x"], list(norm.dims), norm.weight, norm.bias, norm.found["epsilon"])
    return FxCall("LayerNorm", aten.layer_norm.default, args, is_for_gradients=True)


def _rms_norm(node: Node) -> FxCall | None:
    norm = _normed(node, _root_mean_square)
    if norm is None or norm.bias is not None:
        return None
    args = (norm.found["x"], list(norm.dims), norm.weight, norm.found["epsilon"])
    return FxCall("RMSNorm", aten.rms_norm.default, args)


COMPOSITES: tuple[Row, ...] = (
    _softmax("softmax", _SOFTMAX, aten.softmax.int),
    _softmax("log softmax", _LOG_SOFTMAX, aten.log_softmax.int),
    lambda node: _rounded(node, _layer_norm),
    lambda node: _rounded(node, _rms_norm),
)
