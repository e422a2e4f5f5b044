"""Operands whose rows are padded to a pitch that a GPU's tensor descriptors can address.

The copy unit reads tiles by descriptors, which need rows that begin at multiples of 16 bytes. A
large operand without such rows is copied in each call: `x[8192, 50257]` to a pitch of 50304.
Weights are stored with a pitch: the filters `w[18, 162]` of a convolution with 168.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from aotc.aot.ir import build
from aotc.aot.ir import index as ix
from aotc.aot.ir.constants import folded_constant
from aotc.aot.ir.graph import Constant, Node, walk
from aotc.aot.ir.index import Symbol
from aotc.aot.ir.size import typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.schedule.domain import batch_index, matmul_domain, operand_accesses
from aotc.aot.schedule.trace import Access, behind_views
from aotc.aot.traits import DESCRIPTOR_BYTES

MATRIX_RANK = 2
SHORT_BYTES = 2  # of the elements of such products
LINE_BYTES = 128  # of the cache: rows of a copy begin at multiples
LEAST_REUSE = 512  # products of each element: fewer take no longer than the copy


@dataclass(slots=True)
class Pitches:
    """What products of a graph read from rows at a pitch."""

    constants: Mapping[str, Constant]  # the graph's
    moved: dict[Node, Node] = field(default_factory=dict)  # what lies at a pitch, by its memory
    made: dict[str, Constant] = field(default_factory=dict)  # weights that are stored so

    def of(self, memory: Node) -> Node:
        """The same values as a view of wider rows: of a stored weight, or of a copy."""
        if memory not in self.moved:
            *lead, columns = memory.shape
            is_weight = memory.op == "constant"
            unit = (DESCRIPTOR_BYTES if is_weight else LINE_BYTES) // SHORT_BYTES
            none = (0,) * len(lead)
            wide = build.pad(memory, (*none, 0), (*none, -columns % unit), 0)
            self.moved[memory] = build.slice_axis(self.stored(wide), len(lead), 0, columns)
        return self.moved[memory]

    def stored(self, wide: Node) -> Node:
        """A copy: of what is computed of weights alone a constant."""
        leaves = [node for node in walk((wide,)) if not node.inputs]
        if any(leaf.op != "constant" for leaf in leaves):
            return build.stored(wide)
        is_weight = any(self.constants[leaf.attr("name")].is_replaceable for leaf in leaves)
        constant = folded_constant(wide, self.constants, is_weight)
        self.made[constant.name] = constant
        return build.constant(constant.name, constant.type)


def with_pitch(root_op: Node, pitches: Pitches) -> Node:
    """The matmul, if large, on rows at a pitch in place of those that no descriptor can address."""
    kind = DTYPES[root_op.dtype]
    sizes = (*root_op.shape, root_op.inputs[0].shape[-1])
    if root_op.kind != "matmul" or kind.kind != "float" or kind.itemsize_bytes != SHORT_BYTES:
        return root_op
    if root_op.type.rank != MATRIX_RANK or not all(isinstance(each, int) for each in sizes):
        return root_op
    rows, columns, _ = map(typical, sizes)
    domain = matmul_domain(root_op)
    needs = operand_accesses(root_op, domain, batch_index(root_op, domain))
    lanes, reuses = (domain.rows, domain.lanes), (columns, rows)
    operands = [
        _pitched(operand, need, {along, domain.reduced}, pitches)
        if reuse >= LEAST_REUSE
        else operand
        for operand, need, along, reuse in zip(root_op.inputs, needs, lanes, reuses, strict=True)
    ]
    return root_op if operands == list(root_op.inputs) else root_op.on(tuple(operands))


def _pitched(
    operand: Node, need: Access, symbols: AbstractSet[Symbol | None], pitches: Pitches
) -> Node:
    """The operand as a view of rows at a pitch; itself where its rows need none."""
    behind, views = behind_views(need)
    memory = behind.node
    pitch = memory.shape[-1] if memory.shape else 1
    if need.node is not operand or not isinstance(pitch, int):
        return operand
    offset = ix.linear(behind.index, memory.shape)
    strides = {offset.stride(symbol) for symbol in symbols if symbol is not None}
    itemsize_bytes = DTYPES[operand.dtype].itemsize_bytes
    if strides != {1, pitch} or pitch * itemsize_bytes % DESCRIPTOR_BYTES == 0:
        return operand
    moved = pitches.of(memory)
    for view in reversed(views):
        moved = view.on((moved,))
    return moved
