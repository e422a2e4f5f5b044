"""What the nodes of an FX graph compute, in our terms: an import that keeps each node's value.

A graph of Dynamo's holds torch functions and methods: each is run on fake tensors, and the ATen ops
that it calls are imported. A graph of AOTAutograd's holds ATen ops as they stand. A node that is no
tensor arithmetic, or has no import, is a leaf of the values behind it.

Values are equal where they are computed alike, which is only true as long as nothing is written to.
What may write to memory, or changes how gradients are taken, therefore ends a *region*: behind it
every tensor is a leaf anew.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from aotc.aot.capture.aten_graph import check_storage
from aotc.aot.capture.custom_ops import base_name
from aotc.aot.capture.importer import Importer
from aotc.aot.capture.imports.call import NotSupported
from aotc.aot.capture.imports.table import NOT_DECOMPOSED, ROWS
from aotc.aot.capture.sizes import LARGEST_EXTENT, Sizes, extent_of, reading
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.size import Dim, size_of

aten = torch.ops.aten
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
VALUE_KEYS = ("example_value", "val")  # where Dynamo and AOTAutograd keep a node's fake value

# Functions and methods that are imported as one ATen op, not as what torch makes of it.
WHOLE: Mapping[Any, Any] = {
    torch.nn.functional.linear: aten.linear.default,
    torch.nn.functional.scaled_dot_product_attention: aten.scaled_dot_product_attention.default,
    torch.nn.functional.group_norm: aten.group_norm.default,
    torch.matmul: aten.matmul.default,
    operator.matmul: aten.matmul.default,
    "matmul": aten.matmul.default,
}
# Ops that write to their operands, though their schemas do not say so.
WRITING = frozenset(
    {aten.native_batch_norm.default, aten.cudnn_batch_norm.default, aten.miopen_batch_norm.default}
)
# Functions without a result and without an effect on tensors.
IDLE = frozenset({torch._C._log_api_usage_once})
# An identity of our arithmetic that gradients do not pass.
DETACH = aten.detach.default


class _Effect(Exception):
    """A node does, or may do, more than to compute its result; carries what it does."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """An FX graph in our terms."""

    graph: Graph  # its outputs are the values that nodes without an import read, and the outputs
    values: Mapping[torch.fx.Node, Node]  # of each node that computes one tensor
    leaves: Mapping[Node, torch.fx.Node]  # inputs of `graph`: the nodes whose tensors they are
    regions: Mapping[torch.fx.Node, int]  # of each node in `values`
    rows: frozenset[torch.fx.Node]  # nodes that compute several tensors, taken out one by one
    refusals: tuple[str, ...]  # why nodes have no import
    written: tuple[torch.fx.Node, ...]  # nodes that may write to memory


def value_of(node: torch.fx.Node) -> Any:
    """The fake value of a node; None where nobody knows it."""
    return next((node.meta[key] for key in VALUE_KEYS if key in node.meta), None)


def read_graph(module: torch.fx.GraphModule) -> Reading:
    """The values of a graph module's nodes, as far as they are tensor arithmetic."""
    reader = _Reader()
    nodes = list(module.graph.nodes)
    with reading(_sizes(nodes)), torch.no_grad(), fake_mode(nodes), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sizes as arguments, in a graph that is never run
        for node in nodes:
            if node.op.startswith("call_"):
                reader.read(node)
    return reader.finished(nodes)


def fake_mode(nodes: Sequence[torch.fx.Node]) -> FakeTensorMode:
    """The mode that made the nodes' values; inside of it what torch makes is fake too."""
    modes = (getattr(value_of(node), "fake_mode", None) for node in nodes)
    return next((mode for mode in modes if mode is not None), None) or FakeTensorMode()


def _sizes(nodes: Sequence[torch.fx.Node]) -> Sizes:
    """Every symbol of the nodes' shapes as a dim of its own name."""
    symbols: dict[Any, Any] = {}
    for node in nodes:
        value = value_of(node)
        shape = value.shape if isinstance(value, torch.Tensor) else (value,)
        for size in shape:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and size.node.has_hint():
                dim = Dim(str(size.node.expr), 1, LARGEST_EXTENT, max(1, int(size.node.hint)))
                symbols.setdefault(size.node.expr, size_of(dim))
    return Sizes(symbols, (), ())


