"""Launches a `@triton.jit` kernel on the device of its tensors: CUDA's own way, or our CPU target.

Triton has one active driver in a process. Kernels on CPU tensors are compiled and run beside it, so
that both devices work in one process and in several threads.

On CUDA a launch like one before, but for its pointers and its grid, goes to the compiled kernel at
once: Triton's own way there inspects each argument once more, and takes longer than short kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from aotc.kernels.library.devices import is_gpu

_HAS_KNOWN_LAUNCHER = triton.__version__.startswith("3.6.")
"""Whether `CompiledKernel.run` takes what `_relaunch` gives; others launch by Triton alone."""
_ALIGNMENT_BYTES = 16
"""Of a pointer, that Triton generates other code for."""
_MOST_KNOWN = 8192
_PLAIN = (int, float, bool, str)


class _Known(NamedTuple):
    """A kernel that has been launched, and what else of the launch has to stay alive."""

    kernel: CompiledKernel
    constants: tuple[Any, ...]
    kept: tuple[Any, ...]


_known: dict[tuple[Any, ...], _Known] = {}


def launch(kernel: JITFunction, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Run `kernel` on `grid` programs, up to three numbers; none where one of them is 0.

    arguments: the kernel's run-time arguments in order, the first one a tensor.
    constants: its `tl.constexpr` parameters and Triton's options, such as `num_warps`.
    """
    if 0 in grid:
        return
    device = arguments[0].device
    if not is_gpu(device):
        from aotc.kernels.driver import run_on_cpu

        run_on_cpu(kernel, (*grid, 1, 1)[:3], arguments, constants)
    elif device.index == torch._C._cuda_getDevice():  # of a tensor there: CUDA is initialised
        _launch_on_gpu(device.index, kernel, grid, arguments, constants)
    else:
        with torch.cuda.device(device):
            _launch_on_gpu(device.index, kernel, grid, arguments, constants)


def _launch_on_gpu(
    device: int, kernel: JITFunction, grid: tuple[int, ...],
    arguments: tuple[Any, ...], constants: dict[str, Any],
) -> None:  # fmt: skip
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    has_hooks = getattr(enter, "calls", enter) or getattr(leave, "calls", leave)
    if has_hooks or not _HAS_KNOWN_LAUNCHER:
        kernel[grid](*arguments, **constants)
        return
    # numbers decide code too: 1, and multiples of 16
    key: list[Any] = [id(kernel), device, *constants]
    given: list[Any] = []
    for each in arguments:
        if isinstance(each, torch.Tensor):
            address = each.data_ptr()
            key.append(each.dtype if address % _ALIGNMENT_BYTES == 0 else (each.dtype,))
            given.append(address)
        else:
            key.append(each)
            given.append(each)
    for value in constants.values():
        key.append(value if value.__class__ in _PLAIN else id(value))
    known = _known.get(tuple(key))
    if known is not None:
        _relaunch(known, device, grid, given)
        return
    made = kernel[grid](*arguments, **constants)
    if isinstance(made, CompiledKernel) and not kernel.pre_run_hooks:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        names = kernel.arg_names[len(arguments) :]
        kept = (kernel, *constants.values())
        _known[tuple(key)] = _Known(made, tuple(constants.get(name) for name in names), kept)


def _relaunch(known: _Known, device: int, grid: tuple[int, ...], given: list[Any]) -> None:
    kernel, count = known.kernel, len(grid)
    kernel.run(
        grid[0], grid[1] if count > 1 else 1, grid[2] if count > 2 else 1,
        torch._C._cuda_getCurrentRawStream(device), kernel.function, kernel.packed_metadata,
        None, None, None, *given, *known.constants,
    )  # fmt: skip


def accumulator(x: torch.Tensor) -> tl.dtype:
    """The type that kernels compute in: f64 of f64, f32 of others."""
    return tl.float64 if x.dtype == torch.float64 else tl.float32
