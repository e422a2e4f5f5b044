"""The kernels of Triton's tutorials, as people write them; rows of `kernel_table.py`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from kernel_table import case, normal
from torch.nn import functional


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