@dataclass
class _Reader(Importer):
    """Imports the ATen calls behind each node; `aten_nodes` stand for the nodes of one region."""

    aten_graph: torch.fx.Graph = field(default_factory=torch.fx.Graph)
    aten_nodes: dict[torch.fx.Node, torch.fx.Node] = field(default_factory=dict)
    parts: dict[torch.fx.Node, list[torch.fx.Node]] = field(default_factory=dict)
    rows: set[torch.fx.Node] = field(default_factory=set)
    region: int = 0
    found: dict[torch.fx.Node, Node] = field(default_factory=dict)
    regions: dict[torch.fx.Node, int] = field(default_factory=dict)
    leaves: dict[Node, torch.fx.Node] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    written: list[torch.fx.Node] = field(default_factory=list)

    def read(self, node: torch.fx.Node) -> None:
        """Import one node, or make it a leaf; end the region at one with an effect."""
        value = value_of(node)
        if self._is_item(node):
            self._take(node, self.parts[node.args[0]][node.args[1]])
            return
        if not _holds_tensors(value):
            if not _is_plain(value) and node.target not in IDLE:
                self._end_region(node)
            return
        try:
            calls, result = _calls(node)
            self._import(node, calls, result)
        except _Effect as effect:
            self.refusals.append(f"`{node.name}`: {effect}")
            self._end_region(node)
        except Exception as refused:  # whatever has no import stays as it is
            self.refusals.append(f"`{node.name}`: {refused}")

    def finished(self, nodes: Sequence[torch.fx.Node]) -> Reading:
        """The values found, and as outputs those that are read by what has none."""
        outputs = dict.fromkeys(self.found[node] for node in nodes if self._is_read(node))
        names = tuple(f"output_{number}" for number in range(len(outputs)))
        inputs = tuple(self.inputs)
        input_names = tuple(node.attr("name") for node in inputs)
        whole = Graph(inputs, tuple(outputs), input_names, names, self.constants)
        graph = whole.with_outputs(tuple(outputs))
        found = (self.found, self.leaves, self.regions, frozenset(self.rows))
        return Reading(graph, *found, tuple(self.refusals), tuple(self.written))

    def _is_read(self, node: torch.fx.Node) -> bool:
        """Whether a node that has no value in the same region reads this one."""
        region = self.regions.get(node)
        return region is not None and any(self.regions.get(user) != region for user in node.users)

    def _is_item(self, node: torch.fx.Node) -> bool:
        return node.target is operator.getitem and node.args[0] in self.parts

    def _end_region(self, node: torch.fx.Node) -> None:
        self.region += 1
        self.aten_nodes.clear()
        self.parts.clear()
        self.written.append(node)

    def _import(self, node: torch.fx.Node, calls: Sequence[_AtenCall], result: Any) -> None:
        """Import the ATen calls of a node; raises `NotSupported` where one has no import."""
        tensors: dict[int, torch.fx.Node] = {}
        for operand in node.all_input_nodes:
            if isinstance(value_of(operand), torch.Tensor):
                tensors[id(value_of(operand))] = self._operand(operand)
        before = len(self.unsupported)
        for each in calls:
            self._visit(each, tensors, node)
        if len(self.unsupported) > before:
            raise NotSupported(self.unsupported[before])
        parts = [result] if isinstance(result, torch.Tensor) else list(result)
        if not all(id(part) in tensors for part in parts):
            raise NotSupported("its result is made outside of ATen")
        if isinstance(result, torch.Tensor):
            self._take(node, tensors[id(result)])
        else:
            self.rows.add(node)
            self.parts[node] = [tensors[id(part)] for part in parts]

    def _visit(
        self, each: _AtenCall, tensors: dict[int, torch.fx.Node], node: torch.fx.Node
    ) -> None:
        def ours(item: Any) -> Any:
            return tensors.get(id(item), item) if isinstance(item, torch.Tensor) else item

        args, kwargs = torch.utils._pytree.tree_map(ours, (each.args, each.kwargs))
        made = self.aten_graph.call_function(each.op, args, kwargs)
        made.meta = {"val": each.result, "stack_trace": node.meta.get("stack_trace", "")}
        check_storage(made)
        self.visit(made)
        if isinstance(each.result, torch.Tensor):
            tensors[id(each.result)] = made
            return
        for place, part in enumerate(each.result):
            item = self.aten_graph.call_function(operator.getitem, (made, place))
            item.meta = {"val": part}
            parts = self.values.get(made)
            self.values[item] = None if parts is None else parts[place]
            tensors[id(part)] = item

    def _operand(self, node: torch.fx.Node) -> torch.fx.Node:
        """The ATen node of an operand; a leaf where its own node has no import in this region."""
        known = self.aten_nodes.get(node)
        if known is None:
            known = self.aten_nodes[node] = self.aten_graph.placeholder(
                f"{node.name}.{self.region}"
            )
            known.meta = {"val": value_of(node)}
            made = self._input(known)
            if made is None:
                raise NotSupported(self.unsupported.pop())
            self.values[known] = made
            self.leaves[made] = node
        return known

    def _take(self, node: torch.fx.Node, made: torch.fx.Node) -> None:
        value = self.values.get(made)
        if not isinstance(value, Node):
            raise NotSupported("its result has no import")
        self.aten_nodes[node] = made
        self.found[node] = value
        self.regions[node] = self.region

    def _arguments(self, node: torch.fx.Node) -> tuple[list[Any] | None, tuple[Any, ...]]:
        """As for exported programs; sizes stand here as themselves."""
        ours, seen = super()._arguments(node)
        if ours is None:
            return None, ()
        return [_with_extents(item) for item in ours], seen


