"""An exported model's operations, in order, with the value that each had on the example inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree


@dataclass(frozen=True, slots=True)
class Recording:
    """module: the exported model; operations: its calls in order; values: of every node."""

    module: GraphModule
    operations: tuple[Node, ...]
    values: dict[Node, Any]


class _Recorder(Interpreter):
    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        self.values[n] = value = super().run_node(n)
        return value


def record(program: torch.export.ExportedProgram, arguments: Any, named: Any) -> Recording:
    """Run the exported model once on its example inputs, and keep every value.

    Operations in place are replaced first, since they would change the values kept.
    """
    module = program.run_decompositions({}).module()
    assert isinstance(module, GraphModule)
    leaves = pytree.tree_leaves((arguments, named))
    recorder = _Recorder(module)
    with torch.no_grad():
        recorder.run(*leaves, enable_io_processing=False)
    operations = [node for node in module.graph.nodes if node.op == "call_function"]
    return Recording(module, tuple(operations), recorder.values)
