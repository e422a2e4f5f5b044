"""One of Dynamo's graphs as text: all that a trace of it depends on, where its shapes are fixed.

torch's way to a key pickles the graph and tensors made fake anew, which is the longest part of a
warm start. This text is of the graph that Dynamo gives, and of fake tensors that it made itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node

EXAMPLE, SOURCE = "example_value", "_dynamo_source"  # where Dynamo notes them
TORCHS_OPERATORS = frozenset({"aten", "prims", "prim"})  # namespaces of ops
SAVED_HOOKS = "saved_tensors_hooks_pack_0"  # attribute of a module with hooks of the user's


class Unprintable(Exception):
    """A graph has what the text cannot say: sizes that vary, modules, ops of the user's."""


def graph_text(module: GraphModule) -> str:
    """The text of a graph; raises `Unprintable`."""
    if hasattr(module, SAVED_HOOKS) or next(module.parameters(), None) is not None:
        raise Unprintable("a module with a state or hooks")
    numbers: dict[Node, int] = {}
    memory: dict[int, int] = {}
    lines = []
    for node in module.graph.nodes:
        lines.append(_LINES.get(node.op, _refused)(node, numbers, memory))
        numbers[node] = len(numbers)
    return "\n".join(lines)


def has_user_ops(module: GraphModule) -> bool:
    """Whether ops of the user's are called, whose code the graph does not show."""
    return any(is_users_op(node.target) for node in module.graph.nodes)


def is_users_op(target: Any) -> bool:
    """Whether a function is an op that torch does not define."""
    is_operator = isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
    return is_operator and re.split(r"\.|::", str(target))[0] not in TORCHS_OPERATORS


def _refused(node: Node, numbers: Mapping[Node, int], memory: dict[int, int]) -> str:
    raise Unprintable(f"a node of kind {node.op}")


def _placeholder(node: Node, numbers: Mapping[Node, int], memory: dict[int, int]) -> str:
    """An argument: its layout, its place in autograd, and its source, which duplicates go by."""
    value = node.meta.get(EXAMPLE)
    if not isinstance(value, FakeTensor) or value.layout != torch.strided:
        raise Unprintable("an argument that is no plain tensor")
    numbers_of_layout = (*value.shape, *value.stride(), value.storage_offset())
    storage = value.untyped_storage()
    if any(type(each) is not int for each in (*numbers_of_layout, storage.nbytes())):
        raise Unprintable("sizes that vary")
    if memory.setdefault(storage._cdata, len(numbers)) != len(numbers):
        raise Unprintable("arguments that share memory")
    flags = (value.requires_grad, value.is_leaf, value.is_inference())
    turned = (value.is_conj(), value.is_neg())
    source = getattr(node, SOURCE, None)
    name = "" if source is None else source.name
    layout = f"{value.dtype} {value.device} {numbers_of_layout}"
    return f"argument {name} {layout} {storage.nbytes()} {flags} {turned}"


def _call(node: Node, numbers: Mapping[Node, int], memory: dict[int, int]) -> str:
    if node.meta.get("is_wrapped") or node.meta.get("custom"):
        raise Unprintable("a node with a note of the user's")
    target = node.target if isinstance(node.target, str) else _function(node.target)
    return f"{target} {_value(node.args, numbers)} {_value(node.kwargs, numbers)}"


def _output(node: Node, numbers: Mapping[Node, int], memory: dict[int, int]) -> str:
    return f"output {_value(node.args, numbers)}"


_LINES: Mapping[str, Callable[[Node, Mapping[Node, int], dict[int, int]], str]] = {
    "placeholder": _placeholder,
    "call_function": _call,
    "call_method": _call,
    "output": _output,
}


def _function(target: Any) -> str:
    """A function's name; torch's own check has found by now that torch defines it."""
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        if is_users_op(target):
            raise Unprintable(f"an op of the user's: {target}")
        return f"op {target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        raise Unprintable(f"the operator {target}")
    name = getattr(target, "__qualname__", None)
    if name is None or "<" in name:
        raise Unprintable("a function without a name")
    return f"{type(target).__name__} {getattr(target, '__module__', None)} {name}"


# Types whose values are said by `repr`, in full and always in the same words.
_PLAIN = frozenset(
    {bool, int, float, complex, str, type(None), type(Ellipsis)}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format}
)


def _value(value: Any, numbers: Mapping[Node, int]) -> str:
    kind = type(value)
    if kind is Node:
        return f"%{numbers[value]}"
    if kind in _PLAIN:
        return repr(value)
    if isinstance(value, tuple | list):
        return f"{kind.__name__}({', '.join([_value(each, numbers) for each in value])})"
    if isinstance(value, dict):
        pairs = [
            f"{_value(name, numbers)}: {_value(each, numbers)}" for name, each in value.items()
        ]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, slice):
        return f"slice{_value((value.start, value.stop, value.step), numbers)}"
    raise Unprintable(f"an argument of type {kind.__name__}")
