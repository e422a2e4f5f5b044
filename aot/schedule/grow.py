"""Grows the kernels of matmuls and reductions over their consumers, as far as the table allows.

A kernel extends from its tip to the tip's nearest common successor (its post-dominator): then
nothing outside needs a value in between, and no cycle between kernels can arise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Graph, Node, walk
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.types import DTYPES
from aotc.aot.schedule.attention import attention_index
from aotc.aot.schedule.cost import is_worth_a_kernel
from aotc.aot.schedule.fuse import fusion
from aotc.aot.schedule.group import GroupKind
from aotc.aot.schedule.trace import (
    LEAVES,
    STORED,
    Access,
    Tracer,
    inverse,
    is_unrolled,
    kept_extents,
    reduced_extents,
    reduction_index,
)
from aotc.aot.traits import TargetTraits

MATMULS = frozenset({"matmul", "matmul_packed"})
CONTRACTIONS = MATMULS | {"attention"}  # each is the one of its kernel
Position = tuple[Index, ...]
COLUMN_GROUPS = (2, 4)  # columns of a matmul that may meet
MOST_TIPS = 4  # results of a product whose columns meet
MOST_BESIDE = 3  # results of a product that are stored on the way to its last one
MOST_MEMBERS = 64  # nodes of a cluster, which are looked at again with each one that joins


@dataclass(slots=True)
class Cluster:
    """A kernel in the making: the nodes that must be in it, the last one of which is the tip."""

    kind: GroupKind
    root_op: Node
    tip: Node
    members: set[Node]
    index: dict[Node, Position] = field(default_factory=dict)
    may_group_columns: bool = False  # the target's matmul kernels split neighbouring ones
    column_group: int = 1  # how many meet, 2 or 4: columns are counted by as many from there on
    tips: tuple[Node, ...] = ()  # what it stores, where that is not the tip alone
    is_split: bool = False  # it stores values of whole rows only, so that programs share rows

    @property
    def roots(self) -> list[Node]:
        """What the kernel stores."""
        return list(self.tips or (self.tip,))


def clusters(
    graph: Graph, traits: TargetTraits, split: Callable[[Cluster], Cluster]
) -> list[Cluster]:
    """One cluster for each matmul and each group of reductions over the same rows.

    On a GPU the columns of a product may meet, and results of the graph are stored on the way to
    what is computed of them. `split` may leave out members of a cluster, which are then free for
    others.
    """
    users, outputs = graph.users(), frozenset(graph.outputs)
    successor = post_dominators(graph, users)
    if not traits.is_gpu:
        successor = {node: each for node, each in successor.items() if node not in outputs}
    found: list[Cluster] = []
    owned: set[Node] = set()
    for node in graph.nodes():
        if node in owned or not _is_stop(node):
            continue
        start = replace(_start(node), may_group_columns=traits.is_gpu)
        cluster = split(_grown(start, outputs, users, successor, owned, traits))
        owned |= cluster.members
        found.append(cluster)
    return found


def post_dominators(graph: Graph, users: Mapping[Node, tuple[Node, ...]]) -> dict[Node, Node]:
    """For each node the nearest node that all its paths to outputs pass, for an output all those to
    other outputs; absent where there is none."""
    outputs = set(graph.outputs)
    parent: dict[Node, Node] = {}
    behind: dict[Node, Node] = {}  # outputs
    depth: dict[Node, int] = {}
    for node in reversed(graph.nodes()):
        depth[node] = 0
        if not users[node]:
            continue
        meeting: Node | None = users[node][0]
        for other in users[node][1:]:
            meeting = _meet(meeting, other, parent, depth)
        if meeting is None:
            continue
        if node in outputs:
            behind[node] = meeting
        else:
            parent[node], depth[node] = meeting, depth[meeting] + 1
    return parent | behind


def _meet(
    left: Node | None, right: Node | None, parent: Mapping[Node, Node], depth: Mapping[Node, int]
) -> Node | None:
    while left is not right:
        if left is None or right is None:
            return None
        if depth[left] >= depth[right]:
            left = parent.get(left)
        else:
            right = parent.get(right)
    return left


def _start(root_op: Node) -> Cluster:
    kind: GroupKind = "matmul" if root_op.kind in MATMULS else "row"
    if root_op.kind == "attention":
        kind = "attention"
    cluster = Cluster(kind, root_op, root_op, {root_op})
    if kind == "attention":
        cluster.index[root_op] = attention_index(root_op)
    elif kind == "matmul":
        cluster.index[root_op] = matmul_index(root_op, *matmul_symbols(root_op)[:3])
    else:
        kept, reduced = row_symbols(root_op)
        cluster.index.update(row_indices(root_op, ix.of(kept), ix.of(reduced)))
    return cluster


def matmul_symbols(root_op: Node) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    """(batch z, rows x, columns y, inner k) of a matmul."""
    rows, columns = root_op.shape[-2:]
    inner = root_op.inputs[0].shape[-1]
    batch = prod(root_op.shape[:-2])
    return Symbol("z", batch), Symbol("x", rows), Symbol("y", columns), Symbol("k", inner)


def matmul_index(root_op: Node, batch: Symbol, rows: Symbol, columns: Symbol) -> Position:
    """Index of a matmul's result at its tile symbols."""
    return (*ix.unravel(ix.of(batch), root_op.shape[:-2]), ix.of(rows), ix.of(columns))


