"""Ranges of integers in a graph: what is known of a node's elements before any call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from itertools import product
from math import prod

import numpy

from aotc.aot.ir.graph import Constant, Node, walk
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.reference import evaluate_all
from aotc.aot.ir.size import Extent, largest, proves_at_most, smallest, typical
from aotc.aot.ir.types import DTYPES

Range = tuple[Extent, Extent]  # both ends inside

MOST_COMPUTED = 1 << 18  # elements of a node that is computed to know its range
MOST_NODES = 256  # behind a node whose range is asked for
_SAME = frozenset(
    ("reshape", "permute", "expand", "slice", "flip", "window", "copy", "take", "gather")
    + tuple(name for name, row in REDUCTIONS.items() if row.is_choice)
)


def range_of(node: Node, constants: Mapping[str, Constant]) -> Range:
    """The least and the largest value that an element can have, as far as is known."""
    nodes = [each for each, _ in zip(walk((node,)), range(MOST_NODES + 1), strict=False)]
    if len(nodes) > MOST_NODES:
        return _of_dtype(node.dtype)
    computed = _computed(node, nodes, constants)
    if computed is not None:
        return computed
    found: dict[Node, Range] = {}
    for each in nodes:
        found[each] = _range(each, found, constants)
    return found[node]


OPAQUE_KINDS = frozenset({"input", "call", "torch", "control", "check", "extent"})


def is_within(inner: Range, outer: Range) -> bool:
    """Whether one range is proved to lie in another."""
    return proves_at_most(outer[0], inner[0]) and proves_at_most(inner[1], outer[1])


def _computed(node: Node, nodes: list[Node], constants: Mapping[str, Constant]) -> Range | None:
    """The range of what depends on no input; None where it does, or where it is too much work."""
    for each in nodes:
        is_opaque = each.kind in OPAQUE_KINDS or each.sizes()
        if is_opaque or typical(each.type.numel) > MOST_COMPUTED:
            return None
        if each.op == "constant" and each.attr("name") not in constants:
            return None
    found = evaluate_all((node,), {}, constants)[0]
    return (int(found.min()), int(found.max())) if found.size else None


def _of_dtype(dtype: str) -> Range:
    row = DTYPES[dtype]
    if row.kind == "bool":
        return 0, 1
    if row.kind != "int":
        return -(1 << 63), (1 << 63) - 1
    limits = numpy.iinfo(row.numpy)
    return int(limits.min), int(limits.max)


def _range(node: Node, known: Mapping[Node, Range], constants: Mapping[str, Constant]) -> Range:
    whole = _of_dtype(node.dtype)
    if DTYPES[node.dtype].kind not in ("int", "bool"):
        return whole
    operands = [known[each] for each in node.inputs]
    if node.op == "cast":
        is_integer = DTYPES[node.inputs[0].dtype].kind in ("int", "bool")
        found = operands[0] if is_integer else whole
    elif node.op in _RANGES:
        found = _RANGES[node.op](node, operands)
    elif node.op in _SAME:
        found = operands[0]
    elif node.op == "constant" and node.attr("name") in constants:
        array = constants[node.attr("name")].array
        found = (int(array.min()), int(array.max())) if array.size else whole
    else:
        return whole
    return found if is_within(found, whole) else whole


def _union(ranges: list[Range]) -> Range:
    low, high = ranges[0]
    for each in ranges[1:]:
        low, high = smallest(low, each[0]), largest(high, each[1])
    return low, high


def _product(left: Range, right: Range) -> Range:
    ends = [a * b for a in left for b in right]
    return _union([(end, end) for end in ends])


def _remainder(node: Node, operands: list[Range]) -> Range:
    """Of a positive divisor d: 0 to d - 1."""
    low, high = operands[1]
    return (0, high - 1) if proves_at_most(1, low) else _of_dtype(node.dtype)


def _padded(node: Node, operands: list[Range]) -> Range:
    value = int(node.attr("value"))
    return _union([operands[0], (value, value)])


def _index_range(node: Node, operands: list[Range]) -> Range:
    shape = node.inputs[0].shape
    return 0, prod(shape[axis] for axis in node.attr("axes")) - 1


def _chosen(_: Node, operands: list[Range]) -> Range:
    """The branch that a condition takes for all elements, else either."""
    (condition, first, second) = operands
    branches = {(0, 0): second, (1, 1): first}
    return branches[condition] if condition in branches else _union([first, second])


def _logic(node: Node, operands: list[Range]) -> Range:
    """What a function of truths gives, where these are known."""
    truths = [[bool(end) for end in ends] for ends in operands]
    found = {int(_LOGIC[node.op](*given)) for given in product(*truths)}
    return min(found), max(found)


def _compared(node: Node, operands: list[Range]) -> Range:
    """An answer that the ends of both sides decide."""
    (low, high), (other_low, other_high) = operands
    is_below, is_above = proves_at_most(high, other_low - 1), proves_at_most(other_high, low - 1)
    answers = {
        "lt": (is_below, proves_at_most(other_high, low)),
        "le": (proves_at_most(high, other_low), is_above),
        "gt": (is_above, proves_at_most(high, other_low)),
        "ge": (proves_at_most(other_high, low), is_below),
        "eq": (False, is_below or is_above),
        "ne": (is_below or is_above, False),
    }
    holds, fails = answers[node.op]
    if DTYPES[node.inputs[0].dtype].kind not in ("int", "bool") or not (holds or fails):
        return 0, 1
    return int(holds), int(holds)


def _size(_: Node, operands: list[Range]) -> Range:
    """Of |x|."""
    ((low, high),) = operands
    return (low, high) if proves_at_most(0, low) else (0, largest(-low, high))


_LOGIC: dict[str, Callable[..., bool]] = {
    "logical_not": operator.not_,
    "logical_and": operator.and_,
    "logical_or": operator.or_,
    "logical_xor": operator.xor,
}
_RANGES: dict[str, Callable[[Node, list[Range]], Range]] = {
    "scalar": lambda node, _: (int(node.attr("value")), int(node.attr("value"))),
    "extent": lambda node, _: (node.attr("extent"), node.attr("extent")),
    "iota": lambda node, _: (0, node.shape[node.attr("axis")] - 1),
    "concat": lambda _, operands: _union(operands),
    "where": _chosen,
    **dict.fromkeys(_LOGIC, _logic),
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), _compared),
    "abs": _size,
    "pad": _padded,
    "add": lambda _, operands: (operands[0][0] + operands[1][0], operands[0][1] + operands[1][1]),
    "sub": lambda _, operands: (operands[0][0] - operands[1][1], operands[0][1] - operands[1][0]),
    "mul": lambda _, operands: _product(*operands),
    "neg": lambda _, operands: (-operands[0][1], -operands[0][0]),
    "maximum": lambda _, o: (largest(o[0][0], o[1][0]), largest(o[0][1], o[1][1])),
    "minimum": lambda _, o: (smallest(o[0][0], o[1][0]), smallest(o[0][1], o[1][1])),
    "remainder": _remainder,
    **{name: _index_range for name, row in REDUCTIONS.items() if row.is_search},
}
