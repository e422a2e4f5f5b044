"""`aotc::distinct`: an op of torch that passes on integers and asserts that no two are equal."""

from __future__ import annotations

import torch
from torch import Tensor

NAME = "aotc::distinct"


def distinct(numbers: Tensor, message: str) -> Tensor:
    """Whole numbers [n] as they are. A call in which one is below 0, or is there twice, raises an
    error with the message (torch RuntimeError, aotc AssertionFailed)."""
    return torch.ops.aotc.distinct(numbers, message)  # type: ignore[no-any-return]


def _distinct(numbers: Tensor, message: str) -> Tensor:
    is_once = (numbers[:, None] == numbers).sum(-1) == 1
    torch._assert_async((is_once & (numbers >= 0)).all(), message)
    return numbers.clone()


torch.library.define(NAME, "(Tensor numbers, str message) -> Tensor")
torch.library.impl(NAME, "CompositeExplicitAutograd", _distinct)
torch.library.register_fake(NAME)(lambda numbers, message: torch.empty_like(numbers))
