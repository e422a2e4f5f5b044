"""The text of a user's Triton kernel with all that it uses: a file that stands by itself.

A kernel's function names other functions, constants and modules of the user's files. What they are
is read from the live function, so that the text runs where those files are not.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from aotc.aot.capture.imports.call import NotSupported

LANGUAGE = "triton.language"
# Modules of the standard library that a kernel may read numbers of.
NUMBER_MODULES = frozenset({"math"})


def kernel_text(kernel: Any) -> str:
    """Imports, constants and functions that the `triton.JITFunction` needs, itself last.

    Raises `NotSupported` naming what it uses that cannot be written into a file.
    """
    writer = _Writer()
    writer.function(kernel)
    head = ["from __future__ import annotations", "", "import triton", f"import {LANGUAGE} as tl"]
    parts = ["\n".join([*head, *writer.imports]), "\n".join(writer.constants), *writer.functions]
    return "\n\n\n".join(part for part in parts if part) + "\n"


def python_text(value: Any) -> str:
    """A compile-time argument as a kernel writes it; raises `NotSupported` for other objects."""
    import triton

    if isinstance(value, triton.language.constexpr):
        return python_text(value.value)
    if isinstance(value, triton.language.dtype):
        return _dtype_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple):
        return f"({''.join(f'{python_text(item)}, ' for item in value)})"
    raise NotSupported(f"a `{type(value).__name__}`, expected a number, text or a Triton type")


def _dtype_text(dtype: Any) -> str:
    import triton.language as tl

    names = (name for name, value in vars(tl).items() if value is dtype or value == dtype)
    name = next((name for name in names if isinstance(getattr(tl, name), tl.dtype)), None)
    if name is None:
        raise NotSupported(f"the type `{dtype}`, which Triton has no name for")
    return f"tl.{name}"


class _Writer:
    """Collects the parts of the file; each name stands for one thing in all of it."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {"triton": None, "tl": None}
        self.imports: list[str] = []
        self.constants: list[str] = []
        self.functions: list[str] = []

    def function(self, kernel: Any) -> None:
        """The function, after all that it calls."""
        name = kernel.__name__
        if not self._is_new(name, kernel):
            return
        scope = kernel.get_capture_scope()
        for used in _free_names(kernel.src):
            if used in scope:
                self._global(name, used, scope)
        decorator = "@triton.jit(noinline=True)" if kernel.noinline else "@triton.jit"
        self.functions.append(f"{decorator}\n{kernel.src.strip()}")

    def _is_new(self, name: str, value: Any) -> bool:
        if name not in self.known:
            self.known[name] = value
            return True
        if self.known[name] is not value and not _is_same(self.known[name], value):
            raise NotSupported(f"two things are called `{name}` in the files of its functions")
        return False

    def _global(self, user: str, name: str, scope: Mapping[str, Any]) -> None:
        """Write what `name` is for the function called `user`."""
        import triton

        value = scope[name]
        if isinstance(value, triton.JITFunction):
            self.function(value)
            if value.__name__ != name and self._is_new(name, value):
                self.functions.append(f"{name} = {value.__name__}")
            return
        if name in ("triton", "tl") and _is_module(
            value, {"triton": "triton", "tl": LANGUAGE}[name]
        ):
            return
        line = self._import_line(name, value)
        if line is not None:
            if self._is_new(name, value):
                self.imports.append(line)
            return
        try:
            text = python_text(value)
        except NotSupported as refused:
            raise NotSupported(f"`{user}` uses `{name}`, {refused}") from None
        if self._is_new(name, value):
            self.constants.append(f"{name} = tl.constexpr({text})")

    def _import_line(self, name: str, value: Any) -> str | None:
        """How a module or something of Triton's own is imported under `name`; None for others."""
        if isinstance(value, ModuleType):
            module = value.__name__
            if module.partition(".")[0] == "triton" or module in NUMBER_MODULES:
                return f"import {module} as {name}"
            raise NotSupported(f"it uses the module `{module}`: import its functions by name")
        module, own = getattr(value, "__module__", ""), getattr(value, "__name__", "")
        if str(module).partition(".")[0] == "triton" and own.isidentifier():
            return f"from {module} import {own} as {name}"
        return None


def _is_module(value: Any, name: str) -> bool:
    return isinstance(value, ModuleType) and value.__name__ == name


def _is_same(left: Any, right: Any) -> bool:
    """Whether two objects would be written alike."""
    try:
        return python_text(left) == python_text(right)
    except NotSupported:
        return False


def _free_names(source: str) -> Iterator[str]:
    """Names that a function reads and does not define, in their order.

    What its parameters are annotated with is left out: Triton reads that as text.
    """
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    own = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    read: dict[str, None] = {}
    for part in (*function.body, *function.args.defaults, *function.args.kw_defaults):
        for each in ast.walk(part) if part is not None else ():
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                own.add(each.id)
            elif isinstance(each, ast.Name):
                read[each.id] = None
    return (name for name in read if name not in own)
