"""Rows written or merged at places, counted places and sums of runs, as calls."""

from __future__ import annotations

from math import prod

from aotc.aot.ir.graph import Node
from aotc.aot.ir.infer import ANY_ORDER
from aotc.aot.ir.size import Extent, is_static, smallest, typical
from aotc.aot.ir.size import kernel_text as size_text
from aotc.aot.ir.types import DTYPES
from aotc.aot.ir.viewed import runs
from aotc.aot.lower.call import Called
from aotc.aot.lower.placed.template import (
    Block,
    Grid,
    Strided,
    from_template,
    operands_of,
)
from aotc.aot.lower.tiles import power_above
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import (
    SCATTER,
)

SCATTERED_BLOCK = 64  # elements of a program's block: small, so that every core gets some
MERGED_BLOCK = 256  # elements of a program that merges them in any order
OF_WHOLE_NUMBERS = ("i32", "i64")  # that atomics take
COPIED = 1024  # elements of what a program writes to that it copies at once
SCATTERED_CHUNK = 1024  # places that a program looks at together, for those of its share
LONGEST_TURN = 64  # rows that programs go over one after the other, each for a read and a write
RESIDENT = 16  # programs of one warp on a multiprocessor of a GPU
COUNTED_TILE = 2048  # places that a program counts at a time
COUNTING_PROGRAMS = 2048  # on a GPU
MOST_BINS = 1024  # places that a program of a GPU counts by itself
RUN_BLOCK, RUN_LINES = (
    128,
    8,
)  # elements of a program within an index, and rows that it adds at a time


