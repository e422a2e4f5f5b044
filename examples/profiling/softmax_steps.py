"""Softmax over rows in five steps, from one kernel for each operation to one read and one write.

docs/how-to/softmax-to-the-limit.md goes through them by what `aotc profile` shows. The kernels are
ones of Triton behind ops of torch; each step is an entry point of one bundle:

    aotc build examples/profiling/softmax_steps.py -o steps.aotc
    aotc profile steps.aotc --entry apart
"""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

from aotc.aot import EntryPoint

# 64 MiB, more than a GPU keeps in its second-level cache; few rows where there is no GPU.
ROWS, COLUMNS = (4096 if torch.cuda.is_available() else 8), 8192
STEP = 1024  # elements of a row that a program looks at, where it does not hold the row


# -- 1. apart: a kernel for each operation ---------------------------------------------------------


@triton.jit
def maximum(x_ptr, top_ptr, columns, STEP: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, STEP)
    top = tl.full((STEP,), float("-inf"), tl.float32)
    for start in range(0, columns, STEP):
        top = tl.maximum(top, tl.load(x_ptr + row * columns + start + lane).to(tl.float32))
    tl.store(top_ptr + row, tl.max(top, 0))


@triton.jit
def exponential(x_ptr, top_ptr, power_ptr, columns, STEP: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * STEP + tl.arange(0, STEP)
    x = tl.load(x_ptr + row * columns + at).to(tl.float32)
    tl.store(power_ptr + row * columns + at, tl.exp(x - tl.load(top_ptr + row)))


@triton.jit
def add_up(power_ptr, total_ptr, columns, STEP: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, STEP)
    total = tl.zeros((STEP,), tl.float32)
    for start in range(0, columns, STEP):
        total += tl.load(power_ptr + row * columns + start + lane)
    tl.store(total_ptr + row, tl.sum(total, 0))


@triton.jit
def divide(power_ptr, total_ptr, out_ptr, columns, STEP: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * STEP + tl.arange(0, STEP)
    power = tl.load(power_ptr + row * columns + at)
    tl.store(out_ptr + row * columns + at, power / tl.load(total_ptr + row))


@triton_op("softmax_steps::apart", mutates_args={})
def apart(x: torch.Tensor) -> torch.Tensor:
    """Each operation reads and writes memory: 12 bytes an element are read, and 6 written."""
    rows, columns = x.shape
    top, total = (x.new_empty(rows, dtype=torch.float32) for _ in range(2))
    power, out = x.new_empty(x.shape, dtype=torch.float32), torch.empty_like(x)
    parts = (rows, columns // STEP)
    wrap_triton(maximum)[(rows,)](x, top, columns, STEP=STEP)
    wrap_triton(exponential)[parts](x, top, power, columns, STEP=STEP)
    wrap_triton(add_up)[(rows,)](power, total, columns, STEP=STEP)
    wrap_triton(divide)[parts](power, total, out, columns, STEP=STEP)
    return out


# -- 2. together: one kernel, that goes along a row three times ------------------------------------


@triton.jit
def three_passes(x_ptr, out_ptr, columns, STEP: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, STEP)
    x_ptr += row * columns
    top = tl.full((STEP,), float("-inf"), tl.float32)
    for start in range(0, columns, STEP):
        top = tl.maximum(top, tl.load(x_ptr + start + lane).to(tl.float32))
    top = tl.max(top, 0)
    total = tl.zeros((STEP,), tl.float32)
    for start in range(0, columns, STEP):
        total += tl.exp(tl.load(x_ptr + start + lane).to(tl.float32) - top)
    scale = 1.0 / tl.sum(total, 0)
    for start in range(0, columns, STEP):
        power = tl.exp(tl.load(x_ptr + start + lane).to(tl.float32) - top)
        tl.store(out_ptr + row * columns + start + lane, power * scale)


@triton_op("softmax_steps::together", mutates_args={})
def together(x: torch.Tensor) -> torch.Tensor:
    """Nothing but the result is written; a row is read from memory and twice from a cache."""
    out = torch.empty_like(x)
    wrap_triton(three_passes)[(x.shape[0],)](x, out, x.shape[1], STEP=STEP)
    return out


# -- 3. online: maximum and sum in one pass --------------------------------------------------------


@triton.jit
def two_passes(x_ptr, out_ptr, columns, STEP: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, STEP)
    x_ptr += row * columns
    top = tl.full((STEP,), float("-inf"), tl.float32)
    total = tl.zeros((STEP,), tl.float32)
    for start in range(0, columns, STEP):
        x = tl.load(x_ptr + start + lane).to(tl.float32)
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.exp(x - higher)
        top = higher
    highest = tl.max(top, 0)
    scale = 1.0 / tl.sum(total * tl.exp(top - highest), 0)
    for start in range(0, columns, STEP):
        power = tl.exp(tl.load(x_ptr + start + lane).to(tl.float32) - highest)
        tl.store(out_ptr + row * columns + start + lane, power * scale)


@triton_op("softmax_steps::online", mutates_args={})
def online(x: torch.Tensor) -> torch.Tensor:
    """Each lane keeps its maximum and its sum below that (Milakov and Gimelshein, "Online
    normalizer calculation for softmax", arXiv 1805.02867)."""
    out = torch.empty_like(x)
    wrap_triton(two_passes)[(x.shape[0],)](x, out, x.shape[1], STEP=STEP)
    return out


# -- 4 and 5. held: a program has its row in registers ---------------------------------------------


@triton.jit
def one_pass(x_ptr, out_ptr, COLUMNS: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + lane).to(tl.float32)
    power = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * COLUMNS + lane, power * (1.0 / tl.sum(power, 0)))


@triton_op("softmax_steps::held", mutates_args={})
def held(x: torch.Tensor) -> torch.Tensor:
    """By one warp: 256 elements a thread, more than it has registers."""
    out = torch.empty_like(x)
    wrap_triton(one_pass)[(x.shape[0],)](x, out, COLUMNS=x.shape[1], num_warps=1)
    return out


@triton_op("softmax_steps::spread", mutates_args={})
def spread(x: torch.Tensor) -> torch.Tensor:
    """By eight warps: 32 elements a thread."""
    out = torch.empty_like(x)
    wrap_triton(one_pass)[(x.shape[0],)](x, out, COLUMNS=x.shape[1], num_warps=8)
    return out


STEPS = {"apart": apart, "together": together, "online": online, "held": held, "spread": spread}
x = torch.randn(ROWS, COLUMNS).bfloat16()


def of(step):
    """The function of an entry point: it has the model, which has nothing to say, and the input."""
    return lambda model, x: step(x)


model = torch.nn.Identity()
entry_points = {name: EntryPoint((x,), function=of(step)) for name, step in STEPS.items()}
