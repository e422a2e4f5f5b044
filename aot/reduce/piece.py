"""Some operations of a model as a model: what they read from outside becomes inputs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node

from aotc.aot.reduce.recording import Recording


@dataclass(frozen=True, slots=True)
class Piece:
    """A graph with its inputs' recorded values and its parameters, both by name.

    operations: how many are left; names of the parameters are flat.
    """

    graph: Graph
    inputs: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]
    operations: int

    def module(self) -> GraphModule:
        """The piece as a module that runs."""
        root = torch.nn.Module()
        for name, value in self.parameters.items():
            root.register_buffer(name, value)
        return GraphModule(root, self.graph)


def piece(recording: Recording, places: Sequence[int]) -> Piece | None:
    """The operations at these places; None where they are no model: nothing of theirs is a tensor,
    or they read something from outside that is none.

    Its outputs are the tensors that no other operation of it reads.
    """
    writer = _Writer(recording, {recording.operations[place] for place in places})
    for place in places:
        if not writer.copy(recording.operations[place]):
            return None
    return writer.finished()


class _Writer:
    def __init__(self, recording: Recording, kept: set[Node]) -> None:
        self.recording, self.kept = recording, kept
        self.graph = Graph()
        self.copies: dict[Node, Node] = {}
        self.inputs: dict[str, torch.Tensor] = {}
        self.parameters: dict[str, torch.Tensor] = {}
        self.first: Node | None = None  # inputs and parameters stand before the operations

    def copy(self, node: Node) -> bool:
        """Add an operation; one that takes a part of something left out becomes an input.

        False where it reads something from outside that is not a tensor.
        """
        if node.target is operator.getitem and node.args[0] not in self.kept:
            self.kept.discard(node)
            return True
        if not all(map(self._bring, node.all_input_nodes)):
            return False
        copy = self.graph.node_copy(node, self.copies.__getitem__)
        copy.meta.clear()
        self.first = self.first or copy
        self.copies[node] = copy
        return True

    def _bring(self, node: Node) -> bool:
        if node in self.copies:
            return True
        value = self.recording.values[node]
        if not isinstance(value, torch.Tensor):
            return False
        with self.graph.inserting_before(self.first):
            name = node.name
            if node.op == "get_attr":
                self.parameters[name] = value.detach()
                self.copies[node] = self.graph.get_attr(name)
            else:
                self.inputs[name] = value.detach()
                self.copies[node] = self.graph.placeholder(name)
        return True

    def finished(self) -> Piece | None:
        """The piece with its outputs."""
        ends = [
            self.copies[node]
            for node in self.recording.operations
            if node in self.kept
            and isinstance(self.recording.values[node], torch.Tensor)
            and not self.kept.intersection(node.users)
        ]
        if not ends:
            return None
        self.graph.output(tuple(ends))
        self.graph.eliminate_dead_code()
        left = sum(node.op == "call_function" for node in self.graph.nodes)
        return Piece(self.graph, self.inputs, self.parameters, left)
