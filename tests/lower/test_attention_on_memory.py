"""Which attentions the CPU has as a kernel on memory, and in which blocks of rows and keys."""

from __future__ import annotations

import pytest

from aotc.aot.ir.size import Dim, size_of
from aotc.aot.lower.placed.attention import _sides
from aotc.aot.schedule.attention import is_cheaper_on_memory
from aotc.aot.targets.cpu.target import CPU

# Rows, keys, elements of q and k, of v: what is cheaper, and the kernel's blocks, the first choice
# first. What changes a line changes the speed of models: measure it.
CHOICES = """
1 64 64 64 f32: kernel 1x64
1 200 64 64 f32: arithmetic 1x32
1 200 64 64 bf16: kernel 1x32
1 9000 64 64 bf16: arithmetic 1x64
3 48 16 16 f32: kernel 4x64
8 8 32 32 f32: kernel 8x16
16 16 16 16 f32: kernel 16x16
17 300 64 64 f32: arithmetic 32x64
37 48 16 16 f32: kernel 64x64 32x64 64x32
48 48 16 8 f32: kernel 64x64 32x64 64x32
70 33 24 40 f32: arithmetic 32x64 64x32
128 128 64 64 f32: kernel 64x64 32x64 64x32 128x128
196 197 80 80 f32: kernel 32x32 32x64 64x32 128x128
512 512 128 128 f32: kernel 64x64 32x64 64x32 128x128
1024 77 40 40 f32: kernel 64x32 32x64 128x128
64 64 256 256 f32: kernel 64x64 32x64 64x32
64 64 300 64 f32: arithmetic 32x32 32x64 64x32
"""
# The same of dynamic lengths: smallest, largest and typical number of rows and keys.
RANGES = """
2 2048 8 64 f32: kernel 64x64
9 127 34 64 f32: kernel 32x32 32x64 64x32
128 2048 512 64 f32: kernel 64x64 32x64 64x32 128x128
2 10 8 64 f32: arithmetic 16x16
"""


@pytest.mark.parametrize("line", CHOICES.strip().splitlines())
def test_choices(line):
    shape, _, expected = line.partition(": ")
    *sizes, dtype = shape.split()
    rows, keys, element, width = map(int, sizes)
    shapes = (1, 2, rows, element), (1, 2, keys, element), (1, 2, keys, width)
    blocks = _sides((rows, keys), (element, width), CPU)
    found = ["kernel" if is_cheaper_on_memory(*shapes, dtype) else "arithmetic"]
    found += [f"{row['BM']}x{row['BN']}" for row in blocks]
    assert " ".join(found) == expected


@pytest.mark.parametrize("line", RANGES.strip().splitlines())
def test_choices_of_ranges(line):
    sizes, _, expected = line.partition(": ")
    low, high, typical, element = map(int, sizes.split()[:4])
    length = size_of(Dim("length", low, high, typical))
    shape = (1, 8, length, element)
    blocks = _sides((length, length), (element, element), CPU)
    found = ["kernel" if is_cheaper_on_memory(shape, shape, shape, "f32") else "arithmetic"]
    found += [f"{row['BM']}x{row['BN']}" for row in blocks]
    assert " ".join(found) == expected
