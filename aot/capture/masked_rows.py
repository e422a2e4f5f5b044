"""`y[mask] = f(x[mask])`: rows that a mask selects, computed for all rows and written by the mask.

How many rows a mask selects depends on data, and no program has tensors of such a size. Where all
that is done to them is done to each by itself, and what comes out is written where the same mask
says, it may be done to every row.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from aotc.aot.capture.custom_ops import base_name

aten = torch.ops.aten
BY_ELEMENT = frozenset({"_to_copy", "alias", "clone", "detach"})  # beside those that torch marks
RAISING = frozenset({"div", "floor_divide", "fmod", "remainder"})  # of whole numbers, by their data
ASSERTED = frozenset({aten._assert_scalar.default, aten.sym_constrain_range_for_size.default})
SIZE = aten.sym_size.int


def with_all_rows(program: ExportedProgram) -> ExportedProgram:
    """The decomposed program, changed in place where masks select rows and write them."""
    graph, done = program.graph, False
    for node in list(graph.nodes):
        if _is_selection(node) and node.users:
            rows = _Rows(node)
            if rows.are_taken():
                rows.widen(graph)
                done = True
    if done:
        graph.eliminate_dead_code()
        program.graph_module.recompile()
    return program


class _Rows:
    """The nodes of rows that one mask selects, in the order in which they were met."""

    def __init__(self, selection: Node) -> None:
        self.mask = selection.args[1][0]
        self.members: dict[Node, None] = {selection: None}
        self.writes: list[Node] = []
        self.assertions: list[Node] = []

    def are_taken(self) -> bool:
        """Whether all that becomes of the rows is known and may be done to every row."""
        waiting = list(self.members)
        while waiting:
            for user in waiting.pop().users:
                found = self._met(user)
                if found is None:
                    return False
                waiting += [each for each in found if each not in self.members]
                self.members.update(dict.fromkeys(found))
        return bool(self.writes)

    def _met(self, user: Node) -> list[Node] | None:
        """The members that a user of one makes more; None where it is not known."""
        if user in self.members or user in self.writes:
            return []
        if user.target is SIZE and user.args[1] == 0:
            chain = _asserted(user, self.mask)
            self.assertions += chain
            return [] if chain else None
        if user.target is aten._assert_tensor_metadata.default and user.args[1:3] == (None, None):
            self.assertions.append(user)  # of its type alone
            return []
        if self._is_write(user):
            self.writes.append(user)
            return []
        if not _is_by_element(user):
            return None
        others = [each for each in user.all_input_nodes if _has_rows(each)]
        if not all(each in self.members or self._selects(each) for each in others):
            return None
        return [user, *others]

    def _selects(self, node: Node) -> bool:
        return _is_selection(node) and _are_equal(node.args[1][0], self.mask)

    def _is_write(self, user: Node) -> bool:
        if user.target is not aten.index_put.default or len(user.args) != 3 or user.kwargs:
            return False
        data, places, rows = user.args
        if len(places) != 1 or not _are_equal(places[0], self.mask) or _has_rows(data):
            return False
        beside = _value(data).dim() - _value(self.mask).dim()
        return isinstance(rows, Node) and _value(rows).dim() == 1 + beside

    def widen(self, graph: Graph) -> None:
        """Change the graph: members have all rows, a write chooses by the mask."""
        for node in reversed(self.assertions):
            if not node.users:
                graph.erase_node(node)
        for node in [each for each in graph.nodes if each in self.members]:
            if _is_selection(node):
                node.replace_all_uses_with(node.args[0])
            else:
                node.meta["val"] = _computed(node)
        for node in self.writes:
            data, _, rows = node.args
            mask, name = self.mask, node.name
            with graph.inserting_before(node):
                while _value(mask).dim() < _value(data).dim():
                    mask = _made(graph, aten.unsqueeze.default, (mask, -1), node)
                chosen = _made(graph, aten.where.self, (mask, rows, data), node)
            node.replace_all_uses_with(chosen)
            graph.erase_node(node)
            chosen.name = name  # by which the program's signature knows its outputs


def _is_selection(node: Node) -> bool:
    """Whether this is `data[mask]` of one mask over the first dims."""
    if node.target is not aten.index.Tensor or len(node.args[1]) != 1:
        return False
    (index,) = node.args[1]
    return isinstance(index, Node) and _value(index).dtype == torch.bool


def _is_by_element(node: Node) -> bool:
    """Whether an op computes each element by itself, and raises for none."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in op.tags:
        return False
    name, value = base_name(op), _value(node)
    if not isinstance(value, torch.Tensor) or op._schema.is_mutable:
        return False
    if name in RAISING and not (value.is_floating_point() or value.is_complex()):
        return False
    return torch.Tag.pointwise in op.tags or name in BY_ELEMENT


def _has_rows(node: Any) -> bool:
    """Whether the first dim of a tensor is as long as its data say."""
    value = _value(node)
    if not isinstance(value, torch.Tensor) or not value.dim():
        return False
    first = value.shape[0]
    free = () if isinstance(first, int) else first.node.expr.free_symbols
    return any(
        torch.fx.experimental.symbolic_shapes.symbol_is_type(each, UNBACKED) for each in free
    )


UNBACKED = torch.utils._sympy.symbol.SymT.UNBACKED_INT


def _asserted(count: Node, mask: Node) -> list[Node]:
    """How many rows there are and what torch asserts of it, which holds; empty where anything else
    comes of it."""
    found = [count]
    for each in found:
        for user in each.users:
            if user.target not in ASSERTED and not _holds(user, mask):
                return []
            found.append(user)
    return list(dict.fromkeys(found))


def _holds(node: Node, mask: Node) -> bool:
    """Whether this says of a number of rows what is so: that it is not negative, at most that of
    all rows, or as large as that of other rows which meet these."""
    if node.target is operator.ge:
        return bool(node.args[1] == 0)
    if node.target is operator.le:
        most = _value(node.args[1])
        return isinstance(most, int) and bool(_most(_value(mask).numel()) <= most)
    sizes = node.args if node.target is operator.eq else ()
    return bool(sizes) and all(getattr(each, "target", None) is SIZE for each in sizes)


def _most(number: Any) -> Any:
    """The largest that a size may be."""
    if isinstance(number, int):
        return number
    return number.node.shape_env.bound_sympy(number.node.expr).upper


def _are_equal(left: Any, right: Any) -> bool:
    """Whether two nodes are one, or the same op of equal nodes."""
    if not (isinstance(left, Node) and isinstance(right, Node)):
        return type(left) is type(right) and bool(left == right)
    if left is right:
        return True
    if left.op != "call_function" or left.target is not right.target or left.kwargs or right.kwargs:
        return False
    pairs = zip(left.args, right.args, strict=False)
    return (
        _is_by_element(left)
        and len(left.args) == len(right.args)
        and all(_are_equal(*pair) for pair in pairs)
    )


def _value(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, Node) else node


def _computed(node: Node) -> Any:
    """What a node gives for what its operands now are."""
    given, named = torch.fx.node.map_arg((node.args, node.kwargs), _value)
    with next(_value(each).fake_mode for each in node.all_input_nodes if _is_fake(each)):
        return node.target(*given, **named)


def _is_fake(node: Node) -> bool:
    return hasattr(_value(node), "fake_mode")


def _made(graph: Graph, op: Any, arguments: tuple[Any, ...], like: Node) -> Node:
    """A new call with the value and the source line of the one that it stands for."""
    node = graph.call_function(op, arguments)
    node.meta = {**like.meta, "val": _computed(node)}
    return node
