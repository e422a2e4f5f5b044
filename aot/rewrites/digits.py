"""Rows in order by digits, on a GPU: two kernels a digit, each with many programs a row.

Ranks and merges (`order.py`) compare each element with a run's others, and again at each merge.
With many elements a sort by digits does less: each kernel reads the keys once.
"""

from __future__ import annotations

from math import prod

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.size import fixed, is_static, typical
from aotc.aot.ir.types import DTYPES

DIGIT = 4  # bits
TILE = 512  # elements that a program looks at together
MOST_PARTS = 256  # of a row, whose counts each program reads
PROGRAMS = 2048  # that a GPU runs at once
# Estimates. An H200 took 0.12 ns an element in `order_by_digit` (8 rows of 50,272), and 2.2 ns for
# the ranks of the same rows: both constants are too low, by about as much.
LAUNCH_NS = 2500.0  # a small kernel behind another
DIGIT_NS = 0.01  # of one element, in both kernels of a digit
COMPARED_NS = 0.45  # of one element: its rank among a run, and what is looked up by it
MERGED_NS = 0.06  # of one element in one merge
LOW_BITS = {"bf16": 16, "f16": 12}  # of these as f32 that are the same for all of a sign


def serves(node: Node, run: int) -> bool:
    """Whether an `order_rows` costs less by digits than by ranks of runs."""
    (data,) = node.inputs
    if not is_static((*data.shape, node.attr("wanted"))) or data.shape[-1] <= run:
        return False
    count, extent = typical(data.type.numel), typical(data.shape[-1])
    bits = 8 * DTYPES[data.dtype].itemsize_bytes
    by_digits = -(-bits // DIGIT) * (2 * LAUNCH_NS + count * DIGIT_NS)
    ranked = 3 * LAUNCH_NS + count * COMPARED_NS
    if typical(node.attr("wanted")) > run // 2:
        merges = (-(-extent // run) - 1).bit_length()
        ranked += merges * (2 * LAUNCH_NS + count * MERGED_NS)
    return bool(by_digits < ranked)


def order_of(data: Node, wanted: int, is_descending: bool) -> Node:
    """Places i32 of the first elements of each row in order, as `order_rows` has them."""
    shape, low = data.shape, LOW_BITS.get(data.dtype, 0)
    keys = build.ordered_bits(data, True) if data.type.kind == "float" else data
    bits = 8 * DTYPES[keys.dtype].itemsize_bytes
    rows = build.reshape(keys, (prod(shape[:-1]), shape[-1]))
    order = sort_by_bits(rows, low, bits, is_descending)
    return build.slice_axis(build.reshape(order, shape), len(shape) - 1, 0, wanted)


def sort_by_bits(keys: Node, low: int, high: int, is_descending: bool = False) -> Node:
    """Places i32 of integers `[rows, n]` in order by their bits from `low` up to `high`, stably."""
    rows, extent = map(fixed, keys.shape)
    wanted = max(1, min(MOST_PARTS, PROGRAMS // max(1, rows), -(-extent // TILE)))
    length = -(-extent // (wanted * TILE)) * TILE
    order = build.expand(build.cast(build.counter(2, 1, extent), "i32"), keys.shape)
    for shift in range(low, high, DIGIT):
        how = {"length": length, "shift": shift, "descending": is_descending}
        counts = make("count_digits", (keys, order), how)
        order = make("order_by_digit", (keys, order, counts), how)
    return order
