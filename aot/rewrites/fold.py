"""Folding: what depends on constants and literals only is computed at build time.

A result takes the place of its expression when that does not make the bundle larger: repeated
values stay an expand, and counted values stay an iota that the kernel computes. Tables of functions
of counted values, such as the sines of all positions, are worth their bytes.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.constants import folded_constant, value_of
from aotc.aot.ir.graph import Constant, Graph, Node, walk
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.reference import evaluate
from aotc.aot.ir.rules import Context
from aotc.aot.ir.size import fixed, proves_at_most, typical
from aotc.aot.ir.storage import Array, widen
from aotc.aot.rewrites.panels import is_widened

COUNTED_LIMIT = 1 << 20  # elements of an expression without constants that are worth a look
TABLE_BYTES = 1 << 22  # of a table of counted values
TABLE_COST = 10.0  # operations of a function that is looked up rather than computed
SMALL_BYTES = 4096  # results up to this size are folded whatever they are made of
PADDED_GROWTH = 3.0  # of padded constants, at most
NARROW = frozenset({"i8", "u8"})  # how quantised numbers are stored


def fold(graph: Graph) -> tuple[Graph, int]:
    """`graph` with its constant parts evaluated, and how many expressions that replaced."""
    return _fold(graph, keeps_transposes=False)


def fold_all_but_transposes(graph: Graph) -> tuple[Graph, int]:
    """As `fold`, but a matmul's right operand stays the transpose of a constant where it is one."""
    return _fold(graph, keeps_transposes=True)


