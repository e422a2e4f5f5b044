"""The schedule stage: Graph → Schedule."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from aotc.aot.errors import UnsupportedError
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Graph, Node, make, reads_nothing
from aotc.aot.ir.rounding import is_rounded, shared
from aotc.aot.ir.size import bounds, fixed, proves_below, typical
from aotc.aot.schedule import domain as loops
from aotc.aot.schedule.attention import attention_accesses, attention_domain
from aotc.aot.schedule.calls import MEMORY_KINDS, call_group, with_memory
from aotc.aot.schedule.contiguous_copies import with_contiguous_copies
from aotc.aot.schedule.cost import group_bytes, group_operations
from aotc.aot.schedule.few_rows import with_columns_read
from aotc.aot.schedule.group import Domain, Group, Root, Schedule, label
from aotc.aot.schedule.grow import element_index, row_symbols
from aotc.aot.schedule.horizontal_fusion import fuse_small_kernels
from aotc.aot.schedule.materialize import Kernel, compared, kernels
from aotc.aot.schedule.order import ordered
from aotc.aot.schedule.states import states_last, with_states
from aotc.aot.schedule.trace import (
    LEAVES,
    STORED,
    Access,
    Boundary,
    Structure,
    Tracer,
    structure,
)
from aotc.aot.schedule.written_rows import (
    rows_root,
    updates_of,
    with_rows_stored,
    written_bytes,
)
from aotc.aot.traits import TargetTraits

# Kinds whose texts read memory at an index only; the others take whole tensors.
MOVABLE_KINDS = frozenset({"pointwise", "row", "matmul"})

LARGEST_NUMEL = 2**31 - 1
Domains = dict[Structure, Domain]  # of equal kernels: layers repeat
STACK_FRAMES = 10_000  # a kernel is traced by calls within calls, as deep as it is


def schedule(graph: Graph, traits: TargetTraits) -> Schedule:
    """Graph of legal nodes → groups of nodes, one a kernel, in the order of execution.

    An output without elements has no kernel. Raises what `check_supported` does, and
    `InternalError` where kernels have no order.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, STACK_FRAMES))
    try:
        return _scheduled(graph, traits)
    finally:
        sys.setrecursionlimit(limit)


def _scheduled(graph: Graph, traits: TargetTraits) -> Schedule:
    graph, copies = with_contiguous_copies(_with_copies(with_memory(with_states(graph))), traits)
    check_supported(graph)
    stored = _stored(graph)
    made = [node for node in stored if node.type.numel]
    kept = copies.union(made, compared(graph))
    found = kernels(graph, kept, traits)
    found = with_rows_stored(found, graph, made)
    found = with_columns_read(found, graph, kept, traits)
    found = fuse_small_kernels(found, graph, traits)
    roots = {node for kernel in found for node in kernel.roots}
    movable = roots.difference(stored) if not traits.is_gpu else set()
    several = shared(graph)
    known: Domains = {}
    groups = [_group(kernel, roots, movable, several, traits, known) for kernel in found]
    for number, kernel in _with_unread(found, groups, stored):
        roots.difference_update(found[number].roots)
        roots.update(kernel.roots)
        groups[number] = _group(kernel, roots, movable, several, traits, known)
    return Schedule(graph, states_last(ordered(groups, frozenset(stored)), graph), stored)


def _with_copies(graph: Graph) -> Graph:
    """Outputs that are inputs, constants or another output become views of them: copies. States
    that stay as they are stay so."""
    outputs: list[Node] = []
    seen: set[Node] = set()
    first = len(graph.returned)
    kept = enumerate(graph.inputs[len(graph.given) :], first)
    unchanged = {number for number, node in kept if graph.outputs[number] is node}
    for number, node in enumerate(graph.outputs):
        if number in unchanged:  # a state that calls only read
            outputs.append(node)
            continue
        while node.op in STORED or (node in seen and node.op != "check"):
            node = make("reshape", (node,), {"shape": node.shape})
        outputs.append(node)
        seen.add(node)
    return graph.with_outputs(tuple(outputs))


def _stored(graph: Graph) -> tuple[Node, ...]:
    """For each output the node to store: what is reshaped, where others read that too."""
    users, outputs = graph.users(), frozenset(graph.outputs)
    found: set[Node] = set()
    stored: list[Node] = []
    for output in graph.outputs:
        base = output
        while base.op == "reshape" and len(users[base.inputs[0]]) == 1:
            base = base.inputs[0]
        base = base.inputs[0] if base.op == "reshape" else base
        is_free = base not in found and base not in outputs and output.op != "check"
        is_value = base.op not in (*STORED, *LEAVES) and base.kind != "view"
        is_wanted = base.kind in MEMORY_KINDS or len(users[base]) > 1  # a call cannot store a view
        stored.append(base if is_free and is_value and is_wanted else output)
        found.add(stored[-1])
    return tuple(stored)