def row_symbols(root_op: Node) -> tuple[Symbol, Symbol]:
    """(kept x, reduced r) of a reduction."""
    return Symbol("x", prod(kept_extents(root_op))), Symbol("r", prod(reduced_extents(root_op)))


def row_indices(root_op: Node, kept: Index, reduced: Index) -> dict[Node, Position]:
    """Index of a reduction and of its operand at linear positions of kept and reduced axes."""
    full = reduction_index(root_op, kept, reduced)
    axes = root_op.attr("axes")
    row = tuple(ix.ZERO if axis in axes else part for axis, part in enumerate(full))
    return {root_op: row, root_op.inputs[0]: full}


def element_index(cluster: Cluster, node: Node) -> Position | None:
    """Where a cluster evaluates a node that it stores: a value of its own, or elements of rows that
    may have another shape."""
    known = cluster.index.get(node)
    if known is not None or cluster.kind != "row":
        return known
    data = cluster.root_op.inputs[0]
    index = cluster.index[data]
    if node.shape == data.shape or node.type.numel != data.type.numel:
        return index
    return ix.unravel(ix.linear(index, data.shape), node.shape)


def _grown(
    cluster: Cluster,
    outputs: Collection[Node],
    users: Mapping[Node, tuple[Node, ...]],
    successor: Mapping[Node, Node],
    owned: set[Node],
    traits: TargetTraits,
) -> Cluster:
    beside: list[Node] = []  # results that are stored on the way
    while cluster.tip in successor:
        if cluster.tip in outputs and (cluster.kind != "matmul" or len(beside) == MOST_BESIDE):
            break
        target = successor[cluster.tip]
        between = _between(cluster, target, users, owned)
        if between is None or _is_left(cluster, target, users, owned):
            break
        members = cluster.members | set(between)
        if len(members) > MOST_MEMBERS or _is_apart_faster(cluster, target, outputs, owned, traits):
            break
        bigger = replace(cluster, tip=target, members=members, index=dict(cluster.index))
        if not (place(bigger, between) and is_consistent(bigger)):
            break
        beside += [cluster.tip] if cluster.tip in outputs else []
        cluster = bigger
    if beside:
        cluster = _with_beside(_trimmed(_narrowed(cluster, outputs), outputs, users), beside)
        return _with_rounded(cluster, users, owned)
    if cluster.kind == "matmul" and cluster.may_group_columns and cluster.tip not in outputs:
        cluster = _with_shares(cluster, outputs, users, owned) or cluster
    if cluster.tips:
        return cluster
    return _with_rounded(_trimmed(_narrowed(cluster, outputs), outputs, users), users, owned)