def _fold(graph: Graph, keeps_transposes: bool) -> tuple[Graph, int]:
    folder = _Folder(graph.constants, keeps_transposes)
    outputs = folder.rewrite(graph.outputs)
    pool = {**graph.constants, **folder.made}
    return graph.with_outputs(outputs, pool), folder.count


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a constant expression is made of."""

    constants: frozenset[Node]
    is_fixed: bool  # reads no weights that a program may be given others of
    padding: float  # by how much pads enlarge it
    is_dear: bool  # holds functions that cost more than reading their results
    is_narrow: bool = False  # holds constants of one byte an element

    @classmethod
    def of(cls, node: Node, is_weight: bool, operands: Collection[_Parts]) -> _Parts:
        """The parts of a node with such operands."""
        own = frozenset({node} if node.op == "constant" else ())
        is_dear = node.kind == "pointwise" and OPS[node.op].cost >= TABLE_COST
        return cls(
            own.union(*(each.constants for each in operands)),
            not is_weight and all(each.is_fixed for each in operands),
            _growth(node) * max((each.padding for each in operands), default=1.0),
            is_dear or any(each.is_dear for each in operands),
            (node.op == "constant" and node.dtype in NARROW)
            or any(each.is_narrow for each in operands),
        )


class _Folder:
    def __init__(self, constants: Mapping[str, Constant], keeps_transposes: bool) -> None:
        self.constants, self.keeps_transposes = dict(constants), keeps_transposes
        self.made: dict[str, Constant] = {}
        self.count = 0
        self.context = Context()
        self.folded: dict[Node, Node] = {}  # what is known of constant expressions, each once
        self.split: set[Node] = set()  # those that stay, with their operands folded
        self.uniform: dict[Node, Node | None] = {}  # see `_everywhere`
        self.parts: dict[Node, _Parts] = {}

    def rewrite(self, outputs: tuple[Node, ...]) -> tuple[Node, ...]:
        """`outputs` with their constant operands replaced, largest expressions first."""
        new: dict[Node, Node] = {}
        order = _needed(outputs, self)
        kept = {node.inputs[1] for node in order if node.kind == "matmul" and self.keeps_transposes}
        filters = dict(pair for node in order for pair in _filters(node, self.context))
        for node in order:
            if node in filters:
                new[node] = self._kernel_first(node, filters[node])
                continue
            if self.context.is_constant(node):
                new[node] = self._transposed(node) if node in kept else self._folded(node)
                continue
            operands = tuple(new[operand] for operand in node.inputs)
            if node.op == "matmul_packed":
                operands = (operands[0], self._packed(node.inputs[1]))
            new[node] = _simplified(node.on(operands), self)
        return tuple(new[node] for node in outputs)

    def value(self, node: Node) -> Array:
        """Value of a constant expression."""
        return value_of(node, ChainMap(self.made, self.constants))

    def _known(self, node: Node) -> Constant:
        """What a constant's node names."""
        name = node.attr("name")
        return self.made.get(name) or self.constants[name]

    def _transposed(self, node: Node) -> Node:
        """The constant; a transposed one as a view, so that its rows stay along the matmul's k."""
        rows = build.transpose(node)
        is_view = node.op == "permute" and rows is node.inputs[0]
        return build.transpose(self._folded(rows)) if is_view else self._folded(node)

    def _kernel_first(self, node: Node, dims: int) -> Node:
        """A filter stored with its last `dims` axes first, so that its channels lie together."""
        rank = node.type.rank
        order = (*range(rank - dims, rank), *range(rank - dims))
        back = (*range(dims, rank), *range(dims))
        if node.op == "permute" and node.attr("dims") == back and node.inputs[0].op == "constant":
            return node
        return build.permute(self._folded(build.permute(node, order)), back)

    def _packed(self, node: Node) -> Node:
        """Panels are stored as the kernels read them, even where padding makes them larger; those
        of narrower numbers stay narrow."""
        if node.op == "constant" or not self.context.is_constant(node):
            return node
        if is_widened(node):
            return self._folded(node)
        self.count += 1
        return self._constant(node)

    def _folded(self, root: Node) -> Node:
        """The constant that `root` is; where that would be larger, its operands folded instead."""
        waiting = [root]
        while waiting:
            node = waiting[-1]
            found = self.folded.get(node)
            if found is None and node not in self.split:
                found = self._whole(node)
            if found is None:
                if node not in self.split:
                    self._split(node)
                unknown = [operand for operand in node.inputs if operand not in self.folded]
                if unknown:
                    waiting += unknown
                    continue
                found = node.on(tuple(self.folded[operand] for operand in node.inputs))
            self.folded[waiting.pop()] = found
        return self.folded[root]

    def _split(self, node: Node) -> None:
        """Mark a node as one that stays; below it also what as constants, made of the same numbers
        for several of its operands, would together be larger than these."""
        self.split.add(node)
        operands = [each for each in dict.fromkeys(node.inputs) if each.inputs]
        sources = [self._parts(each).constants for each in operands]
        times = Counter(source for each in sources for source in each)
        shared = {source for source, count in times.items() if count > 1}
        whole_bytes = sum(source.type.nbytes for source in times)
        made_bytes = sum(
            min(each.type.nbytes, sum(source.type.nbytes for source in parts))
            for each, parts in zip(operands, sources, strict=True)
        )
        if not shared or made_bytes <= whole_bytes + SMALL_BYTES:
            return
        readers = Counter(each for operand in operands for each in walk((operand,)))
        self.split.update(
            each
            for each, count in readers.items()
            if count == 1 and each.inputs and shared & self._parts(each).constants
        )

    def _whole(self, node: Node) -> Node | None:
        """The constant that an expression is; None where that would be larger."""
        if node.op == "constant":
            return (
                _uniform(self.value(node), node) if self._parts(node).is_fixed else None
            ) or node
        if not node.inputs:
            return node
        replacement = self._replacement(node)
        self.count += replacement is not None and replacement is not node
        return replacement

    def _replacement(self, node: Node) -> Node | None:
        parts = self._parts(node)
        constants = parts.constants
        if not constants and node.type.numel > COUNTED_LIMIT:
            return None
        # Zeros beside weights are there to be read: a kernel that made them would lose by it.
        slack_bytes = 0 if parts.is_narrow else SMALL_BYTES
        growth = min(PADDED_GROWTH, parts.padding)
        limit_bytes = slack_bytes + growth * sum(fixed(item.type.nbytes) for item in constants)
        if constants and fixed(node.type.nbytes) > limit_bytes:
            return None
        if _is_repetition(node):
            return node if node.inputs[0].op == "scalar" else None
        if not constants and not (parts.is_dear and node.type.nbytes <= TABLE_BYTES):
            return self._everywhere(node)  # else an iota: the kernel computes it from its indices
        if not parts.is_fixed:
            return self._constant(node)
        return _uniform(self.value(node), node) or self._constant(node)

    def _parts(self, root: Node) -> _Parts:
        """What an expression is made of, each of its nodes looked at once."""
        for node in walk((root,), self.parts):
            is_weight = node.op == "constant" and self._known(node).is_replaceable
            operands = [self.parts[operand] for operand in node.inputs]
            self.parts[node] = _Parts.of(node, is_weight, operands)
        return self.parts[root]

    def _everywhere(self, node: Node) -> Node | None:
        """The literal that all elements of a known value are, if they are equal. It is asked of an
        expression and then of its operands, so it evaluates them together."""
        if node not in self.uniform:
            values: dict[Node, Array] = {}
            for each in walk((node,)):
                operands = [values[operand] for operand in each.inputs]
                values[each] = evaluate(each, operands)
                if each not in self.uniform:
                    self.uniform[each] = _uniform(values[each], each)
        return self.uniform[node]

    def _constant(self, node: Node) -> Node:
        """What `node` is, stored; the values of weights are computed when they are asked for."""
        pool = ChainMap(self.made, self.constants)
        made = folded_constant(node, pool, is_weight=not self._parts(node).is_fixed)
        self.made[made.name] = made
        return build.constant(made.name, node.type)


