"""Where the elements of a view lie in the memory behind it, and ops on tensors given by that."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from aotc.aot.ir import access, build
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import Extent, Shape, proves_at_most, typical

Position = tuple[Index, ...]
MOST_UNSEEN = 8  # times as many elements that may lie in memory as a view has; else it is copied

_VIEWS: dict[str, Callable[[Node, Position], Position]] = {
    "reshape": lambda node, at: access.through_reshape(at, node.shape, node.inputs[0].shape),
    "permute": lambda node, at: access.through_permute(at, node.attr("dims")),
    "expand": lambda node, at: access.through_broadcast(at, node.shape, node.inputs[0].shape),
    "slice": lambda node, at: access.through_slice(
        at, node.attr("axis"), node.attr("start"), node.attr("step")
    ),
    "flip": lambda node, at: access.through_flip(at, node.attr("axes"), node.shape),
    "window": lambda node, at: access.through_window(
        at, node.attr("axes"), node.attr("strides"), node.attr("dilations")
    ),
}


def through_view(node: Node, index: Position) -> Position:
    """Index into the operand of a view of the element at `index`."""
    return _VIEWS[node.op](node, index)


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor as elements of `memory`: the first one, and the step along each of its dims."""

    memory: Node
    start: int
    shape: Shape
    strides: Shape


def dense(node: Node) -> Placed:
    """A tensor of fixed shape that is memory as a whole."""
    return Placed(node, 0, node.shape, strides_of(node.shape))


def strides_of(shape: Shape, order: Sequence[int] = ()) -> Shape:
    """The step along each dim of a tensor whose dims lie in memory in `order`, outermost first."""
    step: Extent = 1
    found: list[Extent] = [0] * len(shape)
    for axis in reversed(order or range(len(shape))):
        found[axis] = step
        step *= shape[axis]
    return tuple(found)


def placed(node: Node, may_vary: bool = False) -> Placed:
    """Where a tensor lies; in a copy where its dims have no fixed steps, where its last one is not
    contiguous, or where it is a small part of what would have to be computed.

    may_vary: its shape and steps may be dynamic sizes.
    """
    found = in_place(node, may_vary=may_vary)
    if found is not None and (node.shape[-1] == 1 or found.strides[-1] == 1):
        return found
    copied = in_place(build.stored(node), may_vary=may_vary)
    assert copied is not None
    return copied


def spread(node: Node, may_vary: bool = False) -> Placed:
    """As `placed`, for one whose last dim may be repeated, or lie anyhow."""
    return in_place(node, may_vary=may_vary) or placed(node, may_vary)


def in_place(node: Node, stored: Container[Node] = (), may_vary: bool = False) -> Placed | None:
    """Where a view lies in memory that is `stored` anyway, or of which it is no small part; None
    where its dims have no steps that are fixed, or may vary with sizes."""
    symbols = [Symbol(f"d{axis}", extent) for axis, extent in enumerate(node.shape)]
    index, memory = tuple(map(ix.of, symbols)), node
    while memory.op in _VIEWS:
        index, memory = through_view(memory, index), memory.inputs[0]
    offset = ix.linear(index, memory.shape)
    strides = tuple(offset.stride(symbol) for symbol in symbols)
    is_steady = all(
        stride is not None and (may_vary or isinstance(stride, int)) and proves_at_most(0, stride)
        for stride in strides
    )
    elements, seen = typical(memory.type.numel), typical(node.type.numel)
    is_small = memory not in stored and elements > MOST_UNSEEN * seen
    if not is_steady or not isinstance(offset.constant, int) or is_small:
        return None
    return Placed(memory, offset.constant, node.shape, strides)  # type: ignore[arg-type]


def runs(shape: Shape, strides: Shape) -> list[tuple[Extent, Extent]]:
    """The dims as few (extent, step)s: neighbours are one where the outer one's step is that of a
    whole inner one, and dims of one element are left out."""
    found: list[tuple[Extent, Extent]] = []
    for extent, step in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if found and found[-1][1] == step * extent:
            found[-1] = found[-1][0] * extent, step
        else:
            found.append((extent, step))
    return found


def on_memory(
    nodes: Sequence[Node],
    operands: Sequence[Placed],
    order: Sequence[int] = (),
    dtypes: Sequence[str] = (),
    updates: tuple[tuple[int, int], ...] = (),
    are_pairs: bool = False,
) -> list[Node]:
    """`nodes`, all that is computed of one list of operands, which lie at `operands`: as results of
    one op `placed`, whose dims lie in memory in `order`, outermost first, elements as `dtypes`.

    are_pairs: two nodes of one type lie in one result, their elements in turns.
    """
    memories = tuple(dict.fromkeys(each.memory for each in operands))
    stored, results, back = [], [], []
    for at, node in enumerate(nodes):
        dims = list(order or range(node.type.rank))[: node.type.rank]
        steps = strides_of(node.shape, dims)
        place = (0, at, node.shape, tuple(2 * each for each in steps))
        place = place if are_pairs else (at, 0, node.shape, steps)
        stored.append((node.op, node.attrs, tuple(range(len(operands))), place))
        dtype = dtypes[at] if dtypes else node.dtype
        results.append((dtype, tuple(node.shape[axis] for axis in dims)))
        back.append([dims.index(axis) for axis in range(len(dims))])
    if are_pairs:
        results = [(results[0][0], (*results[0][1], 2))]
    attrs = {
        "function": nodes[0].op,
        "operands": tuple(
            (memories.index(each.memory), each.start, each.shape, each.strides) for each in operands
        ),
        "stored": tuple(stored),
        "results": tuple(results),
        "updates": updates,
    }
    made = [make("placed", memories, {**attrs, "result": at}) for at in range(len(results))]
    if are_pairs:
        axis = nodes[0].type.rank
        pair = build.permute(made[0], (*back[0], axis))
        parts = [build.slice_axis(pair, axis, at, at + 1) for at in range(len(nodes))]
        return [build.reshape(*row) for row in zip(parts, (e.shape for e in nodes), strict=True)]
    return [build.permute(each, dims) for each, dims in zip(made, back, strict=True)]
