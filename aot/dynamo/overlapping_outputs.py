"""Gradients of outputs whose elements overlap in memory.

AOTAutograd copies the gradient of an output into memory with the output's strides. For a view whose
elements overlap (`unfold`), only the last of them survives there; torch 2.13 detects the overlap of
`expand` only.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch._functorch._aot_autograd.schemas import MemoryFormatMeta


@functools.cache
def keep_their_gradients_apart() -> None:
    """From now on such a gradient has memory for each of its elements."""
    layout_of = MemoryFormatMeta.from_tensor

    def from_tensor(tensor: Tensor, *rest: Any, **named: Any) -> MemoryFormatMeta | None:
        found = layout_of(tensor, *rest, **named)
        if found is None or found.memory_format is not None or not may_overlap(tensor):
            return found
        return MemoryFormatMeta(memory_format=torch.contiguous_format)

    MemoryFormatMeta.from_tensor = staticmethod(from_tensor)  # type: ignore[method-assign]


def may_overlap(tensor: Tensor) -> bool:
    """Whether the elements of a tensor of known sizes may lie in one place."""
    end = 0  # what the dims so far reach
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1:
            if stride <= end:
                return True
            end += stride * (extent - 1)
    return False
