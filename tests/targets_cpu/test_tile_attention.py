"""Attention by tiles (AMX) and by pairs (AVX-512 BF16): products of bf16 beside f64."""

from __future__ import annotations

import pytest
import torch

from aotc import kernels
from aotc.kernels import driver
from aotc.kernels.templates.attention import heads
from aotc.runtime.drivers.cpu import driver as cpu

pytestmark = [pytest.mark.torch, pytest.mark.triton]
ROW, UNIT_ROUNDOFF = "x86-64-amx", 2.0**-8  # of bf16


@pytest.fixture(params=[ROW, "x86-64-v4-bf16", "x86-64-v3"])
def row(request, monkeypatch):
    if not cpu.ISA_FEATURES[request.param] <= cpu.features():
        pytest.skip(f"this processor is not {request.param}")
    monkeypatch.setattr(driver, "_isa", lambda: request.param)
    with kernels.on_cpu():
        yield request.param
    heads.attention_forward.device_caches.clear()


def attention(query, key, value, offset, window, blocks):
    """Operands `[B, T, H, D]` → (result, logarithms of sums)."""
    batch, rows, count, width = query.shape
    steps = [(each.stride(0), each.stride(2), each.stride(1)) for each in (query, key, value)]
    out = torch.empty(batch, rows, count, width, dtype=query.dtype)
    sums = torch.empty(batch, rows, count)
    size, keys = 1 << (width - 1).bit_length(), key.shape[1]
    heads.attention_forward[(-(-rows // blocks[0]), count, batch)](
        out, sums, query, key, value, query, query, query, count, 1, count // key.shape[2], rows,
        keys, rows, keys, keys, width, width, size, size, *steps, None, None, None, width**-0.5,
        offset, window, 0.0, True, True, *blocks,
    )  # fmt: skip
    return out, sums


@pytest.mark.parametrize(
    ("rows", "keys", "count", "shared", "width", "offset", "window", "blocks"),
    [
        (70, 70, 2, 2, 64, None, 0, (32, 32)),
        (70, 70, 2, 1, 64, 0, 0, (64, 128)),
        (33, 130, 4, 2, 40, 97, 0, (16, 64)),
        (5, 19, 1, 1, 16, None, 0, (16, 32)),
        (1, 1, 1, 1, 8, None, 0, (16, 16)),
        (133, 133, 2, 1, 32, 0, 30, (32, 32)),
        (100, 170, 2, 2, 16, 75, 6, (16, 64)),
    ],
)
def test_attention_of_bf16(rows, keys, count, shared, width, offset, window, blocks, row):
    query = torch.randn(2, rows, count, width).bfloat16()
    key, value = (torch.randn(2, keys, shared, width).bfloat16() for _ in range(2))
    found, sums = attention(query, key, value, offset, window, blocks)
    q, k, v = (each.double().transpose(1, 2) for each in (query, key, value))
    k, v = (each.repeat_interleave(count // shared, 1) for each in (k, v))
    scores = q @ k.transpose(2, 3) * width**-0.5
    if offset is not None:
        later = torch.arange(keys)[None, :] - torch.arange(rows)[:, None] - offset
        scores = scores.masked_fill(later > 0, -torch.inf)
        scores = scores.masked_fill(later <= -window, -torch.inf) if window else scores
    weights = scores.softmax(-1)
    expected = (weights @ v).transpose(1, 2)
    # Each weight rounds to bf16 once, and so does the result; scores are exact to f32.
    limit = UNIT_ROUNDOFF * ((weights @ v.abs()).transpose(1, 2) + expected.abs()) + 1e-5
    assert ((found.double() - expected).abs() <= limit).all()
    wanted = scores.logsumexp(-1).transpose(1, 2)
    assert ((sums.double() - wanted).abs() <= 1e-5 * (1 + wanted.abs())).all()
