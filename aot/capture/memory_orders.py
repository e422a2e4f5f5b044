"""The memory order (permutation of dims by stride) of a model's inputs and outputs that are not
contiguous."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotc.aot.ir.memory_order import Order, Orders

# Rank → torch's memory format whose channels are the last dim in memory.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def orders_of(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> Orders:
    """The orders of inputs are those of the example. An output has the model's own order if that is
    channels last; any other is contiguous, since the layout of an output is often an accident of
    the last view."""
    return Orders(tuple(map(_order, inputs)), tuple(map(_channels_last, outputs)))


def _channels_last(value: torch.Tensor) -> Order:
    form = CHANNELS_LAST.get(value.dim())
    if not _is_plain(value) or form is None or value.is_contiguous():
        return ()
    is_last = value.is_contiguous(memory_format=form)
    return (0, *range(2, value.dim()), 1) if is_last else ()


def _order(value: torch.Tensor) -> Order:
    """The dims by falling stride; empty where the tensor is contiguous, or has gaps."""
    if not _is_plain(value) or value.is_contiguous():
        return ()
    strides = value.stride()
    wide = [axis for axis in range(value.dim()) if value.shape[axis] != 1]
    falling = iter(sorted(wide, key=lambda axis: -strides[axis]))
    # Dims of one element lie anywhere: they stay where a contiguous tensor would have them.
    order = tuple(next(falling) if axis in wide else axis for axis in range(value.dim()))
    return _channels_last(value) or (order if value.permute(order).is_contiguous() else ())


def _is_plain(value: torch.Tensor) -> bool:
    return value.layout is torch.strided and not value.is_complex() and value.numel() > 0
