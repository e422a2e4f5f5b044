"""Elements at known distances from one lane to the next: right, and none beyond them is touched."""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest
import torch
import triton
import triton.language as tl
from closed_pages import beside_closed_pages

from aotc import kernels
from aotc.aot.ir.butterflies import passes
from aotc.aot.lower.placed.fourier import _sides_of_columns, _sides_of_pass
from aotc.aot.lower.tiles import power_above
from aotc.aot.rewrites.fourier import pass_roots
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import lower
from aotc.kernels import driver
from aotc.kernels.templates.fourier import rows as fourier
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

pytestmark = [pytest.mark.torch, pytest.mark.triton]
BLOCK, PROGRAMS = 64, 3
DTYPES = [torch.float32, torch.float64, torch.int8, torch.int64, torch.bfloat16]


@triton.jit
def picked(
    a, out, n, FIRST: tl.constexpr, DIVISOR: tl.constexpr, BY_QUOTIENT: tl.constexpr,
    BY_REMAINDER: tl.constexpr, BY_PLACE: tl.constexpr, PERIOD: tl.constexpr, LEAST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    y = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = FIRST + (y // DIVISOR) * BY_QUOTIENT + (y % DIVISOR) * BY_REMAINDER + y * BY_PLACE
    is_taken = (y < n) & (y % PERIOD >= LEAST)
    found = tl.load(a + place, mask=is_taken, other=3)
    tl.store(out + y, found, mask=y < n)


def places_of(y, divisor, by_quotient, by_remainder, by_place):
    return (y // divisor) * by_quotient + (y % divisor) * by_remainder + y * by_place


def drawn(generator):
    divisor, period = generator.choice((1, 2, 3, 4, 8, 16, 32)), generator.choice((1, 2, 4, 5))
    factors = [generator.choice((0, 0, 1, 2, 3, 4, -1, -2, 7, 32)) for _ in range(3)]
    return divisor, *factors, period, generator.randrange(period)


@pytest.mark.in_turn("row")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_drawn_places(row, seed, monkeypatch):
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor has no {row}")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    picked.device_caches.clear()
    generator = random.Random(seed)
    for _ in range(4):
        divisor, by_quotient, by_remainder, by_place, period, least = drawn(generator)
        dtype, count = generator.choice(DTYPES), generator.choice((192, 191, 130, 64, 40, 7, 1))
        y = torch.arange(count)
        places = places_of(y, divisor, by_quotient, by_remainder, by_place)
        is_taken = y % period >= least
        if not is_taken.any():
            continue
        low, high = int(places[is_taken].min()), int(places[is_taken].max())
        values = torch.randint(-100, 100, (high - low + 1,)).to(dtype)
        expected = torch.where(is_taken, values[(places - low).clamp(0, high - low)], 3).to(dtype)
        # Pages that cannot be read lie before the first element that is taken, or behind the last.
        for at_end in (False, True):
            with beside_closed_pages(values, at_end) as data:
                out = torch.zeros(count, dtype=dtype)
                with kernels.on_cpu():
                    picked[(PROGRAMS,)](
                        data, out, count, -low, divisor, by_quotient, by_remainder, by_place,
                        period, least, BLOCK,
                    )  # fmt: skip
            assert torch.equal(out, expected), (divisor, by_quotient, by_remainder, by_place)
    picked.device_caches.clear()


@pytest.mark.parametrize(
    ("divisor", "by_quotient", "by_remainder", "by_place", "loads"),
    [
        (1, 0, 0, 2, 2), (1, 0, 0, 3, 3), (1, 0, 0, 4, 4),
        (2, 1, 0, 0, 1), (2, 2, 0, 0, 2), (4, 0, 3, 0, 2),
    ],
)  # fmt: skip
def test_such_elements_are_not_looked_up(divisor, by_quotient, by_remainder, by_place, loads):
    names = ("FIRST", "DIVISOR", "BY_QUOTIENT", "BY_REMAINDER", "BY_PLACE", "PERIOD", "LEAST")
    values = (0, divisor, by_quotient, by_remainder, by_place, 1, 0)
    constants = {**dict(zip(names, values, strict=True)), "BLOCK": BLOCK}
    parameters = [("a", "*fp32"), ("out", "*fp32"), ("n", "i32")]
    parameters += [(name, "constexpr") for name in constants]
    ttir = toolchain.ttir_text(picked, parameters, constants)
    text = lower(ttir, ISAS["x86-64-v4"], no_alias=True).llvm_ir
    found = [line for line in text.splitlines() if " = load <" in line]
    assert len(found) == loads
    # What is left over at the end of the block has a mask, and is looked up.
    assert text.count("call <16 x float> @llvm.masked.gather") == 1


def of_transform(length, form):
    """Arguments of `fourier_rows` beside its pointers, for one row in one program."""
    count = length if form == "whole" else length // 2
    steps = passes(count)
    sides = [_sides_of_pass(count, each) for each in steps]
    keep = length // 2 + 1 if form == "reals" else length
    radices, done = zip(*steps, strict=True)
    return {
        "ROWS": 1, "N": count, "TURNS": length, "KEEP": keep, "SIGN": -1,
        "IS_REAL": form == "reals", "HAS_IM": form != "spectrum", "FORM": form, "STEP": 1,
        "FIRST_STEP": 2 if form == "reals" else 1, "ROW_STEP": 0, "RADICES": radices, "DONE": done,
        "HEIGHTS": tuple(each[0] for each in sides), "WIDTHS": tuple(each[1] for each in sides),
        "WIDTH": power_above(count if form == "spectrum" else keep), "PITCH": count + 1,
    }  # fmt: skip


LENGTHS = [9, 100, 512]
LENGTHS += [
    pytest.param(each, marks=pytest.mark.nightly) for each in (50, 96, 135, 256, 400, 1000, 2048)
]


@pytest.mark.in_turn("row")
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_transforms_touch_nothing_beside_their_rows(row, length, at_end, monkeypatch):
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor has no {row}")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    fourier.fourier_rows.device_caches.clear()
    generator = torch.Generator().manual_seed(length)
    for form in ("whole", "reals", "spectrum") if length % 2 == 0 else ("whole",):
        numbers = of_transform(length, form)
        given = length // 2 + 1 if form == "spectrum" else length
        parts = [torch.randn(given, generator=generator) for _ in range(2)]
        table = torch.from_numpy(pass_roots(-1, length, form)).float()
        values = [torch.full((numbers["KEEP"],), torch.nan) for _ in range(2)]
        scratch = [torch.full((numbers["PITCH"],), torch.nan) for _ in range(4)]
        with ExitStack() as stack:
            buffers = [
                stack.enter_context(beside_closed_pages(each.reshape(-1), at_end))
                for each in (*values, *parts, table, *scratch)
            ]
            with kernels.on_cpu():
                fourier.fourier_rows[(1,)](
                    *buffers[:5], **numbers, first_re_ptr=buffers[5], first_im_ptr=buffers[6],
                    second_re_ptr=buffers[7], second_im_ptr=buffers[8],
                )  # fmt: skip
            re, im = (each.clone() for each in buffers[:2])
        data = parts[0] if form == "reals" else torch.complex(*parts)
        if form == "spectrum":  # forward: of the conjugates
            exact = torch.fft.irfft(data.to(torch.complex128).conj(), length, norm="forward")
            torch.testing.assert_close(re.double(), exact, rtol=0, atol=1e-4)
        else:
            exact = torch.fft.fft(data.to(torch.complex128))[: numbers["KEEP"]]
            found = torch.complex(re.double(), im.double())
            torch.testing.assert_close(found, exact, rtol=0, atol=1e-4)
    fourier.fourier_rows.device_caches.clear()


@pytest.mark.in_turn("row")
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("length", [9, 12, 16, 25, 60, 100])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_short_transforms_touch_nothing_beside_their_rows(row, step, length, at_end, monkeypatch):
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor has no {row}")
    if step == 1 and length < 16:
        pytest.skip("rows of parts of less than a vector are transformed one by one")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    fourier.fourier_short.device_caches.clear()
    generator, rows, keep = torch.Generator().manual_seed(length), 37, length - length // 3
    sides, numbers = _sides_of_columns(length), {"ROWS": rows, "N": length, "KEEP": keep}
    numbers |= {"SIGN": -1, "STEP": step, "ROW_STEP": length * step, **sides, "BESIDE": 16}
    numbers |= {"TAKEN": power_above(length * step), "STORED": power_above(2 * keep)}
    pairs = torch.randn(rows, length, 2, generator=generator)
    data = [pairs] if step == 2 else [pairs[..., 0].contiguous(), pairs[..., 1].contiguous()]
    table = torch.from_numpy(pass_roots(-1, length, "whole")).float()
    own = [torch.full((2 * length * 16,), torch.nan) for _ in range(2)]
    given = [torch.full((rows, keep, 2), torch.nan), *data, table, *own]
    with ExitStack() as stack:
        buffers = [
            stack.enter_context(beside_closed_pages(each.reshape(-1), at_end)) for each in given
        ]
        out, re, *_ = buffers
        im = buffers[2] if step == 1 else re[1:]
        table, first, second = buffers[-3:]
        with kernels.on_cpu():
            fourier.fourier_short[(1,)](
                out, re, im, table, **numbers, first_ptr=first, second_ptr=second
            )
        found = torch.view_as_complex(out.clone().reshape(rows, keep, 2))
    exact = torch.fft.fft(torch.view_as_complex(pairs).to(torch.complex128))[:, :keep]
    torch.testing.assert_close(found.to(torch.complex128), exact, rtol=0, atol=1e-4)
    fourier.fourier_short.device_caches.clear()


@triton.jit
def joined_sides(a, b, out, both, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    is_there = lanes < n
    x = tl.load(a + lanes, mask=is_there)
    y = tl.load(b + lanes, mask=is_there)
    sides = tl.join(tl.join(x, y), tl.join(x + y, x * y))
    number = tl.arange(0, 2)[:, None] + 2 * tl.arange(0, 2)[None, :]
    to = lanes[:, None, None] + number[None, :, :] * BLOCK
    mask = is_there[:, None, None] & (number < 3)[None, :, :]
    tl.store(out + to, sides, mask=mask)
    turn = lanes[:, None] * 2 + tl.arange(0, 2)[None, :]
    tl.store(both + turn, tl.join(x, y), mask=is_there[:, None])


@pytest.mark.parametrize("count", [64, 50, 16, 1, 0])
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_sides_of_joins_are_stored_wherever_they_go(row, count, monkeypatch):
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor has no {row}")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    joined_sides.device_caches.clear()
    a, b = torch.randn(BLOCK), torch.randn(BLOCK)
    out, both = torch.full((4, BLOCK), -7.0), torch.full((BLOCK, 2), -7.0)
    with kernels.on_cpu():
        joined_sides[(1,)](a, b, out, both, count, BLOCK)
    expected = torch.full((4, BLOCK), -7.0)
    expected[:3, :count] = torch.stack([a, b, a + b])[:, :count]
    assert torch.equal(out, expected)
    assert torch.equal(both[:count], torch.stack([a, b], 1)[:count])
    assert (both[count:] == -7.0).all()
    joined_sides.device_caches.clear()
