"""Calls of our own kernels of products in groups, such as those of a mixture of experts.

A group is a run of rows, which data decides: `ends` [G], i32 or i64, has the row behind each
group's last one, and never falls. All shapes are fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.ir.call import CallArgument, CallCandidate
from aotc.aot.ir.graph import AttrValue, Node, make
from aotc.aot.ir.own_calls import values
from aotc.aot.ir.size import fixed
from aotc.aot.ir.types import TypeRuleError
from aotc.aot.ir.viewed import Placed, spread
from aotc.kernels.templates.registry import GROUPED, kernel_text

DTYPES = ("f64", "f32", "bf16", "f16")
ROWS, DEPTH = "grouped_rows", "grouped_depth"
SMALLEST, LARGEST = 16, 64  # of a block's sides; GPUs multiply blocks of 16 at least
MOST_GROUPS = 4096  # a program reads all ends at once
OPTIONS = (("num_stages", 3), ("num_warps", 4))


def grouped_rows(data: Node, matrices: Node, ends: Node) -> Node:
    """[S, N]: the rows of data [S, K], each by its group's one of the matrices [G, K, N].

    Rows past the last end are zeros.
    """
    (rows, depth), (groups, _, width) = _fixed(data), _fixed(matrices)
    if groups > MOST_GROUPS:
        raise TypeRuleError(f"{groups} groups, expected at most {MOST_GROUPS}")
    numbers = {"ROWS": rows, "N": width, "K": depth, "GROUPS": groups, "SPAN": _power(groups)}
    blocks = [
        (block, (-(-width // block[1]), -(-rows // block[0]), 1))
        for block in _blocks(rows, width, depth)
    ]
    return _call(ROWS, (data, matrices, ends), numbers, (rows, width), blocks)


def grouped_depth(left: Node, right: Node, ends: Node) -> Node:
    """[G, M, N]: left [M, S] by right [S, N] over each group's part of S alone."""
    (lines, rows), (_, width) = _fixed(left), _fixed(right)
    (groups,) = _fixed(ends)
    numbers = {"ROWS": rows, "M": lines, "N": width}
    blocks = [
        (block, (-(-width // block[1]), -(-lines // block[0]), groups))
        for block in _blocks(lines, width, rows)
    ]
    return _call(DEPTH, (left, right, ends), numbers, (groups, lines, width), blocks)


def _fixed(node: Node) -> tuple[int, ...]:
    return tuple(map(fixed, node.shape))


def _blocks(rows: int, columns: int, depth: int) -> list[tuple[int, int, int]]:
    """Sides of a block, the first as a rule the fastest."""
    row, column, deep = (_side(extent) for extent in (rows, columns, depth))
    smaller = (max(SMALLEST, row // 2), column, deep), (row, max(SMALLEST, column // 2), deep)
    return list(dict.fromkeys(((row, column, deep), *smaller)))


def _side(extent: int) -> int:
    return max(SMALLEST, min(LARGEST, _power(extent)))


def _power(extent: int) -> int:
    """The power of two that is no less."""
    return 1 << max(extent - 1, 0).bit_length()


def _call(
    function: str,
    operands: tuple[Node, Node, Node],
    numbers: dict[str, AttrValue],
    shape: tuple[int, ...],
    blocks: Sequence[tuple[tuple[int, int, int], tuple[int, int, int]]],
) -> Node:
    places = [spread(each) for each in operands]
    memories = tuple(dict.fromkeys(place.memory for place in places))
    reads: list[CallArgument] = [
        (f"{name}_ptr", "read", (memories.index(place.memory), place.start))
        for name, place in zip(("a", "b", "ends"), places, strict=True)
    ]
    accumulator = "tl.float64" if operands[0].dtype == "f64" else "tl.float32"
    steps: dict[str, AttrValue] = {"A": places[0].strides, "B": places[1].strides}
    attrs: dict[str, AttrValue] = {
        "source": kernel_text(GROUPED),
        "function": function,
        "arguments": (
            ("out_ptr", "stored", 0),
            *reads,
            *values({**numbers, **steps, "ACCUMULATOR": accumulator}),
            *((name, "config", name) for name in ("BM", "BN", "BK")),
        ),
        "candidates": tuple(_candidate(*row) for row in blocks),
        "results": ((operands[0].dtype, shape),),
        "updates": (),
        "result": 0,
    }
    _check_dense(places[2])
    return make("call", memories, attrs)


def _check_dense(ends: Placed) -> None:
    if ends.strides != (1,) and ends.memory.type.numel > 1:
        raise TypeRuleError("ends of groups that do not lie beside each other")


def _candidate(block: tuple[int, int, int], grid: tuple[int, int, int]) -> CallCandidate:
    return (*zip(("BM", "BN", "BK"), block, strict=True), *OPTIONS), grid
