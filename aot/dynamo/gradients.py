"""Ops of the user's without a backward, found before torch takes them for constants.

An op of `torch.library.custom_op` without a formula raises by itself. One that has kernels only
(`library.impl(…, "CPU")`) is differentiated as if its result did not depend on its operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotc.aot.dynamo.errors import GradientMissing
from aotc.aot.dynamo.graph_text import EXAMPLE, is_users_op

DIFFERENTIATED = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
SWITCH = torch._C._set_grad_enabled


def check_gradients(module: GraphModule) -> None:
    """Raise `GradientMissing` for a call of such an op where a gradient goes through it."""
    is_on = torch.is_grad_enabled()
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is SWITCH:
            is_on = bool(node.args[0])
        elif (
            is_on
            and is_users_op(node.target)
            and not _has_backward(node.target)
            and _is_on_path(node)
        ):
            raise GradientMissing(op=str(node.target))


def _has_backward(target: Any) -> bool:
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(known(name, key) for name in _names(target) for key in DIFFERENTIATED)


def _names(target: Any) -> Iterator[str]:
    if isinstance(target, torch._ops.OpOverload):
        yield target.name()
        return
    for overload in target.overloads():
        yield getattr(target, overload).name()


def _is_on_path(node: Node) -> bool:
    """Whether a gradient is taken of an operand, and a result could have one."""
    is_asked = any(
        isinstance(value := each.meta.get(EXAMPLE), torch.Tensor) and value.requires_grad
        for each in node.all_input_nodes
    )
    results = node.meta.get(EXAMPLE)
    rows = results if isinstance(results, tuple | list) else (results,)
    return is_asked and any(
        isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex())
        for each in rows
    )