@dataclass(frozen=True, slots=True)
class _AtenCall:
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


def _with_extents(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_extents(item) for item in value]
    if isinstance(value, torch.SymFloat | torch.SymBool):
        raise NotSupported("a number that depends on sizes")
    return extent_of(value) if isinstance(value, torch.SymInt) else value


def _holds_tensors(value: Any) -> bool:
    parts = value if isinstance(value, list | tuple) else (value,)
    return bool(parts) and all(isinstance(item, torch.Tensor) for item in parts)


def _is_plain(value: Any) -> bool:
    """A number or a shape: what makes it has no effect."""
    parts = value if isinstance(value, list | tuple) else (value,)
    numbers = bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool
    return all(isinstance(item, numbers | torch.dtype | torch.device) for item in parts)


def _calls(node: torch.fx.Node) -> tuple[list[_AtenCall], Any]:
    """The ATen calls that a node makes, and its result among theirs.

    Raises `_Effect` for one that writes to memory, `NotSupported` for one that cannot be followed.
    """
    value = value_of(node)
    unknown = [each for each in node.all_input_nodes if value_of(each) is None]
    if unknown:
        raise _Effect(f"takes `{unknown[0].name}`, which is not a tensor")
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value_of)
    whole = WHOLE.get(node.target)
    if isinstance(node.target, torch._ops.OpOverload):
        whole = node.target
    if whole is not None:
        _refuse_effects(whole)
        if whole is DETACH:
            raise NotSupported("gradients do not pass it")
        return [_AtenCall(whole, tuple(args), dict(kwargs), value)], value
    return _recorded(function_of(node), args, kwargs, value)


def function_of(node: torch.fx.Node) -> Callable[..., Any]:
    """What a node calls; raises `_Effect` where that is not a plain function or method."""
    if node.op == "call_method":
        return _method(str(node.target))
    if node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
        raise _Effect(f"calls `{node.target}`")
    return node.target


def _method(name: str) -> Callable[..., Any]:
    return lambda data, *args, **kwargs: getattr(data, name)(*args, **kwargs)


@functools.cache
def core_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Those of the capture stage, whose import table knows the core ops and a few others whole."""
    table = torch.export.default_decompositions()
    return {op: table[op] for op in list(table) if base_name(op) not in NOT_DECOMPOSED}


def _decomposition(op: Any) -> Callable[..., Any] | None:
    """What an op is made of, where our table does not know it as it stands."""
    known = core_decompositions().get(op)
    if known is not None or op.namespace != "aten" or base_name(op) in ROWS:
        return known
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), COMPOSITE)
    return op.decompose if is_composite else None  # type: ignore[no-any-return]


class _Recorder(TorchDispatchMode):
    """Keeps the core ATen calls that are made inside, by a node that is given some tensors."""

    def __init__(self, given: Sequence[Any]) -> None:
        super().__init__()
        self.given = given
        self.calls: list[_AtenCall] = []

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        _refuse_effects(op)
        # What makes a tensor detaches it from nothing.
        if op is DETACH and any(args[0] is each for each in self.given):
            raise NotSupported("gradients do not pass it")
        decomposition = _decomposition(op)
        if decomposition is not None:
            with self:
                result = decomposition(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = op(*args, **(kwargs or {}))
        self.calls.append(_AtenCall(op, args, dict(kwargs or {}), result))
        return result


def _refuse_effects(op: Any) -> None:
    """Raises `_Effect` for an op that writes to memory."""
    schema = getattr(op, "_schema", None)
    if schema is None or schema.is_mutable or op in WRITING:
        raise _Effect(f"`{op}` writes to its operand")


def _recorded(
    function: Callable[..., Any], args: Any, kwargs: Any, value: Any
) -> tuple[list[_AtenCall], Any]:
    with _Recorder(torch.utils._pytree.tree_leaves((args, kwargs))) as recorder:
        try:
            result = function(*args, **kwargs)
        except (_Effect, NotSupported):
            raise
        except Exception as error:  # whatever it is, the node stays as it is
            raise _Effect(f"does not run on its own: {type(error).__name__}") from error
    if not is_like(result, value):
        raise NotSupported("run on its own, it gives another tensor")
    return list(_useful(recorder.calls)), result


def _useful(calls: Sequence[_AtenCall]) -> Iterator[_AtenCall]:
    """Calls with tensors as results; others ask for properties."""
    return (each for each in calls if _holds_tensors(each.result))


def is_like(result: Any, value: Any) -> bool:
    """Whether two results have the same element types, shapes and strides."""
    if isinstance(result, list | tuple):
        is_row = isinstance(value, list | tuple) and len(value) == len(result)
        return is_row and all(map(is_like, result, value))
    if not isinstance(result, torch.Tensor) or not isinstance(value, torch.Tensor):
        return False
    return (
        result.dtype == value.dtype
        and tuple(result.shape) == tuple(value.shape)
        and result.stride() == value.stride()
    )
