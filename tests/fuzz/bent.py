"""Functions that bend, and their gradients at NaN: vectors compute otherwise than last elements.

Where an operand of a gradient is NaN, the vectors of a kernel give 0 or NaN, elements that fill no
vector pass the gradient on; where `softshrink` gives 0, vectors give +0, the others the sign of the
operand. Which elements these are hangs on where the operands lie. Both are eager's answers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
WAYS = ("vectors", "scalars")
BENT = frozenset(
    {
        aten.softshrink.default,
        aten.hardtanh_backward.default,
        aten.hardshrink_backward.default,
        aten.softshrink_backward.default,
        aten.hardswish_backward.default,
        aten.elu_backward.default,
        aten.logit_backward.default,
    }
)
WIDEST = 64  # elements, of which every vector of every type is a part


class Bent(TorchDispatchMode):
    """All elements of such ops are computed in one of the ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self._lay = _in_vectors if way == "vectors" else _apart

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        if function not in BENT or not all(each.numel() for each in tensors):
            return function(*args, **kwargs)
        shape = torch.broadcast_shapes(*(each.shape for each in tensors))
        laid = [
            self._lay(each.expand(shape).flatten()) if isinstance(each, torch.Tensor) else each
            for each in args
        ]
        return function(*laid, **kwargs)[: shape.numel()].reshape(shape)


def _in_vectors(row: torch.Tensor) -> torch.Tensor:
    return torch.cat([row, row.new_zeros(-row.numel() % WIDEST)])


def _apart(row: torch.Tensor) -> torch.Tensor:
    return torch.stack([row, row], -1).flatten()[::2]
