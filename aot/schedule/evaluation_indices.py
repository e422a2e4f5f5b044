"""Places: the indices at which a kernel evaluates a node for each element that it stores."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.ir.size import Extent
from aotc.aot.schedule.attention import attention_accesses, attention_domain
from aotc.aot.schedule.domain import batch_index, matmul_domain, operand_accesses
from aotc.aot.schedule.grow import MATMULS, Cluster, row_indices, row_symbols
from aotc.aot.schedule.trace import (
    Access,
    accesses,
    data_index,
    is_unrolled,
    lookup_index,
    unrolled_index,
)

# An index into a node, and the conditions under which the value there is used.
Place = tuple[tuple[Index, ...], tuple[Bound, ...]]


def root_index(cluster: Cluster | None, node: Node) -> Place:
    """Where a kernel evaluates a node that it stores, or that its cluster has."""
    if cluster is not None:
        known = cluster.index.get(node)
        if known is None and cluster.kind == "row":
            known = cluster.index.get(cluster.root_op.inputs[0])
        if known is not None and len(known) == node.type.rank:
            return known, ()
    return _elements(node.shape), ()


def operand_indices(cluster: Cluster | None, node: Node, place: Place) -> list[Place]:
    """The places in its operands that a node at a place needs, in the operands' order."""
    index, guard = place
    found = _needs(cluster, node, index)
    if found is None:
        return [(_elements(operand.shape), guard) for operand in node.inputs]
    return [(need.index, (*guard, *need.conditions)) for need in found]


def _needs(
    cluster: Cluster | None, node: Node, index: tuple[Index, ...]
) -> Sequence[Access] | None:
    """What a node at an index needs of each operand; None where that is all of them."""
    if node.kind == "reduce":
        return [Access(node.inputs[0], _reduced(cluster, node, index))]
    if node.kind in MATMULS:
        domain = matmul_domain(node)
        return operand_accesses(node, domain, batch_index(node, domain))
    if node.kind == "attention":
        return attention_accesses(node, attention_domain(node))
    if node.kind in ("call", "torch"):
        return None
    if node.kind in ("take", "gather"):
        data, indices = node.inputs
        where = lookup_index(node, index)
        # Each look-up is an index of its own.
        loaded = ix.symbol(f"loaded {id(indices)} {where}", data.shape[node.attr("axis")])
        return Access(data, data_index(node, index, loaded)), Access(indices, where)
    return accesses(node, index)


def _reduced(cluster: Cluster | None, node: Node, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """The index of a reduction's operand."""
    if is_unrolled(node):
        return unrolled_index(node, index)
    (operand,) = node.inputs
    if cluster is not None and cluster.kind == "row":
        known = cluster.index.get(operand)
        if known is not None:
            return known
        kept, reduced = row_symbols(cluster.root_op)
        if row_symbols(node) == (kept, reduced):
            return row_indices(node, ix.of(kept), ix.of(reduced))[operand]
    axes = node.attr("axes")
    return tuple(
        ix.symbol(f"reduced{axis}", extent) if axis in axes else index[axis]
        for axis, extent in enumerate(operand.shape)
    )


def _elements(shape: Sequence[Extent]) -> tuple[Index, ...]:
    return tuple(ix.of(Symbol(f"i{axis}", extent)) for axis, extent in enumerate(shape))
