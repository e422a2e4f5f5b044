"""The Python code of torch's graphs, made when it is run or read.

torch writes and compiles the code of a graph after each of its passes: some thirty times in one
capture, of which two or three are run, a sixth of the capture of a long model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.fx import GraphModule
from torch.fx.graph import _PyTreeCodeGen

_MAKE = GraphModule.recompile
_MADE = ("_code", "_lineno_map", "_prologue_start")  # by `recompile`, in the module's `__dict__`


class _WhenAsked:
    """An attribute of a module's own class that makes the code, and then is what that made."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, module: GraphModule | None, kind: type) -> Any:
        if module is None:
            return self
        _MAKE(module)
        return getattr(module, self._name)


_ASKED = {name: _WhenAsked(name) for name in ("forward", *_MADE)}


def _note(module: GraphModule) -> None:
    """In place of `recompile`. A graph module has a class of its own, which holds its code."""
    codegen = module._graph._codegen
    if isinstance(codegen, _PyTreeCodeGen):
        module._in_spec = codegen.pytree_info.in_spec
        module._out_spec = codegen.pytree_info.out_spec
    for name, asked in _ASKED.items():
        vars(module).pop(name, None)
        setattr(type(module), name, asked)


@contextmanager
def code_when_run() -> Iterator[None]:
    """Inside, `recompile` of a graph's module leaves the code to whoever first asks for it, also
    after the end."""
    before = GraphModule.recompile
    GraphModule.recompile = _note
    try:
        yield
    finally:
        GraphModule.recompile = before
