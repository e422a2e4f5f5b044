"""A graph that torch runs op by op, as data that another process can load.

Later graphs were compiled for the layouts that torch's ops gave in the trace, so arguments are
brought into the traced strides. Attention accepts any tensor whose last dim is contiguous, and
mostly returns the traced layout all the same; its results are copied where they differ.

torch's pickle of a graph keeps the calls, without metadata. To load one, torch traces its code
again. `KeptCalls` then records calls without tensor arguments too; torch would run them once, and
keep their results as constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node, Tracer
from torch.overrides import TorchFunctionMode

from aotc.aot.capture.aten_signature import CHOSEN
from aotc.aot.dynamo.folded_views import NO_FOLDS, Folds, folded, folds_of
from aotc.aot.dynamo.random_ops import called

Boxed = Callable[[list[Any]], Any]
Strides = tuple[int, ...] | None


class KeptCalls(Tracer):
    """Records all calls of a graph's code, also of ops that make or draw a tensor of numbers."""

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of the code."""
        with _Recording(self):
            return super().trace(root, concrete_args)


class _Recording(TorchFunctionMode):
    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self._tracer.create_proxy("call_function", function, args, kwargs or {})


@dataclass(frozen=True, slots=True)
class EagerGraph:
    """strides: of the arguments, None for any. attended: which arguments attention alone reads, of
    graphs of kernels alone; results: the strides of their results. folds: of views."""

    module: GraphModule
    strides: tuple[Strides, ...]
    attended: tuple[bool, ...] = ()
    results: tuple[Strides, ...] = ()
    folds: Folds = NO_FOLDS

    def opened(self) -> Boxed:
        """The callable."""
        strides, attended, results = self.strides, self.attended, self.results
        run = folded(self.module, self.folds)
        if not any(strides):
            return boxed(run)

        def call(arguments: list[Any]) -> Any:
            given = [laid(*pair) for pair in zip(arguments, strides, strict=True)]
            arguments.clear()
            return run(*given)

        def attend(arguments: list[Any]) -> Any:
            given = [
                value if is_free and _is_dense_at_its_end(value) else laid(value, row)
                for value, row, is_free in zip(arguments, strides, attended, strict=True)
            ]
            arguments.clear()
            return [laid(*pair) for pair in zip(run(*given), results, strict=True)]

        return attend if results else call


def eager_graph(module: GraphModule) -> EagerGraph:
    """The graph as data, with what its trace knows."""
    module._tracer_cls = KeptCalls
    placeholders = module.graph.find_nodes(op="placeholder")
    strides = {node: _traced_strides(node) for node in placeholders}
    attended = {node: all(map(_is_of_attention, node.users)) for node in placeholders}
    laid_ones = {node for node in placeholders if strides[node] and not attended[node]}
    folds = folds_of(module, laid_ones)
    given = tuple(strides.values())
    if not any(attended.values()) or not is_of_kernels(module):
        return EagerGraph(module, given, folds=folds)
    (output,) = module.graph.find_nodes(op="output")
    results = tuple(map(_strides, output.args[0]))
    return EagerGraph(module, given, tuple(attended.values()), results, folds)


def boxed(module: Callable[..., Any]) -> Boxed:
    """A graph as torch runs it op after op, or compiled by it, that takes a list and empties it."""

    def call(arguments: list[Any]) -> Any:
        given = tuple(arguments)
        arguments.clear()
        return module(*given)

    return call


def is_of_kernels(module: GraphModule) -> bool:
    """Whether a graph is calls of kernels for attention and products, and their parts."""
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    return all(CHOSEN in node.meta or _is_of_attention(node) for node in calls)


def is_attention(node: Node) -> bool:
    """Whether a node calls one of the kernels for attention of torch or of our library, which read
    rows of any stride."""
    name = str(called(node)[0])
    return "_scaled_dot_product_" in name or name.startswith("aotc.attention")


def _is_of_attention(node: Node) -> bool:
    return node.target is operator.getitem or is_attention(node)


def _is_dense_at_its_end(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 1 and value.stride(-1) == 1


def _traced_strides(node: Node) -> tuple[int, ...] | None:
    """Strides of an argument that is only read, where they are known; a copy loses what is
    written."""
    return None if any(map(changes, node.users)) else _strides(node)


def _strides(node: Any) -> tuple[int, ...] | None:
    """Strides of a node's tensor, where they are known."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    is_known = all(isinstance(each, int) for each in (*value.shape, *value.stride()))
    return tuple(value.stride()) if is_known else None


def changes(node: Node) -> bool:
    """Whether a call changes an argument."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def laid(value: Any, strides: tuple[int, ...] | None) -> Any:
    """The tensor, or a copy where a dim of more than one element has another stride."""
    if strides is None or not isinstance(value, torch.Tensor) or value.stride() == strides:
        return value
    pairs = zip(value.shape, value.stride(), strides, strict=True)
    if all(extent == 1 or found == wanted for extent, found, wanted in pairs):
        return value
    kind = {"dtype": value.dtype, "device": value.device}
    return torch.empty_strided(value.shape, strides, **kind).copy_(value)
