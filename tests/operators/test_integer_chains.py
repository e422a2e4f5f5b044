"""One op behind another, of integers: every value of 8 bits, and the limits of wider types.

An identity of numbers need not hold of elements, which wrap around: |-x| is not |x| for a byte.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import torch

from aotc.aot.dynamo import aotc

pytestmark = [pytest.mark.torch, pytest.mark.triton]

OPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "not": lambda x: ~x,
    "sign": lambda x: x.sign(),
    "square": lambda x: x * x,
    "times -1": lambda x: x * -1,
    "times 300": lambda x: x * 300,
    "plus 1": lambda x: x + 1,
    "plus 300": lambda x: x + 300,
    "5 minus": lambda x: 5 - x,
    "-300 minus": lambda x: -300 - x,
    "twice": lambda x: x + x,
    "less its mirror": lambda x: x - x.flip(0),
    "floor / 3": lambda x: x // 3,
    "floor / -3": lambda x: torch.div(x, -3, rounding_mode="floor"),
    "trunc / 3": lambda x: torch.div(x, 3, rounding_mode="trunc"),
    "remainder 3": lambda x: x % 3,
    "remainder -3": lambda x: torch.remainder(x, -3),
    "fmod 3": lambda x: torch.fmod(x, 3),
    "fmod 300": lambda x: torch.fmod(x, 300),
    "shift right": lambda x: x >> 1,
    "shift left": lambda x: x << 1,
    "clamp": lambda x: x.clamp(-3, 100),
    "at least 0": lambda x: x.clamp_min(0),
    "relu": lambda x: x.relu(),
    "maximum 0": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "minimum 2": lambda x: torch.minimum(x, torch.full_like(x, 2)),
    "i8": lambda x: x.to(torch.int8),
    "u8": lambda x: x.to(torch.uint8),
    "i16": lambda x: x.to(torch.int16),
    "i32": lambda x: x.int(),
    "i64": lambda x: x.long(),
    "bool": lambda x: x.bool(),
    "f32": lambda x: x.float(),
    "f64": lambda x: x.double(),
    "logical not": lambda x: x.logical_not(),
    "is 0": lambda x: x == 0,
    "below 5": lambda x: x < 5,
    "from -1": lambda x: x >= -1,
    "above 127": lambda x: x > 127,
    "above 300": lambda x: x > 300,
    "and 12": lambda x: x & 12,
    "or 300": lambda x: x | 300,
    "/ 2": lambda x: x / 2,
    "· 0.5": lambda x: x * 0.5,
    "1.5 minus": lambda x: 1.5 - x,
    "where above 0": lambda x: torch.where(x > 0, x, -x),
    "power 3": lambda x: x**3,
    "gcd 12": lambda x: torch.gcd(x, torch.full_like(x, 12)),
    "running sum": lambda x: x.cumsum(0),
    "sum": lambda x: x.sum(),
    "largest": lambda x: x.amax(0),
    "product": lambda x: x[:5].prod(),
}
TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
IN_A_GRAPH = 60
SHIFTS = {"shift right", "shift left"}
SUMS = {"running sum", "sum", "product"}
INTEGERS = {"i8", "u8", "i16", "i32", "i64"}


def data_of(dtype: torch.dtype) -> torch.Tensor:
    """All values, or those at limits and some between."""
    if dtype == torch.bool:
        return torch.tensor([True, False] * 8)
    limits = torch.iinfo(dtype)
    if limits.bits == 8:
        return torch.arange(limits.min, limits.max + 1).to(dtype)
    ends = [
        limits.min,
        limits.min + 1,
        limits.min // 2,
        limits.max // 2,
        limits.max - 1,
        limits.max,
    ]
    near = [0, 1, -1, 2, -2, 3, 5, 100, 127, 128, -128, -129, 255, 256, 300, 32767, -32768]
    return torch.tensor(ends + near, dtype=torch.int64).to(dtype)


def chains_of(x: torch.Tensor) -> list[tuple[str, str]]:
    """Pairs of ops that eager takes."""
    found = []
    for first, second in itertools.product(OPS, OPS):
        try:
            between = OPS[first](x)
            OPS[second](between)
        except (RuntimeError, TypeError, IndexError, NotImplementedError):
            continue
        if not _is_open(first, x) and not _is_open(second, between):
            found.append((first, second))
    return found


def _is_open(op: str, x: torch.Tensor) -> bool:
    """What torch's trace refuses, or C++ leaves open (floats beyond 32 bits as integers); sums of
    floats, which round by their order."""
    is_float = x.is_floating_point()
    is_large = is_float and bool((x.abs() >= 2**31).any())
    is_refused = op in SHIFTS and x.dtype == torch.bool
    return is_refused or (op in INTEGERS and is_large) or (op in SUMS and is_float)


def is_same(own: torch.Tensor, expected: torch.Tensor) -> bool:
    """To the bit; floats within two units."""
    if (own.dtype, own.shape) != (expected.dtype, expected.shape):
        return False
    if not own.is_floating_point():
        return torch.equal(own, expected)
    limit = 2 * torch.finfo(own.dtype).eps
    return torch.allclose(own, expected, rtol=limit, atol=0, equal_nan=True)


def differing(x: torch.Tensor, chains: list[tuple[str, str]]) -> list[str]:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(OPS[second](OPS[first](x)) for first, second in chains)

    torch._dynamo.reset()
    found = torch.compile(model, backend=aotc, options={"fallback": "error"})(x)
    pairs = zip(chains, found, model(x), strict=True)
    return [" then ".join(chain) for chain, own, eager in pairs if not is_same(own, eager)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_some_chains(dtype):
    x = data_of(dtype)
    assert not differing(x, random.Random(str(dtype)).sample(chains_of(x), IN_A_GRAPH))


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_chain(dtype):
    x = data_of(dtype)
    chains = chains_of(x)
    assert len(chains) > 1000
    for start in range(0, len(chains), IN_A_GRAPH):
        assert not differing(x, chains[start : start + IN_A_GRAPH])


def test_a_negated_byte_is_not_its_own_size():
    assert not differing(data_of(torch.uint8), [("neg", "abs"), ("times -1", "abs")])
