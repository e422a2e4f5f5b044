"""Tensors as rows: where each row begins in memory, and how its elements follow each other."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Rows(NamedTuple):
    """The rows of a tensor along one dim.

    Element (row, column) lies `(row // inner) * outer_stride + row % inner + column * inner`
    elements behind the first one of `data`.
    """

    data: Tensor
    count: int
    length: int
    inner: int
    outer_stride: int


def rows_of(x: Tensor, dim: int) -> Rows:
    """The rows along `dim`, which is not negative, of what `x` holds: in its own memory where that
    has steady steps, else in a contiguous copy."""
    length, inner = x.shape[dim], math.prod(x.shape[dim + 1 :])
    count = math.prod(x.shape[:dim]) * inner
    if not x.is_contiguous():
        stride = _outer_stride(x) if dim == x.dim() - 1 else None
        if stride is not None:
            return Rows(x, count, length, 1, stride)
        x = x.contiguous()
    return Rows(x, count, length, inner, length * inner)


def _outer_stride(x: Tensor) -> int | None:
    """Elements from one row of the last dim to the next; None where that is not one number."""
    sizes, strides = x.shape, x.stride()
    if sizes[-1] > 1 and strides[-1] != 1:
        return None
    found: int | None = None
    expected = 0
    for size, stride in zip(reversed(sizes[:-1]), reversed(strides[:-1]), strict=True):
        if size == 1:
            continue
        if found is None:
            found = stride
        elif stride != expected:
            return None
        expected = stride * size
    return found or (0 if found == 0 else sizes[-1])


def contiguous_like(x: Tensor, *_: Any) -> Tensor:
    """An empty contiguous tensor of the first argument's shape and type."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def rows_like(x: Tensor) -> Tensor:
    """An empty tensor of the same shape and type whose last dim's elements lie side by side: laid
    out as torch's `empty_like` lays it where that is so there, else contiguous."""
    found = torch.empty_like(x)
    is_of_rows = found.shape[-1] < 2 or found.stride(-1) == 1
    return found if is_of_rows else contiguous_like(x)


def laid_like(x: Tensor, like: Tensor) -> Tensor:
    """`x`, or its elements laid out as `rows_like(like)` where they have other steps."""
    if _has_steps_of(x, like) and _is_without_gaps(x):
        return x  # without asking for memory
    wanted = rows_like(like)
    return x if _has_steps_of(x, wanted) else wanted.copy_(x)


def _has_steps_of(x: Tensor, other: Tensor) -> bool:
    """Whether both have the same strides along dims of two or more."""
    pairs = zip(x.shape, x.stride(), other.stride(), strict=True)
    return all(size < 2 or one == two for size, one, two in pairs)


def _is_without_gaps(x: Tensor) -> bool:
    last = sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return last + 1 == x.numel()
