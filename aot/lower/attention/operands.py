"""What the forms of attention read and write: symbols, accesses, operands in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import Extent, content, fixed, highest, is_static, kernel_text, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.attention.candidates import Problem
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.attention import attention_accesses, groups, has_few_rows, head_element
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import Access, accesses
from aotc.aot.traits import TargetTraits

LOG2_E = 1 / math.log(2)
SMALLEST_DOT = 16  # elements along each axis of a dot
DESCRIPTOR_BYTES = 16  # what addresses and strides of a tensor descriptor must be multiples of
FARTHEST = 2**31 - 1  # element that an address of 32 bits reaches
HEAD_AXES = 2  # of a descriptor of all heads, beside rows and elements


@dataclass(frozen=True, slots=True)
class Heads:
    """All heads of an operand as one tensor: extents, strides and places of head z on two axes."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of one head in memory: stored node, first element, extents and the stride of rows."""

    memory: Node
    start: Index
    extents: tuple[Extent, Extent]
    stride: Extent

    def heads(self) -> Heads | None:
        """The first element of head z as a place on two axes, if it can be written so."""
        axes = []
        for atom, stride in self.start.terms:
            lowest, highest = ix.of(atom).bounds()
            if lowest < 0 or stride < 0:
                return None
            axes.append((highest + 1, stride, str(ix.of(atom))))
        if len(axes) > HEAD_AXES:
            return None
        axes += [(1, self.stride, "0")] * (HEAD_AXES - len(axes))
        extents, strides, places = zip(*axes, strict=True)
        return Heads(extents, strides, places)


class Attention:
    """One attention as its forms see it: symbols, accesses, operands in memory."""

    def __init__(self, group: Group, traits: TargetTraits) -> None:
        assert group.root_op is not None
        assert group.domain.reduced is not None
        self.group, self.root_op, self.domain, self.traits = (
            group, group.root_op, group.domain, traits,
        )  # fmt: skip
        self.keys = group.domain.reduced
        self.needs = attention_accesses(group.root_op, group.domain)
        self.row = Symbol("sk", self.keys.extent)  # keys along the rows of a tile
        self.column = Symbol("sl", self.keys.extent)  # keys along its lanes
        self.element = head_element(group.root_op)

    def problem(self) -> Problem:
        """What the choice of a config depends on."""
        key, value = (operand.shape for operand in self.root_op.inputs[1:3])
        return Problem(
            extents=self._extents(),
            key_block=padded(fixed(key[3])),
            value_block=padded(fixed(value[3])),
            itemsize_bytes=DTYPES[self.root_op.dtype].itemsize_bytes,
            is_causal=self.root_op.attr("causal"),
            offset=typical(self.root_op.attr("offset")),
            has_few_rows=has_few_rows(self.root_op),
            has_descriptors=self._has_descriptors(),
            may_overlap=self._may_overlap(),
        )

    def _extents(self) -> tuple[Extent, Extent, Extent]:
        return self.domain.outer.extent, self.domain.rows.extent, self.keys.extent

    def constants(self) -> dict[str, str]:
        """The literals of the templates: sizes, scale and what is compiled in."""
        sizes = self.problem()
        heads, rows, keys = sizes.extents
        scale = 1.0 if self.has_bias else self.root_op.attr("scale") * LOG2_E
        return {
            "HEADS": kernel_text(heads),
            "RATIO": str(groups(self.root_op)),
            "T": kernel_text(rows),
            "ROWS": kernel_text(rows),
            "BR": str(power_above(highest(rows))),
            "S": kernel_text(keys),
            "BD": str(sizes.key_block),
            "BV": str(sizes.value_block),
            "SCALE": repr(scale),
            "CAUSAL": str(self.root_op.attr("causal")),
            "OFFSET": kernel_text(self.root_op.attr("offset")),
            "SAFE": str(self.root_op.attr("is_safe")),
            "PRECISION": repr(self.traits.dot_precision).replace("'", '"'),
        }

    @property
    def has_bias(self) -> bool:
        """Whether the mask is added to the scores."""
        return len(self.needs) == 4 and self.root_op.inputs[3].dtype != "bool"

    def _may_overlap(self) -> bool:
        """Whether operands and result are tensors of heads, rows and elements."""
        # Its text holds numbers.
        if not self._has_descriptors() or not is_static(self._extents()):
            return False
        matrices = (*(self.matrix(place) for place in range(3)), self.result())
        return all(matrix is not None and matrix.heads() is not None for matrix in matrices)

    def _has_descriptors(self) -> bool:
        """Whether q, k and v are rows in memory, of 16 bits, and no mask is an operand."""
        if len(self.needs) == 4 or DTYPES[self.root_op.dtype].itemsize_bytes != 2:
            return False
        return all(self.matrix(place) is not None for place in range(3))

    def matrix(self, place: int) -> Matrix | None:
        """Operand `place` as rows of contiguous elements in memory, or None where it is not so."""
        need: Access | None = self.needs[place]
        while need is not None and need.node not in self.group.reads:
            need = accesses(need.node, need.index)[0] if need.node.kind == "view" else None
        if need is None:
            return None
        outer = self.domain.rows if place == 0 else self.keys
        inner = self.domain.lanes if place == 2 else self.element
        return _matrix(need.node, need.index, outer, inner)

    def result(self) -> Matrix | None:
        """The stored result likewise, where nothing but views follows on the attention."""
        (root, *more) = self.group.roots
        node = root.node
        while node.kind == "view" and node is not self.root_op:
            (node,) = node.inputs
        if more or node is not self.root_op:
            return None
        return _matrix(root.node, root.index, self.domain.rows, self.domain.lanes)


def _matrix(memory: Node, index: Sequence[Index], outer: Symbol, inner: Symbol) -> Matrix | None:
    """Rows `outer` of elements `inner` of a stored node, if its strides allow a descriptor."""
    offset = ix.linear(index, memory.shape)
    stride = offset.stride(outer)
    start = offset.substitute({outer: ix.ZERO, inner: ix.ZERO})
    if stride is None or offset.stride(inner) != 1 or {outer, inner} & start.symbols():
        return None
    parts = (stride, start.constant, *(count for _, count in start.terms))
    itemsize = DTYPES[memory.dtype].itemsize_bytes
    if any(content(part) * itemsize % DESCRIPTOR_BYTES for part in parts):
        return None
    if typical(memory.type.numel) > FARTHEST:  # a plan of sizes refuses calls with more
        return None
    return Matrix(memory, start, (outer.extent, inner.extent), stride)


def padded(extent: int) -> int:
    """Block of a head's elements."""
    return max(SMALLEST_DOT, power_above(extent))


def has_tail(symbol: Symbol) -> bool:
    return padded(symbol.length) != symbol.length
