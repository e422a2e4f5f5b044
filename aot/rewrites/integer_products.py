"""Products of quantised numbers (CPU): codes of 8 bits are multiplied as integers, then scaled.

A quantised model written out multiplies numbers (q - z) · s, of which a row of the left operand and
a column of the right one have one scale and one zero point each. For those

    Σ (p - y) · r · (q - z) · s = (Σ p · q - y · Σ q - z · Σ p + K · y · z) · r · s

over k, where all in the bracket are integers: exact in i32, as the sum of its K products is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.rules import Context
from aotc.aot.ir.types import DTYPES

BYTES = {"i8": (-128, 127), "u8": (0, 255)}
LARGEST_SUM = (1 << 31) - 1
LARGEST_INTEGER = 1 << 20  # as which a zero point is looked at
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
        left, right = (_quantised(each, 1 - at) for at, each in enumerate(node.inputs))
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
    for scale in (p.scale, q.scale):
        found = found if scale is None else found * scale
    return found


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
    flipped = make("bitwise_xor", (codes, build.scalar(128, "u8")))
    moved = build.scalar(-128, "i32") if zero is None else zero - 128
    return replace(operand, codes=make("bitcast", (flipped,), {"dtype": "i8"}), zero=moved)


# --------------------------------------------------------------- what an operand is made of


def _quantised(node: Node, axis: int) -> Quantised | None:
    """`node`, of f32, as scaled codes whose scale and zero point have one value along `axis`."""
    if node.op == "cast" and node.dtype == "f32":
        return _codes(node.inputs[0], axis)
    if node.op == "mul":
        for place in (0, 1):
            scale = node.inputs[1 - place]
            if _is_uniform(scale, axis):
                found = _quantised(node.inputs[place], axis)
                if found is not None and found.codes.shape == node.shape:
                    more = scale if found.scale is None else found.scale * scale
                    return replace(found, scale=more)
        return None
    if node.op == "sub":
        return _less(node, axis, _quantised)
    return _behind_view(node, axis, _quantised)


def _codes(node: Node, axis: int) -> Quantised | None:
    """`node`, of integers, as codes less a zero point."""
    if node.dtype in BYTES:
        return Quantised(node)
    if node.op == "cast" and node.inputs[0].type.kind == "int":
        return _codes(node.inputs[0], axis)
    if node.op == "sub":
        return _less(node, axis, _codes)
    return _behind_view(node, axis, _codes)


Look = Callable[[Node, int], Quantised | None]


def _less(node: Node, axis: int, look: Look) -> Quantised | None:
    """A difference from what is the same along the axis, where that is whole numbers."""
    found, zero = look(node.inputs[0], axis), node.inputs[1]
    if found is None or found.scale is not None or not _is_uniform(zero, axis):
        return None
    whole = _whole(zero)
    if whole is None or found.codes.shape != node.shape:
        return None
    return replace(found, zero=whole if found.zero is None else found.zero + whole)


def _behind_view(node: Node, axis: int, look: Look) -> Quantised | None:
    """Parts of a transposed matrix, or of one whose rows were a tensor of more dims."""
    if node.op == "permute" and node.type.rank == 2:
        found = look(node.inputs[0], node.attr("dims")[axis])
        return None if found is None else found.moved(build.transpose)
    if node.op == "reshape" and node.type.rank == 2 and axis == 1:
        inner = node.inputs[0]
        if not inner.type.rank or inner.shape[-1] != node.shape[-1]:
            return None
        found = look(inner, inner.type.rank - 1)
        rows = node.shape[0]

        def move(part: Node) -> Node:
            whole = build.expand(part, (*inner.shape[:-1], part.shape[-1]))
            return build.reshape(whole, (rows, part.shape[-1]))

        return None if found is None else found.moved(move)
    return None


def _is_uniform(node: Node, axis: int) -> bool:
    return node.type.rank == 0 or (axis < node.type.rank and node.shape[axis] == 1)


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
        return (value, value) if value == value and int(value) == value else nothing
    if node.op == "cast" and node.inputs[0].type.kind == "int":
        # A cast to a narrower type wraps around.
        inner = _bounds(node.inputs[0])
        fits = BYTES.get(node.dtype, (-LARGEST_INTEGER, LARGEST_INTEGER))
        return (
            inner if fits[0] <= inner[0] and inner[1] <= fits[1] else BYTES.get(node.dtype, nothing)
        )
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
