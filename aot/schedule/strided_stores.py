"""Leaves transposing views behind a reduction to the products that read them (GPU).

A reduction kernel stores its result in the order of the views behind it. If these exchange axes, as
between the layers of an MLP mixer, neighbours of a row are far apart in memory, and each element
takes a store of its own. Products of 16 bits on a GPU read an operand with either axis contiguous,
so such views are left to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.size import content
from aotc.aot.ir.types import SHORT_FLOATS
from aotc.aot.schedule.domain import batch_index, matmul_domain, operand_accesses, run_along
from aotc.aot.schedule.grow import Cluster, row_symbols
from aotc.aot.schedule.trace import accesses
from aotc.aot.traits import TargetTraits

WHOLE_LOADS = 64  # elements in a run that tiles read, and multiples of them: loads of 16 bytes


def leave_strided_views(
    found: Sequence[Cluster], graph: Graph, traits: TargetTraits
) -> list[Cluster]:
    """The clusters, without views that products read through."""
    if not traits.is_gpu:
        return list(found)
    users, outputs = graph.users(), frozenset(graph.outputs)
    return [_without_views(cluster, users, outputs) for cluster in found]


def _without_views(
    cluster: Cluster, users: Mapping[Node, tuple[Node, ...]], outputs: Collection[Node]
) -> Cluster:
    tip = base = cluster.tip
    if cluster.kind != "row" or cluster.tips or cluster.is_split or tip in outputs:
        return cluster
    while base.kind == "view" and base.inputs[0] in cluster.members and base not in outputs:
        base = base.inputs[0]
    if _is_along_rows(cluster, tip) or not _is_along_rows(cluster, base):
        return cluster
    if not all(_reads_through(user, tip, base) for user in users[tip]):
        return cluster
    members = set(cluster.members)
    while tip is not base:
        members.discard(tip)
        tip = tip.inputs[0]
    return replace(cluster, tip=base, members=members)


def _is_along_rows(cluster: Cluster, node: Node) -> bool:
    """Whether neighbours of a row are neighbours in memory, if the kernel stores the node."""
    index = cluster.index.get(node)
    if index is None:
        return False
    _, reduced = row_symbols(cluster.root_op)
    return ix.linear(index, node.shape).stride(reduced) in (0, 1)


def _reads_through(user: Node, tip: Node, base: Node) -> bool:
    """Whether a product reads the base behind the tip in runs along rows, columns or the depth."""
    if user.kind != "matmul" or user.dtype not in SHORT_FLOATS:
        return False
    domain = matmul_domain(user)
    needs = operand_accesses(user, domain, batch_index(user, domain))
    for need, outer in zip(needs, (domain.rows, domain.lanes), strict=True):
        if need.node is not tip:
            continue
        while need.node is not base:
            (need,) = accesses(need.node, need.index)
        offset = ix.linear(need.index, base.shape)
        if domain.reduced is not None and offset.stride(domain.reduced) == 1:
            continue
        run = run_along([offset], outer)
        inner = ix.symbol("inner", run)
        of_run = offset.substitute({outer: inner}) if run else offset
        is_run = isinstance(run, int) and run % WHOLE_LOADS == 0 and run > 0
        if not is_run or content(outer.extent) % WHOLE_LOADS:
            return False
        if of_run.stride(next(iter(inner.symbols()))) != 1:
            return False
    return True
