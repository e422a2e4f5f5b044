"""Registers an op of the library with torch: schema, code, shapes, gradient and meaning.

An op is one call of `define`. Its meaning is the same function written in torch's own ops: what
`aotc build` and `torch.compile(backend="aotc")` put in its place, so that it fuses with what is
around it. A gradient is an op too, with a meaning of its own.

An eager call on plain tensors skips torch's dispatcher, which enters Python twice on the way to a
kernel, and costs more time than a small kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aotc.aot.capture.custom_ops import define_meaning
from aotc.kernels.library.devices import DEVICES

NAMESPACE = "aotc"
Function = Callable[..., Any]


def _keys(*names: str) -> int:
    """The bits of a set of dispatch keys."""
    bits = 0
    for name in names:
        bits |= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()
    return bits


_INFERENCE = {device.upper(): _keys(device.upper(), f"Autocast{device.upper()}")
              for device in DEVICES}  # fmt: skip
_PLAIN_KEYS = {
    *_INFERENCE.values(),
    *(bits | _keys("ADInplaceOrView", f"Autograd{device}") for device, bits in _INFERENCE.items()),
}
"""Of tensors that only autograd and the device handle: no subclass, negative bit or transform."""
_AUTOGRAD = _keys(*(f"Autograd{device}" for device in _INFERENCE))
_TYPES = (torch.Tensor, torch.nn.Parameter)


class Op:
    """An op as the library calls it: `op(*arguments)`, all of them, by position."""

    def __init__(self, overload: Any, run: Function) -> None:
        self.overload, self.run = overload, run
        self.apply: Function | None = None
        """Of an autograd function around `run`, where the op has a gradient."""

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling() or not _is_plain(arguments):
            return self.overload(*arguments)
        if torch.is_grad_enabled():
            for each in arguments:
                if isinstance(each, torch.Tensor) and each.requires_grad:
                    if self.apply is None or not _records_gradients():
                        return self.overload(*arguments)
                    return self.apply(*arguments)
        return self.run(*arguments)


def _is_plain(arguments: tuple[Any, ...]) -> bool:
    """Whether nothing but autograd stands between a call and its kernels."""
    if (
        torch._C._len_torch_dispatch_stack()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
    ):
        return False
    for each in arguments:
        if isinstance(each, torch.Tensor) and (
            type(each) not in _TYPES or torch._C._dispatch_keys(each).raw_repr() not in _PLAIN_KEYS
        ):
            return False
    return True


def _records_gradients() -> bool:
    """Whether this is not a call from within another op's code, below autograd."""
    return not torch._C._dispatch_tls_local_exclude_set().raw_repr() & _AUTOGRAD


def define(
    schema: str,
    *,
    run: Function,
    fake: Function,
    meaning: Function,
    called_on: tuple[str, ...] = (),
) -> Op:
    """A new op `aotc::NAME`, as `schema` declares it.

    run: launches kernels on tensors of the CPU or CUDA.
    fake: empty results of the right shapes, types and strides.
    meaning: the results by torch's ops.
    called_on: types of devices on which `torch.compile(backend="aotc")` calls the op as it is: of
    ops whose meaning has much in memory that the op has not.
    """
    name = f"{NAMESPACE}::{schema.partition('(')[0]}"
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    torch.library.define(name, schema[schema.index("(") :], tags=tags)
    torch.library.impl(name, DEVICES)(run)
    torch.library.register_fake(name)(fake)
    overload = getattr(getattr(torch.ops, NAMESPACE), name.partition("::")[2]).default
    define_meaning(overload, meaning, called_on)
    return Op(overload, run)


def differentiate(op: Op, save: Function, backward: Function) -> None:
    """Give an op its gradient.

    save: (ctx, inputs, output) keeps what `backward` needs.
    backward: (ctx, gradient of each result) → the gradient of each argument, None for no tensor.
    """
    torch.library.register_autograd(op.overload, backward, setup_context=save)

    def forward(ctx: Any, *arguments: Any) -> Any:
        output = op.run(*arguments)
        save(ctx, arguments, output)
        return output

    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type(op.overload._schema.name.partition("::")[2], (torch.autograd.Function,), parts)
    op.apply = super(torch.autograd.Function, function).apply  # itself it looks for transforms


def widened(x: torch.Tensor) -> torch.Tensor:
    """`x` in the type that kernels compute in: f64 as it is, others as f32."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)
