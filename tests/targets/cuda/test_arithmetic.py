"""Rounding of floating-point arithmetic on a GPU, read from the PTX of kernels."""

import random
import re

import pytest

from aotc.aot.ir.ops import OPS
from aotc.aot.targets.cuda.arithmetic import separated
from aotc.aot.targets.cuda.compile import compile_kernel

pytest.importorskip("triton")

HEAD = """
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def joined(a, b):
    return a * b


@triton.jit
def kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(x + i), tl.load(x + N + i), tl.load(x + 2 * N + i)
"""
# What libdevice itself asks for within larger functions, as CUDA's own libraries do; the root is of
# asin and acos in Triton 3.9's, of (1 - |x|) / 2, 2⁻²⁵ or more where it is not chosen away.
OWN = {"ex2.approx.ftz.f32", "rcp.approx.ftz.f32", "rsqrt.approx.ftz.f32"}


def ptx_of(*lines: str, kind: str = "fp32") -> str:
    """PTX for sm_90 of a kernel with these lines."""
    source = HEAD + "".join(f"    {line}\n" for line in lines)
    params = (("x", f"*{kind}"), ("out", f"*{kind}"))
    return compile_kernel(source, "kernel", params, (("N", 128), ("num_warps", 4)), "sm_90").texts[
        "ptx"
    ]


def functions():
    """Rows of the table whose functions a kernel of f32 can call."""
    for row in OPS.values():
        of_two = row.operands in (1, 2) and "libdevice" in row.triton
        if row.kind == "pointwise" and (of_two or re.search(r"tl\.\w+\(\{0\}\)", row.triton)):
            yield row


def test_no_function_flushes_small_numbers():
    rows = list(functions())
    assert {"floor", "ceil", "fmod", "rsqrt", "exp2", "pow"} <= {row.name for row in rows}
    stores = [
        f"tl.store(out + {at} * N + i, {row.triton.format('a', 'b')})"
        for at, row in enumerate(rows)
    ]
    assert set(re.findall(r"[a-z0-9.]+\.ftz[a-z0-9.]*", ptx_of(*stores))) <= OWN


@pytest.mark.parametrize("text", ["tl.floor(d)", "tl.ceil(d)", "libdevice.fmod(d, 3.0)"])
def test_nor_does_one_behind_a_product(text):
    product = (
        "k = tl.arange(0, 16)",
        "d = tl.dot(tl.load(x + k[:, None] * 16 + k), tl.load(x + k[:, None] * 16 + k))",
        f"tl.store(out + k[:, None] * 16 + k, {text} + tl.exp2(d))",
    )
    assert set(re.findall(r"[a-z0-9.]+\.ftz[a-z0-9.]*", ptx_of(*product))) <= OWN


@pytest.mark.parametrize(("kind", "bits"), [("fp32", 32), ("fp64", 64)])
def test_a_product_that_is_read_twice_is_rounded_by_itself(kind, bits):
    """p - p is 0."""
    ptx = ptx_of(
        "p = tl.reduce(tl.reshape(a, (N // 2, 2)), 1, joined)",
        "q = b * c",
        "j = tl.arange(0, N // 2)",
        "tl.store(out + i, q - q)",
        "tl.store(out + N + j, p - p)",
        "tl.store(out + 2 * N + i, c - -(a * c))",
        kind=kind,
    )
    assert len(re.findall(rf"\bmul\.rn\.f{bits}\b", ptx)) >= 2
    assert len(re.findall(rf"\bfma\.rn\.f{bits}\b", ptx)) == 1  # c + a * c


def test_a_choice_of_products_that_is_read_twice_is_rounded():
    """p - p is 0."""
    ptx = ptx_of("p = tl.where(a > 0, b * c, c * 2.5)", "tl.store(out + i, p - p)")
    assert re.search(r"\bmul\.rn\.f32\b", ptx)
    assert "fma" not in ptx


VECTORS = """define void @f(<2 x double> %x, ptr %to, double %y) {{
  %1 = fmul <2 x double> %x, {factor}
{lines}
  ret void
}}
"""
READ = {  # lines that read a vector → whether several read one element
    "%2 = fsub <2 x double> %1, %1": True,
    "%2 = fsub <2 x double> %1, %x": False,
    "%2 = extractelement <2 x double> %1, i32 0\n"
    "  %3 = extractelement <2 x double> %1, i32 1\n  %4 = fadd double %2, %3": False,
    "%2 = extractelement <2 x double> %1, i64 1\n  %3 = fadd double %2, %2": True,
}


@pytest.mark.parametrize("lines", READ)
@pytest.mark.parametrize(
    "factor", ["%x", "splat (double 2.5)", "<double 2.5, double 0x3FD83091E6A7F7E6>"]
)
def test_products_of_vectors(lines, factor):
    """`fourier 202611278300040`: LLVM makes one of two products side by side."""
    text = VECTORS.format(factor=factor, lines=f"  {lines}")
    found = separated(text)
    assert (found != text) == READ[lines]
    if READ[lines]:
        calls = re.findall(r"= call double @llvm\.nvvm\.mul\.rn\.d\(double (%\S+), double", found)
        assert len(calls) == 2
        assert found.count(f"extractelement <2 x double> {factor}, i32") == 2 + 2 * (factor == "%x")
        assert re.search(
            r"^  %1 = insertelement <2 x double> %\S+, double %\S+, i32 1$", found, re.M
        )


def drawn(seed: int) -> tuple[list[str], int]:
    """Lines of a random kernel, and how many of its products have several readers."""
    generator = random.Random(seed)
    values, readers, products = ["a", "b", "c"], {}, []
    lines = []
    for at in range(12):
        left, right = generator.sample(values, 2) if at % 3 else generator.choices(values, k=2)
        operator = generator.choice("***+-")
        for each in (left, right):
            readers[each] = readers.get(each, 0) + 1
        lines.append(f"v{at} = {left} {operator} {right}")
        products += [f"v{at}"] * (operator == "*")
        values.append(f"v{at}")
    unread = [each for each in values[3:] if each not in readers]
    lines += [f"tl.store(out + {at} * N + i, {each})" for at, each in enumerate(unread)]
    return lines, len({each for each in products if readers.get(each, 0) > 1})


def test_random_kernels_fuse_products_of_one_reader_alone():
    fused = 0
    for seed in range(6):
        lines, apart = drawn(seed)
        ptx = ptx_of(*lines)
        assert len(re.findall(r"\bmul\.rn\.f32\b", ptx)) >= apart
        fused += len(re.findall(r"\bfma\.rn\.f32\b", ptx))
    assert fused


def test_names_count_within_one_function():
    text = "define float @f() {{\n  %1 = fmul float %a, {}\n  ret float %1\n}}\n"
    both = text.format("%b") + text.format("%c").replace("@f", "@g")
    assert separated(both) == both
    twice = both.replace("ret float %1", "%2 = fsub nnan float %1, %1\n  ret float %2", 1)
    assert separated(twice).count("llvm.nvvm.mul.rn.f") == 2  # one call, one declaration
    assert "%1 = fmul float %a, %c" in separated(twice)
