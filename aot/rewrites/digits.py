"""Sorts of many elements on a GPU: radix sort, or merge sort for fewer elements.

A radix sort takes three kernels for each digit, which read the elements twice. A merge sort takes
one kernel for each level, which merges several runs at a time. Ranks and merges as arithmetic
(`order.py`) compare each element with the others of its run, and again at each merge; for many
elements these kernels do less work.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.size import Extent, fixed, highest, is_static, typical
from aotc.aot.ir.types import DTYPES

DIGIT = 8  # bits
HALF = 32  # bits of a key in a word, whose lower half is a place
WARP = 32  # elements that a program looks at together
MOST_FILLED = 1 << 15  # elements that rows of a dynamic length are filled up to
SHORTEST = 256  # elements of a part at least, which has as many counts
MOST_PARTS = 512  # of a row, whose counts are added up by few programs
PROGRAMS = 2048  # of a warp each, so that a GPU is full
# Estimates. An H100 took 0.03 ns an element for a digit (32 rows of 50,257), an H200 2.2 ns for the
# ranks of 8 rows of 50,272: both constants are too low, by about as much.
LAUNCH_NS = 2500.0  # a small kernel behind another
DIGIT_NS = 0.012  # of one element, in all kernels of a digit
COMPARED_NS = 0.45  # of one element: its rank among a run, and what is looked up by it
MERGE_LAUNCHES = 9  # of the kernels that a merge of runs of 512 becomes
MERGED_NS = 0.06  # of one element in one merge
MERGED_RUN = 512  # words that a program puts in order in registers
WAYS = (2, 4, 8)  # runs that are merged at a time
RUN_NS, SEARCHED_NS = 0.03, 0.00084  # of a word in a run, and of one step of a search for it
LOW_BITS = {"bf16": 16, "f16": 12}  # of these as f32 that are the same for all of a sign


def serves(node: Node, run: int, run_ns: float = COMPARED_NS) -> bool:
    """Whether an `order_rows` costs less by digits than by merges of runs, of which putting one in
    order takes `run_ns` an element."""
    (data,) = node.inputs
    extent = highest(data.shape[-1])
    if extent <= run or (extent > MOST_FILLED and not is_static(data.shape[-1:])):
        return False
    count = typical(prod(data.shape[:-1])) * extent
    bits = 8 * DTYPES[data.dtype].itemsize_bytes
    by_digits = digits_ns(bits, count)
    ranked = 3 * LAUNCH_NS + count * run_ns
    if highest(node.attr("wanted")) > run // 2:
        merges = (-(-extent // run) - 1).bit_length()
        ranked += merges * (MERGE_LAUNCHES * LAUNCH_NS + count * MERGED_NS)
        if bits >= HALF:
            by_digits = min(by_digits, bits // HALF * _merges(count, extent)[0])
    return bool(by_digits < ranked)


def digits_ns(bits: int, count: int) -> float:
    """What so many elements cost by digits."""
    return -(-bits // DIGIT) * (3 * LAUNCH_NS + count * DIGIT_NS)


def _merges(count: int, extent: int) -> tuple[float, tuple[tuple[int, int], ...]]:
    """Nanoseconds of a sort of so many words in rows of an extent by merges, and length and number
    of the runs of each."""
    found = []
    for ways in WAYS:
        merges, length = [], MERGED_RUN
        cost_ns = LAUNCH_NS + count * RUN_NS
        while length < extent:
            merges.append((length, ways))
            cost_ns += LAUNCH_NS + count * ways * length.bit_length() * SEARCHED_NS
            length *= ways
        found.append((cost_ns, tuple(merges)))
    return min(found)


def order_of(data: Node, wanted: Extent, is_descending: bool) -> Node:
    """Places i32 of the first elements of each row in order, as `order_rows` has them.

    Rows of a dynamic length are filled up to the longest ones, by what stands last.
    """
    lead, low = data.shape[:-1], LOW_BITS.get(data.dtype, 0)
    keys = build.ordered_bits(data, True) if data.type.kind == "float" else data
    bits = 8 * DTYPES[keys.dtype].itemsize_bytes
    rows = build.reshape(keys, (prod(lead), data.shape[-1]))
    longest = highest(data.shape[-1])
    rows = build.pad(rows, (0, 0), (0, longest - data.shape[-1]), _last(keys.dtype, is_descending))
    order = build.reshape(sort_by_bits(rows, low, bits, is_descending), (*lead, longest))
    return build.slice_axis(order, len(lead), 0, wanted)


def _last(dtype: str, is_descending: bool) -> int:
    """A whole number behind which none stands; of equal ones the first stay first."""
    limits = numpy.iinfo(DTYPES[dtype].numpy)
    return int(limits.min if is_descending else limits.max)


def sort_by_bits(keys: Node, low: int, high: int, is_descending: bool = False) -> Node:
    """Places i32 of integers `[rows, n]` in order by their bits from `low` up to `high`, stably."""
    bits = 8 * DTYPES[keys.dtype].itemsize_bytes
    wide = keys if bits == 64 else build.cast(keys, "i32")
    ones, top = (1 << bits) - 1, 0 if keys.dtype == "u8" else 1 << (bits - 1)
    changed = ones ^ top if is_descending else top
    if changed:
        flips = build.scalar(_signed(changed, max(bits, 32)), wide.dtype)
        wide = make("bitwise_xor", (wide, flips))
    places = build.cast(build.counter(2, 1, keys.shape[1]), "i32")
    order = build.expand(places, keys.shape)
    if bits < 64:
        return _sorted_words(wide, order, low, high)
    wide = build.stored(wide)
    if low < HALF:
        order = _sorted_words(build.cast(wide, "i32"), order, low, min(high, HALF))
    if high > HALF:
        upper = build.cast(make("shift_right", (wide, build.scalar(HALF, "i64"))), "i32")
        upper = make("gather", (upper, order), {"axis": 1})
        order = _sorted_words(upper, order, max(low, HALF) - HALF, high - HALF)
    return order


def _merged_words(keys: Node, order: Node, merges: Sequence[tuple[int, int]]) -> Node:
    """The same by all bits, which are those of unsigned numbers, by merges of runs."""
    top = build.scalar(_signed(1 << (HALF - 1), HALF), "i32")
    places = build.expand(build.cast(build.counter(2, 1, keys.shape[1]), "i32"), keys.shape)
    words = _words(make("bitwise_xor", (keys, top)), places)
    words = make("sort_runs", (words,), {"length": MERGED_RUN})
    for length, ways in merges:
        words = make("merge_runs", (words,), {"length": length, "ways": ways})
    return make("gather", (order, build.cast(words, "i32")), {"axis": 1})


def _words(keys: Node, places: Node) -> Node:
    """Words i64 with keys i32 in their upper halves and places in their lower ones."""
    upper = make("shift_left", (build.cast(keys, "i64"), build.scalar(HALF, "i64")))
    return make("bitwise_or", (upper, build.cast(places, "i64")))


def _signed(number: int, bits: int) -> int:
    """What the bits of a number are as a signed one."""
    return number - (1 << bits) if number >> (bits - 1) else number


def _sorted_words(keys: Node, order: Node, low: int, high: int) -> Node:
    """An order i32 of `[rows, n]`, by bits of the keys i32 that stand in it."""
    rows, extent = typical(keys.shape[0]), fixed(keys.shape[1])
    merges_ns, merges = _merges(rows * extent, extent)
    if high - low == HALF and merges_ns < digits_ns(HALF, rows * extent):
        return _merged_words(keys, order, merges)
    most = max(1, min(MOST_PARTS, PROGRAMS // max(1, rows)))
    length = max(SHORTEST, -(-extent // (most * WARP)) * WARP)
    words = _words(keys, order)
    for shift in range(HALF + low, HALF + high, DIGIT):
        how = {"length": length, "shift": shift}
        sums = make("sum_digits", (make("count_digits", (words,), how),))
        words = make("order_by_digit", (words, sums), how)
    return build.cast(words, "i32")
