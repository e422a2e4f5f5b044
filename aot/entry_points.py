"""`EntryPoint`: one of the ways to call a model, as a spec declares it; imports nothing.

A loaded program calls one by an `EntryFunction` (`runtime/programs/entry.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One of `entry_points = {"decode": EntryPoint(…)}` in a spec file.

    example_inputs, dynamic_shapes: as those of a whole spec. method: the method of the model that
    it calls; without one that of the entry's name, or else `forward`. function: called with the
    model and the inputs instead. program: an exported program of its own instead, of which
    parameters and buffers of the same names are the same. state_shapes: as of a whole spec, in
    place of it.
    """

    example_inputs: Any = None
    dynamic_shapes: Any = None
    method: str = ""
    function: Callable[..., Any] | None = None
    program: Any = None
    state_shapes: Any = None
