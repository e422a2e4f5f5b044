"""Replacements for torch functions that decompose ops before a trace sees them.

`CORRECTED` are those whose results differ from eager's kernels, in torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

aten = torch.ops.aten
MEAN, SUM = 1, 2  # torch's numbers of reductions

# Op → dispatch key, and the function at it; None where the op stays whole.
Replaced = Mapping[Any, tuple[DispatchKey, Callable[..., Any] | None]]


@contextmanager
def replaced(functions: Replaced) -> Iterator[None]:
    """Inside, traces see these functions in place of torch's own."""
    before = {op: (key, op.py_kernels.get(key)) for op, (key, _) in functions.items()}
    _put(functions)
    try:
        yield
    finally:
        _put(before)


def _put(functions: Replaced) -> None:
    for op, (key, function) in functions.items():
        op.py_kernels.pop(key, None)
        if function is not None:
            op.py_kernels[key] = function
        op._dispatch_cache.clear()


def _multilabel_margin_loss(data: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Σ max(0, 1 - (x of a label - x of another class)) / classes over both, and which classes are
    labels. The labels of a row are those before its first -1; torch counts class 0 for each other.

    data: f[batch, classes] or f[classes]; target: whole numbers of the same shape.
    """
    rows, labels = torch.atleast_2d(data), torch.atleast_2d(target)
    torch._check(rows.dim() == 2 and rows.shape[1] != 0 and data.shape == target.shape)
    classes = torch.arange(rows.shape[1], device=data.device)
    are_labels = (labels < 0).cumsum(1) == 0
    hit = (labels.unsqueeze(2) == classes) & are_labels.unsqueeze(2)  # [batch, label, class]
    is_label = hit.any(1)
    of_labels = rows.gather(1, torch.where(are_labels, labels, 0))
    margins = (1 - of_labels.unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)
    counts = are_labels.unsqueeze(2) & ~is_label.unsqueeze(1)
    found = torch.where(counts, margins, 0).sum((1, 2)) / rows.shape[1]
    if reduction in (MEAN, SUM):
        found = found.mean() if reduction == MEAN else found.sum()
    elif data.dim() < 2:
        found = found.squeeze(0)
    return found, is_label.to(data.dtype).reshape(target.shape)


CORRECTED: Replaced = {
    aten.multilabel_margin_loss_forward.default: (DispatchKey.Autograd, _multilabel_margin_loss),
}
