"""Sums over windows: right for any sizes, and rows beside each other share what they load."""

from __future__ import annotations

import random

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import lower
from aotc.kernels import driver
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

pytestmark = [pytest.mark.torch, pytest.mark.triton]


@triton.jit
def window(
    a, w, out, CHANNELS: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    XBLOCK: tl.constexpr, YBLOCK: tl.constexpr,
):  # fmt: skip
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    y = tl.arange(0, YBLOCK)[None, :]
    inside = (x < CHANNELS * H) & (y < W)
    HIGH: tl.constexpr = H + K - 1
    WIDE: tl.constexpr = W + K - 1
    first = (x // H) * (HIGH * WIDE) + (x % H) * WIDE + y
    total = tl.zeros((XBLOCK, YBLOCK), tl.float32)
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            value = tl.load(a + first + (i * WIDE + j), mask=inside)
            factor = tl.load(w + (x // H) * (K * K) + (i * K + j), mask=x < CHANNELS * H)
            total = tl.fma(value, factor, total)
    tl.store(out + x * W + y, total, mask=inside)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_drawn_windows(row, seed, monkeypatch):
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor has no {row}")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    window.device_caches.clear()
    generator = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(2):
        channels, high = generator.choice((1, 2, 5)), generator.choice((1, 2, 7, 8, 14, 33))
        wide, size = generator.choice((5, 16, 33, 56, 64, 100)), generator.choice((1, 3, 5))
        data = torch.randn(channels, high + size - 1, wide + size - 1)
        if generator.random() < 0.3:
            data[0, 0, 0], data[-1, -1, -1] = float("nan"), float("inf")
        factors = torch.randn(channels, size, size)
        # Behind the result lies what no store may touch.
        out = torch.full((channels * high * wide + 64,), 7.0)
        lanes = 1 << (wide - 1).bit_length()
        block = generator.choice((1, 2, 8, 16))
        with kernels.on_cpu():
            window[(-(-channels * high // block),)](
                data, factors, out, channels, high, wide, size, block, lanes
            )
        kept, found = out[channels * high * wide :], out[: channels * high * wide]
        true = torch.nn.functional.conv2d(
            data.double()[None], factors.double()[:, None], groups=channels
        )
        torch.testing.assert_close(
            found.reshape(true.shape), true.float(), rtol=1e-5, atol=1e-5, equal_nan=True
        )
        assert torch.equal(kept, torch.full((64,), 7.0))
    window.device_caches.clear()


def loads_of(row, **constants):
    """Where the text of a kernel loads vectors, and how many products it adds up for each."""
    parameters = [("a", "*fp32"), ("w", "*fp32"), ("out", "*fp32")]
    parameters += [(name, "constexpr") for name in constants]
    ttir = toolchain.ttir_text(window, parameters, constants)
    lines = lower(ttir, ISAS[row], no_alias=True).llvm_ir.splitlines()
    loads = [line.partition(" = ")[2] for line in lines if " = load <" in line]
    loads += [
        line.partition(" = ")[2] for line in lines if "@llvm.masked.load" in line and "=" in line
    ]
    return set(loads), sum("@llvm.fma.v" in line and "=" in line for line in lines)


def test_two_rows_share_their_loads():
    sizes = {"CHANNELS": 4, "H": 8, "W": 64, "K": 3, "XBLOCK": 8, "YBLOCK": 64}
    loads, products = loads_of("x86-64-v4", **sizes)
    assert products == 2 * 9  # four vectors of each of two rows
    assert len(loads) == 4 * 3  # of the four rows that both windows have
    # With 16 registers, or an odd number of rows, each row is computed by itself.
    for row, high in (("x86-64-v3", 8), ("x86-64-v4", 7)):
        loads, products = loads_of(row, **{**sizes, "H": high})
        assert products % 9 == 0
        assert len(loads) == products
