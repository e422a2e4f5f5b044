"""An exported program called as a function: outputs, then the new values of its states.

`ExportedProgram.module()` writes new values into its buffers; in wider floats (`golden.roundings`)
that would change them, so there the graph itself is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from aotc.aot.capture.exported import held_tensor

HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class Functional:
    """A decomposed program; called with the model's arguments, it writes into nothing."""

    def __init__(self, program: ExportedProgram, states: Sequence[str]) -> None:
        """states: names of those whose new values follow the outputs, in this order."""
        self._program = program
        self._states = states

    def __call__(self, *arguments: Any, **named: Any) -> tuple[torch.Tensor, ...]:
        """The tensors that the model returns, then its states."""
        program = self._program
        given = iter(pytree.tree_leaves((arguments, named)))
        values = [
            held_tensor(program, str(spec.target)) if spec.kind in HELD else next(given)
            for spec in program.graph_signature.input_specs
        ]
        results = program.graph_module(*values)
        rows = list(zip(program.graph_signature.output_specs, results, strict=True))
        changed = {spec.target: value for spec, value in rows if spec.target is not None}
        outputs = [value for spec, value in rows if spec.kind is OutputKind.USER_OUTPUT]
        states = ((held_tensor(program, name), changed[name]) for name in self._states)
        # As torch copies them in: `buffer[:] = 0` as one zero.
        found = [*outputs, *(new.to(old.dtype).expand(old.shape) for old, new in states)]
        return tuple(value for value in found if isinstance(value, torch.Tensor))