def _growth(node: Node) -> float:
    """By how much a pad enlarges its operand."""
    if node.op != "pad":
        return 1.0
    return max(1.0, typical(node.type.numel) / max(1, typical(node.inputs[0].type.numel)))


def _filters(node: Node, context: Context) -> Iterator[tuple[Node, int]]:
    """The constant that `node` multiplies windows with, and how many axes a window has; by groups
    of channels one more."""
    if node.op == "mul":
        for windows, factors in (node.inputs, node.inputs[::-1]):
            behind = windows.inputs[0] if windows.op == "reshape" else windows
            if behind.op == "window" and context.is_constant(factors) and factors.inputs:
                yield factors, len(behind.attr("axes")) + (behind is not windows)


def _needed(outputs: tuple[Node, ...], folder: _Folder) -> list[Node]:
    """Nodes to rewrite: none below a constant expression."""
    order: list[Node] = []
    seen: set[Node] = set()
    ends = frozenset(outputs)
    for node in reversed(list(walk(outputs))):
        if node in ends or node in seen:
            order.append(node)
            if not folder.context.is_constant(node):
                seen.update(node.inputs)
    return order[::-1]


def _is_repetition(node: Node) -> bool:
    return node.op == "expand" or (node.op == "reshape" and node.inputs[0].type.rank == 0)


def _uniform(array: Array, node: Node) -> Node | None:
    """An expand of one literal, when all elements of `array` are that literal."""
    if array.size == 0:
        return None
    flat = array.reshape(-1)
    first = flat[:1]
    # Most weights differ in their first elements: the rest is looked at only when they do not.
    if not ((flat[:64] == first).all() and (flat == first).all()):
        return None
    value = widen(first, node.dtype)[0].item()
    return build.expand(build.scalar(value, node.dtype), node.shape)


def _simplified(node: Node, folder: _Folder) -> Node:
    """take(x, known indices that count up by one) → a slice of x."""
    if node.op != "take" or not folder.context.is_constant(node.inputs[1]):
        return node
    data, indices = node.inputs
    if indices.type.numel > COUNTED_LIMIT or indices.type.numel == 0:
        return node
    if not folder._parts(indices).is_fixed:
        return node
    flat = folder.value(indices).reshape(-1)
    start = int(flat[0])
    if start < 0 or not numpy.array_equal(flat, numpy.arange(start, start + flat.size)):
        return node
    axis = node.attr("axis")
    if not proves_at_most(start + flat.size, data.shape[axis]):
        return node
    folder.count += 1
    return build.reshape(build.slice_axis(data, axis, start, start + flat.size), node.shape)
