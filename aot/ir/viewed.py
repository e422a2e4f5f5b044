"""Where the elements of a view lie in the memory behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aotc.aot.ir import access, build
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol

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
    strides: tuple[int, ...]


def placed(node: Node) -> Placed:
    """Where a tensor of fixed shape lies; in a copy where its dims have no fixed steps, where its
    last one is not contiguous, or where it is a small part of what would have to be computed."""
    found = _placed(node)
    if found is not None and (node.shape[-1] == 1 or found.strides[-1] == 1):
        return found
    copied = _placed(build.stored(node))
    assert copied is not None
    return copied


def spread(node: Node) -> Placed:
    """As `placed`, for one whose last dim may be repeated, or lie anyhow."""
    return _placed(node) or placed(node)


def _placed(node: Node) -> Placed | None:
    symbols = [Symbol(f"d{axis}", extent) for axis, extent in enumerate(node.shape)]
    index, memory = tuple(map(ix.of, symbols)), node
    while memory.op in _VIEWS:
        index, memory = through_view(memory, index), memory.inputs[0]
    offset = ix.linear(index, memory.shape)
    strides = tuple(offset.stride(symbol) for symbol in symbols)
    is_steady = all(isinstance(stride, int) and stride >= 0 for stride in strides)
    if not is_steady or memory.type.numel > MOST_UNSEEN * node.type.numel:
        return None
    return Placed(memory, offset.constant, strides)  # type: ignore[arg-type]
