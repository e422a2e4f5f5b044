"""The kernel library, and Triton's `@triton.jit` on CPU tensors on request.

Importing this package imports neither torch nor triton.
"""

from __future__ import annotations

from contextlib import AbstractContextManager


def use_cpu() -> None:
    """Makes the CPU Triton's active device: `kernel[grid](…)` then runs on CPU tensors.

    Raises DriverFault where the processor lacks AVX2.
    """
    from aotc.kernels import driver

    driver.use_cpu()


def on_cpu() -> AbstractContextManager[None]:
    """`use_cpu` for the length of a `with` block; afterwards the driver is what it was."""
    from aotc.kernels import driver

    return driver.on_cpu()


__all__ = ["on_cpu", "use_cpu"]
