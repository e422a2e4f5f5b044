"""Finds the nodes of a graph that draw random numbers; defines dropout's CUDA mask as an op.

torch draws that mask and multiplies by it in one kernel, whose threads use the numbers of Philox in
an order that depends on the layout and the type of the data: no other op of torch gives the same
mask. `aotc::dropout_mask` runs that kernel on any data of that layout, so that the mask can be
drawn before a graph runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from aotc.aot.dynamo.inner_graphs import graphs_of

SAVING = torch.ops.higher_order.run_and_save_rng_state
RESTORING = torch.ops.higher_order.run_with_rng_state
DROPOUT_MASK = "dropout_mask"
_OP = f"aotc::{DROPOUT_MASK}"


def may_draw(target: Any) -> bool:
    """Whether a target is an op that can draw from torch's generator."""
    is_operator = isinstance(target, torch._ops.OpOverload)
    return is_operator and torch.Tag.nondeterministic_seeded in target.tags


def draws(node: Node) -> bool:
    """Whether a node draws from torch's generator, itself or in a graph that it calls: attention
    does so for dropout only."""
    if any(draws(each) for graph in graphs_of(node) for each in graph.graph.nodes):
        return True
    target, args = called(node)
    if not may_draw(target):
        return False
    for place, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else 0.0
            return bool(node.kwargs.get("dropout_p", given))
    return True


def called(node: Node) -> tuple[Any, Sequence[Any]]:
    """The op that a node calls, and its arguments, also where a checkpoint keeps or brings back the
    generator's state around it."""
    count = {SAVING: 1, RESTORING: 2}.get(node.target, 0)
    return (node.args[count - 1] if count else node.target), node.args[count:]


def _mask(data: Tensor, p: float) -> Tensor:
    return torch.ops.aten.native_dropout(data, p, True)[1]  # type: ignore[no-any-return]


def _fake_mask(data: Tensor, p: float) -> Tensor:
    return torch.empty_like(data, dtype=torch.bool)


torch.library.define(
    _OP, "(Tensor data, float p) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,)
)
torch.library.impl(_OP, "CompositeExplicitAutograd", _mask)
torch.library.register_fake(_OP)(_fake_mask)
