"""Functions of elements that do not depend on each other."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotc.kernels.library.checks import check_floats
from aotc.kernels.library.launch import launch
from aotc.kernels.library.layouts import contiguous_like
from aotc.kernels.library.registration import define, differentiate
from aotc.kernels.library.tiles import POINTWISE


@triton.jit
def add_kernel(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    total = tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask)
    tl.store(out + at, total, mask=mask)


def vector_add(x: Tensor, y: Tensor) -> Tensor:
    """x + y, element by element.

    x, y: floats of one type, of shapes that broadcast. Returns a contiguous tensor.
    Raises KernelDtypeUnsupported and KernelDeviceInvalid, and RuntimeError for shapes that do not
    broadcast.
    """
    check_floats("vector_add", x=x, y=y)
    left, right = torch.broadcast_tensors(x, y)
    result: Tensor = _ADD(left, right)
    return result


def _run_add(x: Tensor, y: Tensor) -> Tensor:
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    block, num_warps = POINTWISE[x.device.type]
    grid = (triton.cdiv(x.numel(), block),)
    launch(add_kernel, grid, x, y, out, x.numel(), BLOCK=block, num_warps=num_warps)
    return out


_ADD = define(
    "vector_add(Tensor x, Tensor y) -> Tensor",
    run=_run_add,
    fake=contiguous_like,
    meaning=torch.add,
)
differentiate(_ADD, lambda ctx, inputs, output: None, lambda ctx, gradient: (gradient, gradient))
