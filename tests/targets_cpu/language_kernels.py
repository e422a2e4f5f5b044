"""Kernels for the parts of Triton's language, each in a few lines; rows of `kernel_table.py`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from kernel_table import case, normal
from triton.language.extra import libdevice


@triton.jit
def reductions_kernel(x_ptr, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + columns, tl.sum(x, 0), mask=columns < N)
    tl.store(out_ptr + N + columns, tl.max(x, 0), mask=columns < N)
    tl.store(out_ptr + 2 * N + rows, tl.sum(x, 1), mask=rows < M)
    tl.store(out_ptr + 2 * N + M + rows, tl.argmax(x, 1).to(tl.float32), mask=rows < M)
    tl.store(out_ptr + 2 * N + 2 * M + rows, tl.argmin(x, 1).to(tl.float32), mask=rows < M)
    tl.store(out_ptr + 2 * N + 3 * M, tl.sum(tl.sum(x * x, 1), 0))


@case
def reductions():
    x = normal(6, 100)
    out = torch.full((2 * 100 + 3 * 6 + 1,), torch.nan)
    reductions_kernel[(1,)](x, out, 6, 100, BM=8, BN=128)
    padded = torch.zeros(6, 128)
    padded[:, :100] = x
    expected = [
        x.sum(0),
        torch.cat([x, torch.zeros(2, 100)]).amax(0),
        x.sum(1),
        padded.argmax(1),
        padded.argmin(1),
    ]
    return out, torch.cat([*(t.float() for t in expected), (x * x).sum().reshape(1)])


@triton.jit
def shapes_kernel(x_ptr, out_ptr, B: tl.constexpr, C: tl.constexpr):
    i, j = tl.arange(0, B), tl.arange(0, C)
    x = tl.load(x_ptr + i[:, None] * C + j[None, :])
    transposed = tl.trans(x)
    tl.store(out_ptr + j[:, None] * B + i[None, :], transposed)
    flat = tl.reshape(x * 2, (B * C,))
    tl.store(out_ptr + B * C + tl.arange(0, B * C), flat)
    left, right = tl.split(tl.reshape(x, (B, C // 2, 2)))
    joined = tl.join(right, left)
    tl.store(out_ptr + 2 * B * C + tl.arange(0, B * C), tl.reshape(joined, (B * C,)))
    tl.store(out_ptr + 3 * B * C + tl.arange(0, B * C), tl.sort(flat))


@case
def shapes_and_sort():
    x = normal(8, 16)
    out = torch.full((4, 128), torch.nan)
    shapes_kernel[(1,)](x, out, B=8, C=16)
    swapped = x.reshape(8, 8, 2).flip(2)
    return out, torch.stack(
        [x.t().reshape(-1), x.reshape(-1) * 2, swapped.reshape(-1), (x * 2).reshape(-1).sort()[0]]
    )


@triton.jit
def scan_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    tl.store(out_ptr + i[:, None] * N + j[None, :], tl.cumsum(x, 1))
    tl.store(out_ptr + M * N + i[:, None] * N + j[None, :], tl.cumsum(x, 0, reverse=True))
    tl.store(out_ptr + 2 * M * N + i[:, None] * N + j[None, :], tl.cumprod(x, 1))


@case
def scans():
    x = normal(4, 32)
    out = torch.full((3, 4, 32), torch.nan)
    scan_kernel[(1,)](x, out, M=4, N=32)
    return out, torch.stack([x.cumsum(1), x.flip(0).cumsum(0).flip(0), x.cumprod(1)])


@triton.jit
def integers_kernel(x_ptr, out_ptr, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=1)
    hashed = (x * 0x1E3779B1) ^ (x >> 7)
    y = (
        (hashed % 1000)
        + tl.where(x > 5, x // 3, -x)
        + (x & 15) * 3
        + tl.minimum(x, 7)
        - tl.maximum(x, -7)
    )
    tl.store(out_ptr + offsets, y, mask=mask)


@case
def integers():
    x = torch.arange(-50, 51, dtype=torch.int32)
    out = torch.zeros_like(x)
    integers_kernel[(4,)](x, out, x.numel(), B=32)
    wide = x.long()
    product = (wide * 0x1E3779B1) & 0xFFFFFFFF
    product = torch.where(product >= 1 << 31, product - (1 << 32), product)
    hashed = product ^ (wide >> 7)
    remainder = torch.fmod(hashed, 1000)
    chosen = torch.where(wide > 5, torch.div(wide, 3, rounding_mode="trunc"), -wide)
    expected = remainder + chosen + (wide & 15) * 3 + wide.clamp(max=7) - wide.clamp(min=-7)
    return out, expected.int()


@triton.jit
def control_kernel(x_ptr, out_ptr, n, B: tl.constexpr):
    pid = tl.program_id(0)
    if pid * B >= n:
        return
    offsets = pid * B + tl.arange(0, B)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    total = tl.sum(x, 0)
    steps = 0
    while steps < 5 and total < 1000.0:
        total = total * 2.0 + 1.0
        steps += 1
    if pid % 2 == 0:
        y = x * 2.0
        extra = 1.0
    else:
        y = x - 1.0
        extra = total
    tl.store(out_ptr + offsets, y + extra + steps, mask=offsets < n)


@case
def control_flow():
    x = normal(70)
    out = torch.full_like(x, torch.nan)
    control_kernel[(8,)](x, out, 70, B=16)
    expected = []
    for pid, block in enumerate(x.split(16)):
        total, steps = block.sum(), 0
        while steps < 5 and total < 1000:
            total, steps = total * 2 + 1, steps + 1
        expected.append(block * 2 + 1 + steps if pid % 2 == 0 else block - 1 + total + steps)
    return out, torch.cat(expected)


@triton.jit
def in_place_kernel(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    tl.store(x_ptr + (B - 1 - i), x)
    tl.store(x_ptr + B + i, x * 2)


@case
def reverse_in_place():
    x = normal(128)
    expected = torch.cat([x[:64].flip(0), x[:64] * 2])
    in_place_kernel[(1,)](x, B=64)
    return x, expected


@triton.jit
def gather_kernel(table_ptr, index_ptr, out_ptr, n, D: tl.constexpr, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.arange(0, D)
    places = tl.load(index_ptr + rows, mask=rows < n, other=0)
    found = tl.load(
        table_ptr + places[:, None] * D + columns[None, :], mask=rows[:, None] < n, other=0.0
    )
    tl.store(out_ptr + rows[:, None] * D + columns[None, :], found, mask=rows[:, None] < n)


@case
def embedding():
    table, index = (
        normal(50, 32),
        torch.randint(0, 50, (37,), generator=torch.Generator().manual_seed(0)),
    )
    out = torch.full((37, 32), torch.nan)
    gather_kernel[(5,)](table, index, out, 37, D=32, B=8)
    return out, table[index]


@triton.jit
def atomic_kernel(x_ptr, out_ptr, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    tl.atomic_add(out_ptr + x, 1, mask=mask)


@case
def atomic_histogram():
    x = torch.randint(0, 10, (5000,), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(10, dtype=torch.int32)
    atomic_kernel[(40,)](x, out, x.numel(), B=128)
    return out, torch.bincount(x, minlength=10).int()


@triton.jit
def functions_kernel(x_ptr, out_ptr, n: tl.constexpr):
    i = tl.arange(0, n)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.exp(x) + tl.log(tl.abs(x) + 1) + tl.sin(x) * tl.cos(x))
    tl.store(out_ptr + n + i, tl.sqrt(tl.abs(x)) + tl.rsqrt(x * x + 1) + tl.erf(x) + tl.sigmoid(x))
    tl.store(out_ptr + 2 * n + i, tl.floor(x) - tl.ceil(x) + tl.exp2(x) + tl.fma(x, x, x))


@case
def functions():
    x = normal(64)
    out = torch.full((3, 64), torch.nan)
    functions_kernel[(1,)](x, out, n=64)
    first = x.exp() + (x.abs() + 1).log() + x.sin() * x.cos()
    second = x.abs().sqrt() + (x * x + 1).rsqrt() + x.erf() + x.sigmoid()
    return out, torch.stack([first, second, x.floor() - x.ceil() + x.exp2() + (x * x + x)])


@triton.jit
def literal_divisors_kernel(x_ptr, out_ptr, n: tl.constexpr):
    i = tl.arange(0, n)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, (x / 1.41421354).to(tl.int32, bitcast=True))
    tl.store(out_ptr + n + i, (x / 49.0).to(tl.int32, bitcast=True))
    tl.store(out_ptr + 2 * n + i, (x / -1e-3).to(tl.int32, bitcast=True))
    tl.store(out_ptr + 3 * n + i, (x / 1.99999988).to(tl.int32, bitcast=True))
    tl.store(out_ptr + 4 * n + i, (x / 0.125).to(tl.int32, bitcast=True))
    tl.store(out_ptr + 5 * n + i, (x / 1e30).to(tl.int32, bitcast=True))


@case
def literal_divisors():
    """To the last bit; the exponents keep quotients and what they leave from being subnormal."""
    n = 4096
    x = normal(n) * torch.exp2(torch.arange(n) % 100 - 20.0)
    x[:8] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 49.0, 98.0, 1.0, 3.0])
    out = torch.zeros((6, n), dtype=torch.int32)
    literal_divisors_kernel[(1,)](x, out, n=n)
    divisors = torch.tensor([1.41421354, 49.0, -1e-3, 1.99999988, 0.125, 1e30])
    return out, (x / divisors[:, None]).view(torch.int32)


@triton.jit
def long_chain_kernel(x_ptr, y_ptr, out_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside)
    y = tl.load(y_ptr + i, mask=inside).to(tl.float32)
    waiting = tl.erf(tl.log(tl.exp(tl.sin(x)) + tl.abs(y)) / 3.0)
    tl.store(out_ptr + i, tl.where(y > 0, tl.exp2(waiting), tl.sigmoid(waiting)), mask=inside)


@case
def long_chains_of_functions():
    n = 1007
    x, y = normal(n), normal(n).half()
    x[5] = 3e6  # beyond the angles of the fast reduction
    out = torch.full((n + 3,), 7.0)
    long_chain_kernel[(4,)](x, y, out, n, B=256)
    waiting = ((x.sin().exp() + y.float().abs()).log() / 3.0).erf()
    return out, torch.cat(
        [torch.where(y > 0, waiting.exp2(), waiting.sigmoid()), torch.full((3,), 7.0)]
    )


@triton.jit
def device_functions_kernel(x_ptr, out_ptr, n: tl.constexpr):
    i = tl.arange(0, n)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, libdevice.tanh(x) + libdevice.log1p(tl.abs(x)) + libdevice.expm1(x))
    tl.store(out_ptr + n + i, libdevice.pow(tl.abs(x), x) + libdevice.trunc(x) + libdevice.rint(x))


@case
def device_functions():
    x = normal(64)
    out = torch.full((2, 64), torch.nan)
    device_functions_kernel[(1,)](x, out, n=64)
    return out, torch.stack(
        [x.tanh() + x.abs().log1p() + x.expm1(), x.abs().pow(x) + x.trunc() + x.round()]
    )


@triton.jit
def casts_kernel(x_ptr, half_ptr, bfloat_ptr, integer_ptr, byte_ptr, n: tl.constexpr):
    i = tl.arange(0, n)
    x = tl.load(x_ptr + i)
    tl.store(half_ptr + i, x.to(tl.float16) * 2)
    tl.store(bfloat_ptr + i, x.to(tl.bfloat16) + 1)
    tl.store(integer_ptr + i, (x * 10).to(tl.int32))
    tl.store(byte_ptr + i, x > 0)


@case
def casts():
    x = normal(32)
    half, bfloat = torch.empty(32, dtype=torch.float16), torch.empty(32, dtype=torch.bfloat16)
    integer, flag = torch.empty(32, dtype=torch.int32), torch.empty(32, dtype=torch.bool)
    casts_kernel[(1,)](x, half, bfloat, integer, flag, n=32)
    found = torch.stack([half.float(), bfloat.float(), integer.float(), flag.float()])
    expected = [
        (x.half() * 2).float(),
        (x.bfloat16() + 1).float(),
        (x * 10).int().float(),
        (x > 0).float(),
    ]
    return found, torch.stack(expected)


@triton.jit
def hidden_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    r = tl.arange(0, BLOCK)[None, :]
    mask = r < 160
    is_first = (r // 16) % 5 < 1  # whole vectors are, or are not: some loads read nothing
    rest = tl.load(x_ptr + r, mask=mask & ((r // 16) % 5 >= 1))
    first = tl.load(x_ptr + r, mask=mask & is_first)
    first = tl.where(first > 0, first, first * 0.5) * 2.0
    value = tl.where(mask, tl.where(is_first, first, rest), 0.0)
    tl.store(out_ptr + tl.zeros((1, 1), tl.int32), tl.sum(value, axis=1, keep_dims=True))


@case
def hidden():
    x, out = normal(10, 16), torch.empty(1)
    hidden_kernel[(1,)](x, out, BLOCK=256)
    scaled = x.clone()
    scaled[::5] = torch.where(x > 0, x, x * 0.5)[::5] * 2
    return out, scaled.sum().reshape(1)


@triton.jit
def random_kernel(bits_ptr, uniform_ptr, normal_ptr, seed_ptr, high_ptr, N: tl.constexpr):
    """Draws at N offsets of each seed; a program a seed, once from memory, once as a literal."""
    at = tl.arange(0, N)
    row = tl.program_id(0) * N
    seed = tl.load(seed_ptr + tl.program_id(0))
    tl.store(bits_ptr + row + at, tl.randint(seed, at).to(tl.int32, bitcast=True))
    tl.store(uniform_ptr + row + at, tl.rand(seed, at).to(tl.int32, bitcast=True))
    tl.store(normal_ptr + row + at, tl.randn(seed, at))
    literal = tl.randint(0x12345678DEADBEEF, at).to(tl.int32, bitcast=True)
    tl.store(bits_ptr + tl.num_programs(0) * N + at, literal)
    numbers = (at * 0x3D4D51CB).to(tl.uint32)
    tl.store(high_ptr + row + at, tl.umulhi(numbers, 0xD2511F53).to(tl.int32, bitcast=True))


def philox(seed: int, counter: int) -> list[int]:
    """Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011)."""
    c, k = [counter, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [
            (second >> 32) ^ c[1] ^ k[0], second & 0xFFFFFFFF,
            (first >> 32) ^ c[3] ^ k[1], first & 0xFFFFFFFF,
        ]  # fmt: skip
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def _int32(numbers: list[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64).to(torch.int32)


SEEDS = [0, 1, 42, 2**31 - 1, 2**32 + 7, 2**63 - 1, -1]


def _random(count: int = 64) -> tuple[torch.Tensor, ...]:
    shape = (len(SEEDS), count)
    bits = torch.zeros(len(SEEDS) + 1, count, dtype=torch.int32)
    uniform, high = (torch.zeros(shape, dtype=torch.int32) for _ in range(2))
    normal_numbers = torch.zeros(shape)
    seeds = torch.tensor(SEEDS, dtype=torch.int64)
    random_kernel[(len(SEEDS),)](bits, uniform, normal_numbers, seeds, high, N=count)
    return bits, uniform, normal_numbers, high


@case
def random_bits():
    rows = [[philox(seed, at)[0] for at in range(64)] for seed in (*SEEDS, 0x12345678DEADBEEF)]
    return _random()[0], torch.stack([_int32(row) for row in rows])


@case
def random_uniform():
    """Bit for bit: a number below 2³¹ times 2⁻³¹, a little less."""
    bits = torch.stack([_int32([philox(seed, at)[0] for at in range(64)]) for seed in SEEDS])
    natural = torch.where(bits < 0, -bits - 1, bits)
    return _random()[1], (natural.float() * 4.6566127342e-10).view(torch.int32)


@case
def random_normal():
    """By the method of Box and Muller."""
    scale = 4.6566127342e-10
    rows = [[philox(seed, at)[:2] for at in range(64)] for seed in SEEDS]
    signed = torch.tensor(rows).to(torch.int32)
    u, v = (torch.where(signed < 0, -signed - 1, signed).float() * scale).unbind(-1)
    radius = torch.sqrt(-2.0 * torch.log(u.clamp(min=1.0e-7)))
    return _random()[2], radius * torch.cos(6.283185307179586 * v)


@case
def high_products():
    numbers = [at * 0x3D4D51CB & 0xFFFFFFFF for at in range(64)]
    row = _int32([x * 0xD2511F53 >> 32 for x in numbers])
    return _random()[3], row.expand(len(SEEDS), -1)


@triton.jit(noinline=True)
def _store_next(p, value):
    tl.store(p, value + 1)


@triton.jit(noinline=True)
def _doubled(value):
    return value * 2


@triton.jit
def outlined_kernel(out_ptr):
    row = tl.program_id(0)
    _store_next(out_ptr + row, _doubled(row))


@case
def functions_that_are_not_inlined():
    out = torch.full((4,), -7, dtype=torch.int32)
    outlined_kernel[(4,)](out)
    return out, torch.tensor([1, 3, 5, 7], dtype=torch.int32)


@triton.jit
def clamp_kernel(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    kept = tl.clamp(x, -1.0, 2.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + at, (kept != kept).to(tl.int32))
    tl.store(out_ptr + N + at, kept.to(tl.int32))
    dropped = tl.clamp(x, -1.0, 2.0)
    tl.store(out_ptr + 2 * N + at, dropped.to(tl.int32))


@case
def clamp_of_nan():
    x = torch.tensor([-3.0, 0.0, 1.5, 9.0, torch.inf, -torch.inf, torch.nan, 2.0] * 2)
    out = torch.zeros(3, 16, dtype=torch.int32)
    clamp_kernel[(1,)](x, out, N=16)
    out[1][x.isnan()] = 0  # the conversion of NaN is unspecified
    ends = x.clamp(-1.0, 2.0)
    whole = ends.nan_to_num().to(torch.int32)
    dropped = torch.where(x.isnan(), -1.0, ends).to(torch.int32)
    return out, torch.stack([x.isnan().int(), whole, dropped])
