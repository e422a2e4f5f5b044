"""The user's code: imported by file or name, its errors with its own line.

It imports no torch: a bundle that needs none may still be run with `--import`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from aotc.aot.errors import SpecFileMissing, SpecImportFailed, SpecModuleMissing

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_GENERATED = ("<eval_with_key>", "<string>")  # code that torch wrote


@dataclass(frozen=True, slots=True)
class Source:
    """One line of the user's model. Prints as `model.py:31 in forward`."""

    path: str
    line_number: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.path).name}:{self.line_number} in {self.function}"


class _SourceLoader(SourceFileLoader):
    """Compiles the file as it stands.

    Python takes bytecode in `__pycache__` for it where size and time, in whole seconds, are the
    same: a file that was changed within a second, or lies in an image whose times are fixed,
    would be built as it was before.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_code(text: str) -> ModuleType:
    """The module that `FILE.py` or `PACKAGE.MODULE` names; raises a `SpecError`."""
    return import_file(Path(text)) if text.endswith(".py") else import_module(text)


def import_file(path: Path) -> ModuleType:
    """The module in the user's file; raises `SpecFileMissing` and `SpecImportFailed`."""
    if not path.is_file():
        raise SpecFileMissing(path=str(path))
    name = f"aotc_spec_{path.stem}"
    loader = _SourceLoader(name, str(path))
    found = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert found is not None
    module = importlib.util.module_from_spec(found)
    # Registered so that dataclasses and source look-up inside the file work; the folder is on the
    # path so that it can import its neighbours.
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        guarded(lambda: loader.exec_module(module), str(path), "it was imported")
    finally:
        sys.path.remove(folder)
    return module


def import_module(name: str) -> ModuleType:
    """The user's module of that name; raises `SpecModuleMissing` and `SpecImportFailed`."""
    try:
        known = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # such as for a name that begins with `.`
        known = False
    if not known:
        raise SpecModuleMissing(module=name)
    imported: ModuleType = guarded(lambda: importlib.import_module(name), name, "it was imported")
    return imported


def guarded(action: Callable[[], Any], path: str, doing: str) -> Any:
    """Result of user code; what it raises becomes `SpecImportFailed` with the user's line."""
    try:
        return action()
    except (Exception, SystemExit) as error:
        raise SpecImportFailed(
            path=path,
            doing=doing,
            kind=type(error).__name__,
            detail=str(error),
            source=user_line(error, path),
        ) from error


def user_line(error: BaseException, path: str) -> str:
    """The innermost line of the user's file in the traceback of `error`, with its text."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {(error.text or '').strip()}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).name == Path(path).name]
    if own:
        frame = own[-1]
        return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {frame.line}"
    return str(users_innermost("".join(traceback.format_tb(error.__traceback__))) or path)


def innermost(trace: str) -> Source | None:
    """The innermost frame of a printed traceback that is the user's, else the innermost."""
    frames = _frames(trace)
    return users_innermost(trace) or (frames[-1] if frames else None)


def users_innermost(trace: str) -> Source | None:
    """The innermost frame of a printed traceback that is the user's, if one is."""
    roots = _foreign_roots()
    outside = [frame for frame in _frames(trace) if not frame.path.startswith(roots)]
    return outside[-1] if outside else None


def _frames(trace: str) -> list[Source]:
    return [Source(path, int(line), name) for path, line, name in _FRAME.findall(trace)]


def _foreign_roots() -> tuple[str, ...]:
    """Where code lies that is not the user's: torch, what it generates, Python, this stage."""
    found = importlib.util.find_spec("torch")
    folders = () if found is None else tuple(found.submodule_search_locations or ())
    return (*folders, *_GENERATED, contextlib.__file__, str(Path(__file__).parent))
