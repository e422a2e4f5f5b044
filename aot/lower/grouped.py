"""Grouped products → calls of their template: a program has a block of the result, of one group or
of rows of several."""

from __future__ import annotations

from aotc.aot.ir.graph import Node
from aotc.aot.lower.call import Block, Called, Grid, from_template, places_of
from aotc.aot.lower.tiles import power_above
from aotc.kernels.templates.registry import GROUPED

SMALLEST, LARGEST = 16, 64  # of a block's sides; GPUs multiply blocks of 16 at least


def grouped_matmul(node: Node) -> Called:
    """The smaller blocks are what tuning tries."""
    (left, right, ends), _, _ = places_of(node)
    lines, depth = left.shape
    width, groups = right.shape[-1], ends.shape[0]
    sizes = {"ROWS": depth, "M": lines, "N": width}
    function, programs = "grouped_depth", groups
    if len(right.shape) == 3:
        sizes = {"ROWS": lines, "N": width, "K": depth, "GROUPS": groups}
        function, programs = "grouped_rows", 1
    numbers = {
        **sizes,
        **({"SPAN": power_above(groups)} if programs == 1 else {}),
        "A": left.strides,
        "B": right.strides,
        "ACCUMULATOR": "tl.float64" if node.dtype == "f64" else "tl.float32",
    }
    row, column, deep = (
        max(SMALLEST, min(LARGEST, power_above(extent))) for extent in (lines, width, depth)
    )
    sides = (row, column), (max(SMALLEST, row // 2), column), (row, max(SMALLEST, column // 2))
    blocks: list[tuple[Block, Grid]] = []
    for rows, columns in dict.fromkeys(sides):
        grid = -(-width // columns), -(-lines // rows), programs
        blocks.append(({"BM": rows, "BN": columns, "BK": deep}, grid))
    reads = {"a": left, "b": right, "ends": ends}
    return from_template(
        GROUPED, function, {"out": 0}, reads, numbers, blocks, num_stages=3, num_warps=4
    )
