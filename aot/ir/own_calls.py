"""Calls of kernels of our own that work on memory: their text is a template, as it stands."""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir.graph import AttrValue, Node, make
from aotc.kernels.templates.registry import KEEP, SCATTER, kernel_text

LARGEST_BLOCK = 64  # elements of a program's block: small, so that every core gets some
KEEP_BLOCK = 4096  # elements of a program that copies
LAUNCH_OPTIONS = (("num_stages", 1), ("num_warps", 1))
KEEP_OPTIONS = (("num_stages", 1), ("num_warps", 8))


def scatter(data: Node, index: Node, source: Node, axis: int, adds: bool) -> Node:
    """`data` with the rows of `source` along `axis` added, or written, at the places `index`.

    `data` [.., n, ..] and `source` [.., m, ..] agree in the other dims; those of `index`
    [.., m, ..] may be 1, and then hold for all. All shapes are fixed.
    """
    extent, rows = data.shape[axis], source.shape[axis]
    outer, inner = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
    is_shared = index.type.numel == rows
    places = index if is_shared else build.expand(index, source.shape)
    block = min(1 << (int(inner) - 1).bit_length(), LARGEST_BLOCK)
    numbers = {
        "ROWS": rows,
        "EXTENT": extent,
        "INNER": inner,
        "SHARED": is_shared,
        "ADDS": adds,
        "BLOCK": block,
    }
    reads = (("place_ptr", "read", (0, 0)), ("source_ptr", "read", (1, 0)))
    before = make("copy", (data,), {"tag": SCATTER})
    attrs: dict[str, AttrValue] = {
        "source": kernel_text(SCATTER),
        "function": SCATTER,
        "arguments": (("out_ptr", "stored", 0), *reads, *values(numbers)),
        "candidates": ((LAUNCH_OPTIONS, (outer, -(-inner // block), 1)),),
        "results": ((data.dtype, data.shape),),
        "updates": ((0, 2),),
        "result": 0,
    }
    return make("call", (places, source, before), attrs)


def keep(data: Node) -> Node:
    """A copy of `data`, of fixed shape, made by a launch of its own."""
    count = math.prod(data.shape)
    numbers = {"COUNT": count, "BLOCK": KEEP_BLOCK}
    attrs: dict[str, AttrValue] = {
        "source": kernel_text(KEEP),
        "function": KEEP,
        "arguments": (
            ("out_ptr", "stored", 0),
            ("source_ptr", "read", (0, 0)),
            *values(numbers),
        ),
        "candidates": ((KEEP_OPTIONS, (-(-count // KEEP_BLOCK), 1, 1)),),
        "results": ((data.dtype, data.shape),),
        "updates": (),
        "result": 0,
    }
    return make("call", (data,), attrs)


def values(numbers: dict[str, AttrValue]) -> tuple[tuple[str, str, str], ...]:
    """Arguments that are numbers, by parameter."""
    return tuple((name, "value", str(value)) for name, value in numbers.items())
