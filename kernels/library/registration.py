"""Registers an op of the library with torch: schema, code, shapes, gradient and meaning.

An op is one call of `define`. Its meaning is the same function written in torch's own ops: what
`aotc build` and `torch.compile(backend="aotc")` put in its place, so that it fuses with what is
around it. A gradient is an op too, with a meaning of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aotc.aot.capture.custom_ops import define_meaning
from aotc.kernels.library.devices import DEVICES

NAMESPACE = "aotc"
Function = Callable[..., Any]


def define(schema: str, *, run: Function, fake: Function, meaning: Function) -> Any:
    """The overload of a new op `aotc::NAME`, as `schema` declares it.

    run: launches kernels on tensors of the CPU or CUDA.
    fake: empty results of the right shapes, types and strides.
    meaning: the results by torch's ops.
    """
    name = f"{NAMESPACE}::{schema.partition('(')[0]}"
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    torch.library.define(name, schema[schema.index("(") :], tags=tags)
    torch.library.impl(name, DEVICES)(run)
    torch.library.register_fake(name)(fake)
    op = getattr(getattr(torch.ops, NAMESPACE), name.partition("::")[2]).default
    define_meaning(op, meaning)
    return op


def differentiate(op: Any, save: Function, backward: Function) -> None:
    """Give an op its gradient.

    save: (ctx, inputs, output) keeps what `backward` needs.
    backward: (ctx, gradient of each result) → the gradient of each argument, None for no tensor.
    """
    torch.library.register_autograd(op, backward, setup_context=save)


def widened(x: torch.Tensor) -> torch.Tensor:
    """`x` in the type that kernels compute in: f64 as it is, others as f32."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)
