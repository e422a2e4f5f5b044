"""Products of quantised numbers as integer products of their 8-bit codes, scaled afterwards (CPU).

A quantised model in plain arithmetic multiplies numbers (q - z) · s, where a row of the left
operand and a column of the right one have one scale and one zero point each. For those

    Σ (p - y) · r · (q - z) · s = (Σ p · q - y · Σ q - z · Σ p + K · y · z) · r · s

over k, where the bracket contains integers only: exact in i32, as the sum of its K products is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.rules import Context
from aotc.aot.ir.size import Extent
from aotc.aot.ir.types import DTYPES

BYTES = {"i8": (-128, 127), "u8": (0, 255)}
LARGEST_SUM = (1 << 31) - 1
LARGEST_INTEGER = 1 << 20  # as which a zero point is looked at
MOVES = frozenset({"view", "pad", "window"})
WIDE_BYTES = 4  # of integers whose differences from zero points do not wrap around
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Quantised:
    """Numbers (codes - zero) · scale; scale and zero point have one element along k, or are of
    rank 0, and None stands for 1 and 0."""

    codes: Node
    scale: Node | None = None
    zero: Node | None = None

    def moved(self, move: Callable[[Node], Node]) -> Quantised:
        """The parts behind a view of them all."""
        parts = (self.codes, self.scale, self.zero)
        new = (x if x is None or not x.type.rank else move(x) for x in parts)
        codes, scale, zero = new
        assert codes is not None
        return Quantised(codes, scale, zero)


def multiply_codes(graph: Graph) -> tuple[Graph, int]:
    """matmul((p - y) · r, (q - z) · s) → (matmul_i8(p, q) - …) · r · s; how many."""
    context, replaced = Context(), dict[Node, Node]()
    for node in graph.nodes():
        if node.op != "matmul" or node.dtype != "f32" or node.type.rank != 2:
            continue
        left, right = (_quantised(x, frozenset((1 - at,))) for at, x in enumerate(node.inputs))
        # Weights alone are widened where they are multiplied.
        if left is None or right is None or context.is_constant(node.inputs[0]):
            continue
        product = _product(left, right)
        if product is not None:
            replaced[node] = product
    return (graph.replaced(replaced), len(replaced)) if replaced else (graph, 0)


def _product(left: Quantised, right: Quantised) -> Node | None:
    depth = left.codes.shape[1]
    largest = (_largest(left), _largest(right))
    if not isinstance(depth, int) or None in largest or not depth:
        return None
    if depth * (largest[0] or 0) * (largest[1] or 0) > LARGEST_SUM:
        return None
    p, q = _signed(left), _signed(right)
    if not build.is_matmul_i8(p.codes, q.codes):
        return None
    total = make("matmul_i8", (p.codes, q.codes))
    wide = [build.cast(each.codes, "i32") for each in (p, q)]
    if p.zero is not None:
        below = build.reduce("sum", wide[1], (0,))
        if q.zero is not None:
            below = below - q.zero * depth
        total = total - below * p.zero
    if q.zero is not None:
        total = total - build.reduce("sum", wide[0], (1,)) * q.zero
    found = build.cast(total, "f32")
    # One behind the other they might overflow on the way.
    scales = [scale for scale in (p.scale, q.scale) if scale is not None]
    return found * math.prod(scales[1:], start=scales[0]) if scales else found


def _largest(operand: Quantised) -> int | None:
    """The largest size of (code - zero); None where it is not known."""
    low, high = BYTES[operand.codes.dtype]
    if operand.zero is None:
        return max(-low, high)
    found = _range(operand.zero)
    return None if found is None else int(max(high - found[0], found[1] - low))


def _signed(operand: Quantised) -> Quantised:
    """The same with codes of i8: u8 less 128, and its zero point too."""
    codes, zero = operand.codes, operand.zero
    if codes.dtype == "i8":
        return operand
    moved = build.scalar(-128, "i32") if zero is None else zero - 128
    return replace(operand, codes=_less_128(codes), zero=moved)


def _less_128(codes: Node) -> Node:
    """u8 less 128 as i8, before moves of them, so that each element is changed once."""
    if codes.kind in MOVES and len(codes.inputs) == 1:
        inner = _less_128(codes.inputs[0])
        if codes.op != "pad":
            return codes.on((inner,))
        low, high, value = (codes.attr(name) for name in ("low", "high", "value"))
        return build.pad(inner, low, high, value - 128)
    flipped = make("bitwise_xor", (codes, build.scalar(128, "u8")))
    return make("bitcast", (flipped,), {"dtype": "i8"})


# --------------------------------------------------------------- what an operand is made of


Axes = frozenset[int]
Look = Callable[[Node, Axes], Quantised | None]


def _quantised(node: Node, axes: Axes) -> Quantised | None:
    """`node`, of f32, as scaled codes whose scale and zero point have one value along `axes`."""
    if node.op == "cast" and node.dtype == "f32":
        return _codes(node.inputs[0], axes)
    if node.op == "mul":
        for place in (0, 1):
            scale = node.inputs[1 - place]
            if _is_uniform(scale, axes):
                found = _quantised(node.inputs[place], axes)
                if found is not None and found.codes.shape == node.shape:
                    more = scale if found.scale is None else found.scale * scale
                    return replace(found, scale=more)
        return None
    if node.op == "sub":
        return _less(node, axes, _quantised)
    return _behind_view(node, axes, _quantised)


def _codes(node: Node, axes: Axes) -> Quantised | None:
    """`node`, of integers, as codes less a zero point."""
    if node.dtype in BYTES:
        return Quantised(node)
    is_wide = DTYPES[node.dtype].itemsize_bytes >= WIDE_BYTES
    if node.op == "cast" and (is_wide or node.inputs[0].dtype in BYTES):
        return _codes(node.inputs[0], axes) if node.inputs[0].type.kind == "int" else None
    if node.op == "sub" and is_wide:
        return _less(node, axes, _codes)
    return _behind_view(node, axes, _codes)


def _less(node: Node, axes: Axes, look: Look) -> Quantised | None:
    """A difference from what is the same along the axes, where that is whole numbers."""
    found, zero = look(node.inputs[0], axes), node.inputs[1]
    if found is None or found.scale is not None or not _is_uniform(zero, axes):
        return None
    whole = _whole(zero)
    if whole is None or found.codes.shape != node.shape:
        return None
    return replace(found, zero=whole if found.zero is None else found.zero + whole)


def _behind_view(node: Node, axes: Axes, look: Look) -> Quantised | None:
    """Parts behind a view: in another order of dims, with dims joined, or where both parts have one
    number, any elements of them, those of margins among them."""
    if node.kind not in MOVES or len(node.inputs) != 1:
        return None
    inner = node.inputs[0]
    if node.op == "permute":
        dims = node.attr("dims")
        found = look(inner, frozenset(dims[axis] for axis in axes))
        return None if found is None else found.moved(lambda part: build.permute(part, dims))
    joined = _joined_dims(inner, node) if node.op == "reshape" else None
    if joined is not None:
        found = look(inner, frozenset(dim for axis in axes for dim in joined[axis]))
        return None if found is None else _reshaped(found, joined, inner, node)
    return _of_one_number(node, inner, look)


def _joined_dims(inner: Node, node: Node) -> list[range] | None:
    """For each dim of a reshape the dims that it joins; None where one is taken apart."""
    found, at = [], 0
    for extent in node.shape:
        start = at
        product: Extent = 1
        while at < inner.type.rank and (product != extent or inner.shape[at] == 1):
            product *= inner.shape[at]
            at += 1
        if product != extent:
            return None
        found.append(range(start, at))
    return found if at == inner.type.rank else None


def _reshaped(found: Quantised, joined: Sequence[range], inner: Node, node: Node) -> Quantised:
    """Parts with dims joined; of dims joined into one a part has all elements, or one."""

    def move(part: Node) -> Node:
        is_whole = [any(part.shape[dim] != 1 for dim in dims) for dims in joined]
        whole = {dim for dims, each in zip(joined, is_whole, strict=True) if each for dim in dims}
        shape = [inner.shape[dim] if dim in whole else 1 for dim in range(inner.type.rank)]
        ends = [x if each else 1 for x, each in zip(node.shape, is_whole, strict=True)]
        return build.reshape(build.expand(part, shape), ends)

    return found.moved(move)


def _of_one_number(node: Node, inner: Node, look: Look) -> Quantised | None:
    """A view of codes that have one scale and one zero point; margins of 0 are of its code."""
    found = look(inner, frozenset(range(inner.type.rank)))
    if found is None:
        return None
    scale, zero = (x if x is None else build.reshape(x, ()) for x in (found.scale, found.zero))
    if node.op != "pad":
        return Quantised(node.on((found.codes,)), scale, zero)
    code = 0 if zero is None else zero.attr("value") if zero.op == "scalar" else None
    low, high = BYTES[found.codes.dtype]
    if node.attr("value") != 0 or code is None or not low <= code <= high:
        return None
    codes = build.pad(found.codes, node.attr("low"), node.attr("high"), code)
    return Quantised(codes, scale, zero)


def _is_uniform(node: Node, axes: Axes) -> bool:
    rank = node.type.rank
    return rank == 0 or all(axis < rank and node.shape[axis] == 1 for axis in axes)


def _whole(node: Node) -> Node | None:
    """The whole numbers of a node as i32; None where they may be others, or larger."""
    if _range(node) is None:
        return None
    if node.type.kind == "int":
        return build.cast(node, "i32")
    if node.op == "scalar":
        return build.scalar(int(node.attr("value")), "i32")
    if node.op in ("reshape", "permute", "expand"):
        inner = _whole(node.inputs[0])
        return None if inner is None else node.on((inner,))
    return build.cast(node.inputs[0], "i32") if node.op == "cast" else None


def _range(node: Node) -> Range | None:
    """The least and the largest of whole numbers that a node may be; None where it is not known."""
    low, high = _bounds(node)
    is_known = -LARGEST_INTEGER <= low <= high <= LARGEST_INTEGER
    return (low, high) if is_known else None


def _bounds(node: Node) -> Range:
    nothing = -float("inf"), float("inf")
    if node.op == "scalar":
        value = node.attr("value")
        return (value, value) if math.isfinite(value) and int(value) == value else nothing
    if node.op == "cast" and node.inputs[0].type.kind == "int":
        inner = _bounds(node.inputs[0])
        if DTYPES[node.dtype].kind != "int":
            return inner
        limits = numpy.iinfo(DTYPES[node.dtype].numpy)  # beyond which it wraps around
        fits = limits.min <= inner[0] and inner[1] <= limits.max
        return inner if fits else BYTES.get(node.dtype, nothing)
    if node.op in ("reshape", "permute", "expand", "slice"):
        return _bounds(node.inputs[0])
    own = BYTES.get(node.dtype, nothing)
    if node.op in ("minimum", "maximum") and node.type.kind == "int":
        first, second = map(_bounds, node.inputs)
        choose = min if node.op == "minimum" else max
        found = choose(first[0], second[0]), choose(first[1], second[1])
        return max(own[0], found[0]), min(own[1], found[1])
    if node.op == "relu" and node.type.kind == "int":
        low, high = _bounds(node.inputs[0])
        return max(0.0, low), max(0.0, high)
    return own if DTYPES[node.dtype].kind == "int" else nothing
