"""Ops that torch takes apart by functions of its own before a trace sees them, traced otherwise.

Apart from `decompositions.py`, which a process that finds its programs in the cache never imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

aten = torch.ops.aten


def _cumprod_backward(gradient: Tensor, data: Tensor, dim: int, products: Tensor) -> Tensor:
    """Of products y of all elements up to each, with gradients g of them.

    Before a row's first 0: Σ g ∘ y over what follows, divided by the element. Of the first 0: the
    product before it times Σ g ∘ (the product of what follows it), up to the second 0. 0 behind it.
    torch 2.11 traces a loop over the elements instead, some ten ops for each.
    """
    if data.is_complex():
        op = aten.cumprod_backward.default
        key = DispatchKey.CompositeImplicitAutograd
        return op._op_dk(key, gradient, data, dim, products)  # type: ignore[no-any-return]
    if not data.dim():
        return gradient
    zero = data == 0
    zeros = zero.cumsum(dim)
    before, between = zeros == 0, zeros == 1
    first = between & zero
    weighed = torch.where(before, gradient * products, 0.0)
    ahead = weighed.flip(dim).cumsum(dim).flip(dim) / torch.where(before, data, 1.0)
    behind = torch.where(between & ~zero, data, 1.0).cumprod(dim)
    sums = (torch.where(between, behind, 0.0) * gradient).sum(dim, keepdim=True)
    leading = torch.where(before, data, 1.0).prod(dim, keepdim=True)
    found = torch.where(first, sums * leading, 0.0)
    return torch.where(before, ahead, found).to(data.dtype)


# Op → dispatch key, and what stands there while a graph is traced in place of torch's own function.
TRACED_OTHERWISE: Mapping[Any, tuple[DispatchKey, Callable[..., Any] | None]] = {
    # Whole: torch's Python functions differentiate them by parts, by products with 0.
    aten.hardshrink.default: (DispatchKey.Autograd, None),
    aten.softshrink.default: (DispatchKey.Autograd, None),
    aten.cumprod_backward.default: (DispatchKey.CompositeImplicitAutograd, _cumprod_backward),
}


@contextmanager
def traced_otherwise() -> Iterator[None]:
    """Inside, ops of `TRACED_OTHERWISE` are traced as their rows say."""
    before = {op: op.py_kernels.get(key) for op, (key, _) in TRACED_OTHERWISE.items()}
    _put_kernels({op: kernel for op, (_, kernel) in TRACED_OTHERWISE.items()})
    try:
        yield
    finally:
        _put_kernels(before)


def _put_kernels(kernels: Mapping[Any, Callable[..., Any] | None]) -> None:
    for op, kernel in kernels.items():
        key, _ = TRACED_OTHERWISE[op]
        op.py_kernels.pop(key, None)
        if kernel is not None:
            op.py_kernels[key] = kernel
        op._dispatch_cache.clear()
