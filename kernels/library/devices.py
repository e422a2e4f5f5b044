"""torch's names of the devices that the library's kernels run on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aotc.aot.targets.cuda.machines import FAST_TF32

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


@functools.cache
def has_early_launch(device: torch.device) -> bool:
    """Whether a kernel can be launched there while the one before runs, and wait for its end by
    itself: "programmatic dependent launch" (CUDA's programming guide)."""
    import torch

    return is_gpu(device) and torch.cuda.get_device_capability(device) >= (9, 0)


@functools.cache
def has_fast_tf32(device: torch.device) -> bool:
    """Whether three products of TF32 are faster there than multiply-adds of f32."""
    import torch

    if not is_gpu(device):
        return False
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor in FAST_TF32
