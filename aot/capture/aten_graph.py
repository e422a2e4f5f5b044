"""Imports the ATen graphs of AOTAutograd: every tensor is an input, and memory may be shared.

Such a graph is functional. Its weights are inputs; its outputs may be unchanged inputs, views of
inputs, sizes or None, and only the rest is computed. A dense tensor is passed in its own layout:
the graph sees it in the order of its memory and permutes, so that channels-last and transposed
weights are not copied.

torch's symbols become dims here, with the ranges of its guards.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any

import torch

from aotc.aot.capture.aten_places import HOST, LATE, Place
from aotc.aot.capture.aten_signature import (
    CHOSEN,
    READ_AS_IT_LIES,
    RELAID,
    Fixed,
    Given,
    Made,
    Passed,
    Result,
    Shown,
    Sized,
    Taken,
    Viewed,
    reach,
)
from aotc.aot.capture.importer import Importer, data_dependence, refusal_of
from aotc.aot.capture.imports.call import OF_STORAGE, NotSupported, part_type_of, type_of
from aotc.aot.capture.imports.complexes import Complex, joined_parts, parts_beside
from aotc.aot.capture.sizes import LARGEST_EXTENT, Sizes, ends_of, extent_of, reading
from aotc.aot.errors import DimUnreadable
from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.size import Dim, Extent, Size, UndecidedSize, size_of
from aotc.aot.ir.viewed import MOST_UNSEEN

# Ops whose kernels read an argument where it lies, whatever its steps.
READ_BY_STEPS = frozenset(
    (
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    )
)
HIDDEN = "aotc_hidden"  # note on a result of which nobody sees how it lies
COMPUTED = "aotc_computed"  # note on a placeholder of a region: the whole graph has its storage
# Views whose numbers are others than those in memory: torch marks the tensor.
MARKED = frozenset((torch.ops.aten._conj.default, torch.ops.aten._neg_view.default))
# Ops whose place in the storage of their first argument counts from the storage's begin.
STORAGE_OFFSETS = {
    torch.ops.aten.as_strided.default: 3,
    torch.ops.aten.as_strided_scatter.default: 4,
}


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A graph and how a call's arguments and results belong to its inputs and outputs."""

    graph: Graph
    taken: tuple[Taken | Shown, ...]  # one an input of the graph
    made: tuple[Made, ...]  # one an output of the graph
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that has no import, and why."""

    node: torch.fx.Node
    reason: str  # `torch.ops.aten.foo` at model.py:31 in forward: why


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """What came of a walk over a graph: our graph, or the nodes that have no import."""

    imported: Imported | None
    refusals: tuple[Refusal, ...]
    left: frozenset[torch.fx.Node]  # calls that are refused or chosen, or read what is refused


def import_aten(
    graph: torch.fx.Graph,
    owner: torch.nn.Module,
    sizes: Sizes,
    orders: Mapping[torch.fx.Node, tuple[int, ...]] = MappingProxyType({}),
    rounds: bool = False,
    place: Place = HOST,
) -> Walked:
    """Our graph of a functional ATen graph; `owner` has the constants that it names.

    `orders` has results that may lie otherwise than their examples, and the order of their dims.
    `rounds` rounds the 16-bit results of every call. `place` is the device that all tensors of ours
    are on; calls with others are refused.

    What follows a refused node is looked at as if the node's results were inputs, so that all nodes
    that have no import are found at once. A refused placeholder or output is a node like others.
    """
    with reading(sizes):
        walker = _AtenImporter(
            owner=owner,
            orders=orders,
            rounds=rounds,
            place=place,
            has_parts=True,
        )
        for node in graph.nodes:
            walker.visit(node)
    wrong = {row.node for row in walker.refused} | walker.chosen
    if not wrong:
        return Walked(walker.imported(), (), frozenset())
    calls = [node for node in graph.nodes if node.op == "call_function"]
    left = {node for node in calls if node in wrong or walker.values.get(node) is None}
    return Walked(None, tuple(walker.refused), _with_numbers(calls, left))


def _with_numbers(calls: Sequence[torch.fx.Node], left: set[torch.fx.Node]) -> frozenset[Any]:
    """The calls that are left, and those that share a number with them that is not a size: programs
    neither take nor give it."""
    kinds = (torch.SymFloat, torch.SymBool)
    numbers = {node for node in calls if isinstance(node.meta.get("val"), kinds)}
    more = left
    while more:
        left = left | more
        more = {node for node in numbers - left if not left.isdisjoint(node.users)}
        for number in numbers & left:
            more |= set(number.users) & set(calls) - left
    return frozenset(left)


def memory_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The dims by falling stride where the memory is dense; None where it is not.

    Dynamic sizes count as the example's.
    """
    try:
        shape, strides = hints(value.shape), hints(value.stride())
    except (TypeError, ValueError):
        return None
    order, expected = stride_order(value), 1
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != expected:
            return None
        expected *= shape[axis]
    return order


