"""Launches a `@triton.jit` kernel on the device of its tensors: CUDA's own way, or our CPU target.

Triton has one active driver in a process. Kernels on CPU tensors are compiled and run beside it, so
that both devices work in one process and in several threads.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.runtime.jit import JITFunction

from aotc.kernels.library.devices import is_gpu


def launch(kernel: JITFunction, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Run `kernel` on `grid` programs, up to three numbers; none where one of them is 0.

    arguments: the kernel's run-time arguments in order, the first one a tensor.
    constants: its `tl.constexpr` parameters and Triton's options, such as `num_warps`.
    """
    if 0 in grid:
        return
    device = arguments[0].device
    if is_gpu(device):
        if device.index == torch.cuda.current_device():
            kernel[grid](*arguments, **constants)
        else:
            with torch.cuda.device(device):
                kernel[grid](*arguments, **constants)
    else:
        from aotc.kernels.driver import run_on_cpu

        run_on_cpu(kernel, (*grid, 1, 1)[:3], arguments, constants)


def accumulator(x: torch.Tensor) -> tl.dtype:
    """The type that kernels compute in: f64 of f64, f32 of others."""
    return tl.float64 if x.dtype == torch.float64 else tl.float32
