"""Buffers with dynamic sizes: arguments during torch.export, states again afterwards.

torch.export takes the sizes of buffers as fixed, and makes only those of arguments dynamic. So the
module is exported with one more argument, a list of tensors that replace the buffers while it runs.
torch reports writes to them as mutations of an input.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from aotc.aot.capture.spec import Spec
from aotc.aot.errors import StateNotUniform, StateShared

ARGUMENT = "aotc_states"


@dataclass(frozen=True, slots=True)
class Lifted:
    """The buffers of a spec that are arguments of its exported program, the last ones."""

    names: tuple[str, ...] = ()
    tensors: tuple[torch.Tensor, ...] = ()  # copies of the buffers: what stands in for them
    shapes: tuple[Any, ...] = ()  # the dims of each, in the words of torch.export

    def placeholders(self, program: ExportedProgram) -> dict[str, str]:
        """The name of each one's placeholder → its own."""
        given = [
            spec.arg.name
            for spec in program.graph_signature.input_specs
            if spec.kind is InputKind.USER_INPUT
        ]
        return dict(zip(given[len(given) - len(self.names) :], self.names, strict=True))

    def named(self, text: str) -> str:
        """Words of torch's with the buffers' names in place of those of the argument."""
        for number, name in enumerate(self.names):
            text = re.sub(rf"\b{ARGUMENT}[._]{number}\b", name, text)
        return text

    def bound(self, model: Callable[..., Any], tensors: Sequence[torch.Tensor] = ()) -> Any:
        """`model`, which takes the states as an argument, called without them: on `tensors`, or on
        those of the example."""
        if not self.names:
            return model
        given = list(tensors or self.tensors)
        return lambda *arguments, **named: model(*arguments, **named, **{ARGUMENT: given})

    def at(self, extents: Sequence[Sequence[int]]) -> tuple[torch.Tensor, ...]:
        """Tensors of other shapes with the same value everywhere."""
        return tuple(
            tensor.new_full(tuple(shape), initial_of(tensor).item())
            for tensor, shape in zip(self.tensors, extents, strict=True)
        )


NONE_LIFTED = Lifted()


def lifted(spec: Spec) -> tuple[Spec, Lifted]:
    """The spec to export, whose module takes the buffers of `state_shapes` as its last argument.

    Raises `StateNotUniform`.
    """
    module = spec.module
    if not spec.state_shapes or module is None:
        return spec, Lifted()
    buffers = dict(module.named_buffers(remove_duplicate=False))
    names = tuple(spec.state_shapes)
    tensors = tuple(buffers[name].detach().clone().contiguous() for name in names)
    for name, tensor in zip(names, tensors, strict=True):
        _check_uniform(name, tensor)
    found = Lifted(names, tensors, tuple(spec.state_shapes.values()))
    shell = copy.copy(module)  # of the same parameters, buffers and modules
    shell.forward = _taking_states(module, names)
    named = {**spec.keyword_arguments, ARGUMENT: list(tensors)}
    shapes = _with_states(spec, shell.forward, named, list(found.shapes))
    changed = replace(spec, module=shell, keyword_arguments=named, dynamic_shapes=shapes)
    return changed, found


def initial_of(tensor: torch.Tensor) -> torch.Tensor:
    """The value that a uniform tensor has everywhere, as a tensor of one element."""
    return tensor.reshape(-1)[:1].clone()


def _check_uniform(name: str, tensor: torch.Tensor) -> None:
    first = initial_of(tensor)
    if not tensor.numel():
        raise StateNotUniform(name=name, found="no element")
    same = tensor.reshape(-1).view(torch.uint8).reshape(-1, tensor.element_size())
    if bool((same != first.view(torch.uint8)).any()):
        other = tensor.reshape(-1)[int((same != first.view(torch.uint8)).any(1).int().argmax())]
        raise StateNotUniform(name=name, found=f"{first.item()} and {other.item()}")


def _taking_states(module: torch.nn.Module, names: Sequence[str]) -> Callable[..., Any]:
    """The module's `forward`, on tensors that stand in for its buffers."""
    buffers = dict(module.named_buffers(remove_duplicate=False))
    places = [  # a buffer may have several names
        [other for other, tensor in buffers.items() if tensor is buffers[name]] for name in names
    ]

    called = getattr(module.forward, "__self__", module)
    if not isinstance(called, torch.nn.Module) or called._buffers is not module._buffers:
        called = module

    def forward(*arguments: Any, **named: Any) -> Any:
        given = named.pop(ARGUMENT)
        owners = [
            (module.get_submodule(each.rpartition(".")[0]), each.rpartition(".")[2], state)
            for state, own in zip(given, places, strict=True)
            for each in own
        ]
        if called is not module:  # an entry point's: its buffers are those of the twin
            owners += [(called, leaf, state) for owner, leaf, state in owners if owner is module]
        before = [(owner, dict(owner._buffers)) for owner, _, _ in owners]
        for owner, leaf, state in owners:
            owner._buffers.pop(leaf, None)  # as a plain attribute torch does not look after it
            owner.__dict__[leaf] = state
        try:
            result = module.forward(*arguments, **named)
            for owner, leaf, state in owners:
                if owner.__dict__[leaf] is not state:  # it was set, in place of its elements
                    state.copy_(owner.__dict__[leaf])
            return result
        finally:
            for owner, leaf, _ in owners:
                owner.__dict__.pop(leaf, None)
            for owner, buffers in reversed(before):
                owner._buffers.clear()
                owner._buffers.update(buffers)

    signature = inspect.signature(module.forward)
    own = list(signature.parameters.values())
    at = sum(each.kind is not inspect.Parameter.VAR_KEYWORD for each in own)
    own.insert(at, inspect.Parameter(ARGUMENT, inspect.Parameter.KEYWORD_ONLY))
    forward.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return forward


def _with_states(
    spec: Spec, forward: Callable[..., Any], named: Mapping[str, Any], states: list[Any]
) -> Any:
    """The spec's `dynamic_shapes` with those of the states."""
    shapes = spec.dynamic_shapes
    if isinstance(shapes, Mapping):
        return {**shapes, ARGUMENT: states}
    bound = inspect.signature(forward).bind(*spec.arguments, **named).arguments
    rows = iter(shapes or ())
    return tuple(
        states if name == ARGUMENT else next(rows, None)  # as torch reads them
        for name in bound
    )


def check_alone(program: ExportedProgram, found: Lifted, module: torch.nn.Module | None) -> None:
    """Refuse a model that reaches a lifted buffer by another name, which keeps its fixed size.

    Raises `StateShared`.
    """
    if not found.names or module is None:
        return
    buffers = dict(module.named_buffers(remove_duplicate=False))
    storages = {buffers[name].untyped_storage()._cdata: name for name in found.names}
    used = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
    for spec in program.graph_signature.input_specs:
        if spec.arg.name not in used or spec.kind is InputKind.USER_INPUT:
            continue
        target = str(spec.target)
        tensor = program.state_dict.get(target, program.constants.get(target))
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
            name = storages.get(tensor.untyped_storage()._cdata)
            if name is not None:
                raise StateShared(name=name, other=target)