def stride_order(value: torch.Tensor) -> tuple[int, ...]:
    """The dims by falling stride, whatever lies between; as they are where strides are not known.

    What is brought into dense memory in this order lies as the tensor does but for the gaps, so
    that it is copied in long runs, and what torch makes like it lies as torch traced it.
    """
    try:
        shape, strides = hints(value.shape), hints(value.stride())
    except (TypeError, ValueError):
        return tuple(range(value.dim()))
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    # Dims of one element lie anywhere: they stay where a contiguous tensor would have them.
    if any(extent == 1 for extent in shape):
        wide = iter(axis for axis in order if shape[axis] != 1)
        order = [axis if shape[axis] == 1 else next(wide) for axis in range(len(shape))]
    return tuple(order)


def _gaps(value: torch.Tensor) -> tuple[Extent, ...] | None:
    """The strides of a tensor with gaps in its memory and no element twice; None for others."""
    if memory_order(value) is not None:
        return None
    try:
        shape, strides = hints(value.shape), hints(value.stride())
        own = tuple(map(extent_of, value.stride()))
    except (TypeError, ValueError, UndecidedSize):
        return None
    span = 1
    for step, extent in sorted(zip(strides, shape, strict=True)):
        if extent != 1 and step < span:
            return None
        span += (extent - 1) * step
    return own


def hints(values: Sequence[Any]) -> list[int]:
    """Sizes as numbers, those of the example where they are dynamic."""
    return [value if isinstance(value, int) else int(value.node.hint) for value in values]


