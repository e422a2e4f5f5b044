"""Index arithmetic with dynamic sizes, without lookups: affine integers, comparisons of them, and
gathers.

torch builds indices and masks from positions by lookups, slices and selects (`x + n` where x < 0).
With known sizes they are constants. With dynamic sizes, an element that is known to be a constant
plus multiples of its index along the axes (`aot/ir/affine.py`) is written in that form, and a
lookup at such indices becomes a view.
"""

from __future__ import annotations

from aotc.aot.ir import build
from aotc.aot.ir.affine import COUNTED_DTYPES, Affine, Counts
from aotc.aot.ir.graph import Graph, Node, fixed_constants, made_for, make
from aotc.aot.ir.narrow import possible_dims

# Ops whose results are written as counts; of others the count is no less to compute.
MOVES = frozenset({"concat", "gather", "pad", "scan", "slice", "sum", "take", "where"})
ELSEWHERE = -1  # the axis of a place that is no counter
PLAIN = frozenset({"cast", "constant", "expand", "input", "permute", "reshape", "scalar"})


def write_counts(graph: Graph) -> tuple[Graph, int]:
    """`graph` of dynamic sizes with counts, answers and views in place of what moves and compares
    counts, and of look-ups at them, and how many nodes were replaced."""
    if not possible_dims(graph):
        return graph, 0
    counts, replaced = Counts(fixed_constants(graph.constants)), dict[Node, Node]()
    for node in graph.nodes():
        with made_for(node.source):
            made = _counted(node, counts) or _decided(node, counts) or _viewed(node, counts)
        if made is not None:
            replaced[node] = made
    return graph.replaced(replaced), len(replaced)


def _counted(node: Node, counts: Counts) -> Node | None:
    form = counts.affine(node) if node.op in MOVES and node.dtype in COUNTED_DTYPES else None
    return None if form is None else _written(form, node)


def _written(form: Affine, node: Node) -> Node:
    """constant + Σ step · place"""
    if isinstance(form.constant, int):
        total = build.scalar(form.constant, node.dtype)
    else:
        total = build.cast(make("extent", (), {"extent": form.constant}), node.dtype)
    for axis, step in enumerate(form.steps):
        if step:
            place = build.cast(build.counter(node.type.rank, axis, node.shape[axis]), node.dtype)
            total = place * step + total
    return build.expand(total, node.shape)


def _decided(node: Node, counts: Counts) -> Node | None:
    if node.dtype != "bool" or node.op in PLAIN:
        return None
    answer = counts.decided(node)
    return None if answer is None else build.expand(build.scalar(answer, "bool"), node.shape)


def _viewed(node: Node, counts: Counts) -> Node | None:
    """x[i + c, j + d, ..] → a slice of x with its axes in the order of i, j, .."""
    data, digits = counts.digits(node) if node.op == "take" else (node, [])
    axes = [_axis_of(digit) for digit in digits]
    counting = [axis for axis in axes if axis is not None]
    if not digits or len(set(counting)) < len(counting) or ELSEWHERE in counting:
        return None
    for axis, (digit, along) in enumerate(zip(digits, axes, strict=True)):
        extent = 1 if along is None else node.shape[along]
        data = build.slice_axis(data, axis, digit.constant, digit.constant + extent)
    order = sorted(range(len(axes)), key=lambda axis: axes[axis] or 0)
    shape = [node.shape[axis] if axis in counting else 1 for axis in range(node.type.rank)]
    return build.expand(build.reshape(build.permute(data, order), shape), node.shape)


def _axis_of(digit: Affine) -> int | None:
    """The axis along which a place counts by ones, None where it is one place for all."""
    moving = [axis for axis, step in enumerate(digit.steps) if step]
    if not isinstance(digit.constant, int) or len(moving) > 1:
        return ELSEWHERE
    if not moving:
        return None
    return moving[0] if digit.steps[moving[0]] == 1 else ELSEWHERE
