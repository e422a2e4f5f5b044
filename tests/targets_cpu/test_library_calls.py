"""No operation of any element type becomes a call that no library answers: `fmaxf`, `fmodf`.

LLVM computes in f16 what is asked of values that came from f16, and has functions of libm alone for
some of that; which, it decides by types, by the number of lanes and by the instruction set.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from aotc import kernels
from aotc.kernels import driver
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

ELEMENTS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TOLERANCES = {torch.float16: 1e-3, torch.bfloat16: 1e-2, torch.float32: 1e-6, torch.float64: 1e-14}
LENGTHS = ((0, False), (1, False), (16, True), (64, False))
"""(elements, whether a mask leaves some out); 0: scalars."""


@triton.jit
def plain_kernel(x, y, out, n, N: tl.constexpr, IS_WIDE: tl.constexpr, IS_MASKED: tl.constexpr):
    """Operations that the front end has for every type of float."""
    i = tl.arange(0, N) if N else 0
    mask = (i < n) if IS_MASKED else None
    a, b = tl.load(x + i, mask=mask), tl.load(y + i, mask=mask)
    if IS_WIDE:
        a, b = a.to(tl.float32), b.to(tl.float32)
    step = N if N else 1
    tl.store(out + i, tl.maximum(a, b), mask=mask)
    tl.store(out + step + i, tl.minimum(a, b), mask=mask)
    tl.store(out + 2 * step + i, tl.maximum(a, b, tl.PropagateNan.ALL), mask=mask)
    tl.store(out + 3 * step + i, tl.minimum(a, b, tl.PropagateNan.ALL), mask=mask)
    tl.store(out + 4 * step + i, tl.clamp(a, -b, b), mask=mask)
    tl.store(out + 5 * step + i, tl.clamp(a, -b, b, tl.PropagateNan.ALL), mask=mask)
    tl.store(out + 6 * step + i, a % b, mask=mask)
    tl.store(out + 7 * step + i, tl.abs(a), mask=mask)
    tl.store(out + 8 * step + i, -a, mask=mask)
    tl.store(out + 9 * step + i, tl.where(a > b, a, b), mask=mask)
    tl.store(out + 10 * step + i, tl.maximum(a.to(tl.float64), b.to(tl.float64)), mask=mask)
    tl.store(out + 11 * step + i, a.to(tl.int64), mask=mask)
    tl.store(out + 12 * step + i, a.to(tl.int8), mask=mask)


@triton.jit
def wide_kernel(x, y, out, n, N: tl.constexpr, KIND: tl.constexpr, IS_MASKED: tl.constexpr):
    """Operations of f32 and f64, on values that came from narrower ones."""
    i = tl.arange(0, N) if N else 0
    mask = (i < n) if IS_MASKED else None
    a, b = tl.load(x + i, mask=mask).to(KIND), tl.load(y + i, mask=mask).to(KIND)
    step = N if N else 1
    tl.store(out + i, libdevice.copysign(a, b), mask=mask)
    tl.store(out + step + i, libdevice.trunc(a), mask=mask)
    tl.store(out + 2 * step + i, libdevice.rint(a), mask=mask)
    tl.store(out + 3 * step + i, libdevice.nearbyint(a), mask=mask)
    tl.store(out + 4 * step + i, libdevice.fmod(a, b), mask=mask)
    tl.store(out + 5 * step + i, tl.floor(a), mask=mask)
    tl.store(out + 6 * step + i, tl.ceil(a), mask=mask)
    tl.store(out + 7 * step + i, tl.sqrt(b), mask=mask)
    tl.store(out + 8 * step + i, tl.fma(a, b, a), mask=mask)
    tl.store(out + 9 * step + i, tl.exp(a), mask=mask)
    tl.store(out + 10 * step + i, tl.log(b), mask=mask)
    tl.store(out + 11 * step + i, tl.sin(a), mask=mask)
    tl.store(out + 12 * step + i, libdevice.round(a), mask=mask)


@pytest.fixture(params=["x86-64-v3", "x86-64-v4"])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every row that this processor has, one after the other."""
    row: str = request.param
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor is not {row}")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    with kernels.on_cpu():
        yield row
    for kernel in (plain_kernel, wide_kernel):
        kernel.device_caches.clear()


def _operands(element: torch.dtype, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(length)
    x = torch.randn(max(1, length), generator=numbers) * 5
    y = torch.rand(max(1, length), generator=numbers) * 3 + 0.5
    return x.to(element), y.to(element)


def _check(found: torch.Tensor, expected: list[torch.Tensor], count: int) -> None:
    tolerance = TOLERANCES[found.dtype]
    for row, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(
            row[:count], wanted.to(found.dtype)[:count], rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("element", ELEMENTS)
def test_operations_of_all_floats_need_no_library(
    element: torch.dtype, is_wide: bool, isa: str
) -> None:
    for length, is_masked in LENGTHS:
        x, y = _operands(element, length)
        count = max(1, length) - is_masked
        a, b = x.double(), y.double()
        expected = [a.maximum(b), a.minimum(b)] * 2
        expected += [a.clamp(-b, b)] * 2
        expected += [a.fmod(b), a.abs(), -a, a.maximum(b), a.maximum(b), a.trunc(), a.trunc()]
        for result in {element, torch.float32}:
            out = torch.zeros(13, max(1, length), dtype=result)
            plain_kernel[(1,)](x, y, out, count, N=length, IS_WIDE=is_wide, IS_MASKED=is_masked)
            _check(out, expected, count)


@pytest.mark.parametrize("kind", [tl.float32, tl.float64])
@pytest.mark.parametrize("element", ELEMENTS)
def test_operations_of_widened_values_need_no_library(
    element: torch.dtype, kind: tl.dtype, isa: str
) -> None:
    if element is torch.float64 and kind is tl.float32:
        pytest.skip("not wider")
    for length, is_masked in LENGTHS:
        x, y = _operands(element, length)
        count = max(1, length) - is_masked
        a, b = x.double(), y.double()
        expected = [a.copysign(b), a.trunc(), a.round(), a.round(), a.fmod(b), a.floor()]
        expected += [a.ceil(), b.sqrt(), a * b + a, a.exp(), b.log(), a.sin()]
        expected += [(a.abs() + 0.5).floor().copysign(a)]
        for result in {element, torch.float32}:
            out = torch.zeros(13, max(1, length), dtype=result)
            wide_kernel[(1,)](x, y, out, count, N=length, KIND=kind, IS_MASKED=is_masked)
            _check(out, expected, count)