@dataclass(kw_only=True)
class _AtenImporter(Importer):
    """Imports a graph module of AOTAutograd."""

    owner: torch.nn.Module
    orders: Mapping[torch.fx.Node, tuple[int, ...]]
    places: dict[torch.fx.Node, int] = field(default_factory=dict)
    taken: list[Taken | Shown] = field(default_factory=list)
    made: dict[torch.fx.Node, Made] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    chosen: set[torch.fx.Node] = field(default_factory=set)
    stand_ins: int = 0
    place: Place = HOST

    def visit(self, node: torch.fx.Node) -> None:
        """Import one node."""
        if node.op == "get_attr":
            self._attribute(node)
        else:
            super().visit(node)

    def imported(self) -> Imported:
        """The graph with those inputs only that it reads, then those that show a size."""
        whole = self.graph()
        read = {node for node in whole.nodes() if node.op == "input"}
        rows = list(enumerate(zip(self.inputs, self.taken, strict=True)))
        kept = [place for place, (node, row) in rows if node in read and isinstance(row, Taken)]
        kept += [place for place, (_, row) in rows if isinstance(row, Shown)]
        inputs = tuple(self.inputs[place] for place in kept)
        names = tuple(node.attr("name") for node in inputs)
        graph = Graph(inputs, whole.outputs, names, whole.output_names, whole.constants)
        taken = tuple(self.taken[place] for place in kept)
        return Imported(graph, taken, tuple(self.made.values()), tuple(self.results))

    def _call(self, node: torch.fx.Node) -> None:
        if CHOSEN in node.meta:
            self.chosen.add(node)
            why = data_dependence(node)
            if why:  # what reads the results has no import
                self._refuse(node, why)
            else:
                self._stand_in(node)
            return
        before = dict(self.checks)
        try:
            check_storage(node)
            self.place.check_node(node)
        except NotSupported as refused:
            self._refuse(node, str(refused))
            return
        super()._call(node)
        if self.place.is_checked_late and len(self.checks) > len(before):
            self.checks = before
            self._refuse(node, LATE)

    def _check_body(self, module: torch.nn.Module) -> None:
        for node in module.graph.nodes:
            if node.op == "call_function":
                check_storage(node)
                self.place.check_node(node)

    def _check_data_of_body(self, checks: tuple[Node, ...]) -> None:
        if checks and self.place.is_checked_late:
            raise NotSupported(LATE)

    def _assert(self, node: torch.fx.Node, base: str) -> None:
        """Assertions of sizes are among torch's guards; those of data have to run."""
        if isinstance(self._imported(node.args[0]), Node):
            super()._assert(node, base)

    def _placeholder(self, node: torch.fx.Node) -> Any:
        self.places[node] = len(self.places)
        value = node.meta.get("val")
        try:
            if isinstance(value, torch.Tensor):
                return self._tensor(node, value)
            if isinstance(value, torch.SymInt | int):
                return self._number_given(node, extent_of(value))
            if value is None:
                return None
            raise NotSupported(f"an argument of type `{type(value).__name__}`")
        except (NotSupported, UndecidedSize) as refused:
            self._refuse(node, str(refused))
            return None

    def _number_given(self, node: torch.fx.Node, extent: Extent) -> Extent:
        """A size that is an argument; an input that nothing reads shows it to the program."""
        if isinstance(extent, Size):
            attrs = {"name": self._name_of(node), "dtype": "u8", "shape": (extent,)}
            self.inputs.append(make("input", (), attrs))
            self.taken.append(Shown(self.places[node]))
        return extent

    def _name_of(self, node: torch.fx.Node) -> str:
        """The name of an argument's input: by its place where equal graphs are one program."""
        return f"argument_{self.places[node]}" if self.place.names_by_place else node.name

    def _tensor(self, node: torch.fx.Node, value: torch.Tensor) -> Node | Complex:
        """The input of a tensor, seen in the order of its memory and permuted back."""
        self.place.check_memory(value)
        if is_stepped(value) and any(user.target in READ_BY_STEPS for user in node.users):
            return self._stepped(node, value)
        order, has_parts = stride_order(value), value.is_complex()
        kind = part_type_of(value)
        shape = (*(kind.shape[axis] for axis in order), *((2,) if has_parts else ()))
        attrs = {"name": self._name_of(node), "dtype": kind.dtype, "shape": shape}
        source = make("input", (), attrs)
        self.inputs.append(source)
        # Marks of real tensors come with `imag`, whose elements lie apart where there are several.
        may_be_marked = has_parts or value.is_neg() or (kind.kind == "float" and not order)
        self.taken.append(Taken(self.places[node], order, None, has_parts, may_be_marked))
        if has_parts:
            return joined_parts(build.permute(source, (*_inverse(order), len(order))))
        return build.permute(source, _inverse(order))

    def _stepped(self, node: torch.fx.Node, value: torch.Tensor) -> Node:
        """The memory that a tensor lies in, as windows: dims of falling steps, permuted back."""
        steps = value.stride()
        order = sorted(range(value.dim()), key=lambda axis: -steps[axis])
        span = reach(value.shape, steps)
        attrs = {"name": self._name_of(node), "dtype": type_of(value).dtype, "shape": (span,)}
        found = make("input", (), attrs)
        self.inputs.append(found)
        self.taken.append(Taken(self.places[node], tuple(order), tuple(steps)))
        for place, axis in enumerate(order[:-1]):
            behind = order[place + 1 :]
            span = reach([value.shape[each] for each in behind], [steps[each] for each in behind])
            one = {"axes": (place,), "sizes": (span,), "strides": (steps[axis],)}
            found = make("window", (found,), {**one, "dilations": (1,)})
        return build.permute(found, _inverse(order))

    def _attribute(self, node: torch.fx.Node) -> None:
        """A tensor constant that the graph holds."""
        value: Any = self.owner
        for name in str(node.target).split("."):
            value = getattr(value, name)
        if isinstance(value, torch.Tensor):
            try:
                self.place.check_constant(value)
                self.values[node] = self._constant(str(node.target), value)
            except NotSupported as refused:
                self._refuse(node, str(refused))

    def _output(self, node: torch.fx.Node) -> None:
        shared = Counter(
            _kept_base(value) for value in node.args[0] if isinstance(value, torch.fx.Node)
        )
        for value in node.args[0]:
            try:
                self.results.append(self._result(value, shared))
            except (NotSupported, UndecidedSize) as refused:
                if not self._is_named(value):
                    self._refuse(node, str(refused))

    def _is_named(self, value: Any) -> bool:
        """Whether a result is missing for a reason that is known already."""
        is_node = isinstance(value, torch.fx.Node)
        return bool(self.refused) and is_node and self.values.get(value) is None

    def _result(self, value: Any, shared: Mapping[torch.fx.Node, int]) -> Result:
        """Where a result comes from; `shared` counts the results that lie in one memory."""
        if not isinstance(value, torch.fx.Node):
            if isinstance(value, int | float | bool | None):
                return Fixed(value)
            raise NotSupported(f"a result of type `{type(value).__name__}`")
        if value in self.places:
            return Passed(self.places[value])
        example = value.meta.get("val")
        if isinstance(example, torch.SymInt):
            return Sized(extent_of(example))
        if not isinstance(example, torch.Tensor):
            raise NotSupported(f"a result of type `{type(example).__name__}`")
        base = _kept_base(value)
        is_part = memory_order(example) is None or shared[base] > 1
        if base in self.places or (base is not value and is_part):
            viewed = self._viewed(base, value)
            if viewed is not None:
                return viewed
        return Given(self._number_made(value))

    def _viewed(self, base: torch.fx.Node, part: torch.fx.Node) -> Viewed | None:
        """The result as a view of an argument or an output; None where that is not known."""
        whole, view = base.meta.get("val"), part.meta["val"]
        if not isinstance(whole, torch.Tensor) or whole.dtype != view.dtype:
            return None
        if RELAID in base.meta:  # the strides of the view are not of this memory
            return None
        try:
            strides = tuple(map(extent_of, whole.stride()))
            shape, own = (tuple(map(extent_of, each)) for each in (view.shape, view.stride()))
            offset = extent_of(view.storage_offset()) - extent_of(whole.storage_offset())
        except UndecidedSize:
            return None
        if base in self.places:
            return Viewed(True, self.places[base], strides, shape, own, offset)
        if memory_order(whole) is None:
            return None
        return Viewed(False, self._number_made(base), (), shape, own, offset)

    def _number_made(self, node: torch.fx.Node) -> int:
        """The number of the output that computes a node."""
        if node not in self.made:
            made, example = self.values.get(node), node.meta["val"]
            order = self.orders.get(node, stride_order(example))
            if isinstance(made, Complex):
                made, order_of_made = parts_beside(made), (*order, len(order))
            else:
                order_of_made = order
            if not isinstance(made, Node):
                raise NotSupported(f"a result of type `{type(made).__name__}`")
            self.outputs.append(build.permute(made, order_of_made))
            gaps = None if HIDDEN in node.meta else _gaps(example)
            self.made[node] = Made(order, example.dtype, gaps)
        return list(self.made).index(node)

    def _refuse(self, node: torch.fx.Node, reason: str) -> None:
        is_call = node.op == "call_function"
        line = refusal_of(node, reason) if is_call else f"{node.op} `{node.name}`: {reason}"
        self.unsupported.append(line)
        self.refused.append(Refusal(node, line))
        if node.op == "call_function":
            self._stand_in(node)

    def _stand_in(self, node: torch.fx.Node) -> None:
        """Inputs in place of the results of a refused node, so that the walk goes on."""
        value = node.meta.get("val")
        parts = value if isinstance(value, list | tuple) else (value,)
        made = tuple(self._free(part) for part in parts)
        self.values[node] = made if isinstance(value, list | tuple) else made[0]

    def _free(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            try:
                return extent_of(value)
            except UndecidedSize:
                return None
        if not isinstance(value, torch.Tensor):
            return None
        try:
            kind, has_parts = part_type_of(value), value.is_complex()
            name = f"refused.{self.stand_ins + 1}"
            shape = (*kind.shape, 2) if has_parts else kind.shape
            made = make("input", (), {"name": name, "dtype": kind.dtype, "shape": shape})
        except (NotSupported, UndecidedSize):
            return None
        self.stand_ins += 1
        return joined_parts(made) if has_parts else made


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=lambda place: order[place]))


