"""`CASES`: name → function that runs a hand-written Triton kernel on CPU tensors and returns
(found, expected), by torch. `tutorial_kernels.py` and `language_kernels.py` fill it."""

from __future__ import annotations

from collections.abc import Callable

import torch

Case = Callable[[], tuple[torch.Tensor, torch.Tensor]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)
