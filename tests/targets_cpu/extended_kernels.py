"""Kernels with what few kernels have: products of rank 3, in f16 and with scales, functions mapped
over elements and called in loops, histograms, atomics of bf16 and of floats compared."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from kernel_table import case, normal


@triton.jit
def batched_kernel(
    a_ptr, b_ptr, out_ptr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    batch = tl.arange(0, B)[:, None, None]
    row, column, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + batch * M * K + row[None, :, None] * K + inner[None, None, :])
    b = tl.load(b_ptr + batch * N * K + inner[None, :, None] * N + column[None, None, :])
    acc = tl.zeros((B, M, N), out_ptr.dtype.element_ty)
    for _ in range(2):
        acc = tl.dot(a, b, acc, out_dtype=out_ptr.dtype.element_ty)
    at = batch * M * N + row[None, :, None] * N + column[None, None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty))


def batched(kind: torch.dtype, wide: torch.dtype):
    a = (normal(3 + 1, 16, 8) * 4).to(kind)
    b = (normal(4, 8, 32) * 4).to(kind)
    out = torch.zeros((4, 16, 32), dtype=wide)
    batched_kernel[(1,)](a, b, out, B=4, M=16, N=32, K=8)
    return out, (2 * (a.double() @ b.double())).to(wide)


@case
def batched_products():
    return batched(torch.float32, torch.float32)


@case
def batched_products_of_bfloats():
    return batched(torch.bfloat16, torch.float32)


@case
def batched_products_of_bytes():
    return batched(torch.int8, torch.int32)


@triton.jit
def half_dot_kernel(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    found = tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), out_dtype=tl.float16)
    tl.store(out_ptr + at, found)


@case
def products_in_half():
    a, b = normal(32, 32).half(), normal(32, 32).half().t().contiguous()
    out = torch.zeros((32, 32), dtype=torch.float16)
    half_dot_kernel[(1,)](a, b, out, N=32)
    return out, (a.float() @ b.float()).half()


@triton.jit
def scaled_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, out_ptr,
    A: tl.constexpr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    AK: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m, n, group = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 32)
    ak, bk = tl.arange(0, AK), tl.arange(0, BK)
    a = tl.load(a_ptr + m[:, None] * AK + ak[None, :])
    b = tl.load(b_ptr + bk[:, None] * N + n[None, :])
    a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + group[None, :])
    b_scale = tl.load(b_scale_ptr + n[:, None] * (K // 32) + group[None, :])
    found = tl.dot_scaled(a, a_scale, A, b, b_scale, B)
    tl.store(out_ptr + m[:, None] * N + n[None, :], found)


HALF_BYTES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
PER_BYTE = {"e2m1": 2, "e4m3": 1, "e5m2": 1}
AS_TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def elements(form: str, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes of a matrix, two elements of 4 bits in each along dim 1, and what they are."""
    generator = torch.Generator().manual_seed(len(form) + sum(shape))
    if form != "e2m1":
        made = torch.randn(shape, generator=generator).to(AS_TORCH[form])
        return made.view(torch.uint8), made.double()
    bits = torch.randint(0, 256, (shape[0], shape[1] // 2), generator=generator)
    table = torch.tensor([*HALF_BYTES, *(-x for x in HALF_BYTES)], dtype=torch.float64)
    wide = torch.stack([table[bits & 15], table[bits >> 4]], dim=-1).reshape(shape)
    return bits.to(torch.uint8), wide


def scaled(first: str, second: str):
    m, n, k = 16, 32, 64
    a, wide_a = elements(first, m, k)
    b, wide_b = elements(second, n, k)
    generator = torch.Generator().manual_seed(1)
    scales = [torch.randint(118, 130, (x, k // 32), generator=generator) for x in (m, n)]
    factors = [torch.exp2(x.double() - 127).repeat_interleave(32, 1) for x in scales]
    out = torch.zeros(m, n)
    scaled_kernel[(1,)](
        a, scales[0].to(torch.uint8), b.t().contiguous(), scales[1].to(torch.uint8), out,
        first, second, m, n, k, k // PER_BYTE[first], k // PER_BYTE[second],
    )  # fmt: skip
    return out, ((wide_a * factors[0]) @ (wide_b * factors[1]).t()).float()


@case
def products_with_scales():
    return scaled("e4m3", "e5m2")


@case
def products_of_half_bytes_with_scales():
    return scaled("e2m1", "e2m1")


@case
def products_of_half_bytes_and_bytes_with_scales():
    return scaled("e2m1", "e4m3")


@triton.jit
def compared(a, b):
    if a < b:
        return -1.0, a
    elif a == b:
        return 0.0, a
    else:
        return a - b, b


@triton.jit
def of_pairs(a, b, c, d):
    if a > b:
        return a + c, b - d
    return a, b


@triton.jit
def map_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i, j = tl.arange(0, 4), tl.arange(0, N)
    at = i[:, None] * N + j[None, :]
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    found, least = tl.map_elementwise(compared, x, y)
    tl.store(out_ptr + at, found)
    tl.store(out_ptr + 4 * N + at, least)
    (paired,) = tl.map_elementwise(of_pairs, x, y, pack=2)
    tl.store(out_ptr + 8 * N + at, paired)


@case
def functions_of_elements():
    x, y = normal(4, 16), normal(4, 16).flip(0).contiguous()
    y[0, :4] = x[0, :4]
    out = torch.zeros(3, 4, 16)
    map_kernel[(1,)](x, y, out, N=16)
    difference = torch.where(x < y, -1.0, torch.where(x == y, 0.0, x - y))
    a, b, c, d = x[:, ::2], x[:, 1::2], y[:, ::2], y[:, 1::2]
    pairs = torch.stack([torch.where(a > b, a + c, a), torch.where(a > b, b - d, b)], -1)
    return out, torch.stack([difference, torch.minimum(x, y), pairs.reshape(4, 16)])


@triton.jit
def stepped(x, i, flag):
    if i > 3:
        return x * 2, i
    y = x + 1
    if flag:
        return y, i - 1
    return tl.cumsum(x - y, 0), i


@triton.jit
def calls_kernel(out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    value = i * 1.0
    total = 0
    for turn in range(n):
        value, step = stepped(value, turn, turn == 2)
        total += step
    tl.store(out_ptr + i, value + total)


@case
def calls_in_loops():
    out = torch.zeros(32)
    calls_kernel[(1,)](out, 6, N=32)
    value, total = torch.arange(32.0), 0
    for turn in range(6):
        step = turn
        if turn > 3:
            value = value * 2
        elif turn == 2:
            value, step = value + 1, turn - 1
        else:
            value = (value - (value + 1)).cumsum(0)
        total += step
    return out, value + total


@triton.jit
def histogram_kernel(x_ptr, out_ptr, n, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i, mask=i < n, other=-1)
    at = tl.arange(0, BINS)
    tl.store(out_ptr + at, tl.histogram(x, BINS))
    tl.store(out_ptr + BINS + at, tl.histogram(x, BINS, mask=x > 2))


@case
def histograms():
    x = torch.randint(0, 40, (200,), dtype=torch.int32, generator=torch.Generator().manual_seed(3))
    out = torch.zeros((2, 32), dtype=torch.int32)
    histogram_kernel[(1,)](x, out, 200, N=256, BINS=32)
    kept = x[x < 32]
    return out, torch.stack([torch.bincount(y, minlength=32).int() for y in (kept, kept[kept > 2])])


@triton.jit
def atomics_kernel(sums_ptr, swaps_ptr, old_ptr):
    i = tl.arange(0, 16)
    tl.atomic_add(sums_ptr + i // 4, tl.full((16,), 1.5, tl.bfloat16), mask=i < 14)
    old = tl.atomic_cas(swaps_ptr + 1, 2.0, 7.0)
    tl.atomic_max(old_ptr, old)


@case
def atomics_of_floats():
    sums, swaps = torch.zeros(4, dtype=torch.bfloat16), torch.full((2,), 2.0)
    old = torch.zeros(1)
    atomics_kernel[(5,)](sums, swaps, old)
    found = torch.cat([sums.float(), swaps, old])
    return found, torch.tensor([30.0, 30.0, 30.0, 15.0, 2.0, 7.0, 7.0])


@triton.jit
def extremes_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, tl.maximum(x, y))
    tl.store(out_ptr + N + i, tl.minimum(x, y))
    both = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + 2 * N + i, tl.where(both != both, 100.0, both))
    tl.store(out_ptr + 3 * N + i, tl.clamp(x, -0.5, 0.5))
    tl.store(out_ptr + 4 * N + i, tl.sum(tl.full((N,), 0.5, x.dtype), dtype=x.dtype))


def extremes(kind: torch.dtype):
    x, y = normal(32).to(kind), normal(32).flip(0).to(kind)
    x[3], y[5] = torch.nan, torch.nan
    out = torch.zeros((5, 32), dtype=kind)
    extremes_kernel[(1,)](x, y, out, N=32)
    nan = (x.isnan() | y.isnan()).to(kind) * 100
    both = torch.where(nan > 0, nan, torch.fmax(x, y))
    clamped = torch.where(x.isnan(), torch.tensor(-0.5, dtype=kind), x.clamp(-0.5, 0.5))
    rows = [torch.fmax(x, y), torch.fmin(x, y), both, clamped, torch.full_like(x, 16.0)]
    return out, torch.stack(rows)


@case
def extremes_of_halves():
    return extremes(torch.float16)


@case
def extremes_of_bfloats():
    return extremes(torch.bfloat16)


@triton.jit
def one_block_kernel(x_ptr, out_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.zeros((N,), tl.float32)
    for _ in tl.range(0, 2, disable_licm=True):
        x = tl.load(x_ptr + i)
        tl.store(out_ptr + i, x)
    if n > 3:
        tl.store(out_ptr + i, x * 2)
        return
    tl.store(out_ptr + i, x * 3)


@case
def loops_with_attributes():
    x, out = normal(32), torch.zeros(2, 32)
    for row, n in enumerate((1, 9)):
        one_block_kernel[(1,)](x, out[row], n, N=32)
    return out, torch.stack([x * 3, x * 2])


@triton.jit
def picked_by_quotients(first, second, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """LLVM (Triton 3.6) ends its process for AVX-512: quotients of 8 bits beside two gathers."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    row = tl.arange(0, ROWS)[:, None]
    is_there = (column < 12) & (row < 5)
    place = ((column * 5 + row).to(tl.int64) + 2) % 60
    place = tl.minimum(tl.maximum(place, 0), 59).to(tl.int32)
    found = tl.load(first + place, mask=is_there)
    found += tl.load(second + (place // 10) % 2, mask=is_there)
    tl.store(out + column * 5 + row, found, mask=is_there)
