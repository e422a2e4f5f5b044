"""The last linear layer and the loss of a language model as one function, inside a model whose own
code calls one after the other.

While a loss is asked for, the last layer returns `DeferredLogits`: a tensor with the shape and type
of the logits and no memory. Where it reaches the loss as it is, the loss is `linear_cross_entropy`
of what the layer was given. Whatever else is done with it first computes the logits, so that a
model that caps or scales them, or a caller who reads them, gets what there was before.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from aotc.aot.errors import LogitsNotKept
from aotc.kernels.library.cross_entropy import cross_entropy
from aotc.kernels.library.linear_cross_entropy import linear_losses

_asked = threading.local()
"""`is_deferred`: whether this thread is in the call of a model that is asked for a loss."""

# What is known of logits without computing them.
_KNOWN = {
    Tensor.size, Tensor.dim, Tensor.numel, Tensor.stride, Tensor.is_floating_point,
    *(getattr(Tensor, name).__get__ for name in ("shape", "ndim", "dtype", "device", "layout")),
    *(getattr(Tensor, name).__get__ for name in ("is_cuda", "is_cpu", "is_meta", "is_sparse")),
}  # fmt: skip


class DeferredLogits(Tensor):
    """x @ weightᵀ + bias, computed when it is needed, with its gradients."""

    @staticmethod
    def __new__(cls, x: Tensor, weight: Tensor, bias: Tensor | None) -> Self:
        shape = (*x.shape[:-1], weight.shape[0])
        made: Self = Tensor._make_wrapper_subclass(cls, shape, dtype=x.dtype, device=x.device)
        made.operands = (x, weight, bias)
        made.versions = _versions(made.operands)
        made.has_gradients = torch.is_grad_enabled()
        made.logits = None
        return made

    operands: tuple[Tensor, Tensor, Tensor | None]
    versions: tuple[int, ...]
    has_gradients: bool
    logits: Tensor | None

    def computed(self) -> Tensor:
        """The logits. Raises LogitsNotKept where what they are made of has changed."""
        if self.logits is None:
            now = _versions(self.operands)
            for name, before, after in zip(
                ("x", "weight", "bias"), self.versions, now, strict=True
            ):
                if before != after:
                    raise LogitsNotKept(argument=name)
            with torch.set_grad_enabled(self.has_gradients):
                self.logits = functional.linear(*self.operands)
        return self.logits

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        if function in _KNOWN:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **(named or {}))
        arguments, named = torch.utils._pytree.tree_map_only(
            DeferredLogits, DeferredLogits.computed, (tuple(arguments), named or {})
        )
        return function(*arguments, **named)

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        """For code below `__torch_function__`."""
        arguments, named = torch.utils._pytree.tree_map_only(
            DeferredLogits, DeferredLogits.computed, (tuple(arguments), named or {})
        )
        return function(*arguments, **named)


def _versions(tensors: tuple[Tensor | None, ...]) -> tuple[int, ...]:
    """How often each has been changed in place; inference tensors do not count."""
    return tuple(0 if x is None or x.is_inference() else x._version for x in tensors)


def model_forward(original: Callable[..., Any]) -> Callable[..., Any]:
    """A model's `forward` in which the last layer's logits are deferred where there are labels."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def forward(self: nn.Module, *arguments: Any, **named: Any) -> Any:
        labels = named.get("labels")
        if arguments and labels is None:
            labels = signature.bind_partial(self, *arguments, **named).arguments.get("labels")
        if labels is None or torch.compiler.is_compiling():
            return original(self, *arguments, **named)
        before = getattr(_asked, "is_deferred", False)
        _asked.is_deferred = True
        try:
            return original(self, *arguments, **named)
        finally:
            _asked.is_deferred = before

    return forward


def last_layer_forward(original: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` of a linear layer that a model's loss follows."""

    @functools.wraps(original)
    def forward(self: nn.Linear, x: Tensor) -> Any:
        if torch.compiler.is_compiling() or not getattr(_asked, "is_deferred", False):
            return original(self, x)
        if x.dtype != self.weight.dtype or type(self.weight) is not nn.Parameter:
            return original(self, x)  # autocast, shards
        if torch.is_autocast_enabled(x.device.type):
            return original(self, x)
        return DeferredLogits(x, self.weight, self.bias)

    return forward


def causal_loss(original: Callable[..., Any]) -> Callable[..., Any]:
    """transformers' loss of the next token, of logits [batch, T, classes] and labels [batch, T]: in
    f32, summed and divided where `num_items_in_batch` is given, else the mean."""

    @functools.wraps(original)
    def loss(
        logits: Tensor,
        labels: Tensor,
        vocab_size: int,
        num_items_in_batch: Tensor | int | None = None,
        ignore_index: int = -100,
        shift_labels: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        if torch.compiler.is_compiling() or logits.shape[-1] != vocab_size:
            return original(
                logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **others
            )  # fmt: skip
        if shift_labels is None:
            shift_labels = functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        targets = shift_labels.reshape(-1).to(logits.device)
        reduction = "mean" if num_items_in_batch is None else "sum"
        if isinstance(logits, DeferredLogits) and logits.logits is None:
            x, weight, bias = logits.operands
            rows = x.reshape(-1, x.shape[-1])
            found = linear_losses(rows, weight, targets, bias, ignore_index, reduction)
        else:
            rows = logits.float().reshape(-1, vocab_size)
            found = cross_entropy(rows, targets, ignore_index, reduction)
        if num_items_in_batch is None:
            return found
        if isinstance(num_items_in_batch, Tensor):
            num_items_in_batch = num_items_in_batch.to(found.device)
        return found / num_items_in_batch

    return loss
