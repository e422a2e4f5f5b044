"""A model that calls Triton kernels of its own in every way that a bundle takes.

Sizes are odd, so that every mask counts. `Model` gives one output for each way, by name.
"""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton
from triton.language.extra import libdevice as precise

ROWS, COLUMNS = 23, 70
SLOPE = tl.constexpr(0.25)
WIDTH: tl.constexpr = 128


@triton.jit
def leaky(value):
    return tl.where(value > 0, value, value * SLOPE)


bent = leaky  # a second name of the same function


@triton.jit
def scale_add(x_ptr, y_ptr, out_ptr, columns, step, alpha, BLOCK: tl.constexpr):
    """out = alpha·leaky(x) + y, where y's columns are `step` elements apart; % and quotes: 'ok'."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row.to(tl.int64) * columns + column, mask=mask)
    y = tl.load(y_ptr + row + column * step.to(tl.int64), mask=mask)
    tl.store(out_ptr + row * columns + column, alpha * bent(x) + y, mask=mask)


@triton_op("aotc_tests::scale_add", mutates_args={})
def scaled(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (x.shape[0],)
    step = y.stride(1)
    wrap_triton(scale_add)[grid](x, y, out, x.shape[1], step, alpha, BLOCK=128, num_warps=2)
    return out


@triton.jit
def statistics(x_ptr, largest_ptr, total_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    largest = tl.max(x, 0)
    tl.store(largest_ptr + row, largest)
    tl.store(total_ptr + row, tl.sum(tl.exp(x - largest), 0))


@triton.jit
def normalize(x_ptr, largest_ptr, total_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask)
    value = tl.exp(x - tl.load(largest_ptr + row)) / tl.load(total_ptr + row)
    tl.store(out_ptr + row * columns + column, value, mask=mask)


@triton_op("aotc_tests::softmax", mutates_args={})
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Two kernels, with tensors between them."""
    rows, columns = x.shape
    largest, total = x.new_empty(rows), x.new_empty(rows)
    out = torch.empty_like(x)
    wrap_triton(statistics)[(rows,)](x, largest, total, columns, BLOCK=WIDTH)
    wrap_triton(normalize)[(rows,)](x, largest, total, out, columns, BLOCK=WIDTH)
    return out


@triton_op("aotc_tests::row_statistics", mutates_args={})
def row_statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two results of one kernel."""
    largest, total = x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
    wrap_triton(statistics)[(x.shape[0],)](x, largest, total, x.shape[1], BLOCK=WIDTH)
    return largest, total


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64, "IS_SQUARED": True}, num_warps=2),
        triton.Config({"BLOCK": 256, "IS_SQUARED": True}, num_warps=4, num_stages=2),
    ],
    key=["count"],
    reset_to_zero=["out_ptr"],
)
@triton.jit
def buckets(x_ptr, out_ptr, count, BLOCK: tl.constexpr, IS_SQUARED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    if IS_SQUARED:
        x = x * x
    tl.atomic_add(out_ptr + at % 5, x, mask=at < count)


@triton_op("aotc_tests::bucket_sums", mutates_args={})
def bucket_sums(x: torch.Tensor) -> torch.Tensor:
    """Sums by atomics into zeros, by an autotuned kernel."""
    out = torch.zeros(5)
    count = x.numel()
    wrap_triton(buckets)[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, out, count)
    return out


@triton.jit
def accumulate(x_ptr, step_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    value = tl.load(x_ptr + at, mask=mask) + tl.load(step_ptr)
    tl.store(x_ptr + at, value, mask=mask)


@triton_op("aotc_tests::accumulate", mutates_args={"x"})
def accumulated(x: torch.Tensor, step: torch.Tensor) -> None:
    """Changes its argument in place; `step` has one element."""
    wrap_triton(accumulate)[(triton.cdiv(x.numel(), 64),)](x, step, x.numel(), BLOCK=64)


@triton.autotune([triton.Config({}, num_warps=1), triton.Config({}, num_warps=2)], key=[])
@triton.jit
def blended(x_ptr, out_ptr, count, num_warps: tl.constexpr, share=0.3, BLOCK: tl.constexpr = 2048):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    # In the type of `share`, as a launch gives it: more digits than x has.
    tl.store(out_ptr + at, x * share + num_warps // num_warps, mask=at < count)


@triton_op("aotc_tests::blend", mutates_args={})
def blend(x: torch.Tensor) -> torch.Tensor:
    """Leaves parameters to their defaults, one of which is no compile-time number."""
    out = torch.empty(x.shape)
    wrap_triton(blended)[(1,)](x, out, x.numel())
    return out


@triton.jit
def gated(gate_ptr, up_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    gate = tl.load(gate_ptr + row * stride + column, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + row * stride + column, mask=mask).to(tl.float32)
    tl.store(out_ptr + row * columns + column, precise.tanh(gate) * up, mask=mask)


@triton_op("aotc_tests::gate", mutates_args={})
def gate(x: torch.Tensor) -> torch.Tensor:
    """Reads the halves of each row where they lie."""
    first, second = x.chunk(2, -1)
    out = torch.empty(first.shape, dtype=x.dtype)
    grid = (x.shape[0],)
    wrap_triton(gated)[grid](first, second, out, first.shape[1], first.stride(0), BLOCK=64)
    return out


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(COLUMNS, COLUMNS)

    def forward(self, x):
        hidden = self.linear(x)
        scaled_up = scaled(hidden, x.t().contiguous().t(), 0.5)
        largest, _ = row_statistics(scaled_up)
        changed, changed_twice = hidden.relu(), hidden.relu()
        accumulated(changed, torch.full((), 2.0))
        accumulated(changed_twice, largest[:1])
        accumulated(changed_twice, largest[3:4])
        return {
            "scaled": scaled_up,
            "softmax": softmax(scaled_up) * 2,
            "largest": largest,
            "sums": bucket_sums(hidden),
            "changed": changed,
            "changed_twice": changed_twice,
            "blend": blend(x.bfloat16()),
            "gate": gate(hidden),
            "gate_of_halves": gate(x.bfloat16()).float(),
            "scaled_halves": scaled(x.bfloat16(), x.bfloat16().t().contiguous().t(), 0.3),
        }


torch.manual_seed(0)
model = Model()
example_inputs = (torch.randn(ROWS, COLUMNS),)
