"""The toolchain file: TTIR text without a GPU, objects, deterministic links, typed refusals."""

from __future__ import annotations

import ctypes

import pytest

pytest.importorskip("triton")

from aotc.aot.targets import elf, toolchain

HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice

"""
ADD = (
    HEADER
    + """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    value = tl.load(x + offset, mask=mask) + libdevice.tanh(tl.load(y + offset, mask=mask))
    tl.store(out + offset, value, mask=mask)
"""
)
SOFTMAX = (
    HEADER
    + """
@triton.jit
def softmax(x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < 1000
    value = tl.load(x + row * 1000 + column, mask=mask, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * 1000 + column, power / tl.sum(power, axis=0), mask=mask)
"""
)
MATMUL = (
    HEADER
    + """
@triton.jit
def matmul(a, b, c, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.arange(0, M)
    columns = tl.arange(0, N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, 100, BLOCK_K):
        mask = start + inner < 100
        left = tl.load(a + rows[:, None] * 100 + start + inner[None, :], mask=mask[None, :])
        right = tl.load(b + (start + inner[:, None]) * N + columns[None, :], mask=mask[:, None])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)
"""
)
LAYER_NORM = (
    HEADER
    + """
@triton.jit
def layer_norm(x, weight, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row * BLOCK + column)
    mean = tl.sum(value, axis=0) / BLOCK
    centered = value - mean
    scale = tl.rsqrt(tl.sum(centered * centered, axis=0) / BLOCK + 1e-5)
    tl.store(out + row * BLOCK + column, centered * scale * tl.load(weight + column))
"""
)
FLOATS = "*fp32"
KERNELS = {
    "add": (
        ADD,
        [("x", FLOATS), ("y", FLOATS), ("out", FLOATS), ("n", "i32"), ("BLOCK", "constexpr")],
        {"BLOCK": 256},
        ['"tt.load"', '"tt.store"', '"tt.extern_elementwise"', "__nv_tanhf"],
    ),
    "softmax": (
        SOFTMAX,
        [("x", FLOATS), ("out", FLOATS), ("BLOCK", "constexpr")],
        {"BLOCK": 1024},
        ['"tt.reduce"', '"math.exp"', '"arith.divf"'],
    ),
    "matmul": (
        MATMUL,
        [
            ("a", FLOATS),
            ("b", FLOATS),
            ("c", FLOATS),
            ("M", "constexpr"),
            ("N", "constexpr"),
            ("BLOCK_K", "constexpr"),
        ],
        {"M": 4, "N": 8, "BLOCK_K": 2},
        ['"tt.dot"', '"scf.for"', "scf.yield"],
    ),
    "layer_norm": (
        LAYER_NORM,
        [("x", FLOATS), ("weight", FLOATS), ("out", FLOATS), ("BLOCK", "constexpr")],
        {"BLOCK": 512},
        ['"math.rsqrt"', '"tt.splat"'],
    ),
}
STORE_SUM = """
define void @body(ptr %args, i32 %x, i32 %y, i32 %z, ptr %grid, ptr %scratch) #0 {
  %out = load ptr, ptr %args, align 8
  %sum = add i32 %x, %y
  %sum2 = add i32 %sum, %z
  store i32 %sum2, ptr %out, align 4
  ret void
}
attributes #0 = { nounwind noinline }
"""


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_ttir_is_generic_text(name: str) -> None:
    source, params, constants, expected = KERNELS[name]
    text = toolchain.ttir_text(toolchain.load_kernel(source, name), params, constants)
    for fragment in expected:
        assert fragment in text
    # The pretty form names operations without quotes.
    assert "tt.func public" not in text
    assert "loc(" not in text


def test_ttir_text_repeats() -> None:
    source, params, constants, _ = KERNELS["softmax"]
    texts = {
        toolchain.ttir_text(toolchain.load_kernel(source, "softmax"), params, constants)
        for _ in range(2)
    }
    assert len(texts) == 1


def test_triton_error_is_typed() -> None:
    source = SOFTMAX.replace("tl.exp(", "tl.no_such_function(")
    kernel = toolchain.load_kernel(source, "softmax")
    with pytest.raises(toolchain.ToolchainError, match="no_such_function"):
        toolchain.ttir_text(kernel, KERNELS["softmax"][1], {"BLOCK": 1024})


@pytest.mark.parametrize(("source", "reason"), [("x = 1", "define"), ("x = ", "SyntaxError")])
def test_source_without_the_kernel_is_typed(source: str, reason: str) -> None:
    with pytest.raises(toolchain.ToolchainError, match=reason):
        toolchain.load_kernel(source, "kernel")


def test_object_runs_after_link(tmp_path) -> None:
    compiled = toolchain.compile_object(STORE_SUM, "k0123", "x86-64-v3")
    library = toolchain.link({"k0123": compiled.data})
    assert elf.exported_symbols(library) == {"k0123"}
    path = tmp_path / "k.so"
    path.write_bytes(library)
    result = ctypes.c_int32()
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(result))
    function = ctypes.CDLL(str(path)).k0123
    function.argtypes = [ctypes.c_void_p, *[ctypes.c_int] * 3, *[ctypes.c_void_p] * 2]
    function(ctypes.addressof(arguments), 1, 20, 300, None, None)
    assert result.value == 321
    assert "k0123" in compiled.assembly
    assert "define" in compiled.llvm_ir


def test_equal_inputs_give_equal_bytes() -> None:
    compiled = [toolchain.compile_object(STORE_SUM, "k0", "x86-64-v4").data for _ in range(2)]
    other = toolchain.compile_object(STORE_SUM, "k1", "x86-64-v4").data
    assert compiled[0] == compiled[1]
    first = toolchain.link({"a": compiled[0], "b": other})
    second = toolchain.link({"b": other, "a": compiled[1]})
    assert first == second
    assert b"/tmp" not in first


def test_exports_of_one_module() -> None:
    text = """
define i32 @one.body() { ret i32 1 }
define i64 @two.body(i64 %a) { ret i64 %a }
"""
    exports = [
        toolchain.Export("one", "one.body", (), "i32"),
        toolchain.Export("two", "two.body", ("i64",), "i64"),
    ]
    library = toolchain.link({"m": toolchain.compile_module(text, exports, "x86-64-v3").data})
    assert elf.exported_symbols(library) == {"one", "two"}


def test_unknown_cpu_is_refused_before_llvm() -> None:
    with pytest.raises(toolchain.ToolchainError, match="expected one of x86-64-v2"):
        toolchain.compile_object(STORE_SUM, "k", "pentium9")


def test_undefined_symbol_is_refused() -> None:
    text = STORE_SUM.replace("store i32", "call void @no_such_symbol()\n  store i32")
    compiled = toolchain.compile_object(text + "declare void @no_such_symbol()", "k", "x86-64-v3")
    with pytest.raises(toolchain.ToolchainError, match="no_such_symbol"):
        toolchain.link({"k": compiled.data})


def test_syscall_may_be_undefined() -> None:
    text = STORE_SUM.replace("store i32", "call i64 (i64, ...) @syscall(i64 39)\n  store i32")
    compiled = toolchain.compile_object(text + "declare i64 @syscall(i64, ...)", "k", "x86-64-v3")
    assert elf.undefined_symbols(toolchain.link({"k": compiled.data})) == {"syscall"}


@pytest.mark.parametrize("data", [b"", b"MZ" * 40])
def test_bytes_that_are_not_elf_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ELF"):
        elf.undefined_symbols(data)
