"""`flex_attention` of the CPU: its score and mask functions as arithmetic, beside torch's op."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from aotc.aot.dynamo import aotc

pytestmark = [pytest.mark.torch, pytest.mark.triton, pytest.mark.usefixtures("fresh")]
QUERIES, KEYS, HEADS = 33, 40, 4
DOCUMENTS = torch.tensor([0] * 10 + [1] * 20 + [2] * 10)
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
BIAS = torch.linspace(-2, 2, HEADS * QUERIES * KEYS).view(HEADS, QUERIES, KEYS).cos()
SCORES = {
    "plain": None,
    "slopes": lambda score, b, h, q, k: score + (k - q) * SLOPES[h],
    "causal": lambda score, b, h, q, k: torch.where(q >= k, score, -float("inf")),
    "capped": lambda score, b, h, q, k: 5 * torch.tanh(score / 5),
    "bias": lambda score, b, h, q, k: score + BIAS[h, q, k],
}
MASKS = {
    "all": None,
    "causal": lambda b, h, q, k: q >= k,
    "window": lambda b, h, q, k: (q >= k) & (q - k < 7),
    "documents": lambda b, h, q, k: DOCUMENTS[q] == DOCUMENTS[k],
    "rows of nothing": lambda b, h, q, k: (q > 3) & (k > 5),
}
CASES = (
    ("plain", "causal", 4, torch.float32),
    ("slopes", "window", 2, torch.float32),
    ("causal", "documents", 1, torch.bfloat16),
    ("capped", "rows of nothing", 4, torch.float32),
    ("bias", "rows of nothing", 2, torch.bfloat16),
)


def operands(heads, dtype):
    query = torch.randn(2, QUERIES, HEADS, 32).transpose(1, 2)  # as a linear layer leaves it
    rest = (torch.randn(2, heads, KEYS, width) for width in (32, 24))
    return [each.to(dtype) for each in (query, *rest)]


def attention(score, mask, **more):
    blocks = mask and create_block_mask(mask, None, None, QUERIES, KEYS, "cpu", BLOCK_SIZE=16)
    return lambda *given: flex_attention(
        *given, score_mod=score, block_mask=blocks, enable_gqa=True, **more
    )


@pytest.mark.parametrize(("score", "mask", "heads", "dtype"), CASES)
def test_results(score, mask, heads, dtype):
    function = attention(SCORES[score], MASKS[mask], return_lse=True)
    given = operands(heads, dtype)
    found, logarithm = torch.compile(function, backend=aotc, options={"fallback": "error"})(*given)
    wide = (each.double() for each in given)
    expected, expected_logarithm = torch.compile(function, backend="eager")(*wide)
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=limit)
    torch.testing.assert_close(logarithm.double(), expected_logarithm, rtol=0, atol=1e-5)
    assert found.stride() == flex_attention(*given, enable_gqa=True).stride()


LONG = 230
LONG_MASKS = {
    "window": lambda b, h, q, k: (q >= k) & (q - k < 40),
    "local": lambda b, h, q, k: (q - k).abs() <= 25,
    "documents": lambda b, h, q, k: q // 48 == k // 48,
    "documents and nothing": lambda b, h, q, k: (q // 70 == k // 70) & (q % 70 > 2),
    "heads": lambda b, h, q, k: (q // 64 + h) % 2 == k // 64 % 2,
}


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("mask", LONG_MASKS)
def test_blocks_that_are_hidden_whole(mask, dtype):
    def function(query, key, value, blocks):
        return flex_attention(query, key, value, block_mask=blocks, return_lse=True)

    blocks = create_block_mask(LONG_MASKS[mask], None, HEADS, LONG, LONG, "cpu", BLOCK_SIZE=16)
    given = [torch.randn(2, HEADS, LONG, 32).to(dtype) for _ in range(3)]
    found = torch.compile(function, backend=aotc, options={"fallback": "error"})(*given, blocks)
    wide = (each.double() for each in given)
    expected = torch.compile(function, backend="eager")(*wide, blocks)
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=limit)


def test_lengths_that_vary():
    def function(query, key, value):
        return flex_attention(query, key, value, score_mod=SCORES["slopes"])

    compiled = torch.compile(function, backend=aotc, dynamic=True, options={"fallback": "error"})
    for length in (17, 40, 23):
        given = [torch.randn(1, HEADS, length, 16) for _ in range(3)]
        expected = torch.compile(function, backend="eager")(*(each.double() for each in given))
        torch.testing.assert_close(compiled(*given).double(), expected, rtol=0, atol=1e-5)


def test_gradients_are_refused_as_torch_refuses_them():
    given = [torch.randn(1, 2, 16, 16, requires_grad=True) for _ in range(3)]
    with pytest.raises(Exception, match="does not support backward on CPU"):
        torch.compile(flex_attention, backend=aotc)(*given)
