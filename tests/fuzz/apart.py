"""Operands of a step in memory of their own: a value is its elements, not where they lie.

Eager torch's kernels do not all keep to that. Where elements of an operand lie in one place of
memory (`expand`, `unfold`), its median is what a buffer held before, and `slice_scatter` writes one
place several times. A state that is changed from a view of itself reads what was just written;
torch does not define that, and torch's trace of such a program reads before it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any

import torch

from fuzz.program import NAMESPACE, Step

APART = 0  # what torch answers where no two elements surely lie in one place


def apart(step: Step, values: Mapping[str, Any], code: CodeType) -> dict[str, torch.Tensor]:
    """Copies of the operands that are to be read in place of the program's own, by name.

    A step that gives a view reads its own operands: the view follows later changes of a state.
    """
    operands = {name: values[name] for name in step.refs()}
    if not step.name:
        state = step.arguments["state"].name
        return {
            name: value.clone()
            for name, value in operands.items()
            if name != state and _share(value, values[state])
        }
    joined = {
        name: value
        for name, value in operands.items()
        if torch._debug_has_internal_overlap(value) != APART
    }
    if not joined:
        return {}
    with torch.no_grad():
        result = eval(code, {**NAMESPACE, **values})
    if any(_share(result, each) for each in operands.values()):
        return {}
    return {
        name: value.clone(memory_format=torch.contiguous_format) for name, value in joined.items()
    }


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata
