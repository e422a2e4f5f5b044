"""Ops that torch itself does not define: which they are, and the two ways to compile them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.library import CustomOpDef

from aotc.aot.errors import SpecDecompositionsInvalid

_NATIVE = (
    "a native back end: a Triton kernel behind `torch.library.triton_op`, or a library's function "
    "by `aot.native_op`"
)
WAYS_OUT = (
    "an op of your own: give it a decomposition (`decompositions = {op: function}` beside the "
    f"model), or {_NATIVE}"
)
# torch decomposes an op that changes its arguments only after it has wrapped it.
WAYS_OUT_OF_CHANGES = (
    "an op of your own that changes its arguments: have it return the new values and give it a "
    f"decomposition, or {_NATIVE}"
)
TORCH_NAMESPACES = frozenset({"aten", "prim", "prims", "higher_order"})
# Calls that wrap another op → the place of that op among their arguments.
WRAPPERS = {"with_effects": 1, "auto_functionalized": 0, "auto_functionalized_v2": 0}


@dataclass(frozen=True, slots=True)
class CustomOp:
    """An op that another part of aotc imports.

    imported: (node, arguments with our nodes) → its results as nodes; raises `NotSupported`.
    digest: of what the op does, for the capture cache.
    """

    imported: Callable[[torch.fx.Node, Sequence[Any]], Any]
    digest: str


# Name of an op → how it is imported; filled by those who define ops.
IMPORTS: dict[str, CustomOp] = {}

Decompositions = Mapping[torch._ops.OpOverload, Callable[..., Any]]

# Op → the same in torch's ops; filled by those who define ops, before a graph has a call of one.
MEANINGS: dict[torch._ops.OpOverload, Callable[..., Any]] = {}

# Op → types of devices on which graphs compiled in the process call it as it is.
CALLED_ON: dict[torch._ops.OpOverload, tuple[str, ...]] = {}


def define_meaning(
    op: torch._ops.OpOverload, meaning: Callable[..., Any], called_on: tuple[str, ...] = ()
) -> None:
    """Have `meaning` stand for calls of `op` in every graph that is compiled; but in a process that
    has the op, on devices of the types `called_on`, graphs call it."""
    MEANINGS[op] = meaning
    CALLED_ON[op] = called_on


def in_process_meaning(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """The meaning of `op` in a graph that this process runs; `NotImplemented` where it calls it."""
    meaning, devices = MEANINGS[op], CALLED_ON.get(op, ())
    if not devices:
        return meaning

    def decomposed(*arguments: Any, **named: Any) -> Any:
        given = (*arguments, *named.values())
        device = next(each.device for each in given if isinstance(each, torch.Tensor))
        return NotImplemented if device.type in devices else meaning(*arguments, **named)

    return decomposed


def called_op(node: torch.fx.Node) -> Any:
    """The op that a node of an exported graph calls, without what torch wraps it in."""
    place = WRAPPERS.get(getattr(node.target, "__name__", ""))
    return node.target if place is None else node.args[place]


def base_name(op: Any) -> str:
    """`softmax` of `aten::softmax.int`, `mine::op` of others; empty for what is not an op."""
    return str(op._schema.name).removeprefix("aten::") if hasattr(op, "_schema") else ""


def custom_digests() -> str:
    """What the ops of `IMPORTS` do, as text."""
    return " ".join(sorted({each.digest for each in IMPORTS.values()}))


def ways_out(node: torch.fx.Node) -> str:
    """What to do about a call of an op that is the user's or a library's; empty for torch's."""
    op = called_op(node)
    if not isinstance(op, torch._ops.OpOverload) or op.namespace in TORCH_NAMESPACES:
        return ""
    return WAYS_OUT_OF_CHANGES if op._schema.is_mutable else WAYS_OUT


def decompositions_of(given: Any, path: str) -> Decompositions:
    """A spec's `decompositions` by overload; raises `SpecDecompositionsInvalid`."""
    if not isinstance(given, Mapping):
        raise SpecDecompositionsInvalid(path=path, found=f"a `{type(given).__name__}`")
    found: dict[torch._ops.OpOverload, Callable[..., Any]] = {}
    for op, function in given.items():
        if not callable(function):
            raise SpecDecompositionsInvalid(path=path, found=f"`{function!r}` for `{op}`")
        if isinstance(op, CustomOpDef):
            op = op._opoverload
        elif isinstance(op, torch._ops.OpOverloadPacket):
            op = op.default
        if not isinstance(op, torch._ops.OpOverload):
            raise SpecDecompositionsInvalid(path=path, found=f"`{op!r}` as an op")
        found[op] = function
    return found
