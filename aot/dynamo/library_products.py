"""Products that cuBLAS computes, in graphs on a CUDA device.

aotc's own products gain by what is fused into them. A product whose result leaves the graph
unchanged or converted has nothing to fuse: the gradients of weights, and a last layer without bias.
cuBLAS computes these faster (docs/training-gpu.md has both times), and gives f32 by itself where
the graph converts to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotc.aot.capture.aten_signature import CHOSEN, RELAID
from aotc.aot.dynamo.options import Options

FEWEST_MULTIPLICATIONS = 1 << 32  # fewer take as long as a call of torch's does
NARROW = (torch.float16, torch.bfloat16)
aten = torch.ops.aten
PRODUCT, WIDE_PRODUCT = aten.mm.default, getattr(aten.mm, "dtype", None)
CONVERSIONS = (aten._to_copy.default, torch.ops.prims.convert_element_type.default)
VIEWS = (aten.permute.default, aten.t.default, aten.transpose.int, aten.view.default)


def choose(module: GraphModule, options: Options) -> None:
    """Note the products of a graph on a CUDA device that go to cuBLAS, with the views around them;
    a conversion to f32 after one becomes part of it."""
    count = 0
    for node in list(module.graph.nodes):
        if node.target is not PRODUCT or not _is_large(node):
            continue
        behind = _ways_out(node)
        if behind is None:
            continue
        if not options.round_intermediates:
            behind = list(_widened(node, behind))
        for each in (node, *behind, *_views_before(node)):
            each.meta[CHOSEN] = True
        count += 1
    if count:
        module.graph.lint()
        module.recompile()


def _is_large(node: Node) -> bool:
    """Whether a product of 16-bit matrices of fixed sizes is large enough for a call of its own."""
    left, right = (each.meta.get("val") for each in node.args)
    extents: list[Any] = [*left.shape, right.shape[-1]]
    if left.dtype not in NARROW or not all(isinstance(each, int) for each in extents):
        return False
    rows, inner, columns = extents
    return bool(rows * inner * columns >= FEWEST_MULTIPLICATIONS)


def _ways_out(node: Node) -> list[Node] | None:
    """The views and the conversion between a product and the graph's results, if there is nothing
    else behind it."""
    found: list[Node] = []
    while True:
        if [user.op for user in node.users] == ["output"]:
            return found
        if len(node.users) != 1:
            return None
        (node,) = node.users
        if node.target not in CONVERSIONS and node.target not in VIEWS:
            return None
        found.append(node)


def _widened(node: Node, behind: list[Node]) -> Iterator[Node]:
    """What remains behind a product that gives f32 by itself."""
    conversions = [each for each in behind if each.target in CONVERSIONS]
    if WIDE_PRODUCT is None or not _is_to_f32(node, conversions):
        yield from behind
        return
    node.target, node.args = WIDE_PRODUCT, (*node.args, torch.float32)
    node.meta["val"] = node.meta["val"].to(torch.float32)
    for each in behind:
        if each is conversions[0]:
            each.replace_all_uses_with(each.args[0])
            each.graph.erase_node(each)
            continue
        each.meta["val"] = each.meta["val"].to(torch.float32)
        yield each


def _is_to_f32(node: Node, conversions: list[Node]) -> bool:
    """Whether a node only converts to f32."""
    values = [each.meta["val"] for each in conversions]
    types = [(each.dtype, each.device) for each in values]
    return types == [(torch.float32, node.meta["val"].device)]


def _views_before(node: Node) -> Iterator[Node]:
    """The views of a product's operands that nothing else reads. Views of arguments whose strides
    differ from the trace are left out, because torch may not have such a view of them."""
    for each in node.all_input_nodes:
        found = []
        while each.target in VIEWS and len(each.users) == 1:
            found.append(each)
            each = each.all_input_nodes[0]
        if RELAID not in each.meta:
            yield from found
