"""`cond`, `while_loop`, `scan` and `map` of torch: nodes of `control`, whose bodies are imported as
graphs of their own.

A scan, and a map, which is a scan that carries nothing, repeats its body with one more value that
is carried, the number of the turn. Its body reads a row of each scanned tensor there, and writes a
row of each result that is stacked, where that lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.capture.imports.call import NotSupported, type_of
from aotc.aot.capture.imports.complexes import Complex
from aotc.aot.capture.state_values import mark_state
from aotc.aot.ir import build
from aotc.aot.ir.control import Operand, Part, apart, control, operand
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.size import Extent, Size
from aotc.aot.ir.types import TensorType

COMPLEX = "complex numbers: give it `torch.view_as_real(x)`"
NO_TENSOR = "{what} is not a tensor; make it one, `torch.tensor(…)`"
OTHER_TYPE = "a result is {found}, expected {expected}"

# Imports a graph with these values for its placeholders: what it returns, and its checks.
ImportBody = Callable[[torch.fx.Node, Sequence[Any]], tuple[list[Any], tuple[Node, ...]]]
Results = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of one of torch's ops: its arguments as they were imported."""

    node: torch.fx.Node
    values: Mapping[torch.fx.Node, Any]
    imported: ImportBody

    def value(self, argument: Any) -> Any:
        """What an argument is: a node of ours, a size, a number."""
        if not isinstance(argument, torch.fx.Node):  # a number, or what is one of ours already
            return argument
        return self.values[argument]

    def tensors(self, arguments: Sequence[Any], what: str) -> list[Node]:
        """Arguments that have to be tensors."""
        found = [self.value(each) for each in arguments]
        if any(isinstance(each, Complex) for each in found):
            raise NotSupported(COMPLEX)
        if not all(isinstance(each, Node) for each in found):
            raise NotSupported(NO_TENSOR.format(what=what))
        return found

    def begin(self, arguments: Sequence[Any]) -> list[Node]:
        """What a loop carries first: tensors, and whole numbers as tensors of rank 0."""
        values = (self.value(each) for each in arguments)
        is_number = (int, Size)
        found = [number(each, "i64") if isinstance(each, is_number) else each for each in values]
        return self.tensors(found, "what it carries")

    def given(self, arguments: Sequence[Any]) -> tuple[list[Operand], list[Any]]:
        """Operands that stay the same, and what the placeholders of a body are for them: the inputs
        of these, literals themselves, sizes and other numbers."""
        operands, inside = [], []
        for place, argument in enumerate(arguments):
            value = self.value(argument)
            if isinstance(value, Node) and not _is_literal(value):
                operands.append(operand(f"given_{place}", value))
                inside.append(operands[-1].inside)
            elif value is None or isinstance(value, Node | Size | bool | int | float):
                inside.append(value)
            elif isinstance(value, Complex):
                raise NotSupported(COMPLEX)
            else:
                raise NotSupported(NO_TENSOR.format(what="an operand"))
        return operands, inside

    def part(self, body: torch.fx.Node, inside: Sequence[Any]) -> Part:
        """What a graph returns; raises `NotSupported` where that is not tensors alone."""
        returned, checks = self.imported(body, inside)
        if not all(isinstance(each, Node) for each in returned):
            raise NotSupported(NO_TENSOR.format(what="what it returns"))
        return Part(tuple(returned), checks=checks)

    def kinds(self) -> list[TensorType]:
        """The types of the results, as torch says."""
        return [type_of(each) for each in self.node.meta["val"]]


def _is_literal(value: Node) -> bool:
    """Whether a value is a number, repeated: nothing that has to lie in memory."""
    while value.op in ("expand", "reshape"):
        (value,) = value.inputs
    return value.op in ("scalar", "extent")


def _carried(values: Sequence[Node]) -> list[Operand]:
    found = [operand(f"carried_{place}", value) for place, value in enumerate(values)]
    for each in found:
        mark_state(each.inside)  # rows that are written into it are written where it lies
    return found


