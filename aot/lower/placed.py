"""Ops on memory, the op `placed` → calls of templates that stand by themselves.

A program has a tile of an attention's rows, or for the gradients a whole head of keys, so that
scores stay in the cache and every sum has one order. Of rows that are written or merged it has part
of what lies within an index, of a grouped product a block of the result, of one group or of rows of
several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isinf, prod
from typing import Any, NamedTuple

from aotc.aot.ir.butterflies import Pass, form_of, passes
from aotc.aot.ir.call import CallArgument
from aotc.aot.ir.graph import Node
from aotc.aot.ir.infer import EXCHANGE_PROGRAMS
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import Extent, fixed, highest, is_static, proves_at_most, smallest, typical
from aotc.aot.ir.size import kernel_text as size_text
from aotc.aot.ir.types import DTYPES, Scalar
from aotc.aot.ir.viewed import runs
from aotc.aot.lower.call import Called
from aotc.aot.lower.spec import Scratch
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.attention import block_of
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import (
    ATTENTION,
    EXCHANGE,
    FOURIER,
    GROUPED,
    ORDER,
    SCAN,
    SCATTER,
    STATE_COPY,
    kernel_text,
)

Block = Mapping[str, int]  # values of a candidate's configs
Grid = tuple[Extent, Extent, Extent]
MORE_BLOCKS = ((32, 64), (64, 32), (128, 128))  # that tuning tries: rows and keys
SCATTERED_BLOCK = 64  # elements of a program's block: small, so that every core gets some
MERGED_BLOCK = 256  # elements of a program that merges them in any order
OF_WHOLE_NUMBERS, ANY_ORDER = ("i32", "i64"), ("sum", "max", "min")  # of atomics
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
TRANSFORMED = 1024  # elements of a program of one warp whose Fourier transforms are computed
SORTED_TOGETHER, SORTED_BY_WARP = 1024, 256  # elements of a program, and of a warp
SELECTED_BY_WARP = 512
TRANSFORMED_ROWS = 8192  # elements of rows that a program of a processor transforms, at least
TRANSFORMING_PROGRAMS = 32  # that share rows to transform, each with memory of its own
LARGEST_STEP = 2  # of a row's numbers that are no column
VECTOR = 16  # elements of the longest vectors of a processor
SUMMED_PARTS, SUMMED_DIGITS = 64, 32  # whose counts a program adds up together
COPIED_BLOCK = 4096  # elements of a program that copies
SMALLEST, LARGEST = 16, 64  # of a block's sides; GPUs multiply blocks of 16 at least
ROWS_TILED, KEYS_TILED = 64, 256  # of a block that a processor's tiles multiply, at most
TILED_BLOCK_COST = 8  # of one more such block, in rows or keys
ORDERED_PROGRAMS = 32  # that share the rows that are put in order, each with memory of its own
ORDERED_BLOCK = 64  # keys that are compared at a time
RANKED = 64  # elements that are put in order by comparing each with each
SHORT_ROW, FEW = 256, 8  # elements of a row, and wanted ones, that are found one after the other
SCANNED_PROGRAMS = 64  # that share rows, or blocks of columns, whose scans they make
SCANNED_BLOCK, SCANNED_COLUMNS = 256, 64  # elements of a row, or columns, at a time
EXCHANGED_BYTES = 4096  # of a row that a program stores at a time
EXCHANGED_WORDS = 512  # the same, of elements that travel in words of 8 bytes
MOST_WORDS = 1 << 14  # elements that do: each session has twice as many words for every rank
EXCHANGE_LOOKS = 1 << 23  # at a flag of a rank that does not come, of about a microsecond each
ALIGNED_BYTES = 16  # of memory that threads load and store at once
# Groups of 16 elements for each that is wanted: then few are not above what bounds those.
GROUPED_ELEMENTS, GROUPS_WANTED = 16, 2


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


_attention = partial(from_template, ATTENTION, num_stages=1, num_warps=1)
_of_order = partial(from_template, ORDER, num_stages=1)


def attention(node: Node, traits: TargetTraits) -> Called:
    """One program for each block of rows of a head; by the processor's tiles where it has them."""
    (query, key, value, *masks), _, how = operands_of(node)
    batch, heads, rows, _ = query.shape
    ends = {"HEADS": heads, "SAFE": how["is_safe"], "KEEPS_BF16": traits.multiplies_bf16}
    numbers = {**_attention_numbers(how, query, key, value, *masks), **ends}
    sides = _sides(query, key, value)
    if traits.has_tiles:
        tallest, longest = _tiled_side(rows, ROWS_TILED), _tiled_side(key.shape[2], KEYS_TILED)
        sides = [{"BM": tallest, "BN": longest}, *sides]
    blocks = [(each, (-(-rows // each["BM"]), heads, batch)) for each in sides]
    reads = {"q": query, "k": key, "v": value, "mask": masks[0] if masks else None}
    return _attention("attention_forward", {"out": 0, "sums": 1}, reads, numbers, blocks)


def _tiled_side(extent: int, largest: int) -> int:
    """The side of a block that leaves the least to compute beyond the end, each block's own cost
    counted: products take less time than the copies and powers around them."""
    sizes = [1 << bit for bit in range(SMALLEST.bit_length() - 1, largest.bit_length())]
    return min(sizes, key=lambda size: -(-extent // size) * (size + TILED_BLOCK_COST))


def attention_backward(node: Node, traits: TargetTraits) -> Called:
    """One program for each head of keys."""
    (query, key, value, gradient, out, sums, *masks), stored, how = operands_of(node)
    ends = {"g": gradient, "out": out, "sums": sums}
    gradients = dict(zip(("dq", "dk", "dv"), stored, strict=True))
    numbers = {
        **_attention_numbers(how, query, key, value, *masks),
        **{name.upper(): place.strides[:3] for name, place in ends.items()},
        **{name.upper(): (place.strides[2], place.start) for name, place in gradients.items()},
    }
    blocks = [(each, (key.shape[1], key.shape[0], 1)) for each in _sides(query, key, value)]
    memories = {name: place.memory for name, place in gradients.items()}
    reads = {"q": query, "k": key, "v": value, "mask": masks[0] if masks else None, **ends}
    return _attention("attention_backward", memories, reads, numbers, blocks)


def _attention_numbers(
    how: dict[str, Any], query: Strided, key: Strided, value: Strided, mask: Strided | None = None
) -> dict[str, Any]:
    """What both kernels are given: sizes, what scores are made of, and steps to the next batch,
    head and row."""
    _, heads, rows, element = query.shape
    return {
        "RATIO": heads // key.shape[1],
        "T": rows,
        "S": key.shape[2],
        "D": element,
        "E": value.shape[3],
        "BD": power_above(element),
        "BE": power_above(value.shape[3]),
        "SCALE": how["scale"],
        "CAUSAL": how["offset"] if how["causal"] else None,
        **{name: place.strides[:3] for name, place in zip("QKV", (query, key, value), strict=True)},
        "MASK": mask.strides if mask else None,
    }


def _sides(query: Strided, key: Strided, value: Strided) -> list[Block]:
    """Rows and keys of a block, the first as a rule the fastest."""
    rows, keys = query.shape[2], key.shape[2]
    widest = max(query.shape[3], value.shape[3])
    tallest, longest = power_above(rows), power_above(keys)
    fitting = [row for row in MORE_BLOCKS if row[0] <= tallest and row[1] <= longest]
    sides = dict.fromkeys(((block_of(rows, widest), block_of(keys, widest)), *fitting))
    return [{"BM": down, "BN": across} for down, across in sides]


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


def fourier(node: Node, traits: TargetTraits) -> Called:
    """A program has rows of some thousand bytes, and eight elements of each thread a pass."""
    if not traits.is_gpu:
        return _fourier_rows(node)
    (turns, re, *im), _, how = operands_of(node)
    rows, count = prod(re.shape[:-1]), re.shape[-1]
    height, warps = max(1, TRANSFORMED // count), max(1, count // TRANSFORMED)
    numbers: dict[str, Any] = {
        "ROWS": size_text(rows),
        "N": count,
        "KEEP": how["keep"],
        "SIGN": how["sign"],
        "IS_REAL": not im,
        "HAS_IM": not how["is_real"],
        "T": height,
    }
    blocks: list[tuple[Block, Grid]] = [({}, (-(-rows // height), 1, 1))]
    stored = {"re_out": 0, "im_out": 0 if how["is_real"] else 1}
    reads = {"re": re, "im": im[0] if im else None, "roots": turns}
    return from_template(
        FOURIER, "fourier", stored, reads, numbers, blocks, num_stages=1, num_warps=warps
    )


def _fourier_rows(node: Node) -> Called:
    """A program transforms rows, one after the other, each in passes from memory to memory."""
    (turns, re, *im), _, how = operands_of(node)
    if re.strides[-1] > LARGEST_STEP:
        return _fourier_columns(node)
    rows, length, step = prod(re.shape[:-1]), turns.shape[-1], re.strides[-1]
    form = form_of(length, re.shape[-1], how["keep"], not im)
    count = length if form == "whole" else length // 2
    steps = passes(count)
    sides = [_sides_of_pass(count, each) for each in steps]
    pitch = -(-(count + 1) // VECTOR) * VECTOR
    ((_, row_step),) = runs(re.shape[:-1], re.strides[:-1]) or [(1, 0)]
    numbers: dict[str, Any] = {
        "ROWS": size_text(rows),
        "N": count,
        "TURNS": length,
        "KEEP": how["keep"],
        "SIGN": how["sign"],
        "IS_REAL": not im,
        "HAS_IM": not how["is_real"],
        "FORM": repr(form),
        "STEP": step,
        "FIRST_STEP": {"whole": step, "reals": 2 * step, "spectrum": 1}[form],
        "ROW_STEP": size_text(row_step),
        "RADICES": tuple(each.radix for each in steps),
        "DONE": tuple(each.done for each in steps),
        "HEIGHTS": tuple(height for height, _ in sides),
        "WIDTHS": tuple(width for _, width in sides),
        "WIDTH": power_above(count if form == "spectrum" else how["keep"]),
        "PITCH": pitch,
    }
    shared = max(1, TRANSFORMED_ROWS // length)
    programs = smallest(-(-rows // shared), TRANSFORMING_PROGRAMS)
    blocks: list[tuple[Block, Grid]] = [({}, (programs, 1, 1))]
    stored = {"re_out": 0, "im_out": 0 if how["is_real"] else 1}
    reads = {"re": re, "im": im[0] if im else None, "roots": turns}
    called = from_template(
        FOURIER, "fourier_rows", stored, reads, numbers, blocks, num_stages=1, num_warps=1
    )
    return _with_memory(called, node, programs * pitch)


def _fourier_columns(node: Node) -> Called:
    """A program transforms blocks of columns, one after the other."""
    (turns, re, *im), _, how = operands_of(node)
    length, pitch = turns.shape[-1], re.strides[-1]
    *outer, (inner, step) = runs(re.shape[:-1], re.strides[:-1])
    ((count, outer_step),) = outer or [(1, 0)]
    steps = passes(length)
    numbers: dict[str, Any] = {
        "OUTER": size_text(count),
        "OUTER_STEP": size_text(outer_step),
        "N": length,
        "INNER": inner,
        "SIGN": how["sign"],
        "IS_REAL": not im,
        "HAS_IM": not how["is_real"],
        "STEP": step,
        "RADICES": tuple(each.radix for each in steps),
        "DONE": tuple(each.done for each in steps),
        "HEIGHTS": tuple(power_above(each.done) for each in steps),
        "WIDTHS": tuple(power_above(length // (each.radix * each.done)) for each in steps),
        "COLUMNS": VECTOR,
    }
    assert pitch == fixed(inner) * step
    shared = max(1, TRANSFORMED_ROWS // (length * VECTOR))
    programs = smallest(-(-count * -(-fixed(inner) // VECTOR) // shared), TRANSFORMING_PROGRAMS)
    blocks: list[tuple[Block, Grid]] = [({}, (programs, 1, 1))]
    stored = {"re_out": 0, "im_out": 0 if how["is_real"] else 1}
    reads = {"re": re, "im": im[0] if im else None, "roots": turns}
    called = from_template(
        FOURIER, "fourier_columns", stored, reads, numbers, blocks, num_stages=1, num_warps=1
    )
    return _with_memory(called, node, programs * length * VECTOR)


def _with_memory(called: Called, node: Node, count: Extent) -> Called:
    """With two buffers of so many complex numbers."""
    dtype = node.attr("results")[0][0]
    names = [f"{which}_{part}" for which in ("first", "second") for part in ("re", "im")]
    nbytes = count * DTYPES[dtype].itemsize_bytes
    scratch = tuple(Scratch(name, f"*fp{dtype[1:]}", nbytes) for name in names)
    memory = tuple((f"{name}_ptr", "value", name) for name in names)
    return replace(called, arguments=(*called.arguments, *memory), scratch=scratch)


def _sides_of_pass(count: int, step: Pass) -> tuple[int, int]:
    """Rows and columns of a pass's places: one row where a vector has the same of all runs of
    neighbours, or part of one; else a row is a run."""
    gap = count // (step.radix * step.done)
    if step.done == 1 or VECTOR % gap == 0:
        return 1, power_above(count // step.radix)
    return power_above(step.done), power_above(gap)


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


def scan(node: Node, traits: TargetTraits) -> Called:
    """A program goes along rows, or blocks of columns, one after the other; on a GPU it has a row
    alone, which is a block of a longer one. A second result has the extremes at the places."""
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
        "IS_REVERSED": how["is_reversed"],
        "ACCUMULATOR": f"tl.{_accumulator(kind, dtype)}",
    }
    programs, warps = SCANNED_PROGRAMS, 1
    if traits.is_gpu:
        numbers["BLOCK"] = power_above(fixed(count))  # of `rewrites/scan.py`
        units = programs = outer
        warps = max(1, numbers["BLOCK"] // SCANNED_BLOCK)
    elif inner == 1:
        numbers["BLOCK"] = min(SCANNED_BLOCK, power_above(highest(count)))
        if kind.startswith(("max", "min")):
            numbers["LOOKS"] = True
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


def exchange(node: Node, traits: TargetTraits) -> Called:
    """A program gives and awaits its share of the elements."""
    (data, status), _, how = operands_of(node)
    ranks, itemsize_bytes = how["ranks"], DTYPES[node.attr("results")[0][0]].itemsize_bytes
    count, word_bytes = prod(data.shape[1:]), DTYPES["i64"].itemsize_bytes
    most_words = MOST_WORDS if itemsize_bytes < word_bytes else 0
    block = EXCHANGED_BYTES // itemsize_bytes
    at_a_time = EXCHANGED_WORDS if typical(count) <= most_words else block
    programs = max(1, min(EXCHANGE_PROGRAMS, -(-typical(count) // at_a_time)))
    flags = EXCHANGE_PROGRAMS * ranks // 2
    numbers = {
        "COUNT": size_text(count),
        "RANKS": ranks,
        "IS_SCATTERED": data.shape[0] == ranks,
        "PROGRAMS": programs,
        "STATUS": EXCHANGE_PROGRAMS,
        "FLAGS": flags,
        "UNIT": ALIGNED_BYTES // itemsize_bytes,
        "BLOCK": block,
        "MOST_WORDS": most_words,
        "WORDS_BLOCK": EXCHANGED_WORDS,
        "LIMIT": EXCHANGE_LOOKS,
    }
    blocks: list[tuple[Block, Grid]] = [({}, (programs, 1, 1))]
    stored, reads = {"out": 0, "status_out": 1}, {"data": data, "status": status}
    called = from_template(
        EXCHANGE, "exchange", stored, reads, numbers, blocks, num_stages=1, num_warps=8
    )
    peers = ", ".join(f"peer_{rank}" for rank in range(ranks))
    more: tuple[CallArgument, ...] = (
        ("arrivals_ptr", "value", "arrivals"),
        ("peers", "value", f"({peers},)"),
    )
    longest = -(-min(highest(count), most_words) // EXCHANGED_WORDS) * EXCHANGED_WORDS
    words = flags + ranks * longest
    scratch = Scratch("arrivals", "*i64", words * word_bytes, is_zeroed=True, turns=2)
    return replace(called, arguments=(*called.arguments, *more), scratch=(scratch,), ranks=ranks)


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


# The kernels of `placed` ops.
ON_MEMORY: dict[str, Callable[[Node, TargetTraits], Called]] = {
    row.__name__: row
    for row in (
        attention,
        attention_backward,
        scatter_rows,
        count_places,
        sum_runs,
        fourier,
        count_digits,
        sum_digits,
        order_by_digit,
        copy,
        grouped_matmul,
        order_rows,
        select_rows,
        scan,
        exchange,
    )
}
