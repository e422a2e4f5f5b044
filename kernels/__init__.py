"""Functions on torch's tensors with gradients; Triton's `@triton.jit` on CPU tensors on request,
and `triton.autotune` with choices that are kept.

Importing this package imports neither torch nor triton; a function imports them when it is first
asked for. All functions take tensors on CUDA and the CPU.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from aotc.kernels.library import FUNCTIONS

if TYPE_CHECKING:
    from aotc.kernels.library.adamw import adamw_step
    from aotc.kernels.library.attention import attention, attention_varlen
    from aotc.kernels.library.cross_entropy import cross_entropy
    from aotc.kernels.library.dropout import dropout
    from aotc.kernels.library.embedding_bag import embedding_bag
    from aotc.kernels.library.linear_cross_entropy import linear_cross_entropy
    from aotc.kernels.library.modules import (
        GEGLUMLP,
        GELU,
        Attention,
        CrossEntropyLoss,
        Dropout,
        EmbeddingBag,
        GroupNorm,
        LayerNorm,
        LayerNormLinear,
        Linear,
        LinearCrossEntropyLoss,
        LogSoftmax,
        ReLUSquared,
        RMSNorm,
        SiLU,
        Softmax,
        SwiGLUMLP,
    )
    from aotc.kernels.library.norm_linear import (
        layer_norm_linear,
        layer_norm_linear_gelu_dropout,
    )
    from aotc.kernels.library.normalization import group_norm, layer_norm, rms_norm
    from aotc.kernels.library.patching import Patch, patch, unpatch
    from aotc.kernels.library.pointwise import (
        geglu,
        gelu,
        relu_squared,
        silu,
        swiglu,
        vector_add,
    )
    from aotc.kernels.library.products import geglu_mlp, linear, matmul, swiglu_mlp
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


def autotune(
    configs: Sequence[Any],
    key: Sequence[str],
    prune_configs_by: dict[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    *,
    record: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Callable[[Any], Any]:
    """`triton.autotune` for a `@triton.jit` kernel: a config that was measured once is kept.

    The arguments before `record` are those of `triton.autotune`, `options` its others (`do_bench`,
    `warmup`, `rep`, `use_cuda_graph`); each new combination of the values of `key` and of element
    types has its own choice. It is looked for in `record`, a file of tuning lines that is only
    read, then in the artifact cache; else it is measured, by one process at a time, and put
    there. A choice holds for the kernel's source and all that it calls, the configs, the device's
    name and, in the cache, Triton's version. With `AOTC_FROZEN=1` nothing is measured.
    Raises TuningRecordInvalid for a damaged record, AutotuneFrozen where nothing may be measured.
    """
    from pathlib import Path

    from aotc.kernels import autotuning

    return autotuning.autotune(
        configs, key, prune_configs_by, reset_to_zero, restore_value, pre_hook, post_hook,
        None if record is None else Path(record), options,
    )  # fmt: skip


def write_choices(path: str | os.PathLike[str]) -> int:
    """Write the choices that `autotune` made or found in this process into the tuning record at
    `path`, beside the lines that are there; returns how many. Commit it, and name it as `record`.

    Raises TuningRecordInvalid where the file is no record, and EnvironmentFault.
    """
    from pathlib import Path

    from aotc.kernels import autotuning

    return autotuning.write_choices(Path(path))


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
    "GEGLUMLP",
    "GELU",
    "Attention",
    "CrossEntropyLoss",
    "Dropout",
    "EmbeddingBag",
    "GroupNorm",
    "LayerNorm",
    "LayerNormLinear",
    "Linear",
    "LinearCrossEntropyLoss",
    "LogSoftmax",
    "Patch",
    "RMSNorm",
    "ReLUSquared",
    "SiLU",
    "Softmax",
    "SwiGLUMLP",
    "adamw_step",
    "attention",
    "attention_varlen",
    "autotune",
    "cross_entropy",
    "dropout",
    "embedding_bag",
    "geglu",
    "geglu_mlp",
    "gelu",
    "group_norm",
    "layer_norm",
    "layer_norm_linear",
    "layer_norm_linear_gelu_dropout",
    "linear",
    "linear_cross_entropy",
    "log_softmax",
    "matmul",
    "on_cpu",
    "patch",
    "relu_squared",
    "rms_norm",
    "rope",
    "silu",
    "softmax",
    "swiglu",
    "swiglu_mlp",
    "unpatch",
    "use_cpu",
    "vector_add",
    "write_choices",
]
