"""A batch norm that is computed again does not read the running statistics.

The op that a training graph calls normalises by the statistics of the batch and also moves the
running ones. A checkpoint computes it again in the backward graph, which needs the first alone; as
one op it would keep the running statistics of before the step for that, which the step writes over.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

aten = torch.ops.aten
OF_BATCH = 3  # the first results: normal values, mean and 1 / deviation of the batch
AGAIN = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def part_recomputed_norms(joint: GraphModule) -> None:
    """Give a batch norm in a checkpoint an op of its own for what only the batch decides."""
    graph = joint.graph
    for node in graph.find_nodes(
        op="call_function", target=aten._native_batch_norm_legit_functional.default
    ):
        data, weight, bias, _, _, is_training, momentum, epsilon = node.args
        if not is_training or node.meta.get("recompute") not in AGAIN:
            continue
        with graph.inserting_before(node):
            again = graph.call_function(
                aten._native_batch_norm_legit.no_stats,
                (data, weight, bias, is_training, momentum, epsilon),
            )
        again.meta = {**node.meta, "val": node.meta["val"][:OF_BATCH]}
        for part in [*node.users]:
            if _index(part) < OF_BATCH:
                part.replace_input_with(node, again)
    joint.recompile()


def _index(part: Node) -> int:
    assert part.target is operator.getitem
    return int(part.args[1])  # type: ignore[arg-type]
