"""An attention as its forms see it: symbols, accesses, and operands as rows in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import (
    KERNEL_PREFIX,
    Extent,
    bounds,
    content,
    fixed,
    highest,
    is_static,
    kernel_text,
    proves_at_most,
    typical,
)
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.attention.candidates import Problem
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.attention import (
    attention_accesses,
    ends_of,
    groups,
    has_few_rows,
    head_element,
    mask_of,
)
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import STORED, Access, accesses
from aotc.aot.traits import DESCRIPTOR_BYTES, TargetTraits

LOG2_E = 1 / math.log(2)
SMALLEST_DOT = 16  # elements along each axis of a dot
FARTHEST = 2**31 - 1  # element that an address of 32 bits reaches
HEAD_AXES = 2  # of a descriptor of all heads, beside rows and elements


@dataclass(frozen=True, slots=True)
class Heads:
    """All heads of an operand as one tensor: extents, strides and places of head z on two axes."""

    extents: tuple[Extent, ...]
    strides: tuple[Extent, ...]
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
            if not (proves_at_most(0, lowest) and proves_at_most(0, stride)):
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
        self.ends = self._need(ends_of(group.root_op))
        self.mask = self._need(mask_of(group.root_op))
        self.sinks = self.needs[-1] if group.root_op.attr("has_sinks") else None
        self.row = Symbol("sk", self.keys.extent)  # keys along the rows of a tile
        self.column = Symbol("sl", self.keys.extent)  # keys along its lanes
        self.element = head_element(group.root_op)

    def _need(self, operand: Node | None) -> Access | None:
        return next((need for need in self.needs[3:] if need.node is operand), None)

    def problem(self) -> Problem:
        """What the choice of a config depends on."""
        key, value = (fixed(operand.shape[3]) for operand in self.root_op.inputs[1:3])
        is_split = self.traits.precision_of(self.root_op.dtype) == "tf32x3"
        return Problem(
            extents=self._extents(),
            key_block=padded(key),
            value_block=padded(value),
            itemsize_bytes=DTYPES[self.root_op.dtype].itemsize_bytes,
            is_causal=self.root_op.attr("causal"),
            offset=typical(self.root_op.attr("offset")),
            window=self.root_op.attr("window"),
            has_few_rows=has_few_rows(self.root_op),
            has_descriptors=self._has_descriptors(),
            may_overlap=self._may_overlap(),
            is_split=is_split,
            # Such products read what lies along their depth, which a value's keys are not.
            pieces=(key, value) if is_split and self.traits.can_overlap else None,
        )

    def _extents(self) -> tuple[Extent, Extent, Extent]:
        return self.domain.outer.extent, self.domain.rows.extent, self.keys.extent

    def constants(self) -> dict[str, str]:
        """The literals of the templates: sizes, scale and what is compiled in."""
        sizes = self.problem()
        heads, rows, keys = sizes.extents
        scale, softcap = self.root_op.attr("scale"), self.root_op.attr("softcap")
        is_scaled = self.has_bias or softcap > 0  # before `attend`
        return {
            "HEADS": kernel_text(heads),
            "RATIO": str(groups(self.root_op)),
            "T": kernel_text(rows),
            "ROWS": kernel_text(rows),
            "BR": str(power_above(highest(rows))),
            "S": kernel_text(keys),
            "BD": str(sizes.key_block),
            "BV": str(sizes.value_block),
            "SCALE": repr(1.0 if is_scaled else scale * LOG2_E),
            "RATE": repr(scale / softcap if softcap else 0.0),
            "CAP": repr(softcap * LOG2_E),
            "CAUSAL": str(self.root_op.attr("causal") or self.ends is not None),
            "OFFSET": kernel_text(self.root_op.attr("offset")),
            "WINDOW": str(self.root_op.attr("window")),
            "SAFE": str(self.root_op.attr("is_safe")),
            "VARIES": str(not is_static((*sizes.extents, self.root_op.attr("offset")))),
            "LEAST": str(bounds(keys)[0]),
            "PRECISION": f'"{self.traits.precision_of(self.root_op.dtype)}"',
        }

    @property
    def has_bias(self) -> bool:
        """Whether the mask is added to the scores."""
        return self.mask is not None and self.mask.node.dtype != "bool"

    def _may_overlap(self) -> bool:
        """Whether operands and result are tensors of heads, rows and elements, without sinks."""
        if self.sinks is not None or not self._has_descriptors():
            return False
        matrices = (*(self.matrix(place) for place in range(3)), self.result())
        found = [None if matrix is None else matrix.heads() for matrix in matrices]
        # Functions that place a head know no sizes.
        return all(
            heads is not None and not any(KERNEL_PREFIX in place for place in heads.places)
            for heads in found
        )

    def _has_descriptors(self) -> bool:
        """Whether q, k and v are rows in memory, of 16 bits, and there are no others but sinks."""
        others = self.mask is not None or self.ends is not None
        if others or DTYPES[self.root_op.dtype].itemsize_bytes != 2:
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


def lies_there(matrix: Matrix) -> bool:
    """Whether most of a tensor is there before the call: rows are written into it at most."""
    memory = matrix.memory
    if memory.kind == "call":
        return memory.attr("result") in dict(memory.attr("updates"))
    return memory.op in STORED


def padded(extent: int) -> int:
    """Block of a head's elements."""
    return max(SMALLEST_DOT, power_above(extent))


def has_tail(symbol: Symbol) -> bool:
    return padded(symbol.length) != symbol.length
