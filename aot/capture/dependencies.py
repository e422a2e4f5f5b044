"""The code that a model depends on, and the globals that the user's part of it reads.

The search goes from classes and functions to the names in their bodies: other functions and classes
are followed, everything else is a value that the model depends on. Libraries are hashed by their
files, and not followed.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

# A release of these is not edited in place, and they are large; ours has a digest of its own.
HASHED_BY_VERSION = frozenset(
    {"torch", "torchgen", "functorch", "numpy", "triton", "sympy", "aotc"}
)
INSTALLED = ("site-packages", "dist-packages")
CODE = (type, FunctionType, BuiltinFunctionType, ModuleType)


class Dependencies:
    """Classes and functions that were met, and those that they lead to."""

    def __init__(self) -> None:
        self.modules: set[str] = set()  # whose code was found
        self._waiting: deque[FunctionType] = deque()
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # so that no address is used twice

    def add(self, value: Any) -> bool:
        """Whether `value` is code that was not met before; it is then followed."""
        if not isinstance(value, type | FunctionType) or id(value) in self._seen:
            return False
        self._seen.add(id(value))
        self._kept.append(value)
        if isinstance(value, FunctionType):
            self.modules.add(value.__module__)
            self._waiting.append(value)
            return True
        for kind in value.__mro__:
            self.modules.add(kind.__module__)
            if is_users(kind.__module__):
                for member in list(vars(kind).values()):
                    for function in _functions(member):
                        self.add(function)
        return True

    def values(self) -> Iterator[tuple[str, Any]]:
        """Each global that the user's code reads and that is not code itself, with its name."""
        while self._waiting:
            function = self._waiting.popleft()
            if is_users(function.__module__):
                yield from self._read_by(function)

    def _read_by(self, function: FunctionType) -> Iterator[tuple[str, Any]]:
        place = f"{function.__module__}.{function.__qualname__}"
        held: list[Any] = [function.__defaults__, function.__kwdefaults__]
        held += [_content(cell) for cell in function.__closure__ or ()]
        for number, value in enumerate(held):
            if not self._is_code(value):
                yield f"{place} {number}", value
        names = sorted(_names(function.__code__))
        for name in names:
            if name not in function.__globals__:
                continue
            value = function.__globals__[name]
            if isinstance(value, ModuleType):
                yield from self._read_from(value, names)
            elif not self._is_code(value):
                yield f"{function.__module__}.{name}", value

    def _is_code(self, value: Any) -> bool:
        self.add(value)
        return isinstance(value, CODE)

    def _read_from(self, module: ModuleType, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Globals of another module of the user's, by any name that the code has."""
        if is_users(module.__name__):
            self.modules.add(module.__name__)
            for name in names:
                if name in vars(module) and not self._is_code(vars(module)[name]):
                    yield f"{module.__name__}.{name}", vars(module)[name]


def is_users(module: str) -> bool:
    """Whether a module is the user's: neither installed, nor Python's, nor ours."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "builtins" or is_hashed_by_version(top):
        return False
    file = _file_of(module)
    return file is None or not _is_installed(file)


def is_hashed_by_version(package: str) -> bool:
    """Whether a package's version says all about its code."""
    return package in HASHED_BY_VERSION or package in sys.stdlib_module_names


def file_of(module: str) -> Path | None:
    """The source of a loaded module; None for what has none."""
    file = _file_of(module)
    return Path(file) if file else None


def user_modules() -> frozenset[str]:
    """Names of the user's modules that were loaded from files."""
    loaded = [name for name in list(sys.modules) if _file_of(name) is not None]
    return frozenset(filter(is_users, loaded))


def _file_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None) or None


@functools.lru_cache(maxsize=16384)
def _is_installed(file: str) -> bool:
    """Whether a source is an installed package's or Python's own; asked of thousands by a build."""
    path = Path(file)
    is_package = any(part in INSTALLED for part in path.parts)
    return is_package or path.is_relative_to(sysconfig.get_path("stdlib"))


def _functions(member: Any) -> Iterator[FunctionType]:
    """The functions of a class's member, below its decorators."""
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    parts = [member]
    if isinstance(member, property):
        parts = [member.fget, member.fset, member.fdel]
    elif isinstance(member, functools.cached_property | functools.partialmethod):
        parts = [member.func]
    for part in parts:
        while part is not None:
            if isinstance(part, FunctionType):
                yield part
            part = getattr(part, "__wrapped__", None)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _names(code: CodeType) -> set[str]:
    """Every name in a body and in the bodies inside it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found
