"""Rests of floats are exact for every quotient, up to 2²⁰⁹⁸ of f64."""

import math
import random

import pytest
import torch

EXPONENTS = {
    torch.float64: (-1074, 1023),
    torch.float32: (-149, 127),
    torch.bfloat16: (-133, 127),
    torch.float16: (-24, 15),
}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -3.0]
COUNT = 2000


def rests(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.fmod(a, b), torch.remainder(a, b)


def exact(a: float, b: float) -> float:
    try:
        return math.fmod(a, b)
    except ValueError:
        return math.nan


def is_same(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    same = (found == expected) & (found.signbit() == expected.signbit())
    return same | (found.isnan() & expected.isnan())


@pytest.mark.parametrize("dtype", EXPONENTS)
def test_rests_are_exact(fresh, dtype: torch.dtype) -> None:
    draw, (low, high) = random.Random(17), EXPONENTS[dtype]
    limits = torch.finfo(dtype)
    special = [*SPECIAL, math.ldexp(1.0, low), -math.ldexp(1.0, low), limits.tiny, limits.max]

    def number() -> float:
        return math.ldexp(draw.choice((-1, 1)) * draw.uniform(1, 2), draw.randint(low, high))

    pairs = [(number(), number()) for _ in range(COUNT)]
    pairs += [(a, b) for a in special for b in special]
    a, b = torch.tensor(pairs, dtype=torch.float64).to(dtype).unbind(-1)
    a, b = a.contiguous(), b.contiguous()
    towards_zero = [exact(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    expected = torch.tensor(towards_zero, dtype=dtype)
    has_other_sign = (expected != 0) & ((expected < 0) != (b < 0))
    floored = torch.where(has_other_sign, expected + b, expected)
    compiled = torch.compile(rests, backend="aotc", dynamic=False)
    for found, wanted in zip(compiled(a, b), (expected, floored), strict=True):
        wrong = (~is_same(found, wanted)).nonzero().flatten().tolist()
        assert not wrong, [(a[i].item(), b[i].item(), found[i].item()) for i in wrong[:5]]
