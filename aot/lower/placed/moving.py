"""Copies of memory, and products over runs of rows, as calls."""

from __future__ import annotations

from math import prod

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import is_static, typical
from aotc.aot.ir.size import kernel_text as size_text
from aotc.aot.lower.call import Called
from aotc.aot.lower.placed.template import (
    LARGEST,
    SMALLEST,
    Block,
    Grid,
    from_template,
    operands_of,
)
from aotc.aot.lower.tiles import power_above
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import (
    GROUPED,
    STATE_COPY,
)

COPIED_BLOCK = 4096  # elements of a program that copies


def copy(node: Node, traits: TargetTraits) -> Called:
    """A program copies a block of all elements."""
    (source,), _, _ = operands_of(node)
    count = prod(source.shape)
    numbers = {"COUNT": size_text(count), "BLOCK": COPIED_BLOCK}
    blocks: list[tuple[Block, Grid]] = [({}, (-(-count // COPIED_BLOCK), 1, 1))]
    return from_template(
        STATE_COPY,
        "state_copy",
        {"out": 0},
        {"source": source},
        numbers,
        blocks,
        num_stages=1,
        num_warps=8,
    )


def grouped_matmul(node: Node, traits: TargetTraits) -> Called:
    """Of a dynamic number of rows blocks have few: each group that has some rows of a block
    computes all of them. The other blocks are what tuning tries."""
    (left, right, ends), _, _ = operands_of(node)
    lines, depth = left.shape
    width, groups = right.shape[-1], ends.shape[0]
    sizes = {"ROWS": depth, "M": lines, "N": width}
    function, programs = "grouped_depth", groups
    if len(right.shape) == 3:
        sizes = {"ROWS": lines, "N": width, "K": depth, "GROUPS": groups}
        function, programs = "grouped_rows", 1
    numbers = {
        **{name: size_text(extent) for name, extent in sizes.items()},
        **({"SPAN": power_above(groups)} if programs == 1 else {}),
        "A": left.strides,
        "B": right.strides,
        "ACCUMULATOR": "tl.float64" if node.dtype == "f64" else "tl.float32",
    }
    row, column, deep = (
        max(SMALLEST, min(LARGEST, power_above(typical(extent))))
        for extent in (lines, width, depth)
    )
    sides = [(row, column), (max(SMALLEST, row // 2), column), (row, max(SMALLEST, column // 2))]
    if not is_static((lines,)):
        sides.insert(0, (SMALLEST, column))
    blocks: list[tuple[Block, Grid]] = []
    for rows, columns in dict.fromkeys(sides):
        grid = -(-width // columns), -(-lines // rows), programs
        blocks.append(({"BM": rows, "BN": columns, "BK": deep}, grid))
    reads = {"a": left, "b": right, "ends": ends}
    return from_template(
        GROUPED, function, {"out": 0}, reads, numbers, blocks, num_stages=3, num_warps=4
    )
