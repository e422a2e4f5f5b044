"""Stores of all lanes to one address: the last lane that the mask lets through, or none."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from aotc import kernels  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
COUNT = 9


@triton.jit
def note_wrong(given, first, second, third, fourth, fifth, N: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    is_inside = lanes < N
    index = tl.load(given + lanes, mask=is_inside)
    tl.store(first + lanes * 0, index + 1, mask=((index < 0) | (index > 7)) & is_inside)
    tl.store(second + lanes * 0, index + 2, mask=(index > 7) & is_inside)
    tl.store(third + lanes * 0, index + 3, mask=((index < -8) | (index > 7)) & is_inside)
    tl.store(fourth + lanes * 0, index + 4, mask=(index < 0) & is_inside)
    tl.store(fifth + lanes * 0, index + 5, mask=(index == 100) & is_inside)


@pytest.fixture
def on_cpu():
    with kernels.on_cpu():
        yield


@pytest.mark.parametrize("wrong", [(), (3,), (2, 8), (0, 1, 5)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_none_may_be_let_through(on_cpu, wrong, dtype):
    """Which lane it is, is computed before it is known that there is one: reading a lane by a
    number that is none reads the stack far away, as five such stores in a row did."""
    given = torch.arange(COUNT, dtype=dtype) % 8
    for place in wrong:
        given[place] = 100
    found = [torch.full((1,), -1, dtype=dtype) for _ in range(5)]
    for _ in range(20):
        note_wrong[(1,)](given, *found, COUNT, 16)
    last = [-1, -1, -1, -1, -1] if not wrong else [101, 102, 103, -1, 105]
    assert [each.item() for each in found] == last


def test_the_lane_is_one_that_there_is(on_cpu):
    given, out = torch.arange(COUNT), [torch.zeros(1, dtype=torch.int64) for _ in range(5)]
    text = note_wrong.warmup(given, *out, COUNT, 16, grid=(1,)).asm["llir"]
    assert "llvm.ctlz" in text
    assert "i1 true)" not in "".join(line for line in text.splitlines() if "llvm.ctlz" in line)