def _is_apart_faster(
    cluster: Cluster,
    target: Node,
    outputs: Collection[Node],
    owned: Collection[Node],
    traits: TargetTraits,
) -> bool:
    """Whether what a product would be grown by had better be a kernel of its own."""
    if cluster.kind != "matmul" or not traits.is_gpu:
        return False
    known = _AnyOf((cluster.members, owned, outputs))
    computed = [target, *islice(walk(target.inputs, known), MOST_MEMBERS)]
    return is_worth_a_kernel(cluster.tip, computed, cluster.tip in outputs, traits)


@dataclass(frozen=True, slots=True)
class _AnyOf:
    """The nodes of several collections."""

    parts: tuple[Collection[Node], ...]

    def __contains__(self, node: object) -> bool:
        return any(node in part for part in self.parts)


def _with_beside(cluster: Cluster, beside: Sequence[Node]) -> Cluster:
    """Storing results of the graph too that the tip is computed of."""
    if cluster.tip in beside:  # nothing but views was behind it
        beside = [node for node in beside if node is not cluster.tip]
    return replace(cluster, tips=(*beside, cluster.tip)) if beside else cluster


def _is_left(
    cluster: Cluster,
    target: Node,
    users: Mapping[Node, tuple[Node, ...]],
    owned: Collection[Node],
) -> bool:
    """Whether a sum of products, read by columns that meet, is left to one that comes later: it may
    have more before it."""
    if not (cluster.may_group_columns and _is_read_by_shares(target, users)):
        return False
    waiting, seen = [target], {target}
    for node in waiting:
        if node.kind in MATMULS and node is not cluster.root_op and node not in owned:
            return True
        if node.kind in ("pointwise", "view"):
            new = [each for each in node.inputs if each not in seen]
            seen.update(new)
            waiting += new
    return False


def _is_read_by_shares(node: Node, users: Mapping[Node, tuple[Node, ...]]) -> bool:
    """Whether all readers are every second or fourth column."""
    return bool(users[node]) and all(
        user.op == "slice" and user.attr("step") in COLUMN_GROUPS for user in users[node]
    )


def _with_shares(
    cluster: Cluster,
    outputs: Collection[Node],
    users: Mapping[Node, tuple[Node, ...]],
    owned: Collection[Node],
) -> Cluster | None:
    """A product and all that is computed of it and of what it was computed from, element by
    element of columns that meet: the gates of a recurrent step, its state and its result.

    What joins reads members, and else only what the product is computed from, constants, inputs
    and elements computed of these: so no two such kernels wait for each other.
    """
    if not _is_read_by_shares(cluster.tip, users):
        return None
    before = dict.fromkeys(walk((cluster.root_op,)), True)
    found = replace(cluster, members=set(cluster.members), index=dict(cluster.index))
    waiting = list(users[cluster.tip])
    for node in waiting:
        if node in found.members or not _is_free(found, node, owned):
            continue
        others = (each for each in node.inputs if each not in found.members)
        if not all(_is_before(each, before) for each in others):
            continue
        if len(found.members) == MOST_MEMBERS:
            return None
        if not place(found, [node]):
            continue
        found.members.add(node)
        waiting += users[node]
    tips = _last(found, outputs, users)
    while any(tip.kind == "view" for tip in tips):  # its readers move what they load
        found.members.difference_update(tip for tip in tips if tip.kind == "view")
        tips = _last(found, outputs, users)
    if found.column_group == 1 or cluster.tip in tips or not 0 < len(tips) <= MOST_TIPS:
        return None
    found = replace(found, tip=tips[-1], tips=tips)
    return found if is_consistent(found) else None


def _is_before(root: Node, before: dict[Node, bool]) -> bool:
    """Whether a value is known before, or computed by elements of such; `before` is added to."""
    waiting = [root]
    while waiting:
        node = waiting[-1]
        unknown = [each for each in node.inputs if each not in before]
        if node.kind in ("pointwise", "view") and node not in before and unknown:
            waiting += unknown
            continue
        is_element = node.kind in ("pointwise", "view") or node.op in STORED | LEAVES
        before.setdefault(node, is_element and all(before[each] for each in node.inputs))
        waiting.pop()
    return before[root]


