"""What the library's functions ask of their arguments; each failure is an error of eager's type."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aotc.aot.errors import (
    KernelDeviceInvalid,
    KernelDimInvalid,
    KernelDtypeUnsupported,
    KernelShapeInvalid,
)

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
"""Element types of every function; f64 is there for `gradcheck`."""


def check_floats(function: str, **tensors: Tensor | None) -> None:
    """Raise `KernelDtypeUnsupported` for a tensor that is not of a type in `FLOATS`, or not of the
    first one's, and `KernelDeviceInvalid` for one that lies elsewhere."""
    first: Tensor | None = None
    for name, x in tensors.items():
        if x is None:
            continue
        if first is None and x.dtype not in FLOATS:
            expected = "f32, f16, bf16 or f64"
            raise KernelDtypeUnsupported(
                function=function, argument=name, found=x.dtype, expected=expected
            )
        first = x if first is None else first
        if x.dtype != first.dtype:
            raise KernelDtypeUnsupported(
                function=function, argument=name, found=x.dtype, expected=str(first.dtype)
            )
        check_device(function, name, x, first)


def check_parameters(function: str, x: Tensor, **tensors: Tensor | None) -> None:
    """The same for weights beside `x`, which may also be f32 where `x` is f16 or bf16."""
    for name, weight in tensors.items():
        if weight is None:
            continue
        if weight.dtype not in (x.dtype, torch.float32):
            expected = str(x.dtype) + (" or torch.float32" if x.dtype != torch.float32 else "")
            raise KernelDtypeUnsupported(
                function=function, argument=name, found=weight.dtype, expected=expected
            )
        check_device(function, name, weight, x)


def check_device(function: str, name: str, x: Tensor, first: Tensor) -> None:
    """Raise `KernelDeviceInvalid` where `x` is not on the device of `first`."""
    if x.device != first.device:
        raise KernelDeviceInvalid(
            function=function, argument=name, found=x.device, expected=first.device
        )


def check_shape(function: str, name: str, x: Tensor | None, expected: Sequence[int]) -> None:
    """Raise `KernelShapeInvalid` where `x` is there and has another shape."""
    if x is not None and tuple(x.shape) != tuple(expected):
        raise KernelShapeInvalid(
            function=function, argument=name, found=list(x.shape), expected=list(expected)
        )


def dim_of(function: str, x: Tensor, dim: int) -> int:
    """`dim` counted from the first one; raises `KernelDimInvalid` where `x` does not have it."""
    rank = max(1, x.dim())
    if not -rank <= dim < rank:
        raise KernelDimInvalid(function=function, found=dim, low=-rank, high=rank - 1)
    return dim % rank