def _with_unread(
    found: Sequence[Kernel], groups: Sequence[Group], stored: Collection[Node]
) -> Iterator[tuple[int, Kernel]]:
    """Pointwise and row kernels that store what nobody reads, by their numbers, without that.

    Such are values that both sides of a comparison come from (`compared`), where both read what is
    computed of them, and the sums of a window whose one reader grew over them.
    """
    read = {node for group in groups for node in group.reads}.union(stored)
    for number, kernel in enumerate(found):
        wanted = [node for node in kernel.roots if node in read]
        is_plain = kernel.kind in ("pointwise", "row") and kernel.elements is None
        is_plain = is_plain and not (kernel.cluster and kernel.cluster.is_split)
        if is_plain and 0 < len(wanted) < len(kernel.roots):
            yield number, replace(kernel, roots=wanted)


def _group(
    kernel: Kernel,
    roots: set[Node],
    movable: Collection[Node],
    several: frozenset[Node],
    traits: TargetTraits,
    known: Domains,
) -> Group:
    if kernel.kind == "control":
        group = call_group(kernel.roots)
        graphs = [body.graph for body in kernel.roots[0].attr("bodies")]
        return replace(group, bodies=tuple(_scheduled(graph, traits) for graph in graphs))
    if kernel.kind in MEMORY_KINDS:
        return call_group(kernel.roots)
    own = set(kernel.roots)

    def is_boundary(node: Node) -> bool:
        return node in roots and node not in own

    domain = _domain(kernel, is_boundary, traits, known)
    placed = _placed(kernel, domain)
    tracer = _traced(kernel, domain, placed, is_boundary)
    nodes = tuple(dict.fromkeys(node for node, _ in tracer.visited))
    updates = updates_of(kernel.roots)
    read = (*(access.node for access in tracer.accesses), *(before for before, _ in updates))
    reads = tuple(dict.fromkeys(read))
    stores = [root.node for root in placed if root.rows is None]
    rows_bytes = sum(written_bytes(root) for root in placed if root.rows is not None)
    root_op = kernel.cluster.root_op if kernel.cluster else None
    return Group(
        kind=kernel.kind,
        label=label(kernel.kind, nodes) + ("_scatter_rows" if updates else ""),
        domain=domain,
        root_op=root_op,
        roots=placed,
        nodes=nodes,
        reads=reads,
        bytes=group_bytes(_touched(tracer, domain), stores) + rows_bytes,
        operations=group_operations(nodes),
        updates=updates,
        rounded=_rounded(several.intersection(nodes), kernel.roots, nodes, reads),
        starts=starts(tracer.accesses, movable) if kernel.kind in MOVABLE_KINDS else (),
        distance=kernel.distance,
    )


def _rounded(
    several: frozenset[Node], roots: Sequence[Node], nodes: Sequence[Node], reads: Sequence[Node]
) -> frozenset[Node]:
    """Values with several readers, here or in other kernels, but for those without more bits."""
    found = several | _stored_and_read(roots, nodes)
    return frozenset(node for node in found if not is_rounded(node, found.union(reads) - {node}))


def _stored_and_read(roots: Sequence[Node], nodes: Sequence[Node]) -> frozenset[Node]:
    """What a kernel stores, also as a view, and reads itself beside."""
    found: set[Node] = set()
    views: set[Node] = set()
    for node in roots:
        found.add(node)
        while node.kind == "view":
            views.add(node)
            node = node.inputs[0]
            found.add(node)
    read = {operand for node in nodes if node not in views for operand in node.inputs}
    return frozenset(found & read)


def _touched(tracer: Tracer, domain: Domain) -> dict[Node, int]:
    """Elements of each buffer that the accesses name, at most."""
    counts: dict[Node, int] = {}
    for access in tracer.accesses:
        count = prod(typical(symbol.extent) for symbol in loops.varies_with(access, domain))
        counts[access.node] = counts.get(access.node, 0) + count
    return counts


def _domain(kernel: Kernel, is_boundary: Boundary, traits: TargetTraits, known: Domains) -> Domain:
    if kernel.cluster is not None or kernel.elements is not None:
        return _cheapest_domain(kernel, is_boundary, traits)
    equal = structure(kernel.roots, is_boundary)
    if equal not in known:
        known[equal] = _cheapest_domain(kernel, is_boundary, traits)
    return known[equal]


