"""Rows of several parts: each part is read where it is and nowhere else, without masks but
where one begins or ends."""

from __future__ import annotations

import random

import pytest
import torch
import triton
import triton.language as tl
from closed_pages import beside_closed_pages

from aotc import kernels
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import lower
from aotc.kernels import driver
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

pytestmark = [pytest.mark.torch, pytest.mark.triton]
DTYPES = [torch.float32, torch.float64, torch.int8, torch.int64, torch.bfloat16]


@triton.jit
def parts(
    a, b, out, rows, COLUMNS: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
    PERIOD: tl.constexpr, IS_ONE: tl.constexpr, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr,
):  # fmt: skip
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    y = tl.arange(0, YBLOCK)[None, :]
    if not IS_ONE:
        y += tl.program_id(1) * YBLOCK
    inside = (x < rows) & (y < COLUMNS)
    is_first = y < FIRST
    left = tl.load(a + x * FIRST + y, mask=inside & is_first)
    WIDTH: tl.constexpr = SECOND - FIRST
    is_read = x % PERIOD < 2
    is_second = (y >= FIRST) & (y - FIRST < WIDTH)
    right = tl.load(b + x * WIDTH + y - FIRST, mask=inside & is_second & is_read, other=5)
    tl.store(out + x * COLUMNS + y, tl.where(is_first, left, right), mask=inside)


def expected_of(a, b, columns, period):
    rows, width = b.shape
    right = torch.full((rows, columns - a.shape[1]), 5, dtype=a.dtype)
    is_read = torch.arange(rows) % period < 2
    right[is_read, :width] = b[is_read]
    return torch.cat([a, right], 1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_drawn_parts(row, seed, monkeypatch):
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor has no {row}")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    parts.device_caches.clear()
    generator = random.Random(seed)
    for _ in range(2):
        columns = generator.choice((5, 16, 31, 48, 64, 77, 100, 128, 200))
        first, second = sorted(generator.choices(range(1, columns + 1), k=2))
        rows, period = generator.choice((1, 3, 7, 16)), generator.choice((2, 3, 5))
        block = 1 << max(0, columns - 1).bit_length()
        is_one = generator.random() < 0.5
        lanes = block if is_one else generator.choice((16, 64, block))
        dtype = generator.choice(DTYPES)
        a, b = (
            torch.randint(-100, 100, (rows, width)).to(dtype) for width in (first, second - first)
        )
        expected = expected_of(a, b, columns, period)
        for at_end in (False, True):
            with (
                beside_closed_pages(a.flatten(), at_end) as left,
                beside_closed_pages(b.flatten() if b.numel() else a.flatten(), at_end) as right,
                beside_closed_pages(torch.zeros(rows * columns, dtype=dtype), at_end) as out,
            ):
                with kernels.on_cpu():
                    parts[(-(-rows // 4), -(-columns // lanes))](
                        left, right, out, rows, columns, first, second, period, is_one, 4, lanes
                    )
                found = out.clone().reshape(rows, columns)
            assert torch.equal(found, expected), (columns, first, second, rows, lanes, dtype)
    parts.device_caches.clear()


def text_of(row, **constants):
    parameters = [("a", "*fp32"), ("b", "*fp32"), ("out", "*fp32"), ("rows", "i32")]
    parameters += [(name, "constexpr") for name in constants]
    ttir = toolchain.ttir_text(parts, parameters, constants)
    return lower(ttir, ISAS[row], no_alias=True).llvm_ir


@pytest.mark.parametrize("is_one", [False, True])
def test_masks_stand_where_a_part_begins_or_ends_alone(is_one):
    sizes = {"COLUMNS": 128, "FIRST": 40, "SECOND": 128, "PERIOD": 3}
    text = text_of("x86-64-v4", **sizes, IS_ONE=is_one, XBLOCK=4, YBLOCK=128)
    # The third vector has lanes of both parts; the others are copies, from an address that a row's
    # condition chooses.
    masked = text.count("@llvm.masked.load.v16f32")
    plain = [line for line in text.splitlines() if " = load <16 x float>" in line]
    assert masked == 2 if is_one else masked <= 6
    assert len(plain) == 2
    assert "@zeros64" in text
