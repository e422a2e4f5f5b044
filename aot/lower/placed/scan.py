"""Running sums, products and extremes as calls."""

from __future__ import annotations

from math import isinf
from typing import Any

from aotc.aot.ir.graph import Node
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import highest, smallest
from aotc.aot.ir.size import kernel_text as size_text
from aotc.aot.ir.types import DTYPES, Scalar
from aotc.aot.lower.call import Called
from aotc.aot.lower.placed.template import (
    Block,
    Grid,
    from_template,
    operands_of,
)
from aotc.aot.lower.tiles import power_above
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import (
    SCAN,
)

SCANNED_PROGRAMS = 64  # that share rows, or blocks of columns, whose scans they make
RUNNING_BLOCK = 64  # elements of a row whose sums or products stay in a processor's registers
SCANNED_BLOCK, SCANNED_COLUMNS = 256, 64  # elements of a row, or columns, at a time
GPU_BLOCK = 2048  # elements of a row that a program of a GPU has at a time


def scan(node: Node, traits: TargetTraits) -> Called:
    """A program goes along rows, or blocks of columns, one after the other; on a GPU it has a row
    alone. A second result has the extremes at the places."""
    (data,), _, how = operands_of(node)
    (outer, count, inner), dtype = data.shape, node.inputs[0].dtype
    kind = how["kind"]
    of_values = "max" if kind == "log_sum" else kind.removesuffix("_place")
    numbers: dict[str, Any] = {
        ("OUTER" if inner != 1 else "ROWS"): size_text(outer),
        "N": size_text(count),
        **({"INNER": size_text(inner)} if inner != 1 else {}),
        "KIND": repr(kind),
        "IDENTITY": _number(REDUCTIONS[of_values].identity(dtype)),
        "IS_REVERSED": how.get("is_reversed", False),
        "ACCUMULATOR": f"tl.{_accumulator(kind, dtype)}",
    }
    programs, warps = SCANNED_PROGRAMS, 1
    if traits.is_gpu:
        numbers["BLOCK"] = min(GPU_BLOCK, power_above(highest(count)))
        units = programs = outer
        if "block" in how:
            numbers |= {"BLOCK": how["block"], "IN_BLOCKS": True}
            units = programs = outer * -(-count // how["block"])
        warps = max(1, numbers["BLOCK"] // SCANNED_BLOCK)
    elif inner == 1:
        numbers["BLOCK"] = min(SCANNED_BLOCK, power_above(highest(count)))
        if kind.startswith(("max", "min")):
            numbers["LOOKS"] = True
        elif kind != "log_sum":
            numbers["BLOCK"] = min(RUNNING_BLOCK, numbers["BLOCK"])
            numbers["IS_PARTED"] = True
        units = outer
    else:
        numbers["BLOCK"] = min(SCANNED_COLUMNS, power_above(highest(inner)))
        units = outer * -(-inner // numbers["BLOCK"])
    blocks: list[tuple[Block, Grid]] = [({}, (smallest(units, programs), 1, 1))]
    function = "scan_rows" if inner == 1 else "scan_columns"
    stored = {"out": 0} if len(node.attr("results")) == 1 else {"out": 0, "best": 1}
    return from_template(
        SCAN, function, stored, {"data": data}, numbers, blocks, num_stages=1, num_warps=warps
    )


def scan_blocks(node: Node, traits: TargetTraits) -> Called:
    """The same of blocks by themselves: a program of a GPU has one of them."""
    return scan(node, traits)


def _number(value: Scalar) -> str:
    """A number as a kernel's own text has it."""
    is_infinite = isinstance(value, float) and isinf(value)
    return f'float("{value}")' if is_infinite else repr(value)


def _accumulator(kind: str, dtype: str) -> str:
    """Triton's name of the type that running values have: for sums that of eager torch."""
    row = DTYPES[dtype]
    if row.kind == "float":
        # A sum of exponentials is relative to the largest of a block, of which the result may be a
        # small part: 0 of a row that begins with 0 and goes on with 1.
        least = {"log_sum": 2, "sum": 4, "prod": 4}.get(kind, 8)
        return "float64" if row.itemsize_bytes >= least else "float32"
    return "int64" if row.itemsize_bytes == 8 else "int32"
