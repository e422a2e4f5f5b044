"""Nodes, graphs and constants: immutable, interned, built only through `make`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from aotc.aot.errors import TypeRuleError
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.size import Extent, Shape, Size, UndecidedSize
from aotc.aot.ir.types import Scalar, TensorType

if TYPE_CHECKING:
    import numpy

AttrValue = Any  # hashable: bool, int, float, str, a Size, a Body or a tuple of these
Attrs = tuple[tuple[str, AttrValue], ...]
Identity = tuple[str, tuple[Size, ...]]  # of attributes: their text, and the sizes that it names
Number = Scalar | Extent


class IllegalNodeError(TypeRuleError):
    """`make` was asked for a node that the op's row does not allow."""

    def __init__(self, op: str, inputs: tuple[TensorType, ...], reason: str) -> None:
        self.op, self.inputs, self.reason = op, inputs, reason
        super().__init__(f"`{op}({', '.join(map(str, inputs))})` is illegal: {reason}")


def _binary(op: str) -> Callable[[Node, Node | Number], Node]:
    return lambda left, right: make(op, (left, _like(right, left)))


def _reflected(op: str) -> Callable[[Node, Number], Node]:
    return lambda right, left: make(op, (_like(left, right), right))


def _of_bools(logical: str, bitwise: str) -> Callable[..., Node]:
    return lambda left, *rest: make(logical if left.dtype == "bool" else bitwise, (left, *rest))


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """One operation applied to nodes. Equal nodes are the same object, so `is` compares meaning.

    Operators of Python make nodes: `x * 2.0 + y`, `-x`, `abs(x)`, `x < y`, and of bools `a & ~b`. A
    number takes the element type of the node beside it. `==` asks whether nodes are the same.
    """

    __slots__ = ("__weakref__", "attrs", "identity", "inputs", "op", "source", "type")

    op: str
    inputs: tuple[Node, ...]
    attrs: Attrs
    identity: Identity  # of the attributes
    type: TensorType
    source: str | None  # `model.py:31 in forward`; no part of the identity

    def attr(self, name: str) -> AttrValue:
        """Value of the attribute `name`; raises `KeyError` when the op has none of that name."""
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(f"`{self.op}` has no attribute `{name}`")

    @property
    def kind(self) -> str:
        """Kind of the op's row: `pointwise`, `reduce`, `view`, `matmul` …"""
        return OPS[self.op].kind

    @property
    def shape(self) -> Shape:
        """Shape of the result."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """Element type of the result."""
        return self.type.dtype

    def on(self, operands: tuple[Node, ...]) -> Node:
        """The same op of other operands."""
        if operands == self.inputs:
            return self
        return _interned(self.op, operands, self.attrs, self.identity, self.source)

    def result(self, number: int) -> Node:
        """Another result of the same call."""
        return make(self.op, self.inputs, {**dict(self.attrs), "result": number}, self.source)

    def sizes(self) -> tuple[Size, ...]:
        """The dynamic sizes in its shape and attributes."""
        return sizes_in(self.type.shape) + self.identity[1]

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("div"), _reflected("div")
    __floordiv__, __mod__ = _binary("floor_divide"), _binary("remainder")
    __lt__, __le__, __gt__, __ge__ = map(_binary, ("lt", "le", "gt", "ge"))
    __and__ = _of_bools("logical_and", "bitwise_and")
    __or__ = _of_bools("logical_or", "bitwise_or")
    __invert__ = _of_bools("logical_not", "bitwise_not")

    def __neg__(self) -> Node:
        return make("neg", (self,))

    def __abs__(self) -> Node:
        return make("abs", (self,))

    def __repr__(self) -> str:
        words = [f"<{operand.op}>" for operand in self.inputs]
        words += [f"{name}={value!r}" for name, value in self.attrs]
        return f"{self.op}({', '.join(words)}) : {self.type}"


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor known at build time.

    values: C-contiguous, bf16 as uint16 bits; or a function that computes them when they are asked
    for. names: of the model's parameters and buffers that it holds, where a program may be given
    other values of them. expression: what it was computed from, where that reads such constants;
    leaves: the constants that stand in it.
    """

    name: str
    type: TensorType
    values: numpy.ndarray[Any, Any] | Callable[[], numpy.ndarray[Any, Any]]
    names: tuple[str, ...] = ()
    expression: Node | None = None
    leaves: tuple[Constant, ...] = ()

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """The values."""
        if callable(self.values):
            object.__setattr__(self, "values", self.values())
        found: numpy.ndarray[Any, Any] = self.values  # type: ignore[assignment]
        return found

    @property
    def is_replaceable(self) -> bool:
        """Whether a program may be given other values: no rule may look at these."""
        return bool(self.names) or self.expression is not None


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A tensor of mutable state; `initial` is None where it starts with zeros."""

    name: str
    initial: Constant | None


@dataclass(frozen=True, repr=False, eq=False)
class Body:
    """A graph that a node of `control` runs. Equal ones have the same text and the same sizes.

    Its inputs are all that it reads: it has no constants. text: as `text.py` prints the graph.
    """

    __slots__ = ("graph", "sizes", "text")

    graph: Graph
    text: str
    sizes: tuple[Size, ...]  # that its nodes name

    def __repr__(self) -> str:
        return repr((self.text, len(self.graph.states)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.text, len(self.graph.states), self.sizes


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A function from inputs to outputs. Names are the caller's; `constants` by node attribute.

    The last inputs are what `states` hold before a call, one each, and the last outputs but for
    `checks` what they hold after it; `input_names` and `output_names` name them too.
    """

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    constants: Mapping[str, Constant]
    states: tuple[State, ...] = ()

    @property
    def given(self) -> tuple[Node, ...]:
        """The inputs that a caller gives."""
        return self.inputs[: len(self.inputs) - len(self.states)]

    @property
    def returned(self) -> tuple[Node, ...]:
        """The outputs that a caller gets."""
        return self.outputs[: len(self.outputs) - len(self.states) - len(self.checks)]

    @property
    def new_states(self) -> tuple[Node, ...]:
        """The outputs that the states hold after a call."""
        first = len(self.returned)
        return self.outputs[first : first + len(self.states)]

    @property
    def checks(self) -> tuple[Node, ...]:
        """The last outputs: what is checked of the data of a call."""
        found = takewhile(lambda node: node.op == "check", reversed(self.outputs))
        return tuple(found)[::-1]

    def nodes(self) -> tuple[Node, ...]:
        """Inputs, then every node that an output needs, operands first; the order is fixed."""
        return tuple(dict.fromkeys((*self.inputs, *walk(self.outputs))))

    def users(self) -> dict[Node, tuple[Node, ...]]:
        """For each node, the nodes that read it, in topological order (each once)."""
        readers: dict[Node, list[Node]] = {node: [] for node in self.nodes()}
        for node in readers:
            for operand in dict.fromkeys(node.inputs):
                readers[operand].append(node)
        return {node: tuple(found) for node, found in readers.items()}

    def rebuilt(
        self, change: Callable[[Node, Node], Node], made: Mapping[str, Constant] | None = None
    ) -> Graph:
        """The graph with each node, operands first, as `change` gives it: from the node, and from
        the same op of what its operands have become. `made`: constants that it makes meanwhile."""
        new: dict[Node, Node] = {}
        for node in self.nodes():
            new[node] = change(node, node.on(tuple(new[operand] for operand in node.inputs)))
        pool = {**self.constants, **(made or {})}
        return self.with_outputs(tuple(new[node] for node in self.outputs), pool)

    def replaced(self, replacements: Mapping[Node, Node]) -> Graph:
        """The graph with nodes exchanged for others, which are made of its nodes."""
        new: dict[Node, Node] = {}
        waiting = list(self.outputs)
        while waiting:
            node = waiting[-1]
            target = replacements.get(node)
            needed = node.inputs if target is None else (target,)
            unknown = [each for each in needed if each not in new]
            waiting += unknown
            if not unknown:
                operands = tuple(new[each] for each in needed)
                new[node] = node.on(operands) if target is None else operands[0]
                waiting.pop()
        return self.with_outputs(tuple(new[node] for node in self.outputs))

    def without_data_checks(self) -> Graph:
        """The same function, whatever data it is given; that devices take part is still checked."""
        ends = zip(self.outputs, self.output_names, strict=True)
        kept = [
            (node, name)
            for node, name in ends
            if node.op != "check" or node.attr("kind") == "exchange"
        ]
        outputs, names = tuple(node for node, _ in kept), tuple(name for _, name in kept)
        plain = Graph(self.inputs, outputs, self.input_names, names, self.constants, self.states)
        return plain.with_outputs(outputs)

    def with_outputs(
        self, outputs: tuple[Node, ...], constants: Mapping[str, Constant] | None = None
    ) -> Graph:
        """Same signature, other outputs; constants that nothing reads any more are dropped."""
        pool = self.constants if constants is None else constants
        names = [node.attr("name") for node in walk(outputs) if node.op == "constant"]
        kept = {name: pool[name] for name in sorted(set(names))}
        names_of_ends = self.input_names, self.output_names
        return Graph(self.inputs, outputs, *names_of_ends, kept, self.states)


