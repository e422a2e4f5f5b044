"""Triton kernels as people write them, each with a call and a torch reference.

`CASES` is a table: name → function that runs the kernel on CPU tensors; it returns (found,
expected).
Run as a script under TRITON_INTERPRET=1, it writes what Triton's interpreter gives for each case.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch.nn import functional
from triton.language.extra import libdevice

Case = Callable[[], tuple[torch.Tensor, torch.Tensor]]
CASES: dict[str, Case] = {}
NOT_INTERPRETED = {"device_functions", "atomic_histogram", "casts", "matmul_bfloat"}
"""Cases that Triton's interpreter gets wrong or refuses: libdevice, bfloat16, atomics."""


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)


@case
def vector_add():
    x, y = normal(98_432), normal(98_432)
    out = torch.full_like(x, torch.nan)
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](
        x, y, out, x.numel(), BLOCK_SIZE=1024
    )
    return out, x + y


@triton.jit
def softmax_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step):
        col_offsets = tl.arange(0, BLOCK_SIZE)
        mask = col_offsets < n_cols
        row = tl.load(
            input_ptr + row_idx * input_row_stride + col_offsets, mask=mask, other=-float("inf")
        )
        row_minus_max = row - tl.max(row, axis=0)
        numerator = tl.exp(row_minus_max)
        denominator = tl.sum(numerator, axis=0)
        tl.store(
            output_ptr + row_idx * output_row_stride + col_offsets,
            numerator / denominator,
            mask=mask,
        )


def _softmax(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = normal(rows, columns)
    out = torch.full_like(x, torch.nan)
    block = triton.next_power_of_2(columns)
    softmax_kernel[(7,)](out, x, x.stride(0), out.stride(0), rows, columns, BLOCK_SIZE=block)
    return out, torch.softmax(x, dim=1)


@case
def fused_softmax():
    return _softmax(43, 781)


@case
def fused_softmax_narrow():
    return _softmax(9, 3)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    offs_bn = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_SIZE_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_SIZE_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = tl.where(accumulator >= 0, accumulator, 0.01 * accumulator)
    c = accumulator.to(c_ptr.dtype.element_ty)
    offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, c, mask=c_mask)


def _matmul(
    a: torch.Tensor, b: torch.Tensor, activation: str = ""
) -> tuple[torch.Tensor, torch.Tensor]:
    (m, k), n = a.shape, b.shape[1]
    c = torch.full((m, n), torch.nan, dtype=a.dtype)
    grid = (triton.cdiv(m, 32) * triton.cdiv(n, 64),)
    matmul_kernel[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(),
        BLOCK_SIZE_M=32, BLOCK_SIZE_N=64, BLOCK_SIZE_K=32, GROUP_SIZE_M=8, ACTIVATION=activation,
    )  # fmt: skip
    expected = a.double() @ b.double()
    if activation:
        expected = functional.leaky_relu(expected, 0.01)
    return c, expected.to(a.dtype)


@case
def matmul():
    return _matmul(normal(130, 75), normal(75, 200))


@case
def matmul_transposed_activation():
    return _matmul(normal(64, 96), normal(128, 96).t(), "leaky_relu")


@case
def matmul_half():
    return _matmul(normal(65, 64, dtype=torch.float16), normal(64, 70, dtype=torch.float16))


@case
def matmul_bfloat():
    return _matmul(normal(65, 64, dtype=torch.bfloat16), normal(64, 70, dtype=torch.bfloat16))


@triton.jit
def layer_norm_kernel(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    _mean = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        a = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    var = tl.sum(_var, axis=0) / N
    rstd = 1 / tl.sqrt(var + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        x_hat = (x - mean) * rstd
        tl.store(Y + cols, x_hat * w + b, mask=mask)


@case
def layer_norm():
    rows, columns = 11, 781
    x, w, b = normal(rows, columns), normal(columns), normal(columns + 1)[:columns]
    y = torch.full_like(x, torch.nan)
    mean, rstd = torch.empty(rows), torch.empty(rows)
    layer_norm_kernel[(rows,)](x, y, w, b, mean, rstd, x.stride(0), columns, 1e-5, BLOCK_SIZE=256)
    return y, functional.layer_norm(x, (columns,), w, b, 1e-5)


@triton.jit
def attention_kernel(
    Q, K, V, Out, sm_scale, stride_h, seq, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0)
    base = tl.program_id(1) * stride_h
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD)
    q = tl.load(
        Q + base + offs_m[:, None] * HEAD + offs_d[None, :], mask=offs_m[:, None] < seq, other=0.0
    )
    m_i = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    end = min((start_m + 1) * BLOCK_M, seq) if CAUSAL else seq
    for start_n in range(0, end, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        inside = offs_n[:, None] < seq
        k = tl.load(K + base + offs_n[:, None] * HEAD + offs_d[None, :], mask=inside, other=0.0)
        qk = tl.dot(q, tl.trans(k), input_precision="ieee") * sm_scale
        keep = offs_n[None, :] < seq
        if CAUSAL:
            keep = keep & (offs_m[:, None] >= offs_n[None, :])
        qk = tl.where(keep, qk, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp(qk - m_new[:, None])
        alpha = tl.exp(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + base + offs_n[:, None] * HEAD + offs_d[None, :], mask=inside, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m_i = m_new
    acc = acc / l_i[:, None]
    tl.store(Out + base + offs_m[:, None] * HEAD + offs_d[None, :], acc, mask=offs_m[:, None] < seq)


def _attention(seq: int, *, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    heads, size = 3, 32
    q, k, v = (normal(heads, seq + i, size)[:, :seq].contiguous() for i in range(3))
    out = torch.full_like(q, torch.nan)
    attention_kernel[(triton.cdiv(seq, 32), heads)](
        q, k, v, out, size**-0.5, q.stride(0), seq, CAUSAL=causal, BLOCK_M=32, BLOCK_N=64, HEAD=size
    )
    return out, functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


@case
def attention():
    return _attention(100, causal=False)


@case
def attention_causal():
    return _attention(129, causal=True)


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
    turned = tl.trans(x)
    tl.store(out_ptr + j[:, None] * B + i[None, :], turned)
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


if __name__ == "__main__":
    torch.save(
        {name: run()[0] for name, run in CASES.items() if name not in NOT_INTERPRETED}, sys.argv[1]
    )
