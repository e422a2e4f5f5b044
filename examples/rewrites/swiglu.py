"""Rewrites of one's own: an equation, and an expression replaced by one's own Triton kernel.

`aotc build --rewrites` reads this file; importing it is enough for the back ends of torch.compile.
"""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

from aotc import aot
from aotc.aot import ops


@triton.jit
def gate_kernel(gate_ptr, up_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """out = silu(gate) · up"""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    gate = tl.load(gate_ptr + at, mask=mask)
    up = tl.load(up_ptr + at, mask=mask)
    tl.store(out_ptr + at, gate * tl.sigmoid(gate) * up, mask=mask)


@triton_op("aotc_examples::gate", mutates_args={})
def gate(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(gate)
    count, block = out.numel(), 1024
    wrap_triton(gate_kernel)[(triton.cdiv(count, block),)](gate, up, out, count, BLOCK=block)
    return out


# x · sigmoid(x) → silu(x)
@aot.rewrite(lambda x: x * ops.sigmoid(x))
def swish(x):
    return ops.silu(x)


# silu(x) · y → one call of `gate_kernel`
@aot.rewrite(lambda x, y: ops.silu(x) * y, when=lambda x, y: x.shape == y.shape, with_torch=True)
def gated_by_kernel(x, y):
    return torch.ops.aotc_examples.gate(x, y)