def walk(outputs: tuple[Node, ...], known: Container[Node] = ()) -> Iterator[Node]:
    """Every node that `outputs` need, operands before their users, each once; but for those that
    are known, and what these alone need."""
    seen: set[Node] = set()
    stack: list[Node | None] = [*reversed(outputs)]
    while stack:
        node = stack.pop()
        if node is None:  # what stands below it has all its operands now
            done = stack.pop()
            assert done is not None
            yield done
        elif node not in seen and node not in known:
            seen.add(node)
            if node.inputs:
                stack += (node, None)
                stack += [each for each in reversed(node.inputs) if each not in seen]
            else:
                yield node


def reads_nothing(node: Node) -> bool:
    """Whether elements are computed from an operand without any, but for parts of a concat."""
    if not node.type.numel or node.kind in ("concat", "view"):
        return False
    return 0 in (operand.type.numel for operand in node.inputs)


def fixed_constants(constants: Mapping[str, Constant]) -> dict[str, Constant]:
    """The constants whose values a program depends on: those that cannot be replaced."""
    return {name: each for name, each in constants.items() if not each.is_replaceable}


def sizes_in(value: AttrValue) -> tuple[Size, ...]:
    """The sizes in an attribute's value, however deep."""
    if isinstance(value, Size):
        return (value,)
    if isinstance(value, Body):
        return value.sizes
    found: tuple[Size, ...] = ()
    if isinstance(value, tuple):
        for item in value:
            if isinstance(item, Size | tuple | Body):  # most are whole numbers
                found += sizes_in(item)
    return found


