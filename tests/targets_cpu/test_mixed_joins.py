"""Tensors that are joined and then reshaped, of which few elements are stored: where an element may
be of either of two, both are computed, and so on for what these were joined of."""

from __future__ import annotations

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
ROW, KEPT = 256, 7


@triton.jit
def exchanged(a, b, out, ROW: tl.constexpr, KEPT: tl.constexpr, STEPS: tl.constexpr):
    lanes = tl.arange(0, ROW)
    x, y = tl.load(a + lanes), tl.load(b + lanes)
    for _ in tl.static_range(STEPS):
        halves = tl.reshape(tl.permute(tl.join(x, y), (1, 0)), (ROW, 2))
        even, odd = tl.split(halves)
        x, y = even + odd * 0.5, even - odd
    pairs = lanes[:, None] * 2 + tl.arange(0, 2)[None, :]
    tl.store(out + pairs, tl.join(x, y), mask=(lanes < KEPT)[:, None])


@triton.jit
def concatenated(a, out, ROW: tl.constexpr, KEPT: tl.constexpr, STEPS: tl.constexpr):
    x = tl.load(a + tl.arange(0, ROW))
    for _ in tl.static_range(STEPS):
        x = tl.cat(x * 0.5 + 1.0, x * x - 1.0, can_reorder=True)
    lanes = tl.arange(0, ROW << STEPS)
    tl.store(out + lanes, x, mask=lanes % (lanes.shape[0] // KEPT) == 3)


def _exchanged(a, b, steps):
    for _ in range(steps):
        even, odd = torch.cat([a, b]).reshape(-1, 2).unbind(-1)
        a, b = even + odd * 0.5, even - odd
    return a, b


def _concatenated(x, steps):
    for _ in range(steps):
        x = torch.cat([x * 0.5 + 1, x * x - 1])
    return x


@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_numbers_of_mixed_joins(row, monkeypatch):
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor has no {row}")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    a, b = torch.randn(ROW), torch.randn(ROW)
    for kernel in (exchanged, concatenated):
        kernel.device_caches.clear()
    for steps in (0, 1, 4):
        pairs, whole = torch.full((ROW, 2), -7.0), torch.full((ROW << steps,), -7.0)
        with kernels.on_cpu():
            exchanged[(1,)](a, b, pairs, ROW, KEPT, steps)
            concatenated[(1,)](a, whole, ROW, KEPT, steps)
        expected = torch.stack(_exchanged(a.double(), b.double(), steps), -1)
        torch.testing.assert_close(pairs[:KEPT].double(), expected[:KEPT], rtol=1e-5, atol=1e-5)
        assert (pairs[KEPT:] == -7.0).all()
        is_kept = torch.arange(ROW << steps) % ((ROW << steps) // KEPT) == 3
        expected = _concatenated(a.double(), steps)
        scale = expected.abs().clamp(min=1)
        assert ((whole.double() - expected) / scale)[is_kept].abs().max() < 1e-5
        assert (whole[~is_kept] == -7.0).all()
    for kernel in (exchanged, concatenated):
        kernel.device_caches.clear()


@pytest.mark.parametrize("name", ["exchanged", "concatenated"])
@pytest.mark.parametrize("row", ["x86-64-v3", "x86-64-v4"])
def test_code_grows_with_the_number_of_joins(name, row):
    kernel = {"exchanged": exchanged, "concatenated": concatenated}[name]
    params = {each: "*fp32" for each in kernel.arg_names if each in ("a", "b", "out")}

    def lines_of(steps: int) -> int:
        numbers = {"ROW": ROW, "KEPT": KEPT, "STEPS": steps}
        types = [(each, params.get(each, "constexpr")) for each in kernel.arg_names]
        ttir = toolchain.ttir_text(kernel, types, numbers)
        return lower(ttir, ISAS[row], no_alias=True).llvm_ir.count("\n")

    none, some, more = map(lines_of, (0, 4, 8))
    assert more - none < 3 * (some - none)
