"""`debug="memory"`: an access beyond its tensor is reported with its line, and is not made."""

from __future__ import annotations

import linecache
from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.aot.errors import OutOfBounds

N = 1000


@pytest.fixture(autouse=True, scope="module")
def on_cpu() -> Iterator[None]:
    with kernels.on_cpu():
        yield


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(y + i, mask=i < n, other=0.0)
    tl.store(out + i, a + b, mask=i < n)


@triton.jit
def gather_kernel(x, places, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.load(places + i)))


@triton.jit
def scatter_kernel(places, out, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    place = tl.load(places + i)
    if KIND == "store":
        tl.store(out + place, 1.0)
    else:
        tl.atomic_add(out + place, 1.0)


@triton.jit
def moved_kernel(x, out, n, step, BLOCK: tl.constexpr):
    at = x + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(n):
        total += tl.load(at)
        at += step
    tl.store(out + tl.arange(0, BLOCK), total)


@triton.jit
def product_kernel(a, b, out, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + i[:, None] * K + k + i[None, :])
        right = tl.load(b + (k + i[:, None]) * BLOCK + i[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + i[:, None] * BLOCK + i[None, :], total)


def line_of(text: str) -> str:
    lines = linecache.getlines(__file__)
    return f"{__file__}:{next(i for i, x in enumerate(lines, 1) if text in x)}"


@pytest.mark.parametrize(("tensor", "text"), [("x", "a = tl.load"), ("y", "b = tl.load"),
                                              ("out", "tl.store(out + i, a + b")])  # fmt: skip
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_the_pointer_and_its_line_are_named(tensor: str, text: str, kind: torch.dtype) -> None:
    given = {name: torch.ones(1024, dtype=kind) for name in ("x", "y", "out")}
    add_kernel[(8,)](*given.values(), 1024, BLOCK=128, debug="memory")
    assert (given["out"] == 2).all()
    whole = torch.full((1024,), 7, dtype=kind)
    given[tensor] = whole[:N]
    with pytest.raises(OutOfBounds) as caught:
        add_kernel[(8,)](*given.values(), 1024, BLOCK=128, debug="memory")
    error = caught.value
    nbytes = kind.itemsize
    assert error.where == f"byte {N * nbytes} of `{tensor}`, which has {N * nbytes}"
    assert error.line == line_of(text)
    assert error.program == (7, 0, 0)
    assert (whole[N:] == 7).all()


def test_what_a_mask_leaves_out_is_no_access() -> None:
    x, y, out = torch.ones(1024), torch.ones(N), torch.zeros(N)
    add_kernel[(8,)](x, y, out, N, BLOCK=128, debug="memory")
    assert (out == 2).all()


@pytest.mark.parametrize("place", [-1, N, 1 << 40])
def test_places_from_memory_are_checked(place: int) -> None:
    x, places, out = torch.ones(N), torch.arange(16), torch.zeros(16)
    gather_kernel[(1,)](x, places, out, BLOCK=16, debug="memory")
    places[5] = place
    with pytest.raises(OutOfBounds, match=f"byte {4 * place} of `x`"):
        gather_kernel[(1,)](x, places, out, BLOCK=16, debug="memory")
    for kind in ("store", "atomic"):
        target = torch.zeros(N)
        with pytest.raises(OutOfBounds, match=f"byte {4 * place} of `out`"):
            scatter_kernel[(1,)](places, target, KIND=kind, BLOCK=16, debug="memory")
        assert target.sum() == 15


def test_pointers_that_move_are_in_some_tensor() -> None:
    x, out = torch.ones(256), torch.zeros(32)
    moved_kernel[(1,)](x, out, 8, 32, BLOCK=32, debug="memory")
    assert (out == 8).all()
    with pytest.raises(OutOfBounds, match="reads 4 bytes"):
        moved_kernel[(1,)](x, out, 1000, 320, BLOCK=32, debug="memory")


def test_products_are_checked() -> None:
    a, b, out = torch.ones(16, 64), torch.ones(64, 16), torch.zeros(16, 16)
    product_kernel[(1,)](a, b, out, 64, BLOCK=16, debug="memory")
    assert (out == 64).all()
    with pytest.raises(OutOfBounds, match="of `b`, which has 4032"):
        product_kernel[(1,)](a, b[:63], out, 64, BLOCK=16, debug="memory")