def number(value: Number, dtype: str) -> Node:
    """A number as a rank-0 value: a literal, or a dynamic size."""
    if not isinstance(value, Size):
        return make("scalar", (), {"value": value, "dtype": dtype})
    size = make("extent", (), {"extent": value})
    return size if dtype == size.dtype else make("cast", (size,), {"dtype": dtype})


def _like(value: Node | Number, beside: Node) -> Node:
    return value if isinstance(value, Node) else number(value, beside.dtype)


_INTERNED: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()
_INTERN_LOCK = threading.Lock()
_SOURCE: ContextVar[str | None] = ContextVar("source", default=None)
_MADE: ContextVar[set[int] | None] = ContextVar("made", default=None)  # nodes of a build, by id


def made_for(source: str | None) -> _MadeFor:
    """Nodes made inside the block without a source of their own get `source`."""
    return _MadeFor(source)


class _MadeFor:
    """Of little cost: rewriting enters one a node."""

    __slots__ = ("_source", "_token")

    def __init__(self, source: str | None) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._token = _SOURCE.set(self._source)

    def __exit__(self, *_: object) -> None:
        _SOURCE.reset(self._token)


@contextmanager
def own_sources() -> Iterator[None]:
    """Nodes made inside the block have the sources that the block gives them first, whatever an
    earlier build in this process made the same nodes for. A block inside another is a part of it.
    """
    if _MADE.get() is not None:
        yield
        return
    token = _MADE.set(set())
    try:
        yield
    finally:
        _MADE.reset(token)


def make(
    op: str,
    inputs: tuple[Node, ...] = (),
    attrs: Mapping[str, AttrValue] | Attrs = (),
    source: str | None = None,
) -> Node:
    """The one node `op(*inputs, **attrs)`, its type inferred by the op's row.

    Raises `IllegalNodeError` for an unknown op, a wrong attribute or operands the row refuses,
    `UndecidedSize` where their dynamic sizes decide whether they are legal.
    """
    definition = OPS.get(op)
    if definition is None:
        raise IllegalNodeError(op, tuple(node.type for node in inputs), "there is no such op")
    try:
        frozen: Attrs = tuple(sorted(definition.normalize(dict(attrs)).items()))
    except UndecidedSize:  # legal at some calls
        raise
    except TypeRuleError as error:
        types = tuple(node.type for node in inputs)
        raise IllegalNodeError(op, types, str(error)) from None
    # repr keeps 0.0, -0.0, 0 and False apart and makes nan equal to itself.
    return _interned(op, inputs, frozen, (repr(frozen), sizes_in(frozen)), source)


def _interned(
    op: str, inputs: tuple[Node, ...], attrs: Attrs, identity: Identity, source: str | None
) -> Node:
    """The one node of these parts; its type, which follows from them, is inferred once."""
    key = (op, inputs, identity)
    known = _INTERNED.get(key)
    if known is not None:
        return _with_source(known, source)
    operand_types = tuple(node.type for node in inputs)
    try:
        result = OPS[op].infer(operand_types, dict(attrs))
    except UndecidedSize:  # legal at some calls
        raise
    except TypeRuleError as error:
        raise IllegalNodeError(op, operand_types, str(error)) from None
    with _INTERN_LOCK:
        node = _INTERNED.get(key)
        if node is None:
            node = Node(op, inputs, attrs, identity, result, source or _SOURCE.get())
            _INTERNED[key] = node
        return _with_source(node, source)


def _with_source(node: Node, source: str | None) -> Node:
    """The node; the first time that a build makes it, with the build's source."""
    made = _MADE.get()
    if made is not None and id(node) not in made:
        made.add(id(node))
        object.__setattr__(node, "source", source or _SOURCE.get())
    return node
