"""Example inputs that are tensors of their own.

torch.export takes two arguments that are one tensor for one argument, and an argument that is a
parameter for the parameter: the program then ignores what it is given there. A call may give
different tensors, so the example is given in copies.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.utils import _pytree as pytree

from aotc.aot.capture.spec import Spec


def with_distinct_inputs(spec: Spec) -> Spec:
    """The spec with a copy of each tensor that shares memory with one before it, or with what the
    model holds."""
    leaves, layout = pytree.tree_flatten((spec.arguments, dict(spec.keyword_arguments)))
    taken = set() if spec.module is None else _held(spec.module)
    is_changed = False
    for place, leaf in enumerate(leaves):
        if not _is_plain(leaf):
            continue
        memory = leaf.untyped_storage()._cdata
        if memory in taken:
            leaves[place] = leaf.detach().clone()
            is_changed = True
        taken.add(memory)
    if not is_changed:
        return spec
    arguments, named = pytree.tree_unflatten(leaves, layout)
    return replace(spec, arguments=tuple(arguments), keyword_arguments=named)


def _held(module: torch.nn.Module) -> set[int]:
    held = (*module.parameters(), *module.buffers())
    return {tensor.untyped_storage()._cdata for tensor in held if _is_plain(tensor)}


def _is_plain(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided
