"""8-bit floats on the CPU: every pattern widened, and numbers rounded to each, as torch does."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.aot.targets.cpu.linear import EIGHT_BITS
from aotc.aot.targets.cpu.ttir import Dense, parse_attribute

FORMS = {
    "f8E5M2": torch.float8_e5m2,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz,
}
WIDE = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
COUNT = 4096


@pytest.fixture(autouse=True, scope="module")
def on_cpu() -> Iterator[None]:
    with kernels.on_cpu():
        yield


@triton.jit
def cast_kernel(x, y, n, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    kind: tl.constexpr = y.dtype.element_ty
    tl.store(y + i, value.to(kind, fp_downcast_rounding=ROUNDING), mask=i < n)


@triton.jit
def constant_kernel(y, VALUE: tl.constexpr):
    value = tl.full((16,), VALUE, tl.float32).to(y.dtype.element_ty)
    tl.store(y + tl.arange(0, 16), value)


@triton.jit
def arithmetic_kernel(x, y):
    i = tl.arange(0, 256)
    value = tl.load(x + i)
    other = tl.load(x + 255 - i)
    chosen = tl.where(value.to(tl.float32) < other.to(tl.float32), tl.abs(value), other)
    tl.store(y + i, chosen)


def patterns(form: torch.dtype) -> torch.Tensor:
    """All 256, and as they are read."""
    return torch.arange(256, dtype=torch.int32).to(torch.uint8).view(form)


def cast(x: torch.Tensor, wanted: torch.dtype, rounding: str | None = None) -> torch.Tensor:
    y = torch.empty(x.numel(), dtype=wanted)
    cast_kernel[(-(-x.numel() // 256),)](x, y, x.numel(), rounding, BLOCK=256)
    return y


def largest(form: torch.dtype) -> float:
    return float(torch.finfo(form).max)


def numbers(form: torch.dtype, kind: torch.dtype) -> torch.Tensor:
    """Each number of a form, what lies half between two, their neighbours, and random ones."""
    exact = patterns(form).double()
    exact = exact[exact.isfinite()].sort().values
    middle = (exact[1:] + exact[:-1]) / 2
    known = torch.cat([exact, middle]).to(kind)
    ends = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1e5, -3e4], dtype=kind)
    bits = known.view(torch.int32 if kind is torch.float32 else torch.int16)
    up, down = ((bits + step).view(kind) for step in (1, -1))
    generator = torch.Generator().manual_seed(8)
    scale = torch.exp2(torch.randint(-18, 18, (COUNT,), generator=generator))
    some = torch.randn(COUNT, generator=generator) * scale
    return torch.cat([known, up, down, ends, some.to(kind)])


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    nan = expected.float().isnan()
    assert (found.float().isnan() == nan).all()
    bits = (x.view(torch.uint8)[~nan] for x in (found, expected))
    torch.testing.assert_close(*bits, rtol=0, atol=0)


@pytest.mark.parametrize("wanted", WIDE, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_every_pattern_is_widened_exactly(name: str, wanted: torch.dtype) -> None:
    given = patterns(FORMS[name])
    torch.testing.assert_close(
        cast(given, wanted), given.float().to(wanted), rtol=0, atol=0, equal_nan=True
    )
    is_finite = given.float().isfinite() | given.float().isnan()
    assert_same(cast(cast(given, wanted), given.dtype)[is_finite], given[is_finite])


@pytest.mark.parametrize("kind", WIDE[:3], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_numbers_are_rounded_to_the_nearest(name: str, kind: torch.dtype) -> None:
    form = FORMS[name]
    given = numbers(form, kind)
    limit = largest(form)
    assert_same(cast(given, form), given.float().clamp(-limit, limit).to(form))


def test_numbers_are_cut_off() -> None:
    form = torch.float8_e5m2
    given = numbers(form, torch.float32)
    found = cast(given, form, "rtz").float()
    values = patterns(form).float()
    sizes = values[values.isfinite() & (values >= 0)].sort().values
    size = given.abs().clamp(max=largest(form))
    expected = sizes[torch.searchsorted(sizes, size.nan_to_num(0.0), right=True) - 1]
    expected = torch.copysign(expected, given).where(~given.isnan(), torch.nan)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("value", [0.0, 1.5, -0.3, 1e9, 2.0**-17])
@pytest.mark.parametrize("name", FORMS)
def test_constants_are_rounded_alike(name: str, value: float) -> None:
    form = FORMS[name]
    found = torch.empty(16, dtype=form)
    constant_kernel[(1,)](found, VALUE=value)
    limit = largest(form)
    assert_same(found, torch.full((16,), value).clamp(-limit, limit).to(form))


@pytest.mark.parametrize("name", FORMS)
def test_arithmetic_is_in_f32(name: str) -> None:
    form = FORMS[name]
    given, found = patterns(form), torch.empty(256, dtype=form)
    arithmetic_kernel[(1,)](given, found)
    wide = given.float()
    expected = torch.where(wide < wide.flip(0), wide.abs(), wide.flip(0))
    assert_same(found, expected.to(form))


@pytest.mark.parametrize("name", FORMS)
def test_texts_of_constants_are_read(name: str) -> None:
    values = patterns(FORMS[name]).float().tolist()
    for bits, value in enumerate(values):
        found = EIGHT_BITS[name].decoded(bits)
        assert found == value or (found != found and value != value)
        assert parse_attribute(f"0x{bits:02X} : {name}") in (found,) or found != found
        if math.isfinite(found):
            assert EIGHT_BITS[name].encoded(found) == bits
    dense = parse_attribute(f'dense<"0x3C40"> : tensor<2x{name}>')
    assert dense == Dense((values[0x3C], values[0x40]))