def scatter_rows(node: Node, traits: TargetTraits) -> Called:
    """A program has part of what lies within an index of `axis`, of all rows that may have one
    place, and goes over these; on a GPU it has a share of the places where rows are many, and
    whole numbers are merged all at once. Of two tensors with rows of the same places each has
    programs of its own."""
    (data, index, source, *second), _, how = operands_of(node)
    axis = how["axis"]
    rows, beside = _rows_and_beside(source, data, axis)
    outer, inner = prod(data.shape[:axis]), prod(data.shape[axis + 1 :])
    block = min(power_above(inner), SCATTERED_BLOCK) if is_static((inner,)) else SCATTERED_BLOCK
    is_shared = prod(index.shape) == rows
    numbers = {
        "ROWS": size_text(rows),
        "EXTENT": size_text(data.shape[axis]),
        "INNER": size_text(inner),
        "DISTINCT": size_text(how["distinct"]),
        **_steps_of_rows(source, data, axis),
        "BESIDE": beside,
        "SHARED": is_shared,
        "MERGE": repr(how["merge"]),
        "BLOCK": block,
    }
    function, grid = "scatter", (outer * how["distinct"], -(-inner // block), 1)
    block = block if is_shared else 1
    shares = _shares(rows, data.shape[axis], outer * -(-inner // block), traits)
    if typical(rows) > LONGEST_TURN * typical(how["distinct"]) and shares > 1:
        del numbers["DISTINCT"]
        numbers |= {"SHARES": shares, "BLOCK": block, "CHUNK": SCATTERED_CHUNK}
        function, grid = "scatter_shares", (outer * shares, -(-inner // block), 1)
    if traits.is_gpu and not second and _is_in_any_order(node):
        numbers = {
            name: each
            for name, each in numbers.items()
            if name not in ("DISTINCT", "SHARES", "CHUNK")
        }
        numbers["BLOCK"] = MERGED_BLOCK
        function, grid = "merge_each", (-(-(rows * inner) // MERGED_BLOCK), outer, 1)
    stored, reads = {"out": 0}, {"place": index, "source": source}
    if not node.attr("updates"):
        function, reads = "scatter_copied", {"data": data, **reads}
        numbers["COPIED"] = COPIED
    if second:
        function, grid = f"{function}_both", (*grid[:2], 2)
        stored, reads = {**stored, "second_out": 1}, {**reads, "second_source": second[2]}
        others = _steps_of_rows(second[2], data, axis)
        numbers |= {f"SECOND_{name}": step for name, step in others.items()}
    blocks: list[tuple[Block, Grid]] = [({}, grid)]
    return from_template(
        SCATTER, function, stored, reads, numbers, blocks, num_stages=1, num_warps=1
    )


def _is_in_any_order(node: Node) -> bool:
    """Whether any order of the rows gives the same: of whole numbers that atomics merge."""
    kind, how = node.attr("results")[0][0], operands_of(node)[2]
    return kind in OF_WHOLE_NUMBERS and how["merge"] in ANY_ORDER


def _rows_and_beside(source: Strided, data: Strided, axis: int) -> tuple[Extent, Extent]:
    """How many rows there are, and how many of these lie beside each other in a dim of theirs."""
    dims = source.shape[axis : len(source.shape) - len(data.shape[axis + 1 :])]
    return prod(dims), prod(dims[1:])


def _steps_of_rows(source: Strided, data: Strided, axis: int) -> dict[str, str]:
    """How many outer indices are one run of the template, and its steps."""
    before = runs(source.shape[:axis], source.strides[:axis])
    (_, far), (within, near) = [(1, 0), (1, 0), *before][-2:]
    step, *hop = source.strides[axis : len(source.strides) - len(data.shape[axis + 1 :])]
    steps = {"WITHIN": within, "FAR": far, "NEAR": near, "STEP": step, "HOP": sum(hop)}
    return {name: size_text(value) for name, value in steps.items()}


def _shares(rows: Extent, extent: Extent, programs: Extent, traits: TargetTraits) -> int:
    """Parts of the places that programs have for themselves, so that a GPU is full."""
    wanted = RESIDENT * traits.multiprocessors // max(1, typical(programs))
    return min(wanted, typical(extent), typical(rows))


def count_places(node: Node, traits: TargetTraits) -> Called:
    """A program counts a part of a row's places: few places by themselves, many in memory."""
    (counts, index), _, _ = operands_of(node)
    (outer, rows), extent = index.shape, counts.shape[1]
    tile = COUNTED_TILE
    parts = smallest(-(-rows // tile), max(1, COUNTING_PROGRAMS // max(1, outer)))
    span = power_above(extent + 1)
    numbers = {
        "ROWS": rows,
        "EXTENT": extent,
        "SPAN": span if span <= MOST_BINS else 0,
        "PARTS": parts,
        "TILE": tile,
    }
    blocks: list[tuple[Block, Grid]] = [({}, (parts, outer, 1))]
    reads = {"place": index}
    return from_template(
        SCATTER, "count_places", {"out": 0}, reads, numbers, blocks, num_stages=1, num_warps=4
    )


def sum_runs(node: Node, traits: TargetTraits) -> Called:
    """A program adds the rows of one place, a block of each."""
    (rows, starts, source), _, _ = operands_of(node)
    outer, length, inner = source.shape
    extent, block = starts.shape[0] - 1, min(power_above(inner), RUN_BLOCK)
    numbers = {
        "EXTENT": extent,
        "INNER": inner,
        "LENGTH": length,
        "LINES": RUN_LINES,
        "BLOCK": block,
        "ACCUMULATOR": f"tl.{_summed(node.dtype)}",
    }
    blocks: list[tuple[Block, Grid]] = [({}, (extent, -(-inner // block), outer))]
    reads = {"row": rows, "start": starts, "source": source}
    return from_template(
        SCATTER, "sum_runs", {"out": 0}, reads, numbers, blocks, num_stages=1, num_warps=1
    )


def _summed(dtype: str) -> str:
    """Triton's name of the type that sums of rows have."""
    row = DTYPES[dtype]
    if row.kind == "float":
        return "float64" if row.itemsize_bytes == 8 else "float32"
    return "int64" if row.itemsize_bytes == 8 else "int32"