def _changing(part: Part, carried: Sequence[Operand], tag: str) -> Part:
    """What a body returns as the next values of what is carried."""
    rows = zip(part.returned, carried, strict=True)
    for new, old in rows:
        _require(new.type, old.inside.type)
    changed = (
        new if new is old.inside else apart(new, carried, f"{tag}.{place}")
        for place, (new, old) in enumerate(zip(part.returned, carried, strict=True))
    )
    return Part((), tuple(changed), part.checks)


def _require(found: TensorType, expected: TensorType) -> None:
    if found != expected:
        raise NotSupported(OTHER_TYPE.format(found=found, expected=expected))


def _cond(call: _Call) -> Results:
    condition, *bodies, operands = call.node.args
    holds = call.value(condition)
    if not isinstance(holds, Node):
        raise NotSupported("its condition is on sizes, which `torch.export` decides itself")
    given, inside = call.given(operands)
    parts = [call.part(body, inside) for body in bodies]
    for part in parts:
        for made, kind in zip(part.returned, call.kinds(), strict=True):
            _require(made.type, kind)
    flag = build.reshape(build.cast(holds, "bool"), ())
    return control("branch", parts, given, condition=flag, tag=call.node.name)


def _while_loop(call: _Call) -> Results:
    condition, body, carried_values, more = call.node.args
    carried = _carried(call.begin(carried_values))
    given, inside = call.given(more)
    values = [*(each.inside for each in carried), *inside]
    flag = call.part(condition, values)
    holds = build.reshape(build.cast(flag.returned[0], "bool"), ())
    changed = _changing(call.part(body, values), carried, call.node.name)
    parts = (Part((holds,), checks=flag.checks), changed)
    return control("while", parts, given, carried, tag=call.node.name)


def _scan(call: _Call) -> Results:
    body, begin, scanned, more = call.node.args
    return _scanned(call, body, begin, scanned, more)


def _map(call: _Call) -> Results:
    body, mapped, more = call.node.args
    return _scanned(call, body, (), mapped, more)


def _scanned(
    call: _Call,
    body: torch.fx.Node,
    begin: Sequence[Any],
    scanned: Sequence[Any],
    more: Sequence[Any],
) -> Results:
    rows = call.tensors(scanned, "what it scans")
    first = call.tensors(begin, "what it carries")
    count, stacked = rows[0].shape[0], call.kinds()[len(first) :]
    empty = [build.expand(build.scalar(0, kind.dtype), kind.shape) for kind in stacked]
    carried = _carried([build.scalar(0, "i64"), *first, *empty])
    turn, *values = (each.inside for each in carried)
    given, inside = call.given(more)
    memory = [operand(f"scanned_{place}", row) for place, row in enumerate(rows)]
    row_of = [_row(each.inside, turn) for each in memory]
    part = call.part(body, [*values[: len(first)], *row_of, *inside])
    made = part.returned
    written = (
        _with_row(*row, turn, count)
        for row in zip(values[len(first) :], made[len(first) :], strict=True)
    )
    # The number of the turn is 0 or more and below the count.
    moved = (turn + build.scalar(1, "i64"), *made[: len(first)], *written)
    changed = _changing(Part(moved, checks=part.checks), carried, call.node.name)
    found = control("repeat", [changed], [*memory, *given], carried, count=count,
                    tag=call.node.name)  # fmt: skip
    return found[1:]


def _row(data: Node, turn: Node) -> Node:
    """Of a tensor, the row of a turn."""
    taken = make("take", (data, build.reshape(turn, (1,))), {"axis": 0})
    return build.reshape(taken, data.shape[1:])


def _with_row(data: Node, row: Node, turn: Node, count: Extent) -> Node:
    """A tensor with one row in the place of a turn."""
    _require(row.type, TensorType(data.dtype, data.shape[1:]))
    place = build.reshape(build.cast(turn, "i32"), [1] * data.type.rank)
    source = build.reshape(row, (1, *row.shape))
    attrs = {"axis": 0, "merge": "replace", "distinct": 1}
    return mark_state(make("scatter_rows", (data, place, source), attrs))


CONTROL: Mapping[str, Callable[[_Call], Results]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
}


def control_flow(
    node: torch.fx.Node, values: Mapping[torch.fx.Node, Any], imported: ImportBody
) -> Results:
    """The results of a call of an op of `CONTROL`; raises `NotSupported`."""
    return CONTROL[str(node.target)](_Call(node, values, imported))
