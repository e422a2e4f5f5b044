"""Repairs of the PTX between LLVM and the assembler."""

import re

import pytest

from aotc.aot.targets.cuda.ptx import halved, repaired, waiting
from aotc.aot.targets.toolchain import ToolchainError

pytest.importorskip("triton")

# LLVM keeps these indices in pairs of 16 bits; a sum of a pair came out without its constant.
PACKED = """
import triton
import triton.language as tl


@triton.jit
def packed(data, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    first = (at % 22 >= 10) & (at % 22 < 17)
    second = (at % 22 >= 14) & (at % 22 < 21)
    left = tl.load(data + at, mask=first, other=0)
    right = tl.load(data + at + SIZE, mask=second, other=0)
    tl.store(out + at, left + right)
"""
ENTRY = ".visible .entry k(\n)\n{\n"


def test_pairs_of_integers_are_computed_as_two():
    pairs = "\tadd.s16x2 \t%r3, %r1, %r2;\n\tmin.u16x2 \t%r4, %r3, -851978;\n"
    text = pairs + "\tadd.s16 \t%rs1, %rs2, 1;\n"
    found = halved(text)
    assert not re.search(r"^\t\w+\.[su]16x2", found, re.MULTILINE)
    assert found.count("add.s16 \t%half") == found.count("min.u16 \t%half") == 2
    assert "mov.b32 \t{%half2, %half3}, -851978;" in found
    assert "mov.b32 \t%r4, {%half0, %half1};" in found
    assert found.endswith("\tadd.s16 \t%rs1, %rs2, 1;\n")


def test_pairs_of_floats_stay():
    text = "\tadd.rn.f16x2 \t%r3, %r1, %r2;\n\tmin.f16x2 \t%r3, %r1, %r2;\n"
    assert halved(text) == text


def test_a_kernel_with_pairs_is_assembled_without_them():
    from aotc.aot.targets.cuda.compile import compile_kernel

    params = (("data", "*i64"), ("out", "*i64"))
    config = (("SIZE", 512), ("num_warps", 1))
    text = dict(compile_kernel(PACKED, "packed", params, config, "sm_90").texts)["ptx"]
    assert "// add.s16x2" in text  # else this kernel proves nothing
    assert not re.search(r"^\t\w+\.[su]16x2", text, re.MULTILINE)


def test_only_kernels_of_9_0_and_later_wait():
    assert repaired(ENTRY, 89) == ENTRY
    assert repaired(ENTRY, 90) == ENTRY + "\tgriddepcontrol.wait;\n"


@pytest.mark.parametrize("text", ["", ENTRY + ENTRY])
def test_not_one_entry_is_an_error(text):
    with pytest.raises(ToolchainError, match="entries, expected 1"):
        waiting(text)
