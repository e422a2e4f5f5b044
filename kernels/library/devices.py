"""torch's names of the devices that the library's kernels run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from triton.backends.compiler import GPUTarget

CPU, GPU = "cpu", "cuda"
DEVICES = (CPU, GPU)


def is_gpu(device: torch.device) -> bool:
    """Whether Triton launches kernels there by itself."""
    return device.type == GPU


def target_name(target: GPUTarget) -> str:
    """Triton's target as bundles and tuning records name it: `cuda-sm_90`."""
    architecture = f"sm_{target.arch}" if target.backend == GPU else target.arch
    return f"{target.backend}-{architecture}"
