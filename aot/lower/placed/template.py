"""Ops on memory (`placed`) as calls of self-contained templates: what all of them share.

A program has a tile of an attention's rows, or for the gradients a whole head of keys, so that
scores stay in the cache and every sum has one order. Of rows that are written or merged it has part
of what lies within an index, of a grouped product a block of the result, of one group or of rows of
several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aotc.aot.ir.call import CallArgument
from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import Extent
from aotc.aot.ir.size import kernel_text as size_text
from aotc.aot.lower.call import Called
from aotc.kernels.templates.registry import (
    kernel_text,
)

Block = Mapping[str, int]  # values of a candidate's configs
Grid = tuple[Extent, Extent, Extent]
SMALLEST, LARGEST = 16, 64  # of a block's sides; GPUs multiply blocks of 16 at least


class Strided(NamedTuple):
    """Where a tensor lies: the number of an operand or result, the first element, steps by dim."""

    memory: int
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def operands_of(node: Node) -> tuple[list[Strided], list[Strided], dict[str, Any]]:
    """Where operands and results of a `placed` op lie, and the attributes of the first result."""
    stored = node.attr("stored")
    operands = [Strided(*place) for place in node.attr("operands")]
    return operands, [Strided(*place) for *_, place in stored], dict(stored[0][1])


def steps_text(steps: Sequence[Extent]) -> str:
    """Steps of a tensor as a tuple in a kernel's text."""
    return f"({', '.join(map(size_text, steps))},)"


def from_template(
    template: str,
    function: str,
    stored: Mapping[str, int],
    reads: Mapping[str, Strided | None],
    numbers: Mapping[str, Any],
    blocks: Sequence[tuple[Block, Grid]],
    **options: int,
) -> Called:
    """A call of a template's function: pointers to results, to operands (any where there is None),
    numbers, and the configs of the candidates."""
    arguments: list[CallArgument] = [(f"{name}_ptr", "stored", at) for name, at in stored.items()]
    for name, place in reads.items():
        at = (0, 0) if place is None else (place.memory, place.start)
        arguments.append((f"{name}_ptr", "read", at))
    arguments += [(name, "value", str(value)) for name, value in numbers.items()]
    arguments += [(name, "config", name) for name in blocks[0][0]]
    candidates = [((*block.items(), *options.items()), grid) for block, grid in blocks]
    return Called(kernel_text(template), function, tuple(arguments), tuple(candidates))
