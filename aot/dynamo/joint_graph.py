"""What the forward and the backward graph of a function share: saved tensors and their memory.

Tensors that only the backward graph will see ("donated buffers" in torch's terms) are placed in one
block of memory for each program that computes them. `region_blocks.py` has the blocks of programs,
`call_blocks.py` those of calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from aotc.aot.dynamo.options import Options

READS_STORAGE = "aotc_reads_storage"  # note on the results of a forward graph


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a tensor that is kept lies: in block `block` of its graph, from byte `start` on."""

    block: int
    start: int
    nbytes: int


class JointGraph:
    """What the forward and the backward graph of a function share, filled as each is compiled.

    arguments: of the backward graph, by the results of the forward one that nobody else sees;
    kept: where they lie, by the argument; sizes: of the blocks, in bytes.
    """

    def __init__(self) -> None:
        self.arguments: dict[int, int] = {}
        self.kept: dict[int, Kept] = {}
        self.sizes: list[int] = []

    def take_donated(self, graph: GraphModule, metadata: Any, first: int) -> None:
        """Read from torch's record of a forward graph, whose kept results begin at `first`, which
        of these nobody else sees; nothing where a place in a storage is asked for."""
        (output,) = graph.graph.find_nodes(op="output")
        if READS_STORAGE in output.meta:
            return
        symbols = metadata.num_symints_saved_for_bw or 0
        for place in metadata.bw_donated_idxs or ():
            self.arguments[first + place - symbols] = place

    def forward_ends(self, saved: tuple[int, int], options: Options) -> Ends:
        """Those of the forward graph, whose results between two places are kept."""
        is_checked = options.check != "off"  # then arguments are compared after a call
        return Ends(saved, self, {} if is_checked else self.arguments)

    def backward_ends(self, examples: Sequence[Any]) -> Ends:
        """Those of the backward graph with these arguments."""
        are_known = all(_nbytes(examples[at]) == row.nbytes for at, row in self.kept.items())
        return Ends(joint=self, arguments=self.kept if are_known else {})


def _nbytes(value: Any) -> int:
    return value.numel() * value.itemsize if isinstance(value, torch.Tensor) else 0


@dataclass(frozen=True, slots=True)
class Ends:
    """What a graph has to do with blocks.

    saved: from where to where its results are kept for its backward graph. results: those that may
    lie in a block, with their number among the arguments of the backward graph. arguments: those
    that lie in one.
    """

    saved: tuple[int, int] = (0, 0)
    joint: JointGraph | None = None
    results: Mapping[int, int] = field(default_factory=dict)
    arguments: Mapping[int, Kept] = field(default_factory=dict)


NO_ENDS = Ends()
