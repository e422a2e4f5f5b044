"""Masks of attention whose values are known: causal ones become an attribute, empty ones go.

Whatever the expression, the values decide: a mask that depends on constants and counts only is
computed, and compared with `key ≤ query + offset`. Of masks joined by `and` each is looked at.
Where the numbers of rows and keys are dynamic, the comparison has to be one of counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy

from aotc.aot.ir.graph import Constant, Graph, Node, fixed_constants, make, walk
from aotc.aot.ir.reference import evaluate_all
from aotc.aot.ir.rules import Context
from aotc.aot.ir.size import Extent, fixed, proves_at_most
from aotc.aot.ir.storage import Array, widen
from aotc.aot.rewrites.attention import HIDDEN

LARGEST_MASK = 1 << 26  # elements of a mask that are worth computing at build time


def known_masks(graph: Graph) -> tuple[Graph, int]:
    """`graph` with known masks taken out of its attentions, and how many were."""
    reader = _Reader(fixed_constants(graph.constants))

    def without_known(_: Node, node: Node) -> Node:
        is_masked = node.op == "attention" and len(node.inputs) == 4
        return reader.without_known(node) if is_masked else node

    return graph.rebuilt(without_known), reader.count


class _Reader:
    """Computes masks, each once, and rebuilds the attentions that they belong to."""

    def __init__(self, constants: Mapping[str, Constant]) -> None:
        self.constants = constants
        self.context = Context()
        self.known: dict[Node, Array | None] = {}
        self.count = 0

    def without_known(self, node: Node) -> Node:
        """The attention without the parts of its mask that an attribute says, or that hide none."""
        attrs = dict(node.attrs)
        kept: list[Node] = []
        for part in _parts(node.inputs[3]):
            offset = self._offset(part, node)
            if offset is None:
                kept.append(part)
                continue
            self.count += 1
            if not proves_at_most(node.inputs[1].shape[2] - 1, offset):
                limits = [offset, *([attrs["offset"]] if attrs["causal"] else [])]
                attrs |= {"causal": True, "offset": min(limits)}
        if len(kept) == len(_parts(node.inputs[3])):
            return node
        mask: tuple[Node, ...] = tuple(kept[:1])
        for part in kept[1:]:
            mask = (make("logical_and", (*mask, part)),)
        return make("attention", (*node.inputs[:3], *mask), attrs, node.source)

    def _offset(self, part: Node, node: Node) -> int | None:
        """The offset of a causal mask, at least the last key's place where all is seen."""
        if part.sizes():
            return _offset_of_counts(part)
        seen = self._seen(part)
        if seen is None:
            return None
        rows, keys = fixed(node.shape[2]), fixed(node.inputs[1].shape[2])
        if seen.all():
            return keys - 1
        table = seen.reshape(-1, *seen.shape[2:])
        first = numpy.broadcast_to(table[0], (table[0].shape[0], keys))
        if (table != table[:1]).any() or table.shape[1] not in (1, rows) or rows == 1:
            return _single_row(first, rows) if not (table != table[:1]).any() else None
        offset = int(first[0].sum()) - 1
        row, column = numpy.arange(rows)[:, None], numpy.arange(keys)[None, :]
        return offset if numpy.array_equal(first, column <= row + offset) else None

    def _seen(self, part: Node) -> Array | None:
        """Values of a known mask as booleans; None where it is unknown or adds other numbers."""
        if part not in self.known:
            self.known[part] = self._values(part)
        return self.known[part]

    def _values(self, part: Node) -> Array | None:
        if not self.context.is_constant(part) or part.type.numel > LARGEST_MASK:
            return None
        read = (node.attr("name") for node in walk((part,)) if node.op == "constant")
        if not self.constants.keys() >= set(read):  # the weights of a call decide
            return None
        (stored,) = evaluate_all((part,), {}, self.constants)
        values = widen(stored, part.dtype)
        if part.dtype == "bool":
            return values
        seen = values == 0
        hidden = values == -math.inf
        if (hidden | seen).all():
            return numpy.asarray(seen)
        # A finite number hides a key only beside one that is seen.
        is_hiding = bool((seen | (values <= HIDDEN)).all() and seen.any(axis=-1).all())
        return numpy.asarray(seen) if is_hiding else None


@dataclass(frozen=True, slots=True)
class _Line:
    """The integers row · query + column · key + constant."""

    row: int = 0
    column: int = 0
    constant: Extent = 0

    def plus(self, other: _Line, factor: int = 1) -> _Line:
        """The sum with `factor` times the other."""
        return _Line(
            self.row + factor * other.row,
            self.column + factor * other.column,
            self.constant + factor * other.constant,
        )


_AXES = {-2: _Line(row=1), -1: _Line(column=1)}  # counted from the last axis
# a op b → factor of a - b that is at most 0, or below 0.
_COMPARISONS = {"le": (1, 0), "lt": (1, 1), "ge": (-1, 0), "gt": (-1, 1)}


def _offset_of_counts(part: Node) -> int | None:
    """The offset of `key ≤ query + offset` where both sides are counted by rows and keys."""
    while part.op == "expand" or _only_aligns(part):
        (part,) = part.inputs
    if part.op not in _COMPARISONS:
        return None
    left, right = map(_line, part.inputs)
    if left is None or right is None:
        return None
    factor, less = _COMPARISONS[part.op]
    apart = _Line().plus(left.plus(right, -1), factor)
    if (apart.row, apart.column) != (-1, 1) or not isinstance(apart.constant, int):
        return None
    return -apart.constant - less


def _only_aligns(node: Node) -> bool:
    """Whether a view only adds axes of one element before the others, or drops such."""
    if node.op != "reshape" or min(node.type.rank, node.inputs[0].type.rank) < 2:
        return False
    before, after = node.inputs[0].shape, node.shape
    return before[-2:] == after[-2:] and {*before[:-2], *after[:-2]} <= {1}


def _seen_along(line: _Line | None, node: Node) -> _Line | None:
    """What a row of numbers counts where `node` sees it along one of the last two axes."""
    axes = [axis - node.type.rank for axis, extent in enumerate(node.shape) if extent != 1]
    if line is None or axes not in ([-1], [-2]):
        return None
    return line if axes == [-1] else _Line(row=line.column, constant=line.constant)


def _line(node: Node) -> _Line | None:
    """What a node of whole numbers counts along the last two axes; None for anything else."""
    if node.type.kind != "int":
        return None
    if node.op == "scalar":
        return _Line(constant=int(node.attr("value")))
    if node.op == "extent":
        return _Line(constant=node.attr("extent"))
    if node.op == "iota":
        return _AXES.get(node.attr("axis") - node.type.rank)
    if node.op == "reshape" and node.inputs[0].type.rank == 1:
        return _seen_along(_line(node.inputs[0]), node)
    if node.op in ("expand", "cast") or _only_aligns(node):
        return _line(node.inputs[0])
    if node.op in ("add", "sub"):
        left, right = map(_line, node.inputs)
        if left is not None and right is not None:
            return left.plus(right, 1 if node.op == "add" else -1)
    return None


def _single_row(first: Array, rows: int) -> int | None:
    """Offset where one query sees a run of keys from the first one on."""
    count = int(first[0].sum())
    is_run = rows == 1 and bool(first[0][:count].all())
    return count - 1 if is_run else None


def _parts(mask: Node) -> list[Node]:
    """Masks that are joined by `and`."""
    if mask.op != "logical_and":
        return [mask]
    return [part for operand in mask.inputs for part in _parts(operand)]
