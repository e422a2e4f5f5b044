"""Costs: bytes and operations of nodes, and whether a value is worth a buffer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import prod

from aotc.aot.ir.graph import Node, walk
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.size import typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.schedule.attention import attention_operations
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import STORED, reduced_extents
from aotc.aot.traits import TargetTraits

# Operations of a GPU in a function of f32 where it has an instruction for most of it, or many more
# than arithmetic has; those of GELU of 16-bit values, which is approximated there.
GPU_OPERATIONS = {"exp": 3.0, "exp2": 2.0, "log": 4.0, "log2": 3.0, "sigmoid": 5.0, "silu": 6.0,
                  "erf": 22.0, "tanh": 22.0}  # fmt: skip
APPROXIMATED = {"gelu": 8.0, "gelu_tanh": 7.0}
LEAST_OF_FUNCTIONS = 3.0  # operations
TERM_OPERATIONS = 4.0  # to load a term of a sum on a GPU, with its mask and address
MOVEMENT = frozenset({"concat", "take", "gather"})
MOST_NODES = 1024  # behind a value whose cost is asked: more than a kernel ever computes


def operations(node: Node) -> int:
    """Operations to compute the node once, its operands given."""
    if node.kind in ("matmul", "matmul_packed"):
        return 2 * typical(node.type.numel * node.inputs[0].shape[-1])
    if node.kind == "attention":
        return attention_operations(node)
    if node.kind == "reduce":
        return int(OPS[node.op].cost * typical(node.inputs[0].type.numel))
    return int(OPS[node.op].cost * typical(node.type.numel))


def group_operations(nodes: Iterable[Node]) -> int:
    """Operations of a kernel that computes each of the nodes once."""
    return sum(operations(node) for node in nodes)


def group_bytes(touched: Mapping[Node, int], stores: Iterable[Node]) -> int:
    """Bytes between memory and a kernel, each buffer once; `touched` elements of it if fewer.

    A table that is read by loaded indices has more rows than a kernel touches.
    """
    reads = (
        min(typical(node.type.numel), count) * DTYPES[node.dtype].itemsize_bytes
        for node, count in touched.items()
    )
    return sum(reads) + sum(typical(node.type.nbytes) for node in stores)


def chain(
    node: Node,
    materialised: Collection[Node],
    is_enough: Callable[[float, int], bool] = lambda work, loaded: False,
    term: float = 0.0,
) -> tuple[float, int]:
    """(operations, bytes loaded) for one element of a node that is computed where it is read.
    Counting stops when the caller's limits, or `MOST_NODES` nodes, are reached. term: operations
    that it takes to load a term of a sum from a near cache."""
    work, loaded = 0.0, 0
    stack, seen = [node], {node}
    while stack and len(seen) <= MOST_NODES and not is_enough(work, loaded):
        current = stack.pop()
        if current.op in STORED or current in materialised:
            # What is small against the result stays in a near cache.
            if typical(current.type.numel) * 8 > typical(node.type.numel):
                loaded += DTYPES[current.dtype].itemsize_bytes
            continue
        repeats = typical(prod(reduced_extents(current))) if current.kind == "reduce" else 1
        work += OPS[current.op].cost * repeats
        work += term * repeats if repeats > 1 else 0.0
        work += len(current.inputs) if current.kind == "concat" else 0  # one choice a part
        fresh = [operand for operand in current.inputs if operand not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return work, loaded


def is_worth_a_kernel(
    tip: Node, nodes: Iterable[Node], is_stored: bool, traits: TargetTraits
) -> bool:
    """Whether a product that stores its `tip`, and a kernel that computes the nodes of it, take
    less than one kernel of both, on a GPU.

    A kernel of its own computes while it waits for memory. In a product no tile is multiplied
    meanwhile. What is saved there is a write of the tip, unless it is stored anyway, and a read.
    """
    numel = typical(tip.type.numel)
    work = sum(_gpu_operations(node) for node in nodes if typical(node.type.numel) == numel)
    while tip.op == "cast" and tip.inputs[0].type.numel == tip.type.numel:
        tip = tip.inputs[0]  # which is stored in place of a wider type
    saved_bytes = typical(tip.type.nbytes) * (1 if is_stored else 2)
    return work * numel * traits.operation_ns > saved_bytes * traits.byte_ns + traits.launch_ns


def function_operations(group: Group, approximates: bool = True) -> float:
    """Operations of functions (`exp`, `sin`, …) for each element of a product on a GPU, computed
    behind it in its kernel. Additions and multiplications overlap with the latency of these, and
    are not counted."""
    assert group.root_op is not None
    known = {group.root_op, *group.reads}
    total = 0.0
    for node in walk(tuple(root.node for root in group.roots), known):
        cost = _gpu_operations(node, approximates)
        total += cost * typical(node.type.numel) if cost >= LEAST_OF_FUNCTIONS else 0.0
    return total / max(1, typical(group.root_op.type.numel))


def _gpu_operations(node: Node, approximates: bool = True) -> float:
    if node.kind != "pointwise" or node.op == "cast":
        return 0.0
    is_short = DTYPES[node.dtype].itemsize_bytes == 2
    if is_short and approximates and node.op in APPROXIMATED:
        return APPROXIMATED[node.op]
    return GPU_OPERATIONS.get(node.op, OPS[node.op].cost)


def is_worth_a_buffer(
    node: Node,
    evaluations: int,
    readers: int,
    materialised: Collection[Node],
    traits: TargetTraits,
    is_launched: bool = False,
    loading: int | None = None,
) -> bool:
    """Whether storing the node once is cheaper than computing it `evaluations` times.
    `is_launched`: a kernel that is launched anyway would store it. `loading`: how many of the
    evaluations load data, if not all."""
    extra = evaluations - typical(node.type.numel)
    if extra <= 0:
        return False
    loads = extra if loading is None else max(0, loading - typical(node.type.numel))
    launch_ns = 0.0 if is_launched else traits.launch_ns
    store_ns = launch_ns + typical(node.type.nbytes) * (1 + readers) * traits.byte_ns

    # Each reader of the buffer loads an element of it for every one that it would compute. Only
    # what is loaded beyond that is spared: on a GPU always, on a processor where elements move.
    is_read_again = traits.is_gpu or node.kind in MOVEMENT
    spared = DTYPES[node.dtype].itemsize_bytes if is_read_again else 0

    def costs_more(work: float, loaded: int) -> bool:
        loaded -= spared
        return extra * work * traits.operation_ns + loads * loaded * traits.byte_ns > store_ns

    term = TERM_OPERATIONS if traits.is_gpu else 0.0
    return costs_more(*chain(node, materialised, costs_more, term))
