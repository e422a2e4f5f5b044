"""Repairs of the PTX between LLVM and the assembler, as kernels need them; its texts are in
`tests/goldens/ptx`."""

import re

import pytest

from aotc.aot.targets.cuda.ptx import waiting
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


def test_a_kernel_with_pairs_is_assembled_without_them():
    from aotc.aot.targets.cuda.compile import compile_kernel

    params = (("data", "*i64"), ("out", "*i64"))
    config = (("SIZE", 512), ("num_warps", 1))
    text = dict(compile_kernel(PACKED, "packed", params, config, "sm_90").texts)["ptx"]
    assert "// add.s16x2" in text  # else this kernel proves nothing
    assert not re.search(r"^\t\w+\.[su]16x2", text, re.MULTILINE)


@pytest.mark.parametrize("text", ["", ENTRY + ENTRY])
def test_not_one_entry_is_an_error(text):
    with pytest.raises(ToolchainError, match="entries, expected 1"):
        waiting(text)


def test_every_thread_waits_before_anything_else():
    assert waiting(ENTRY) == ENTRY + "\tgriddepcontrol.wait;\n"


def test_a_kernel_that_waits_by_itself_waits_once():
    text = ENTRY + "\tld.global.b32 %r1, [%rd1];\n\tgriddepcontrol.wait; mov.b32 %r2, 0;\n"
    assert waiting(text) == text


def test_a_kernel_that_is_followed_early_says_so_before_it_waits():
    begin = "\tgriddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;\n"
    assert waiting(ENTRY, is_followed_early=True) == ENTRY + begin


@pytest.mark.parametrize("capability", [80, 90])
def test_it_is_an_option_of_the_launch(capability):
    from aotc.aot.targets.cuda.compile import compile_kernel

    params = (("data", "*i64"), ("out", "*i64"))
    config = (("SIZE", 512), ("num_warps", 1), ("is_followed_early", 1))
    text = compile_kernel(PACKED, "packed", params, config, f"sm_{capability}").texts["ptx"]
    assert ("griddepcontrol.launch_dependents" in text) == (capability >= 90)
