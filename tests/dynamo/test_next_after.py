"""`nextafter` gives eager's bits: signed zeros, subnormals, infinities, NaN, equal operands."""

import itertools

import pytest
import torch

BITS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


@pytest.mark.parametrize("dtype", BITS, ids=str)
def test_next_numbers_are_eagers_to_the_bit(dtype):
    row = torch.finfo(dtype)
    least = torch.tensor(1, dtype=BITS[dtype]).view(dtype).item()
    ends = [0.0, least, 2 * least, row.tiny, 1.0, 2.0, 3.7, row.max, torch.inf]
    ends = [*ends, *(-end for end in ends), torch.nan]
    pairs = torch.tensor(list(itertools.product(ends, ends)), dtype=dtype)
    generator = torch.Generator().manual_seed(3)
    random = torch.randint(-(2**15), 2**15, (500, 2), generator=generator)
    random = (random << (torch.finfo(dtype).bits - 16)).to(BITS[dtype]).view(dtype)
    start, end = torch.cat([pairs, random]).unbind(1)
    torch._dynamo.reset()
    compiled = torch.compile(torch.nextafter, backend="aotc", fullgraph=True)
    for first, last in ((start, end), (start, end[:1]), (start[3], end)):
        found, expected = compiled(first, last), torch.nextafter(first, last)
        is_nan = expected.isnan()
        assert torch.equal(found.isnan(), is_nan)
        bits = [torch.where(is_nan, 0, each).view(BITS[dtype]) for each in (found, expected)]
        assert torch.equal(*bits)
