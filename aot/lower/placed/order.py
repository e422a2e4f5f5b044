"""Rows in order, what is wanted of them, and the digits of a sort, as calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import highest, proves_at_most, smallest
from aotc.aot.ir.size import kernel_text as size_text
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.call import Called
from aotc.aot.lower.placed.template import (
    Block,
    Grid,
    Strided,
    from_template,
    operands_of,
)
from aotc.aot.lower.spec import Scratch
from aotc.aot.lower.tiles import power_above
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import (
    ORDER,
)

SORTED_TOGETHER, SORTED_BY_WARP = 1024, 256  # elements of a program, and of a warp
SELECTED_BY_WARP = 512
# Words of keys among which one is looked for: four warps have few of them, or more have most each.
RANKED_BY_WARP, RANKED_WARPS, RANKED_MOST = 256, 4, 2048
MERGED_BLOCK, MERGED_BY_WARP = 128, 256  # words of a program, and searches of a warp
SUMMED_PARTS, SUMMED_DIGITS = 64, 32  # whose counts a program adds up together
ORDERED_PROGRAMS = 32  # that share the rows that are put in order, each with memory of its own
ORDERED_BLOCK = 64  # keys that are compared at a time
RANKED = 64  # elements that are put in order by comparing each with each
SHORT_ROW, FEW = 256, 8  # elements of a row, and wanted ones, that are found one after the other
# Groups of 16 elements for each that is wanted: then few are not above what bounds those.
GROUPED_ELEMENTS, GROUPS_WANTED = 16, 2
_of_order = partial(from_template, ORDER, num_stages=1)


def _parts(words: Strided, how: Mapping[str, Any]) -> tuple[dict[str, Any], Grid]:
    """Numbers and programs of the two kernels of a digit that have a part of a row each."""
    rows, count = words.shape
    parts = -(-count // how["length"])
    names = {"N": count, "PARTS": parts, "LENGTH": how["length"], "SHIFT": how["shift"]}
    return names, (parts, rows, 1)


def count_digits(node: Node, traits: TargetTraits) -> Called:
    """How often each digit is in each part of a row."""
    (words,), _, how = operands_of(node)
    numbers, grid = _parts(words, how)
    blocks: list[tuple[Block, Grid]] = [({}, grid)]
    return _of_order("count_digits", {"out": 0}, {"words": words}, numbers, blocks, num_warps=1)


def sum_digits(node: Node, traits: TargetTraits) -> Called:
    """Counts of digits up to the end of each part."""
    (counts,), _, _ = operands_of(node)
    rows, parts, digits = counts.shape
    tile = min(power_above(parts), SUMMED_PARTS)
    numbers = {"PARTS": parts, "TILE": tile, "BLOCK": SUMMED_DIGITS}
    blocks: list[tuple[Block, Grid]] = [({}, (digits // SUMMED_DIGITS, rows, 1))]
    return _of_order("sum_digits", {"out": 0}, {"counts": counts}, numbers, blocks, num_warps=4)


def order_by_digit(node: Node, traits: TargetTraits) -> Called:
    """Words stably in the order of one digit."""
    (words, sums), _, how = operands_of(node)
    numbers, grid = _parts(words, how)
    reads = {"words": words, "sums": sums}
    blocks: list[tuple[Block, Grid]] = [({}, grid)]
    return _of_order("order_by_digit", {"out": 0}, reads, numbers, blocks, num_warps=1)


def sort_runs(node: Node, traits: TargetTraits) -> Called:
    """A program puts a few runs of words in order in its registers."""
    (words,), _, how = operands_of(node)
    (rows, count), length = words.shape, how["length"]
    tile = max(1, SORTED_TOGETHER // length)
    numbers = {"N": count, "LENGTH": length, "TILE": tile}
    blocks: list[tuple[Block, Grid]] = [({}, (-(-count // (tile * length)), rows, 1))]
    warps = max(1, tile * length // SORTED_BY_WARP)
    return _of_order("sort_runs", {"out": 0}, {"words": words}, numbers, blocks, num_warps=warps)


def merge_runs(node: Node, traits: TargetTraits) -> Called:
    """Programs that have a block of words each find where these go."""
    (words,), _, how = operands_of(node)
    rows, count = words.shape
    numbers = {"N": count, "LENGTH": how["length"], "WAYS": how["ways"], "BLOCK": MERGED_BLOCK}
    blocks: list[tuple[Block, Grid]] = [({}, (-(-count // MERGED_BLOCK), rows, 1))]
    warps = max(1, MERGED_BLOCK * how["ways"] // MERGED_BY_WARP)
    return _of_order("merge_runs", {"out": 0}, {"words": words}, numbers, blocks, num_warps=warps)


def order_rows(node: Node, traits: TargetTraits) -> Called:
    """A program puts rows in order, one after the other; on a GPU a few at once, whose elements are
    a second result."""
    (data,), results, how = operands_of(node)
    rows, count, wanted = prod(data.shape[:-1]), data.shape[-1], how["wanted"]
    if traits.is_gpu:
        return _in_registers("sort_rows", data, len(results), how)
    programs = smallest(rows, ORDERED_PROGRAMS)
    numbers: dict[str, Any] = {
        "ROWS": size_text(rows),
        "N": size_text(count),
        "WANTED": size_text(wanted),
        "IS_DESCENDING": how["descending"],
    }
    blocks: list[tuple[Block, Grid]] = [({}, (programs, 1, 1))]
    of_order = partial(_of_order, num_warps=1)
    if proves_at_most(count, SHORT_ROW) and proves_at_most(wanted, FEW):
        numbers["SPAN"] = power_above(highest(count))
        return of_order("take_least", {"out": 0}, {"data": data}, numbers, blocks)
    is_part = proves_at_most(2 * wanted, count)
    has_bound = is_part and proves_at_most(GROUPED_ELEMENTS * GROUPS_WANTED * wanted, count)
    sorted_ = wanted if is_part else count
    numbers |= {
        "IS_PART": is_part,
        "HAS_BOUND": has_bound and proves_at_most(ORDERED_BLOCK, count),
        "SPAN": power_above(highest(sorted_)) if proves_at_most(sorted_, RANKED) else 0,
        "BLOCK": ORDERED_BLOCK,
    }
    itemsize_bytes = DTYPES[node.inputs[0].dtype].itemsize_bytes
    key_bytes = max(4, itemsize_bytes)
    scratch = (
        Scratch("keys", f"*i{8 * key_bytes}", programs * count * 2 * key_bytes),
        Scratch("places", "*i32", programs * count * 2 * 4),
        Scratch("counts", "*i32", programs * itemsize_bytes * 256 * 4),
    )
    called = of_order("order_rows", {"out": 0}, {"data": data}, numbers, blocks)
    memory = tuple((f"{each.name}_ptr", "value", each.name) for each in scratch)
    return replace(called, arguments=(*called.arguments, *memory), scratch=scratch)


def select_rows(node: Node, traits: TargetTraits) -> Called:
    """A program of a GPU finds what is wanted of a row."""
    (data,), results, how = operands_of(node)
    return _in_registers("select_rows", data, len(results), how)


def nth_places(node: Node, traits: TargetTraits) -> Called:
    """A program of a GPU finds the element at a rank of a row, or of several short ones."""
    (data, *ranks), results, how = operands_of(node)
    rows, count = prod(data.shape[:-1]), data.shape[-1]
    span = max(2, power_above(highest(count)))
    tile = max(1, SORTED_TOGETHER // span)
    numbers = {
        "ROWS": size_text(rows),
        "N": size_text(count),
        "WANTED": size_text(how["wanted"]),
        "HAS_RANKS": bool(ranks),
        "HAS_VALUES": len(results) > 1,
        "SPAN": span,
        "TILE": tile,
    }
    bits = max(32, 8 * DTYPES[node.inputs[0].dtype].itemsize_bytes)
    words = tile * span * bits // 32
    warps = max(1, min(RANKED_WARPS, words // RANKED_BY_WARP), words // RANKED_MOST)
    blocks: list[tuple[Block, Grid]] = [({}, (-(-rows // tile), 1, 1))]
    stored, reads = (
        {"out": 0, "values": len(results) - 1},
        {"data": data, "ranks": ranks[0] if ranks else None},
    )
    return _of_order("nth_places", stored, reads, numbers, blocks, num_warps=warps)


def _in_registers(function: str, data: Strided, results: int, how: Mapping[str, Any]) -> Called:
    """A program has some rows of a thousand elements together, or a longer one."""
    rows, count, wanted = prod(data.shape[:-1]), data.shape[-1], how["wanted"]
    span = max(2, power_above(highest(count)))
    tile = max(1, SORTED_TOGETHER // span)
    numbers = {
        "ROWS": size_text(rows),
        "N": size_text(count),
        "WANTED": size_text(wanted),
        "IS_DESCENDING": how["descending"],
        "HAS_VALUES": results > 1,
        "SPAN": span,
        "TILE": tile,
    }
    each = SELECTED_BY_WARP
    if function == "sort_rows":
        numbers["KEPT"] = min(span, max(2, power_above(highest(wanted))))
        each = SORTED_BY_WARP
    blocks: list[tuple[Block, Grid]] = [({}, (-(-rows // tile), 1, 1))]
    stored, warps = {"out": 0, "values": results - 1}, max(1, min(16, tile * span // each))
    return _of_order(function, stored, {"data": data}, numbers, blocks, num_warps=warps)
