"""Products one operand of which is the same number everywhere, such as a state that begins as 0."""

from __future__ import annotations

import pytest
import torch

from aotc.aot.dynamo import aotc

pytestmark = [pytest.mark.torch, pytest.mark.triton]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_constant_operand_makes_a_tile(dtype, fresh):
    def products(x):
        zeros, halves = torch.zeros(3, 16, 24, dtype=dtype), torch.full((16, 5), 0.5, dtype=dtype)
        ones = torch.ones(3, 7, 12, dtype=dtype)
        return x @ zeros + x[..., :1], (x * 2) @ halves, ones @ x

    x = torch.randn(3, 12, 16).to(dtype)
    found = torch.compile(products, backend=aotc, options={"fallback": "error"})(x)
    limit = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for left, right in zip(found, products(x), strict=True):
        torch.testing.assert_close(left, right, rtol=limit, atol=limit)
