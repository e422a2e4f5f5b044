"""`y[mask] = f(x[mask])` and `f(x[mask]).mean()`, computed for all rows.

How many rows a mask selects depends on data, and no program has tensors of such a size. If every op
on the selected rows acts on each row by itself, and the result is written back under the same mask
or reduced, the ops can be applied to all rows: the mask then decides which rows are written, or
count in the reduction.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import symbol_is_type
from torch.utils._sympy.symbol import SymT

from aotc.aot.capture.custom_ops import base_name
from aotc.aot.capture.masked_steps import (
    LOOKED_UP,
    PRODUCTS,
    dims_from_end,
    dims_of_reduction,
    is_reduction,
    reduced,
)
from aotc.aot.capture.masked_steps import value_of as _value

aten = torch.ops.aten
# Beside those that torch marks; some give numbers that are those of no element.
BY_ELEMENT = frozenset({
    "_to_copy", "alias", "clone", "detach", "full_like", "ones_like", "zeros_like",
})  # fmt: skip
RAISING = frozenset({"div", "floor_divide", "fmod", "remainder"})  # of whole numbers, by their data
ASSERTED = frozenset({aten._assert_scalar.default, aten.sym_constrain_range_for_size.default})
SIZE = aten.sym_size.int
# The places of a mask of one dim as they come of `nonzero`, a matrix of one column.
COLUMN = frozenset({
    (aten.slice.Tensor, "1", "0", "1"), (aten.squeeze.dims, "[1]"), (aten.squeeze.dims, "[-1]"),
    (aten.select.int, "1", "0"),
})  # fmt: skip


def with_all_rows(program: ExportedProgram) -> ExportedProgram:
    """The decomposed program, changed in place where masks select rows and write them."""
    graph, done = program.graph, False
    for node in list(graph.nodes):
        if node.target is aten.nonzero.default:
            done = _selected_by_mask(graph, node) or done
    for node in list(graph.nodes):
        if _is_selection(node) and node.users:
            rows = _Rows(node)
            if rows.are_taken(graph):
                rows.widen(graph)
                done = True
    if done:
        graph.eliminate_dead_code()
        program.graph_module.recompile()
    return program


class _Rows:
    """The nodes of rows that one mask selects, in the order in which they were met."""

    def __init__(self, selection: Node) -> None:
        self.mask = _mask_of(selection)
        self.members: dict[Node, None] = {}
        self.writes: list[Node] = []
        self.reductions: dict[Node, tuple[list[int], bool]] = {}  # dims among those of all rows
        self.counts: list[Node] = []
        self.assertions: list[Node] = []

    def are_taken(self, graph: Graph) -> bool:
        """Whether all that becomes of the rows is known and may be done to every row."""
        for node in graph.nodes:
            if self._selects(node):
                self.members[node] = None
                continue
            is_user = any(each in self.members for each in node.all_input_nodes)
            if is_user and not self._takes(node):
                return False
        return bool(self.writes or self.reductions)

    def _takes(self, user: Node) -> bool:
        """Whether what is computed of members is known; it is put to what it is."""
        if user.target is SIZE and user.args[1] == 0:
            self.counts.append(user)
        elif user.target is aten._assert_tensor_metadata.default and user.args[1:3] == (None, None):
            self.assertions.append(user)  # of its type alone
        elif self._is_write(user):
            self.writes.append(user)
        elif is_reduction(user, self.mask):
            self.reductions[user] = dims_of_reduction(user, _value(self.mask).dim())
        else:
            rows = [each for each in user.all_input_nodes if _has_rows(each)]
            is_taken = _has_rows(user) and all(each in self.members for each in rows)
            if not (is_taken and (_is_by_element(user) or self._is_of_rows(user))):
                return False
            self.members[user] = None
        return True

    def _is_of_rows(self, user: Node) -> bool:
        """Whether an op computes each row of its result from the same row of what it is given."""
        places = [place for place, each in enumerate(user.args) if _has_rows(each)]
        if user.target in PRODUCTS:
            place, is_of_matrices = PRODUCTS[user.target]
            is_flat = _value(self.mask).dim() == 1 or not is_of_matrices
            return places == [place] and is_flat and _value(user.args[place]).dim() > 1
        if user.target in LOOKED_UP and places != list(LOOKED_UP[user.target][1]):
            return False
        if user.target is aten.embedding.default:
            return True
        if user.target is aten.expand.default:
            return _value(user.args[0]).dim() == len(user.args[1])
        if user.target is aten.cat.default and not all(map(_has_rows, user.args[0])):
            return False
        return dims_from_end(user) is not None

    def _selects(self, node: Node) -> bool:
        return _is_selection(node) and _are_equal(_mask_of(node), self.mask)

    def _is_write(self, user: Node) -> bool:
        if user.target is not aten.index_put.default or len(user.args) != 3 or user.kwargs:
            return False
        data, places, rows = user.args
        if len(places) != 1 or not _are_equal(places[0], self.mask) or _has_rows(data):
            return False
        beside = _value(data).dim() - _value(self.mask).dim()
        return isinstance(rows, Node) and _value(rows).dim() == 1 + beside

    def widen(self, graph: Graph) -> None:
        """Change the graph: members have all rows, a write chooses by the mask, and so does a
        reduction."""
        for node in self.assertions:
            if not node.users:
                graph.erase_node(node)
        dims = {node: dims_from_end(node) for node in self.members}  # before there are more
        for node in [each for each in graph.nodes if each in self.members]:
            if _is_selection(node):
                node.replace_all_uses_with(node.args[0])
                continue
            if node.target is aten.expand.default:
                node.update_arg(1, [*[-1] * _value(self.mask).dim(), *node.args[1][1:]])
            elif dims[node] is not None:
                node.update_arg(*dims[node])
            if node.target in LOOKED_UP:
                self._check_selected_only(graph, node)
            node.meta["val"] = _computed(node, node)
        for node, (over, stays) in self.reductions.items():
            with graph.inserting_before(node):
                make = functools.partial(_made, graph, node)
                found = reduced(node, self.mask, over, stays, make)
            _put_in_place(graph, node, found)
        for node in self.counts:
            _count(graph, node, self.mask)
        for node in self.writes:
            data, _, rows = node.args
            mask = self.mask
            with graph.inserting_before(node):
                while _value(mask).dim() < _value(data).dim():
                    mask = _made(graph, node, aten.unsqueeze.default, mask, -1)
                chosen = _made(graph, node, aten.where.self, mask, rows, data)
            _put_in_place(graph, node, chosen)

    def _check_selected_only(self, graph: Graph, node: Node) -> None:
        """Have 0 in place of the indices of rows that are not selected, which may be any."""
        place, _ = LOOKED_UP[node.target]
        index, mask = node.args[place], self.mask
        with graph.inserting_before(node):
            while _value(mask).dim() < _value(index).dim():
                mask = _made(graph, node, aten.unsqueeze.default, mask, -1)
            kind = {"dtype": _value(index).dtype, "device": _value(index).device}
            zero = _made(graph, node, aten.full.default, [], 0, **kind)
            chosen = _made(graph, node, aten.where.self, mask, index, zero)
        node.update_arg(place, chosen)


def _put_in_place(graph: Graph, node: Node, found: Node) -> None:
    name = node.name
    node.replace_all_uses_with(found)
    graph.erase_node(node)
    found.name = name  # by which the program's signature knows its outputs


def _selected_by_mask(graph: Graph, places: Node) -> bool:
    """Have `data[nonzero(mask)]` of a mask of one dim be `data[mask]`, where that is all that
    becomes of the places; whether it is."""
    mask = places.args[0]
    if _value(mask).dim() != 1 or _value(mask).dtype != torch.bool:
        return False
    counts = [each for each in places.users if each.target is SIZE and each.args[1] == 0]
    columns = [each for each in places.users if each not in counts]
    for column in columns:  # which grows
        if (column.target, *map(str, column.args[1:])) in COLUMN:
            columns += [each for each in column.users if each not in columns]
        elif column.target is not aten.index.Tensor or len(column.args[1]) != 1:
            return False
    for node in [each for each in columns if each.target is aten.index.Tensor]:
        node.args = (node.args[0], [mask])
    for node in counts:
        _count(graph, node, mask)
    return True


def _count(graph: Graph, node: Node, mask: Node) -> None:
    """Have the number of selected rows be the sum of the mask; what torch asserts of it holds."""
    for user in list(node.users):
        asserted = [] if user.target in ASSERTED else list(user.users)
        if (user.target in ASSERTED or _holds(user, mask)) and all(
            each.target in ASSERTED for each in asserted
        ):
            for each in (*asserted, user):
                graph.erase_node(each)
    if node.users:
        with graph.inserting_before(node):
            total = _made(graph, node, aten.sum.dim_IntList, mask, [])
            number = graph.call_function(aten._local_scalar_dense.default, (total,))
            number.meta = dict(node.meta)
        node.replace_all_uses_with(number)
    graph.erase_node(node)


def _mask_of(node: Node) -> Node:
    """The mask of a selection."""
    is_call = node.target is aten.masked_select.default
    return node.args[1] if is_call else node.args[1][0]


def _is_selection(node: Node) -> bool:
    """Whether this is `data[mask]` of one mask over the first dims."""
    if node.target is aten.masked_select.default:
        data, mask = map(_value, node.args)
        return data.dim() == mask.dim() and data.shape == mask.shape
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
    is_whole = not (value.is_floating_point() or value.is_complex())
    if name in RAISING and is_whole and (isinstance(node.args[1], Node) or not node.args[1]):
        return False
    return torch.Tag.pointwise in op.tags or name in BY_ELEMENT


def _has_rows(node: Any) -> bool:
    """Whether the first dim of a tensor is as long as its data say."""
    value = _value(node)
    if not isinstance(value, torch.Tensor) or not value.dim():
        return False
    first = value.shape[0]
    free = () if isinstance(first, int) else first.node.expr.free_symbols
    return any(symbol_is_type(each, UNBACKED) for each in free)


UNBACKED = SymT.UNBACKED_INT


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


def _computed(node: Node, like: Node) -> Any:
    """What a node gives for what its operands now are, among those of a node like it."""
    given, named = torch.fx.node.map_arg((node.args, node.kwargs), _value)
    with next(_value(each).fake_mode for each in like.all_input_nodes if _is_fake(each)):
        return node.target(*given, **named)


def _is_fake(node: Node) -> bool:
    return hasattr(_value(node), "fake_mode")


def _made(graph: Graph, like: Node, op: Any, *arguments: Any, **named: Any) -> Node:
    """A new call with the source line of the one that it stands for."""
    node = graph.call_function(op, arguments, named)
    node.meta = {**like.meta, "val": _computed(node, like)}
    return node
