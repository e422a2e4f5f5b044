"""Functions on torch's tensors with gradients; Triton's `@triton.jit` on CPU tensors on request.

Importing this package imports neither torch nor triton; a function imports them when it is first
asked for. All functions take tensors on CUDA and the CPU.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from aotc.kernels.library import FUNCTIONS

if TYPE_CHECKING:
    from aotc.kernels.library.adamw import adamw_step
    from aotc.kernels.library.cross_entropy import cross_entropy
    from aotc.kernels.library.dropout import dropout
    from aotc.kernels.library.embedding_bag import embedding_bag
    from aotc.kernels.library.normalization import group_norm, layer_norm, rms_norm
    from aotc.kernels.library.pointwise import (
        geglu,
        gelu,
        relu_squared,
        silu,
        swiglu,
        vector_add,
    )
    from aotc.kernels.library.rope import rope
    from aotc.kernels.library.softmax import log_softmax, softmax


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


def __getattr__(name: str) -> Any:
    """A function of the library; its file is imported when it is first asked for."""
    if name not in FUNCTIONS:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    found = getattr(importlib.import_module(f"{__name__}.library.{FUNCTIONS[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *FUNCTIONS})


__all__ = [
    "adamw_step",
    "cross_entropy",
    "dropout",
    "embedding_bag",
    "geglu",
    "gelu",
    "group_norm",
    "layer_norm",
    "log_softmax",
    "on_cpu",
    "relu_squared",
    "rms_norm",
    "rope",
    "silu",
    "softmax",
    "swiglu",
    "use_cpu",
    "vector_add",
]
