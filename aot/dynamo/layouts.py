"""Chooses layouts for tensors saved for the backward graph: channels last behind convolutions.

The user never sees saved tensors, so they may have the layout that the kernels of both graphs use.
The layouts are set in torch's metadata, so that the example inputs of the backward graph have them
too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotc.aot.capture.aten_graph import HIDDEN, base_of
from aotc.aot.capture.aten_signature import RELAID

CONVOLUTION = torch.ops.aten.convolution.default
SPATIAL_RANKS = (3, 4, 5)  # batch, channels, and one to three dims


def saved_range() -> tuple[int, int]:
    """From where to where the results of the forward graph that torch compiles now are kept."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return 0, 0
    found = context.fw_metadata.tensors_saved_for_backwards_slice
    return found.start, found.stop if found.stop is not None else -1


def channels_last(module: GraphModule, start: int, stop: int) -> dict[Node, tuple[int, ...]]:
    """Orders of memory for results between two places, that lie behind a convolution.

    Left out are those that are results elsewhere too, or whose memory another result views.
    """
    (output,) = module.graph.find_nodes(op="output")
    results = list(output.args[0])
    counts = Counter(base_of(node) for node in results if isinstance(node, Node))
    behind = _behind_convolutions(module)
    return {
        node: (0, *range(2, node.meta["val"].dim()), 1)
        for node in results[start : stop if stop >= 0 else None]
        if node in behind and counts[node] == 1 and base_of(node) is node
    }


def hide(module: GraphModule, start: int = 0, stop: int = -1) -> None:
    """Note on the results between two places, that are results nowhere else, that torch hands none
    of them to the user as it lies: what is kept, and gradients."""
    (output,) = module.graph.find_nodes(op="output")
    results = list(output.args[0])
    end = stop if stop >= 0 else len(results)
    seen = {node for node in (*results[:start], *results[end:]) if isinstance(node, Node)}
    for node in results[start:end]:
        if isinstance(node, Node) and node not in seen:
            node.meta[HIDDEN] = True


def report(module: GraphModule, orders: Mapping[Node, Sequence[int]]) -> None:
    """Tell torch the strides of what lies in these orders."""
    context = torch._guards.TracingContext.try_get()
    if orders and context is not None and context.output_strides is not None:
        (output,) = module.graph.find_nodes(op="output")
        context.output_strides += [
            _strides(node.meta["val"].shape, orders[node]) if node in orders else None
            for node in output.args[0]
        ]


def take_layouts(module: GraphModule, examples: Sequence[Any]) -> None:
    """Give the arguments of a graph the layouts of its examples, where a forward graph chose."""
    for node, example in zip(module.graph.find_nodes(op="placeholder"), examples, strict=True):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not isinstance(example, torch.Tensor):
            continue
        if _is_fixed(value) and value.stride() != example.stride():
            node.meta |= {"val": example, RELAID: value}


def _behind_convolutions(module: GraphModule) -> set[Node]:
    """Results of convolutions, and behind them what has their batch and channels first."""
    behind: dict[Node, set[tuple[int, int]]] = {}
    for node in module.graph.nodes:
        own = set(_planes(node))
        known = {plane for each in node.all_input_nodes for plane in behind.get(each, ())}
        if own if node.target is CONVOLUTION else own & known:
            behind[node] = own
    return {node for node in behind if isinstance(value := node.meta["val"], torch.Tensor)
            and value.dim() in SPATIAL_RANKS}  # fmt: skip


def _planes(node: Node) -> Iterator[tuple[int, int]]:
    """Batch and channels of each tensor that a node gives, where its sizes are fixed."""
    value = node.meta.get("val") if node.op == "call_function" else None
    for each in value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, torch.Tensor) and each.dim() >= min(SPATIAL_RANKS) and _is_fixed(each):
            batch, channels, *_ = each.shape
            yield batch, channels


def _is_fixed(value: torch.Tensor) -> bool:
    return all(isinstance(each, int) for each in value.shape)


def _strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor whose dims fall in an order."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(int(shape[axis]), 1)
    return tuple(strides)
