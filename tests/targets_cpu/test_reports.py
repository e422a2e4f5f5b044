"""Prints and assertions of kernels: lines as a GPU prints them, errors with the source's line."""

from __future__ import annotations

import importlib
import itertools
import linecache
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.aot.errors import KernelAsserted


@pytest.fixture(autouse=True, scope="module")
def on_cpu() -> Iterator[None]:
    with kernels.on_cpu():
        yield


@triton.jit
def print_kernel(x, scalar, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    value = tl.load(x + tl.program_id(0) * M * N + i[:, None] * N + j[None, :])
    tl.device_print("x", value)
    if tl.program_id(0) == 1:
        tl.device_print("both", scalar, tl.sum(tl.sum(value, 1), 0))
        tl.device_print("nothing")


@triton.jit
def print_hex_kernel(x, N: tl.constexpr):
    tl.device_print("hex", tl.load(x + tl.arange(0, N)), hex=True)


@triton.jit
def assert_kernel(x, limit, out, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    at = tl.program_id(0) * M * N + i[:, None] * N + j[None, :]
    value = tl.load(x + at)
    tl.device_assert(value < limit, "below the limit", mask=value != 7)
    tl.store(out + at, value + 1)


@triton.jit
def scalar_assert_kernel(x, out, n):
    for i in range(n):
        value = tl.load(x + i)
        tl.device_assert(value >= 0, "not negative")
        tl.store(out + i, value)


@triton.jit
def many_kernel(n):
    for i in range(n):
        tl.device_print("i", i)


def lines_of(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return sorted(capfd.readouterr().out.splitlines())


@pytest.mark.parametrize("kind", [torch.int32, torch.int8, torch.float32, torch.bfloat16], ids=str)
def test_elements_are_printed_with_their_places(
    kind: torch.dtype, capfd: pytest.CaptureFixture[str]
) -> None:
    x = torch.arange(-40, 40).to(kind)
    print_kernel[(2,)](x, 5, M=4, N=16)
    after = "" if kind in (torch.int32, torch.int8) else ".000000"
    expected = [
        f"pid ({p}, 0, 0) idx ({i}, {j:2}) x: {p * 64 + i * 16 + j - 40}{after}"
        for p, i, j in itertools.product(range(2), range(4), range(16))
        if p * 64 + i * 16 + j < 80
    ]
    found = lines_of(capfd)
    assert set(expected) <= set(found)
    assert "pid (1, 0, 0) idx () both: (operand 0) 5" in found
    assert "pid (1, 0, 0) nothing" in found


@pytest.mark.parametrize(("kind", "digits"), [(torch.int16, 4), (torch.int64, 16)])
def test_integers_are_printed_in_hex(
    kind: torch.dtype, digits: int, capfd: pytest.CaptureFixture[str]
) -> None:
    x = torch.tensor([0, 1, -1, 255], dtype=kind)
    print_hex_kernel[(1,)](x, N=4)
    expected = (0, 1, (1 << 4 * digits) - 1, 255)
    assert lines_of(capfd) == [
        f"pid (0, 0, 0) idx ({i}) hex: 0x{value:0{digits}x}" for i, value in enumerate(expected)
    ]


def test_prints_beyond_the_buffer_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    many_kernel[(1,)]((1 << 17) + 5)
    assert "5 more reports of `many_kernel` are left out" in capfd.readouterr().out


def line_of(text: str) -> str:
    lines = linecache.getlines(__file__)
    return f"{__file__}:{next(i for i, x in enumerate(lines, 1) if text in x)}"


@pytest.mark.parametrize("place", [0, 5, 40, 127])
def test_an_assertion_names_its_line_and_place(place: int) -> None:
    x, out = torch.zeros(128), torch.zeros(128)
    assert_kernel[(2,)](x, 5.0, out, M=4, N=16, debug=True)
    x[place] = 9
    with pytest.raises(KernelAsserted, match="below the limit") as caught:
        assert_kernel[(2,)](x, 5.0, out, M=4, N=16, debug=True)
    error = caught.value
    assert error.line == line_of('"below the limit"')
    assert error.program == (place // 64, 0, 0)
    assert error.element == (place % 64 // 16, place % 16)
    x[place] = 7  # left out by the mask
    assert_kernel[(2,)](x, 5.0, out, M=4, N=16, debug=True)


def test_assertions_are_left_out_without_debug() -> None:
    x, out = torch.full((128,), 9.0), torch.zeros(128)
    assert_kernel[(2,)](x, 5.0, out, M=4, N=16)
    assert (out == 10).all()


def test_a_program_ends_at_its_assertion() -> None:
    x, out = torch.arange(8), torch.full((8,), -5)
    x[3] = -1
    with pytest.raises(RuntimeError, match=re.escape("not negative")):
        scalar_assert_kernel[(1,)](x, out, 8, debug=True)
    assert out.tolist() == [0, 1, 2, -5, -5, -5, -5, -5]


@triton.jit
def arithmetic_kernel(x, y, out, WHICH: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    if WHICH == "add":
        c = a + b
    elif WHICH == "sub":
        c = a - b
    else:
        c = a * b
    tl.store(out + i, c)


@pytest.mark.parametrize("which", ["add", "sub", "mul"])
@pytest.mark.parametrize("kind", [torch.int32, torch.uint32, torch.int16], ids=str)
def test_integers_that_overflow_are_found(which: str, kind: torch.dtype) -> None:
    largest, least = torch.iinfo(kind).max, torch.iinfo(kind).min
    y, out = torch.ones(16, dtype=kind), torch.zeros(16, dtype=kind)
    x = torch.full((16,), 3, dtype=kind)
    arithmetic_kernel[(1,)](x, y, out, WHICH=which, N=16, debug=True)
    x[5] = {"add": largest, "sub": least, "mul": largest}[which]
    y[5] = 2
    with pytest.raises(KernelAsserted, match=f"overflow detected for operation {which}") as caught:
        arithmetic_kernel[(1,)](x, y, out, WHICH=which, N=16, debug=True)
    assert caught.value.element == (5,)


@triton.jit
def combining_kernel(x, out, HOW: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + j[None, :])
    if HOW == "rows":
        tl.store(out + i, tl.sum(a, 1))
    elif HOW == "columns":
        tl.store(out + j, tl.sum(a, 0))
    elif HOW == "all":
        tl.store(out, tl.sum(a))
    elif HOW == "running":
        tl.store(out + i[:, None] * N + j[None, :], tl.cumsum(a, 1))
    else:
        tl.store(out + i[:, None] * N + j[None, :], tl.cumsum(a, 0))


SUMS = {
    "rows": lambda x: x.sum(1),
    "columns": lambda x: x.sum(0),
    "all": lambda x: x.sum().reshape(1),
    "running": lambda x: x.cumsum(1),
    "running down": lambda x: x.cumsum(0),
}


@pytest.mark.parametrize("size", [(1, 4), (4, 2), (8, 128), (64, 16)], ids=str)
@pytest.mark.parametrize("how", SUMS)
def test_sums_of_integers_that_overflow_are_found(how: str, size: tuple[int, int]) -> None:
    """Their combination has an assertion under `debug=True`."""
    x = torch.arange(size[0] * size[1], dtype=torch.int32).reshape(size)
    out = torch.zeros(size[0] * size[1], dtype=torch.int32)
    combining_kernel[(1,)](x, out, HOW=how, M=size[0], N=size[1], debug=True)
    expected = SUMS[how](x).int().flatten()
    assert torch.equal(out[: expected.numel()], expected)
    x[-1, -2:] = x[-2:, -1] = 2**30 + 2**29
    if (SUMS[how](x.long()) >= 2**31).any():
        with pytest.raises(KernelAsserted, match="overflow detected for operation add"):
            combining_kernel[(1,)](x, out, HOW=how, M=size[0], N=size[1], debug=True)
    else:
        combining_kernel[(1,)](x, out, HOW=how, M=size[0], N=size[1], debug=True)


def module_at(folder: Path) -> ModuleType:
    """A kernel and a function that it calls, each in a file of the folder."""
    folder.mkdir()
    (folder / "checks_called.py").write_text(CALLED)
    (folder / "checks_kernel.py").write_text(KERNEL)
    names = ("checks_called", "checks_kernel")
    sys.path.insert(0, str(folder))
    try:
        for name in names:
            sys.modules.pop(name, None)
        return importlib.import_module(names[1])
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)


CALLED = """
import triton
import triton.language as tl

@triton.jit
def refuse_negative(value):
    tl.device_assert(value >= 0, "not negative")
"""
KERNEL = """
import triton
import triton.language as tl
import checks_called

@triton.jit
def check(x, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.device_assert(value < 9, "less than nine")
    checks_called.refuse_negative(value)
"""


def test_a_kernel_of_the_cache_names_the_files_of_this_checkout(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("first", "second", "third"):
        module = module_at(tmp_path / name)
        for value, file, line in ((9, "checks_kernel.py", 9), (-1, "checks_called.py", 7)):
            with pytest.raises(KernelAsserted) as caught:
                module.check[(1,)](torch.full((4,), value), N=4, debug=True)
            assert caught.value.line == f"{tmp_path / name / file}:{line}"
    assert len(list((tmp_path / "cache").glob("*/check.so"))) == 1
