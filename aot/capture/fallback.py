"""Ops without an import that torch runs at each call, if the user asked for that.

A call becomes one node `torch` for each of its results: the op's name, its arguments as plain data
and its operands. Nothing is left to torch silently: a warning lists every op with its lines.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.capture.custom_ops import called_op
from aotc.aot.capture.imports.call import DTYPE_NAMES, NotSupported, type_of
from aotc.aot.capture.imports.complexes import Complex
from aotc.aot.ir.control import nodes_within
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.size import Size
from aotc.runtime.arrays.dlpack import HOST
from aotc.runtime.bundle.torch_calls import LAYOUTS, MEMORY_FORMATS

RANDOM = "it may draw random numbers, so that no two runs could be compared"
CHANGES_VIEW = "it changes a view of a tensor: give it a copy, `x.clone()`, and write that back"
CHANGES_SEVERAL = "it changes one tensor by two arguments, or a list of tensors"
EFFECTS = "it has effects beside its results"
NO_OPERATOR = "it is not an op of torch's registry"
NO_RESULT = "it has no result that is a tensor"
# Composites that end with a check of what they computed. Decomposed, the check is a call with an
# effect and without a result, which no graph of ours can hold.
CHECKED_WHOLE = (
    "inverse",
    "linalg_cholesky",
    "linalg_inv",
    "linalg_ldl_factor",
    "linalg_lu_factor",
    "linalg_solve",
    "linalg_tensorinv",
)
MEMORY_FORMAT_NAMES = {getattr(torch, name): name for name in MEMORY_FORMATS}
LAYOUT_NAMES = {getattr(torch, name): name for name in LAYOUTS}

Value = tuple[str, Any]


class FallbackWarning(UserWarning):
    """Ops of the model are not compiled: torch runs them at each call."""


@dataclass(frozen=True, slots=True)
class TorchOp:
    """An op that is left to torch, how often a call of the model runs it, and from which lines."""

    name: str
    calls: int
    sources: tuple[str, ...]

    def __str__(self) -> str:
        times = "1 call" if self.calls == 1 else f"{self.calls} calls"
        places = ", ".join(self.sources)
        return f"`{self.name}`, {times}" + (f" at {places}" if places else "")


def torch_call(
    node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]
) -> Node | tuple[Node | None, ...]:
    """The results of a call that torch runs; raises `NotSupported` where it cannot."""
    op = called_op(node)
    if not isinstance(op, torch._ops.OpOverload):
        raise NotSupported(NO_OPERATOR)
    arguments: Sequence[Any] = node.args
    named: Mapping[str, Any] = node.kwargs
    order: Sequence[int] = ()  # of the tensors that it changes, among what the call gives
    if op._schema.is_mutable:
        arguments, (named, order) = (), _changing(op, node)
    elif op is not node.target:
        raise NotSupported(EFFECTS)
    if torch.Tag.nondeterministic_seeded in op.tags:
        raise NotSupported(RANDOM)
    operands: list[Node] = []
    positional = [("", *_encoded(value, values, operands)) for value in arguments]
    keywords = [(name, *_encoded(value, values, operands)) for name, value in sorted(named.items())]
    found = node.meta.get("val")
    many = list(found) if isinstance(found, list | tuple) else [found]
    returned = len(many) - len(order)
    many[returned:] = [many[returned + place] for place in order]
    results = tuple(_result(value) for value in many)
    if not any(results):
        raise NotSupported(NO_RESULT)
    shared = {
        "operator": op.name(),
        "arguments": (*positional, *keywords),
        "operands": tuple((each.dtype, each.shape) for each in operands),
        "results": results,
    }
    made = [
        make("torch", tuple(operands), {**shared, "result": number}) if kind else None
        for number, kind in enumerate(results)
    ]
    changed = dict(zip(order, made[returned:], strict=True))
    made[returned:] = [changed[place] for place in range(len(order))]
    return tuple(made) if isinstance(found, list | tuple) else made[0]


def _changing(
    op: torch._ops.OpOverload, node: torch.fx.Node
) -> tuple[Mapping[str, Any], Sequence[int]]:
    """The arguments of a call that torch wrapped since it changes some, by name; and for each of
    these, in the schema's order, its place among the changed tensors that the wrapper gives.

    The runtime calls the op on copies of these, which follow the op's own results.
    """
    written = [
        each for each in op._schema.arguments if each.alias_info and each.alias_info.is_write
    ]
    if any(str(each.type) not in ("Tensor", "Optional[Tensor]") for each in written):
        raise NotSupported(CHANGES_SEVERAL)
    named = dict(node.kwargs)
    if "_all_bases" not in named:  # the wrapper that gives the arguments themselves
        given = [each.name for each in written if named.get(each.name) is not None]
        return named, range(len(given))
    bases: Any = named.pop("_all_bases")
    order = []
    for each in written:
        place: Any = named.pop(f"_{each.name}_base_index", None)
        named[each.name] = None if place is None else bases[place]
        order += [] if place is None else [place]
    if any(name not in {each.name for each in op._schema.arguments} for name in named):
        raise NotSupported(CHANGES_VIEW)
    if sorted(order) != [*range(len(bases))]:
        raise NotSupported(CHANGES_SEVERAL)
    return named, order


def _result(value: Any) -> tuple[Any, ...]:
    """(dtype, shape) of a result, () of what is not a tensor."""
    if not isinstance(value, torch.Tensor):
        return ()
    kind = type_of(value)
    return (kind.dtype, kind.shape)


def _encoded(value: Any, values: Mapping[torch.fx.Node, Any], operands: list[Node]) -> Value:
    """An argument as (kind, value), see `runtime/bundle/torch_calls.py`; adds to the operands."""
    if isinstance(value, torch.fx.Node):
        value = values[value]
    if isinstance(value, Node):
        if value not in operands:
            operands.append(value)
        return ("tensor", operands.index(value))
    if isinstance(value, Size):
        return ("int", value)
    if isinstance(value, list | tuple):
        return ("list", tuple(_encoded(item, values, operands) for item in value))
    for kinds, encode in PLAIN:
        if isinstance(value, kinds):
            return encode(value)
    if isinstance(value, Complex):
        raise NotSupported("an argument is a complex tensor")
    raise NotSupported(f"its argument `{value!r}` is not plain data")


def _word(kind: str, names: Mapping[Any, str], value: Any) -> Value:
    if value not in names:
        raise NotSupported(f"its argument `{value}`")
    return (kind, names[value])


def _device(value: torch.device) -> Value:
    if value.type != HOST[0]:
        raise NotSupported(f"its argument `{value}`: the model lies on the cpu")
    return ("device", None)


# In this order: a bool is an int as well.
PLAIN: tuple[tuple[Any, Any], ...] = (
    (type(None), lambda value: ("none", None)),
    (bool, lambda value: ("bool", int(value))),
    (int, lambda value: ("int", value)),
    (float, lambda value: ("float", value.hex())),
    (str, lambda value: ("text", value)),
    (torch.dtype, lambda value: _word("dtype", DTYPE_NAMES, value)),
    (torch.layout, lambda value: _word("layout", LAYOUT_NAMES, value)),
    (torch.memory_format, lambda value: _word("memory_format", MEMORY_FORMAT_NAMES, value)),
    (torch.device, _device),
)


def torch_ops(graph: Graph) -> tuple[TorchOp, ...]:
    """The ops that the graph leaves to torch, in the order of their first call."""
    calls: dict[str, dict[Any, str | None]] = {}
    for node in nodes_within(graph):
        if node.op == "torch":
            identity = (node.inputs, *(row for row in node.attrs if row[0] != "result"))
            calls.setdefault(node.attr("operator"), {})[identity] = node.source
    return tuple(
        TorchOp(name, len(found), tuple(dict.fromkeys(filter(None, found.values()))))
        for name, found in calls.items()
    )


def warn_of(ops: Sequence[TorchOp]) -> None:
    """Say what torch will run, one line an op."""
    if ops:
        lines = "\n".join(f"  {op}" for op in ops)
        text = f"torch runs these ops at each call, they are not compiled:\n{lines}"
        warnings.warn(text, FallbackWarning, stacklevel=2)
