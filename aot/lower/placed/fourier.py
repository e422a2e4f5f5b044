"""Fourier transforms as calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from aotc.aot.ir.butterflies import BESIDE, Pass, form_of, passes
from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import Extent, fixed, smallest, typical
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
from aotc.aot.lower.spec import Scratch
from aotc.aot.lower.tiles import power_above
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import FOURIER_PASSES, FOURIER_REGISTERS, FOURIER_ROWS

RESIDENT = 16  # warps of a multiprocessor of a GPU
TRANSFORMED = 1024  # elements of a program of one warp whose Fourier transforms are computed
FEWEST_TRANSFORMED = 256  # of them where programs leave a GPU not full
PLACES, PLACES_OF_THREAD = 256, 2  # butterflies of a pass of a program of a GPU, and of a thread
MOST_WARPS = 8
TRANSFORMED_ROWS = 8192  # elements of rows that a program of a processor transforms, at least
TRANSFORMING_PROGRAMS = 32  # that share rows to transform, each with memory of its own
LARGEST_STEP = 2  # of a row's numbers that are no column
VECTOR = 16  # elements of the longest vectors of a processor


def fourier(node: Node, traits: TargetTraits) -> Called:
    """Rows on a processor one after the other, on a GPU some of them in each program: in registers,
    or by passes through memory."""
    if not traits.is_gpu:
        return _fourier_rows(node)
    length, dtype = operands_of(node)[0][0].shape[-1], node.attr("results")[0][0]
    if dtype == "f32" and length >= 8 and length & (length - 1) == 0:
        return _in_registers(node, traits)
    return _by_passes(node, traits)


def _in_registers(node: Node, traits: TargetTraits) -> Called:
    """A program has rows of some thousand bytes, and eight elements of each thread a pass."""
    rows, count = _rows_and_length(node)
    height = max(1, TRANSFORMED // count)
    while height > 1 and height * count > FEWEST_TRANSFORMED and _leaves_idle(rows, height, traits):
        height //= 2
    warps = _warps(typical(-(-rows // height)), height * count, traits)
    return _of_program(node, FOURIER_REGISTERS, "fourier", height, warps, {})


def _by_passes(node: Node, traits: TargetTraits) -> Called:
    """A program has rows of `PLACES` butterflies a pass, fewer where they leave the device not
    full, and each thread some of them."""
    rows, count = _rows_and_length(node)
    steps = passes(count, are_beside=True)
    width = max(power_above(count // each.radix) for each in steps)
    fewest = 1 if operands_of(node)[0][1].strides[-1] <= LARGEST_STEP else BESIDE
    height = max(fewest, PLACES // width)
    while height > fewest and _leaves_idle(rows, height, traits):
        height //= 2
    warps = min(MOST_WARPS, max(1, height * width // (32 * PLACES_OF_THREAD)))
    numbers = {
        "OWN_NEAR": count if fewest == 1 else 1,
        "OWN_HOP": 1 if fewest == 1 else height,
        "RADICES": tuple(each.radix for each in steps),
        "DONE": tuple(each.done for each in steps),
        "WIDTHS": tuple(power_above(count // each.radix) for each in steps),
    }
    called = _of_program(node, FOURIER_PASSES, "fourier_passes", height, warps, numbers)
    return _with_memory(called, node, -(-rows // height) * (4 * height * count), ("own",))


def _rows_and_length(node: Node) -> tuple[Extent, int]:
    (turns, re, *_), _, _ = operands_of(node)
    return prod(re.shape[:-1]), turns.shape[-1]


def _leaves_idle(rows: Extent, height: int, traits: TargetTraits) -> bool:
    """Whether programs of so many rows are fewer than multiprocessors."""
    return typical(-(-rows // height)) < traits.multiprocessors


def _of_program(
    node: Node, template: str, function: str, height: int, warps: int, numbers: Mapping[str, Any]
) -> Called:
    """A kernel of a GPU whose programs have `height` rows."""
    (turns, re, *im), (out, *_), how = operands_of(node)
    rows, count = _rows_and_length(node)
    inner, steps, out_steps = _steps_of_rows(re, out)
    values: dict[str, Any] = {
        "ROWS": size_text(rows),
        "INNER": size_text(inner),
        "FAR": size_text(steps[0]),
        "NEAR": size_text(steps[1]),
        "HOP": re.strides[-1],
        "OUT_FAR": size_text(out_steps[0]),
        "OUT_NEAR": size_text(out_steps[1]),
        "OUT_HOP": out.strides[-1],
        "N": count,
        "KEEP": how["keep"],
        "SIGN": how["sign"],
        "IS_REAL": not im,
        "IS_HALF": re.shape[-1] != count,
        "HAS_IM": not how["is_real"],
        "T": height,
        **numbers,
    }
    blocks: list[tuple[Block, Grid]] = [({}, (-(-rows // height), 1, 1))]
    reads = {"re": re, "im": im[0] if im else None, "roots": turns}
    return from_template(
        template, function, {"out": 0}, reads, values, blocks, num_stages=1, num_warps=warps
    )


def _warps(programs: int, numbers: int, traits: TargetTraits) -> int:
    """Warps of a program, of which each has as few numbers as leave the device not full, and each
    thread eight at least."""
    warps = max(1, numbers // TRANSFORMED)
    while 2 * warps * programs <= RESIDENT * traits.multiprocessors and warps < numbers // 256:
        warps *= 2
    return warps


def _steps_of_rows(
    re: Strided, out: Strided
) -> tuple[Extent, tuple[Extent, Extent], tuple[Extent, Extent]]:
    """How many rows are one run of both tensors, and from one run to the next and from row to row
    the elements of the first one and of the second."""
    found: list[tuple[Extent, Extent, Extent]] = []
    for extent, step, out_step in zip(re.shape[:-1], re.strides, out.strides, strict=False):
        if extent == 1:
            continue
        last = found[-1] if found else (0, 0, 0)
        if found and last[1:] == (step * extent, out_step * extent):
            found[-1] = last[0] * extent, step, out_step
        else:
            found.append((extent, step, out_step))
    (_, far, out_far), (inner, near, out_near) = [(1, 0, 0), (1, 0, 0), *found][-2:]
    return inner, (far, near), (out_far, out_near)


def _row_step(re: Strided) -> Extent:
    """Elements from one row to the next (`rows_of` of the rewrite)."""
    ((_, step),) = runs(re.shape[:-1], re.strides[:-1]) or [(1, 0)]
    return step


def _fourier_rows(node: Node) -> Called:
    """A program transforms rows, one after the other, each in passes from memory to memory."""
    (turns, re, *im), (out, *_), how = operands_of(node)
    if re.strides[-1] > LARGEST_STEP:
        return _fourier_columns(node)
    if out.strides[-1] == 2:
        return _fourier_short(node)
    rows, length, step = prod(re.shape[:-1]), turns.shape[-1], re.strides[-1]
    form = form_of(length, re.shape[-1], how["keep"], not im)
    count = length if form == "whole" else length // 2
    steps = passes(count)
    sides = [_sides_of_pass(count, each) for each in steps]
    pitch = -(-(count + 1) // VECTOR) * VECTOR
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
        "ROW_STEP": size_text(_row_step(re)),
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
        FOURIER_ROWS, "fourier_rows", stored, reads, numbers, blocks, num_stages=1, num_warps=1
    )
    return _with_memory(called, node, programs * pitch)


def _fourier_short(node: Node) -> Called:
    """A program transforms blocks of rows, one after the other."""
    (turns, re, im), _, how = operands_of(node)
    rows, length, step = prod(re.shape[:-1]), turns.shape[-1], re.strides[-1]
    numbers: dict[str, Any] = {
        "ROWS": rows,
        "N": length,
        "KEEP": how["keep"],
        "SIGN": how["sign"],
        "STEP": step,
        "ROW_STEP": size_text(_row_step(re)),
        **_sides_of_columns(length),
        "TAKEN": power_above(length * step),
        "STORED": power_above(2 * how["keep"]),
        "BESIDE": BESIDE,
    }
    shared = max(1, TRANSFORMED_ROWS // (length * BESIDE))
    programs = smallest(-(-rows // (BESIDE * shared)), TRANSFORMING_PROGRAMS)
    blocks: list[tuple[Block, Grid]] = [({}, (programs, 1, 1))]
    reads = {"re": re, "im": im, "roots": turns}
    called = from_template(
        FOURIER_ROWS, "fourier_short", {"out": 0}, reads, numbers, blocks, num_stages=1, num_warps=1
    )
    return _with_memory(called, node, 2 * programs * length * BESIDE, ("first", "second"))


def _sides_of_columns(length: int) -> dict[str, Any]:
    """The passes of columns of a length, and the loops of each."""
    steps = passes(length, are_beside=True)
    return {
        "RADICES": tuple(each.radix for each in steps),
        "DONE": tuple(each.done for each in steps),
        "HEIGHTS": tuple(power_above(each.done) for each in steps),
        "WIDTHS": tuple(power_above(length // (each.radix * each.done)) for each in steps),
    }


def _fourier_columns(node: Node) -> Called:
    """A program transforms blocks of columns, one after the other."""
    (turns, re, *im), _, how = operands_of(node)
    length, pitch = turns.shape[-1], re.strides[-1]
    *outer, (inner, step) = runs(re.shape[:-1], re.strides[:-1])
    ((count, outer_step),) = outer or [(1, 0)]
    numbers: dict[str, Any] = {
        "OUTER": size_text(count),
        "OUTER_STEP": size_text(outer_step),
        "N": length,
        "INNER": inner,
        "SIGN": how["sign"],
        "IS_REAL": not im,
        "HAS_IM": not how["is_real"],
        "STEP": step,
        **_sides_of_columns(length),
        "COLUMNS": VECTOR,
    }
    assert pitch == fixed(inner) * step
    shared = max(1, TRANSFORMED_ROWS // (length * VECTOR))
    programs = smallest(-(-count * -(-fixed(inner) // VECTOR) // shared), TRANSFORMING_PROGRAMS)
    blocks: list[tuple[Block, Grid]] = [({}, (programs, 1, 1))]
    stored = {"re_out": 0, "im_out": 0 if how["is_real"] else 1}
    reads = {"re": re, "im": im[0] if im else None, "roots": turns}
    called = from_template(
        FOURIER_ROWS, "fourier_columns", stored, reads, numbers, blocks, num_stages=1, num_warps=1
    )
    return _with_memory(called, node, programs * length * VECTOR)


PARTS = ("first_re", "first_im", "second_re", "second_im")


def _with_memory(called: Called, node: Node, count: Extent, names: Sequence[str] = PARTS) -> Called:
    """With buffers of so many numbers, by default two of both parts."""
    dtype = node.attr("results")[0][0]
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