def base_of(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory a node is a view or a part of: itself where it is neither."""
    base = _viewed(node)
    while base.target is operator.getitem and is_view(base.args[0]):
        base = _viewed(base.args[0].args[0])
    return base


def _viewed(node: torch.fx.Node) -> torch.fx.Node:
    """The node that a node is a view of, where a part of what was split is a node of its own."""
    while is_view(node) and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    return node


def check_storage(node: torch.fx.Node) -> None:
    """Raise `NotSupported` for a place in the storage of an argument: torch compiles a graph once
    for arguments that begin anywhere in theirs."""
    place = STORAGE_OFFSETS.get(node.target)
    if place is None or not isinstance(node.args[0], torch.fx.Node):
        return
    given = node.args[place] if len(node.args) > place else node.kwargs.get("storage_offset")
    base = base_of(node.args[0])
    if given is not None and base.op == "placeholder" and COMPUTED not in base.meta:
        raise NotSupported(OF_STORAGE)


def _kept_base(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory a result may be given in, also that which it was split from; a part
    that nobody sees is dense, but where kernels read it by steps."""
    is_read_by_steps = READ_AS_IT_LIES in node.meta
    is_read_by_steps |= any(user.target in READ_BY_STEPS for user in node.users)
    return _viewed(node) if HIDDEN in node.meta and not is_read_by_steps else base_of(node)


def is_stepped(value: torch.Tensor) -> bool:
    """Whether a tensor of fixed sizes has rows of elements side by side, but is not dense."""
    shape, steps = value.shape, value.stride()
    if not shape or not all(isinstance(each, int) for each in (*shape, *steps)):
        return False
    if memory_order(value) is not None or 1 in shape or min(*shape, *steps) < 1:
        return False
    return min(steps) == 1 and reach(shape, steps) <= MOST_UNSEEN * math.prod(shape)


def is_view(node: torch.fx.Node) -> bool:
    """Whether an op gives its first argument's memory back as another view of the same numbers."""
    if node.target in MARKED:
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is None or len(schema.returns) != 1 or not schema.arguments:
        return False
    given = schema.returns[0].alias_info
    return given is not None and not given.is_write and schema.arguments[0].alias_info is not None


# -- sizes -----------------------------------------------------------------------------------------


FIXED = Sizes({}, (), ())


def sizes_in(examples: Sequence[Any]) -> Sizes:
    """The sizes that the arguments of a graph show: fake tensors, and numbers that are sizes.

    torch checks its own guards before a call, so that none are left to us.
    """
    found: dict[Any, Dim] = {}
    for extent, high in _extents(examples):
        symbol = extent.node.expr
        if symbol.is_Symbol and isinstance(extent.node.hint, int):  # else a ragged dim, or none
            dim = _dim(extent, high)
            known = found.setdefault(symbol, dim)
            found[symbol] = min(known, dim, key=lambda each: each.high)
    return Sizes({symbol: size_of(dim) for symbol, dim in found.items()}, (), ())


def at_sizes(sizes: Sizes, examples: Sequence[Any], arguments: Sequence[Any]) -> Sizes:
    """The same symbols as the numbers that a call's arguments show."""
    known: dict[Any, int] = {}
    for example, value in zip(examples, arguments, strict=True):
        if isinstance(example, torch.SymInt):
            if example.node.expr in sizes.symbols:  # a ragged dim is not a number
                known[example.node.expr] = int(value)
        elif isinstance(example, torch.Tensor):
            for extent, number in zip(example.shape, value.shape, strict=True):
                if isinstance(extent, torch.SymInt):
                    known[extent.node.expr] = number
    return Sizes({symbol: known[symbol] for symbol in sizes.symbols}, (), ())


def read_dims(arguments: Sequence[Any], sizes: Sizes) -> tuple[tuple[int, int | None], ...]:
    """Where each dim of `sizes` is read: (argument, axis), or (argument, None) of a number.

    Raises `DimUnreadable` for a dim that no argument shows by itself.
    """
    shown: dict[Any, tuple[int, int | None]] = {}
    for place, value in enumerate(arguments):
        if isinstance(value, torch.SymInt):
            shown.setdefault(sizes.symbols.get(value.node.expr), (place, None))
    for place, value in enumerate(arguments):
        for axis, extent in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(extent, torch.SymInt):
                shown.setdefault(sizes.symbols.get(extent.node.expr), (place, axis))
    for dim in sizes.dims:
        if size_of(dim) not in shown:
            raise DimUnreadable(name=dim.name)
    return tuple(shown[size_of(dim)] for dim in sizes.dims)


def number_ranges(examples: Sequence[Any], sizes: Sizes) -> dict[int, tuple[int, int]]:
    """Place of each argument that is a number and no tensor's size → what its dim allows: nothing,
    as 1 to 0, where the trace holds for numbers below 1 alone."""
    shown = {
        extent.node.expr
        for example in examples
        if isinstance(example, torch.Tensor)
        for extent in example.shape
        if isinstance(extent, torch.SymInt)
    }
    found = {}
    for place, example in enumerate(examples):
        if isinstance(example, torch.SymInt) and example.node.expr not in shown:
            size = sizes.symbols.get(example.node.expr)
            if size is not None and _traced_range(example, LARGEST_EXTENT)[1] < 1:
                found[place] = (1, 0)
            elif isinstance(size, int):  # the one number of its range that a dim may be
                found[place] = (size, size)
            else:
                for dim in size.dims() if isinstance(size, Size) else ():
                    found[place] = (dim.low, dim.high)
    return found


def _traced_range(extent: torch.SymInt, high: int) -> tuple[int, int]:
    """The ends of a symbol by its guards, the last one `high` at most."""
    return ends_of(extent.node.shape_env.var_to_range[extent.node.expr], high)


def _extents(examples: Sequence[Any]) -> Iterator[tuple[torch.SymInt, int]]:
    """Each size of a call, with the largest that it may be so that elements fit 31 bits."""
    for example in examples:
        if isinstance(example, torch.SymInt):
            yield example, LARGEST_EXTENT
        elif isinstance(example, torch.Tensor):
            rest = prod(extent for extent in example.shape if isinstance(extent, int))
            rest *= 2 if example.is_complex() else 1
            for extent in example.shape:
                if isinstance(extent, torch.SymInt):
                    yield extent, LARGEST_EXTENT // max(rest, 1)


def _dim(extent: torch.SymInt, high: int) -> Dim:
    """The dim of a symbol: the range of its guards within what 32 bits address."""
    node = extent.node
    low, high = _traced_range(extent, high)
    low = max(1, low)
    high = max(low, high)
    return Dim(str(node.expr), low, high, min(max(int(node.hint), low), high))