def _last(
    cluster: Cluster, outputs: Collection[Node], users: Mapping[Node, tuple[Node, ...]]
) -> tuple[Node, ...]:
    """The members that something outside of the cluster reads."""
    return tuple(
        node
        for node in cluster.index
        if node in cluster.members
        and (node in outputs or any(user not in cluster.members for user in users[node]))
    )


def _narrowed(cluster: Cluster, outputs: Collection[Node]) -> Cluster:
    """Without a trailing cast to a wider type: its reader widens what it loads, half the bytes."""
    tip = cluster.tip
    while tip.op == "cast" and tip not in outputs and tip.inputs[0] in cluster.members:
        source, result = DTYPES[tip.inputs[0].dtype], DTYPES[tip.dtype]
        if source.kind != result.kind or source.itemsize_bytes >= result.itemsize_bytes:
            break
        cluster.members.discard(tip)
        cluster.tip = tip = tip.inputs[0]
    return cluster


def _trimmed(
    cluster: Cluster, outputs: Collection[Node], users: Mapping[Node, tuple[Node, ...]]
) -> Cluster:
    """Without trailing views that would scatter a matmul's store, unless the reader is a matmul.

    A matmul reads its operands once for each tile: their order counts more than the store's.
    """
    for_matmul = all(user.kind in MATMULS for user in users[cluster.tip])
    if cluster.kind != "matmul" or cluster.tip in outputs or for_matmul:
        return cluster
    columns = column_symbol(cluster.root_op, cluster.column_group)
    while cluster.tip.kind == "view" and cluster.tip.inputs[0] in cluster.members:
        offset = ix.linear(cluster.index[cluster.tip], cluster.tip.shape)
        if offset.stride(columns) == 1:
            break
        cluster.members.discard(cluster.tip)
        cluster.tip = cluster.tip.inputs[0]
    return cluster


def _with_rounded(
    cluster: Cluster, users: Mapping[Node, tuple[Node, ...]], owned: Collection[Node]
) -> Cluster:
    """Storing a product's tip rounded to TF32, too, where other products read that: they would
    round each element for each of their tiles."""
    tip = cluster.tip
    rounded = [each for each in users[tip] if each.op == "round_tf32" and each not in owned]
    if cluster.kind != "matmul" or cluster.column_group > 1 or not rounded:
        return cluster
    index = {**cluster.index, **dict.fromkeys(rounded, cluster.index[tip])}
    members = cluster.members | set(rounded)
    return replace(cluster, members=members, index=index, tips=(*cluster.roots, *rounded))


def may_join(kind: str, node: Node) -> bool:
    if is_unrolled(node):
        return False
    return fusion(kind, node.kind).verdict == "same-elements"


def _between(
    cluster: Cluster,
    target: Node,
    users: Mapping[Node, tuple[Node, ...]],
    owned: Collection[Node],
) -> list[Node] | None:
    """Nodes on the paths from the tip to the target, the target last, the tip left out, operands
    first. None where one of them may not join, or where they are more than a cluster has."""
    if not _is_free(cluster, target, owned):
        return None
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = [(user, False) for user in users[cluster.tip]]
    while stack:
        node, is_expanded = stack.pop()
        if is_expanded:
            found[node] = None
        elif node is not target and node not in found:
            seen.add(node)
            if len(seen) > MOST_MEMBERS or not _is_free(cluster, node, owned):
                return None
            stack.append((node, True))
            stack.extend((user, False) for user in users[node])
    return [*reversed(found), target]


def _is_free(cluster: Cluster, node: Node, owned: Collection[Node]) -> bool:
    return may_join(cluster.kind, node) and node not in owned


def place(cluster: Cluster, between: list[Node]) -> bool:
    """Give each new member its index; False where one has none."""
    for node in between:
        index = _forward_index(cluster, node)
        if index is None:
            return False
        cluster.index[node] = index
    return True


