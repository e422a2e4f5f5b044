"""Two reductions of one tile that is made of lines: it is kept for both as it lies in memory."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from aotc import kernels  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
ROWS, COLUMNS = 60, 50


@triton.jit
def two_reductions(
    rows, columns, values, least, greatest, COLUMNS_READ: tl.constexpr, AXIS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    r, c = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    is_hit = tl.load(rows + r, mask=r < ROWS) > tl.load(columns + c, mask=c < COLUMNS)
    if COLUMNS_READ:
        data = tl.load(values + c, mask=c < COLUMNS)
    else:
        data = tl.load(values + r, mask=r < ROWS)
    tile = tl.where(is_hit, data, -5.0)
    is_inside = (r < ROWS) & (c < COLUMNS)
    low = tl.min(tl.where(is_inside, tile, float("inf")), axis=AXIS)
    high = tl.max(tl.where(is_inside, tile, float("-inf")), axis=AXIS)
    kept = tl.arange(0, C) if AXIS == 0 else tl.arange(0, R)
    count = COLUMNS if AXIS == 0 else ROWS
    tl.store(least + kept, low, mask=kept < count)
    tl.store(greatest + kept, high, mask=kept < count)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("columns_read", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_no_element_is_scattered(axis, columns_read, dtype):
    generator = torch.Generator().manual_seed(axis + 2 * columns_read)
    rows, columns = (
        torch.randint(9, (count,), generator=generator).to(dtype) for count in (ROWS, COLUMNS)
    )
    values = torch.randn(COLUMNS if columns_read else ROWS, generator=generator)
    least, greatest = (torch.zeros(COLUMNS if axis == 0 else ROWS) for _ in range(2))
    given = (rows, columns, values, least, greatest, columns_read, axis, ROWS, COLUMNS, 64, 64)
    with kernels.on_cpu():
        text = two_reductions.warmup(*given, grid=(1,)).asm["llir"]
        two_reductions[(1,)](*given)
    data = values[None] if columns_read else values[:, None]
    tile = torch.where(rows[:, None] > columns, data, -5.0)
    assert torch.equal(least, tile.amin(axis))
    assert torch.equal(greatest, tile.amax(axis))
    assert "masked.scatter" not in text
