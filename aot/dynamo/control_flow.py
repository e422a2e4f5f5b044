"""Control flow: higher-order ops of torch, whose inner graphs are each compiled by themselves.

`CALLS` has a row for each supported op; others go to Inductor. As in eager, the host reads
predicates and decides which graph runs next, so it waits for a predicate on a device. A warm start
imports this file, but not `flow_nodes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotc.aot.dynamo.eager_graph import Boxed

Order = tuple[int, ...] | None
Graph = Callable[..., list[Any]]  # a compiled graph: its arguments one by one, a list of results


# -- the ops, as torch's own functions for them compute --------------------------------------------


def _invoked(graph: Graph, name: str, *operands: Any) -> list[Any]:
    return graph(*operands)


def _cond(predicate: Any, if_true: Graph, if_false: Graph, operands: Sequence[Any]) -> list[Any]:
    return (if_true if predicate else if_false)(*operands)


def _while_loop(
    goes_on: Graph, body: Graph, carried: Sequence[Any], others: Sequence[Any], *_: Any
) -> list[Any]:
    values = list(carried)
    is_first = True
    while goes_on(*values, *others)[0]:
        values, is_first = body(*values, *others), False
    return [_copied(each) for each in values] if is_first else values


def _while_loop_stacked(
    goes_on: Graph, body: Graph, carried: Sequence[Any], others: Sequence[Any], *_: Any
) -> list[Any]:
    """The carried values after each iteration, stacked; the initial ones if there is no
    iteration."""
    values, turns = list(carried), []
    while goes_on(*values, *others)[0]:
        values = body(*values, *others)
        turns.append(values)
    return [torch.stack(each) for each in zip(*(turns or [values]), strict=True)]


def _scan(
    combine: Graph, first: Sequence[Any], rows: Sequence[Tensor], others: Sequence[Any]
) -> list[Any]:
    carried, stacks = list(first), _Stacks(len(rows[0]))
    for place in range(len(rows[0])):
        found = combine(*carried, *(each[place] for each in rows), *others)
        carried = found[: len(first)]
        stacks.put(place, found[len(first) :])
    return [*carried, *stacks.whole]


def _map(body: Graph, rows: Sequence[Tensor], others: Sequence[Any]) -> list[Any]:
    stacks = _Stacks(len(rows[0]))
    for place in range(len(rows[0])):
        stacks.put(place, body(*(each[place] for each in rows), *others))
    return stacks.whole


class _Stacks:
    """Stacked results of all iterations, each copied to its place."""

    __slots__ = ("_count", "whole")

    def __init__(self, count: int) -> None:
        self._count = count
        self.whole: list[Tensor | None] = []

    def put(self, place: int, found: Sequence[Any]) -> None:
        """Keep the results of one turn; None where one is None."""
        if not place:
            self.whole = [
                None if each is None else each.new_empty((self._count, *each.shape))
                for each in found
            ]
        for whole, each in zip(self.whole, found, strict=True):
            if whole is not None:
                whole[place] = each


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


CALLS: Mapping[str, Callable[..., list[Any]]] = {
    "invoke_subgraph": _invoked,
    "cond": _cond,
    "while_loop": _while_loop,
    "while_loop_stack_output": _while_loop_stacked,
    "scan": _scan,
    "map_impl": _map,
}


# -- a call as data --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Argument:
    """A placeholder for an argument of a step among those of the op."""

    place: int


@dataclass(frozen=True, slots=True)
class Inner:
    """A placeholder for a graph among the arguments of the op."""

    number: int


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """A call of an op, but for its graphs.

    arguments: the op's own, with `Argument` and `Inner` in tuples of them. given: how the arguments
    of each graph lie, as they were traced: the dims by falling stride, or None for anything.
    results: which of the op's are asked for, and the same of them.
    """

    op: str
    arguments: tuple[Any, ...]
    given: tuple[tuple[Order, ...], ...]
    results: tuple[tuple[int, Order], ...]

    def bound(self, graphs: Sequence[Boxed]) -> Boxed:
        """The callable of the step from those of the graphs."""
        inner = [_laying(*pair) for pair in zip(graphs, self.given, strict=True)]
        run = CALLS[self.op]

        def call(arguments: list[Any]) -> list[Any]:
            given = [_filled(each, arguments, inner) for each in self.arguments]
            arguments.clear()
            found = run(*given)
            return [_in_order(found[place], order) for place, order in self.results]

        return call


def _laying(graph: Boxed, orders: Sequence[Order]) -> Graph:
    """Wraps a compiled graph so that its arguments are brought into the layout that it was compiled
    for."""

    def call(*given: Any) -> list[Any]:
        return graph([_in_order(*pair) for pair in zip(given, orders, strict=True)])

    return call


def _in_order(value: Any, order: Order) -> Any:
    """The tensor, or a dense copy whose dims have this order by falling stride."""
    if order is None or not isinstance(value, Tensor):
        return value
    seen = value.permute(order)
    if seen.is_contiguous():
        return value
    return seen.contiguous().permute(sorted(range(len(order)), key=order.__getitem__))


def _filled(row: Any, arguments: Sequence[Any], inner: Sequence[Graph]) -> Any:
    """An argument of the op with its placeholders replaced for a call."""
    if isinstance(row, Argument):
        return arguments[row.place]
    if isinstance(row, Inner):
        return inner[row.number]
    return [_filled(each, arguments, inner) for each in row] if isinstance(row, tuple) else row
