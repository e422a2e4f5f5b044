"""Kernels whose functions are graphs of blocks: returns within branches; `while` with tensors."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from kernel_table import case, normal


@triton.jit
def early_return_kernel(out_ptr, x_ptr, n, B: tl.constexpr):
    pid = tl.program_id(0)
    if pid == n:
        tl.store(out_ptr + pid, -1.0)
        return
    x = tl.load(x_ptr + pid * B + tl.arange(0, B))
    if pid == 1:
        value = tl.sum(x)
        if value > 1e9:
            tl.store(out_ptr + pid, value)
            return
        value = value - 1
    else:
        value = tl.max(x, 0)
    tl.store(out_ptr + pid, value * 2)


@case
def returns_with_bodies():
    x, out = normal(5, 16), torch.zeros(5)
    early_return_kernel[(5,)](out, x, 3, B=16)
    expected = 2 * x.amax(1)
    expected[1], expected[3] = 2 * (x[1].sum() - 1), -1
    return out, expected


@triton.jit
def tensors_of_blocks_kernel(out_ptr, x_ptr, n, B: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * B + tl.arange(0, B)
    x = tl.load(x_ptr + at)
    if pid == n:
        tl.store(out_ptr + at, x + 1)
        return
    if pid == 2:
        x = x * 2
        if n == 7:
            return
    else:
        x = x * 3
    tl.store(out_ptr + at, x)


@case
def tensors_that_blocks_are_given():
    x, out = normal(5, 16), torch.zeros(5, 16)
    tensors_of_blocks_kernel[(5,)](out, x, 3, B=16)
    expected = 3 * x
    expected[2], expected[3] = 2 * x[2], x[3] + 1
    return out, expected


@triton.jit
def roots_kernel(out_ptr, turns_ptr, x_ptr, B: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * B + tl.arange(0, B)
    x = tl.load(x_ptr + at)
    root, before, turns = x + 1, x * 0, 0
    while tl.max(tl.abs(root - before)) > 1e-6 * tl.max(root):
        root, before = (root + x / root) * 0.5, root
        turns += 1
    tl.store(out_ptr + at, root)
    tl.store(out_ptr + at + tl.num_programs(0) * B, before)
    tl.store(turns_ptr + pid, turns)


@case
def roots_until_none_moves():
    x, out, turns = normal(3, 40)[:, :32].abs().contiguous(), torch.zeros(2, 3, 32), torch.zeros(3)
    roots_kernel[(3,)](out, turns, x, B=32)
    assert (turns > 3).all()
    assert (out[0] - out[1]).abs().max() < 1e-4
    return out[0], x.sqrt()


@triton.jit
def walk_kernel(out_ptr, x_ptr, limit, B: tl.constexpr):
    at = x_ptr + tl.arange(0, B)
    low, total = tl.zeros([B], tl.float32), tl.zeros([B], tl.float32)
    high, place = low + 0.5, tl.arange(0, B)
    while (tl.sum(total) < limit) & (tl.max(place) < 20 * B):
        x = tl.load(at)
        total += x
        low, high = high, tl.where(x > high, x, high) + low[:, None].sum(1)
        at += B
        place += B
    tl.store(out_ptr + tl.arange(0, B), total)
    tl.store(out_ptr + B + tl.arange(0, B), low)
    tl.store(out_ptr + 2 * B + tl.arange(0, B), high)
    tl.store(out_ptr + 3 * B + tl.arange(0, B), place)
    tl.store(out_ptr + 4 * B + tl.arange(0, B), tl.load(at))


@case
def pointers_that_move_until_enough():
    x, out = normal(20, 16).abs(), torch.zeros(5, 16)
    walk_kernel[(1,)](out, x, 70.0, B=16)
    total = low = torch.zeros(16)
    high, step = low + 0.5, 0
    while total.sum() < 70:
        total = total + x[step]
        low, high = high, torch.maximum(x[step], high) + low
        step += 1
    assert 2 < step < 20
    place = torch.arange(16) + 16.0 * step
    return out, torch.stack([total, low, high, place, x[step]])


@triton.jit
def powers_kernel(out_ptr, x_ptr, limit, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)
    x = tl.load(x_ptr + at)
    product = x
    while tl.max(tl.sum(tl.abs(product), 1)) > limit:
        product = tl.dot(product, x, input_precision="ieee") + tl.trans(product) * 0.125
    tl.store(out_ptr + at, product)


@case
def products_until_small():
    x, out = normal(16, 16) / 8, torch.zeros(16, 16)
    powers_kernel[(1,)](out, x, 0.05, N=16)
    product = x
    while product.abs().sum(1).max() > 0.05:
        product = product @ x + product.T / 8
    return out, product


@triton.jit
def nested_kernel(out_ptr, x_ptr, n, B: tl.constexpr):
    at = tl.arange(0, B)
    x, total = tl.load(x_ptr + at), tl.zeros([B], tl.float32)
    outer = 0
    while outer < n:
        inner, part = 0, x
        while (inner < outer) & (tl.max(part) > 0.01):
            part = part * 0.5 + tl.cumsum(part) * 0.01
            inner += 1
        if outer % 2 == 1:
            total += part
        else:
            total, x = total - part, x + 1
        outer += 1
    tl.store(out_ptr + at, total)
    tl.store(out_ptr + B + at, x)


@case
def loops_within_loops():
    x, out = normal(32), torch.zeros(2, 32)
    nested_kernel[(1,)](out, x, 7, B=32)
    total = torch.zeros(32)
    for outer in range(7):
        part, inner = x, 0
        while inner < outer and part.max() > 0.01:
            part, inner = part * 0.5 + part.cumsum(0) * 0.01, inner + 1
        if outer % 2 == 1:
            total = total + part
        else:
            total, x = total - part, x + 1
    return out, torch.stack([total, x])


@triton.jit
def jumps_kernel(out_ptr, x_ptr, n, IS_WHILE: tl.constexpr, B: tl.constexpr):
    at, total = x_ptr + tl.arange(0, B), tl.zeros([B], tl.float32)
    if IS_WHILE:
        turn = 0
        while turn < n:
            x = tl.load(at)
            total += x
            at = tl.where(x > 0, at + B, at + 2 * B)
            turn += 1
    else:
        for _ in range(n):
            x = tl.load(at)
            total += x
            at = tl.where(x > 0, at + B, at + 2 * B)
    tl.store(out_ptr + tl.arange(0, B), total)
    tl.store(out_ptr + B + tl.arange(0, B), tl.load(at))


@case
def pointers_that_each_lane_moves():
    x = normal(30, 32)
    found, expected = [], []
    for is_while in (False, True):
        out = torch.zeros(2, 32)
        jumps_kernel[(1,)](out, x, 9, is_while, B=32)
        place, total = torch.arange(32), torch.zeros(32)
        for _ in range(9):
            now = x.flatten()[place]
            total, place = total + now, torch.where(now > 0, place + 32, place + 64)
        found.append(out)
        expected.append(torch.stack([total, x.flatten()[place]]))
    return torch.stack(found), torch.stack(expected)


@triton.jit
def sides_kernel(out_ptr, x_ptr, n, B: tl.constexpr):
    pid, i = tl.program_id(0), tl.arange(0, B)
    out = out_ptr + pid * B + i
    if pid > n:
        at, other = x_ptr + i, x_ptr + 2 * i
    else:
        at, other = x_ptr + B - 1 - i, x_ptr + i
    if pid == 3:
        tl.store(out, 1.0)
        return
    if pid == 2:
        at = x_ptr + (i * 7) % B
    elif pid == 1:
        at += 1
    near = tl.where(pid > 1, at, other)  # by one condition for all lanes
    small = i.to(tl.int8)
    x = tl.load(at) + 2 * tl.load(other + 1) + 4 * tl.load(near) + tl.load(x_ptr + i + small)
    tl.store(out, x)


@case
def pointers_of_branches_and_blocks():
    x, out, i = normal(80), torch.zeros(5, 32), torch.arange(32)
    sides_kernel[(5,)](out, x, 1, B=32)
    expected = torch.ones(5, 32)
    for pid in (0, 1, 2, 4):
        at, other = (i, 2 * i) if pid > 1 else (31 - i, i)
        at = i * 7 % 32 if pid == 2 else at + 1 if pid == 1 else at
        near = at if pid > 1 else other
        expected[pid] = x[at] + 2 * x[other + 1] + 4 * x[near] + x[2 * i]
    return out, expected
