"""Pairs of reductions that one pass over a row computes together (online softmax, Welford).

They are the maximum with the sum of exponentials, and the mean with the sum of squared distances
from it: softmax (arXiv:1805.02867) and LayerNorm (Welford 1962).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aotc.aot.ir.graph import Node
from aotc.aot.ir.rounding import is_rounded
from aotc.aot.ir.types import SHORT_FLOATS, holds_exactly

_MOST_BETWEEN = 32  # nodes between two reductions of a pair: there are fewer


@dataclass(frozen=True, slots=True)
class Pair:
    """What the pass computes; distances from a mean may be `factor` times those of the elements."""

    kind: Literal["exponentials", "moments"]
    factor: float = 1.0


def one_pass(first: Node, second: Node, rounded: frozenset[Node]) -> Pair | None:
    """What one pass gives for both reductions, if the second is made of the first.

    It computes in f32 what lies between them: no node of `rounded`.
    """
    same_axes = first.attr("axes") == second.attr("axes")
    if second.op != "sum" or not same_axes or not _is_f32(second.inputs[0]):
        return None
    if rounded & between(first, second):
        return None
    inner = uncast(second.inputs[0])
    if first.op == "max" and inner.op == "exp" and _apart(inner.inputs[0], first, first):
        return Pair("exponentials")
    is_square = inner.op == "mul" and inner.inputs[0] is inner.inputs[1]
    if first.op == "sum" and is_square:
        factor = _factor_of_distance(inner.inputs[0], first)
        return None if factor is None else Pair("moments", factor)
    return None


def _is_f32(node: Node) -> bool:
    """Whether kernels compute the node in f32."""
    return node.dtype == "f32" or node.dtype in SHORT_FLOATS


def between(first: Node, second: Node) -> frozenset[Node]:
    """The first reduction, and what the second one reads that is neither its operand nor below."""
    data = first.inputs[0]
    base = _scaled(data)
    ends = {data, base.data, *base.moved}
    found: set[Node] = set()
    waiting = [second.inputs[0]]
    while waiting and len(found) <= _MOST_BETWEEN:
        node = waiting.pop()
        if node in ends or node in found:
            continue
        found.add(node)
        waiting += () if node is first else node.inputs
    return frozenset(found)


def _factor_of_distance(node: Node, total: Node) -> float | None:
    """c where the node is c·(y - mean y) of the elements y that are summed: a·x - b·sum(p·x)."""
    found = uncast(node)
    if found.op != "sub" or not _is_f32(total.inputs[0]):
        return None
    ours, summed = map(_scaled, (found.inputs[0], total.inputs[0]))
    count = total.inputs[0].type.numel // total.type.numel
    part = _part_of(found.inputs[1], total)
    if ours.data is not summed.data or ours.views != summed.views or part is None:
        return None
    factor = ours.factor / summed.factor
    share = part * count if isinstance(count, int) else 0.0
    return factor if abs(share / factor - 1.0) < 1e-3 else None


def _part_of(node: Node, total: Node) -> float | None:
    """b where the node is b·total."""
    found = uncast(node)
    if found is total:
        return 1.0
    is_part = found.op == "mul" and found.inputs[1].op == "scalar"
    if not is_part or uncast(found.inputs[0]) is not total:
        return None
    return float(found.inputs[1].attr("value"))


@dataclass(frozen=True, slots=True)
class _Scaled:
    """`factor` · `data` with powers of two, behind views; `moved`: the nodes on the way."""

    data: Node
    factor: float
    views: tuple[object, ...]
    moved: tuple[Node, ...]


def _scaled(node: Node) -> _Scaled:
    views: list[object] = []
    moved: list[Node] = []
    factor, found = 1.0, uncast(node)
    while len(moved) < _MOST_BETWEEN:
        if found.kind == "view":
            views.append((found.op, found.attrs))
        elif found.op == "scale" and found.inputs[1].op == "scalar":
            factor *= float(found.inputs[1].attr("value"))
        else:
            break
        moved.append(found)
        found = uncast(found.inputs[0])
    return _Scaled(found, factor, tuple(views), tuple(moved))


def _apart(node: Node, reduction: Node, center: Node) -> bool:
    """Whether the node is the reduction's operand minus `center`."""
    found = uncast(node)
    if found.op != "sub":
        return False
    data, middle = found.inputs
    same = uncast(data) is uncast(reduction.inputs[0])
    return same and uncast(middle) is center and _is_f32(reduction.inputs[0])


def uncast(node: Node) -> Node:
    """The node behind conversions between floats that change no number inside a kernel."""
    while node.op == "cast" and node.type.kind == "float" and node.inputs[0].type.kind == "float":
        (data,) = node.inputs
        if not (is_rounded(data) and holds_exactly(data.dtype, node.dtype)):
            break
        node = data
    return node
