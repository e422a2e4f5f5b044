"""A gated block whose norm and gate are Triton kernels of the model's own, compiled with the rest.

`torch.library.triton_op` makes a kernel an op of torch; `wrap_triton` lets it be seen through. On
CPU tensors eager torch needs a driver for Triton: `aotc.kernels.use_cpu()`.
"""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def add_rms_norm(x_ptr, residual_ptr, weight_ptr, sum_ptr, out_ptr, width, BLOCK: tl.constexpr):
    """One row: sum = x + residual, out = sum / root of its mean square · weight."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < width
    x = tl.load(x_ptr + row * width + at, mask=mask, other=0.0)
    total = x + tl.load(residual_ptr + row * width + at, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(total * total, 0) / width + 1e-6)
    tl.store(sum_ptr + row * width + at, total, mask=mask)
    weight = tl.load(weight_ptr + at, mask=mask)
    tl.store(out_ptr + row * width + at, total * scale * weight, mask=mask)


@triton_op("aotc_examples::add_rms_norm", mutates_args={})
def normed_sum(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    total, out = torch.empty_like(x), torch.empty_like(x)
    rows, width = x.numel() // x.shape[-1], x.shape[-1]
    block = triton.next_power_of_2(width)
    wrap_triton(add_rms_norm)[(rows,)](x, residual, weight, total, out, width, BLOCK=block)
    return total, out


@triton.autotune([triton.Config({"BLOCK": 1024}), triton.Config({"BLOCK": 4096})], key=["width"])
@triton.jit
def gate_and_up(both_ptr, out_ptr, count, width, BLOCK: tl.constexpr):
    """out = silu(gate) · up, where each row of `both` holds a gate and an up of `width` each."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask, start = at < count, at // width * 2 * width + at % width
    gate = tl.load(both_ptr + start, mask=mask)
    up = tl.load(both_ptr + start + width, mask=mask)
    tl.store(out_ptr + at, gate * tl.sigmoid(gate) * up, mask=mask)


@triton_op("aotc_examples::gated", mutates_args={})
def gated(both: torch.Tensor) -> torch.Tensor:
    width = both.shape[-1] // 2
    out = both.new_empty(*both.shape[:-1], width)

    def grid(meta):
        return (triton.cdiv(out.numel(), meta["BLOCK"]),)

    wrap_triton(gate_and_up)[grid](both, out, out.numel(), width)
    return out


class Block(torch.nn.Module):
    def __init__(self, width=192, hidden=512):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.gate_up = torch.nn.Linear(width, 2 * hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x, residual):
        residual, normed = normed_sum(x, residual, self.weight)
        return residual + self.down(gated(self.gate_up(normed)))


def build_model():
    return Block()


example_inputs = (torch.randn(2, 65, 192), torch.randn(2, 65, 192))
