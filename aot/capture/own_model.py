"""Runs the spec's own model, with access to its states, where there is no exported program.

A call mutates the states in place, also those that the model assigns instead of writing to them.
Whoever asks for numbers finds the states unchanged afterwards. Nothing here exports.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aotc.aot.capture.exporting import unchanged
from aotc.aot.capture.lifted import ARGUMENT, Lifted, lifted
from aotc.aot.capture.spec import Spec


@dataclass(frozen=True, slots=True)
class OwnModel:
    """A model, called with a spec's arguments and with the buffers of `lifted` as the last one.

    names: of the states, in the order of the graph; tensors: those of them, which a call changes.
    """

    call: Callable[..., Any]
    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    lifted: Lifted

    def bound(self) -> Callable[..., Any]:
        """The model on its own arguments alone."""
        found: Callable[..., Any] = self.lifted.bound(self.call)
        return found

    def functional(self, *arguments: Any, **named: Any) -> tuple[torch.Tensor, ...]:
        """The tensors that the model returns, then its states, which are left as they were."""
        own = dict(zip(self.names, self.tensors, strict=True))
        own |= dict(zip(self.lifted.names, named.get(ARGUMENT, ()), strict=False))
        with unchanged([own[name] for name in self.names]) as states:
            leaves = pytree.tree_leaves(self.call(*arguments, **named))
            results = (each for each in leaves if isinstance(each, torch.Tensor))
            return tuple(each.clone() for each in (*results, *states))


def own_model(spec: Spec, names: Sequence[str]) -> OwnModel | None:
    """A spec's module with the states of these names; None where one of them is not a buffer, or
    what is called no method."""
    module = spec.module
    assert module is not None
    buffers = dict(module.named_buffers(remove_duplicate=False))
    if not buffers.keys() >= set(names):
        return None
    if names:
        if not isinstance(module.forward, MethodType):
            return None
        module = _writing(
            module, [buffers[name] for name in names if name not in spec.state_shapes]
        )
    taking, states = lifted(replace(spec, module=module))
    own = dict(zip(states.names, states.tensors, strict=True))
    tensors = tuple(own.get(name, buffers[name]) for name in names)
    assert taking.module is not None
    return OwnModel(taking.module, tuple(names), tensors, states)


def _writing(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> torch.nn.Module:
    """The module, in a shell whose calls write to these buffers of it what they set them to."""
    places = [
        (module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], tensor)
        for name, tensor in module.named_buffers(remove_duplicate=False)
        if any(tensor is each for each in tensors)
    ]
    method = module.forward

    @functools.wraps(method.__func__)
    def forward(_: Any, *arguments: Any, **named: Any) -> Any:
        result = method(*arguments, **named)
        for owner, leaf, tensor in places:
            new = owner._buffers.get(leaf)
            if new is not None and new is not tensor:
                tensor.copy_(new)
                owner._buffers[leaf] = tensor
        return result

    shell = copy.copy(module)
    shell.__dict__["forward"] = MethodType(forward, method.__self__)
    return shell