def _cheapest_domain(kernel: Kernel, is_boundary: Boundary, traits: TargetTraits) -> Domain:
    def trace(domain: Domain) -> Tracer:
        return _traced(kernel, domain, _placed(kernel, domain), is_boundary)

    def stores(domain: Domain) -> list[Access]:
        return [Access(root.node, root.index) for root in _placed(kernel, domain)]

    if kernel.cluster is None:
        options = loops.pointwise_domains(kernel.shape or ())
        if not traits.is_gpu:
            options += loops.run_domains(options[0], trace(options[0]))
        found = loops.cheapest(options, trace, stores, traits)
        return loops.along_memory(found, kernel.shape or (), trace, traits)
    if kernel.kind == "attention":
        options = [attention_domain(kernel.cluster.root_op)]
    elif kernel.kind == "row":
        options = loops.row_domains(kernel.cluster.root_op)
    else:
        options = [loops.matmul_domain(kernel.cluster.root_op, kernel.cluster.column_group)]
    return loops.cheapest(options, trace, stores, traits)


def _placed(kernel: Kernel, domain: Domain) -> tuple[Root, ...]:
    """The roots with their index in the symbols of the domain."""
    cluster = kernel.cluster
    if kernel.placed:
        return kernel.placed
    if cluster is None:
        element = loops.pointwise_index(domain, kernel.shape or ())
        return tuple(
            Root(node, element)
            if node.kind != "call"
            else rows_root(node, kernel.rows_of[node.result(0)], element)
            for node in kernel.roots
        )
    values = {}
    if cluster.kind == "row" and not domain.is_reduced_in_lanes:
        values = {row_symbols(cluster.root_op)[0]: loops.kept_index(domain)}
    placed = []
    for node in kernel.roots:
        index = element_index(cluster, node)
        if index is None:  # a root of rank 0 has an empty one
            index = cluster.index[cluster.root_op.inputs[0]]
        placed.append(Root(node, tuple(part.substitute(values) for part in index)))
    return tuple(placed)


def _traced(
    kernel: Kernel, domain: Domain, placed: tuple[Root, ...], is_boundary: Boundary
) -> Tracer:
    contract = None
    if kernel.kind == "row":
        assert domain.reduced is not None
        contract = loops.row_contract(loops.kept_index(domain), domain.reduced)
    elif kernel.kind == "attention":
        contract = lambda node, _: list(attention_accesses(node, domain))  # noqa: E731
    elif kernel.kind == "matmul":
        contract = loops.matmul_contract(domain)
    tracer = Tracer(is_boundary, contract)
    for need in (need for root in placed for need in root.needs):
        tracer.visit(need.node, need.index)
    return tracer


class EmptyTensorUnsupported(UnsupportedError):
    """The model computes from a tensor of no elements."""

    code = "empty-tensor"
    template = "the model computes {tensor}, which has no elements{source}"
    hint = "leave empty tensors out of the model"


class TensorTooLarge(UnsupportedError):
    """Kernels address elements with 32 bits."""

    template = "the model holds {tensor} with {numel} elements, expected at most 2147483647{source}"
    hint = "split the tensor, or give the model smaller inputs"


def check_supported(graph: Graph) -> None:
    """Raise `TensorTooLarge` or `EmptyTensorUnsupported` where one is due."""
    for node in graph.nodes():
        if bounds(node.type.numel)[0] > LARGEST_NUMEL:
            named = f"`{node.op}` of {node.type}"
            raise TensorTooLarge(tensor=named, numel=node.type.numel, source=_at(node))
        if reads_nothing(node):
            raise EmptyTensorUnsupported(tensor=f"`{node.op}` of {node.type}", source=_at(node))


def _at(node: Node) -> str:
    return f", at {node.source}" if node.source else ""


def starts(accesses: Iterable[Access], movable: Collection[Node]) -> tuple[tuple[Node, int], ...]:
    """Elements before the first one that any access reads, of the `movable` nodes with such.

    Steps of a recurrence read one buffer at places of their own, and are one kernel so: the place
    is in the launch, not in the text. Only a buffer of the arena is movable: inputs, outputs and
    weights are given as they begin.
    """
    first: dict[Node, int] = {}
    for access in accesses:
        node = access.node
        if node not in movable:
            continue
        low, high = ix.linear(access.index, node.shape).bounds()
        # Of an access that only a condition keeps inside its buffer, the bounds say nothing.
        is_inside = isinstance(low, int) and low >= 0 and proves_below(high, node.type.numel)
        start = fixed(low) if is_inside else 0
        first[node] = min(start, first.get(node, start))
    return tuple((node, low) for node, low in first.items() if low > 0)