def _forward_index(cluster: Cluster, node: Node) -> Position | None:
    known = cluster.index
    if node.kind == "reduce":
        full, axes = known.get(node.inputs[0]), node.attr("axes")
        if full is None:
            return None
        return tuple(ix.ZERO if axis in axes else part for axis, part in enumerate(full))
    if node.kind == "view" and node.inputs[0] in known:
        moved = _grouped_index(cluster, node) or inverse(node, known[node.inputs[0]])
        if moved is not None:
            return moved
    for operand in node.inputs:
        if operand in known and operand.shape == node.shape:
            return known[operand]
    for other, index in known.items():
        if other.shape == node.shape:
            return index
    is_of_rows = cluster.kind == "row" and node.type.numel == cluster.root_op.inputs[0].type.numel
    return element_index(cluster, node) if is_of_rows else None


def _grouped_index(cluster: Cluster, node: Node) -> Position | None:
    """Index of every second or fourth column of a matmul's result, counted by as many; None if the
    node is no such."""
    if not (cluster.may_group_columns and cluster.kind == "matmul" and node.op == "slice"):
        return None
    (source,), axis, step = node.inputs, node.type.rank - 1, node.attr("step")
    full, columns = cluster.index[source], column_symbol(cluster.root_op, 1)
    is_share = node.attr("axis") == axis and step in COLUMN_GROUPS and node.attr("start") < step
    is_share = is_share and node.shape[-1] != 1  # a tile has the columns of several, or of none
    if not is_share or columns.extent != step * node.shape[-1] or full[-1] != ix.of(columns):
        return None
    cluster.column_group = step
    return (*full[:-1], ix.of(column_symbol(cluster.root_op, step)))


def column_symbol(root_op: Node, column_group: int) -> Symbol:
    """The symbol that counts a matmul's columns, or so many of them together."""
    columns = matmul_symbols(root_op)[2]
    return Symbol(columns.name, columns.extent // column_group) if column_group > 1 else columns


def is_consistent(cluster: Cluster) -> bool:
    """Whether what is stored needs each reduction and matmul at one index, its own."""
    reduced = row_symbols(cluster.root_op)[1] if cluster.kind == "row" else None

    def contract(node: Node, index: Position) -> list[Access]:
        if reduced is None:
            return []
        full = _row_operand_index(cluster.root_op, node, index, ix.of(reduced))
        return [Access(node.inputs[0], full)]

    tracer = Tracer(lambda node: node not in cluster.members, contract)
    for root in cluster.roots:
        tracer.visit(root, cluster.index[root])
    if cluster.column_group > 1:
        return _meets_all(cluster, tracer)
    met = {node: index for node, index in tracer.visited if _is_stop(node)}
    count = sum(_is_stop(node) for node, _ in tracer.visited)
    wanted = {node for node in cluster.members if _is_stop(node)}
    if set(met) != wanted or count != len(wanted):
        return False
    return all(_expected_index(cluster, node) == index for node, index in met.items())


def _meets_all(cluster: Cluster, tracer: Tracer) -> bool:
    """Whether what is stored needs the matmul at all columns that meet and nowhere else."""
    root_op, column_group = cluster.root_op, cluster.column_group
    place, base = ix.of(column_symbol(root_op, column_group)), cluster.index[root_op][:-1]
    met = {(node, index) for node, index in tracer.visited if _is_stop(node)}
    return met == {
        (root_op, (*base, place * column_group + number)) for number in range(column_group)
    }


def _is_stop(node: Node) -> bool:
    return node.kind in CONTRACTIONS or (node.kind == "reduce" and not is_unrolled(node))


def _expected_index(cluster: Cluster, node: Node) -> Position | None:
    if node.kind in CONTRACTIONS:
        return cluster.index[node] if node is cluster.root_op else None
    kept, reduced = row_symbols(cluster.root_op)
    if (prod(kept_extents(node)), prod(reduced_extents(node))) != (kept.extent, reduced.extent):
        return None
    return row_indices(node, ix.of(kept), ix.of(reduced))[node]


def _row_operand_index(root_op: Node, node: Node, index: Position, reduced: Index) -> Position:
    if prod(reduced_extents(node)) != prod(reduced_extents(root_op)):
        return index
    inner = iter(ix.unravel(reduced, reduced_extents(node)))
    axes = node.attr("axes")
    return tuple(next(inner) if at in axes else part for at, part in enumerate(index))
