"""`aot.distinct`: an op of torch for indices of which no two are alike."""

from __future__ import annotations

import torch
from torch import Tensor

NAME = "aotc::distinct"


def distinct(numbers: Tensor, message: str) -> Tensor:
    """Indices as they are, of which each call checks that none is below 0 and no two are alike.

    numbers: i32[n] or i64[n]. Rows that a model writes at them into a state need no order then, and
    are written by the kernel that computes them. A call that breaks it raises an error with the
    message: `AssertionFailed` in a bundle, RuntimeError in torch.
    """
    return torch.ops.aotc.distinct(numbers, message)  # type: ignore[no-any-return]


def _distinct(numbers: Tensor, message: str) -> Tensor:
    is_once = (numbers[:, None] == numbers).sum(-1) == 1
    torch._assert_async((is_once & (numbers >= 0)).all(), message)
    return numbers.clone()


torch.library.define(NAME, "(Tensor numbers, str message) -> Tensor")
torch.library.impl(NAME, "CompositeExplicitAutograd", _distinct)
torch.library.register_fake(NAME)(lambda numbers, message: torch.empty_like(numbers))
