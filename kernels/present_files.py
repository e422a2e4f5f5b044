"""Where the lines of a cached kernel stand now.

Triton's cache knows a kernel by its text, not by its file: what one checkout compiled, another one
loads, with the first one's paths in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from types import ModuleType
from typing import Any

from triton.runtime.jit import JITFunction


def in_present_files(
    sites: Sequence[Mapping[str, Any]], kernel: JITFunction
) -> list[Mapping[str, Any]]:
    """The sites with lines of the files that the kernel and what it calls were read from.

    A line is `FILE:NUMBER`. A file that is none of those becomes the one that shares most of the
    end of its path, or stays where none has its name.
    """
    files = sorted({x.fn.__code__.co_filename for x in _with_called(kernel)})
    return [{**x, "line": _present(x["line"], files)} for x in sites]


def _present(line: str, files: Sequence[str]) -> str:
    file, _, number = line.rpartition(":")
    if not file or file in files:
        return line
    best = max(files, key=lambda x: _shared_parts(x, file))
    return f"{best}:{number}" if _shared_parts(best, file) else line


def _shared_parts(left: str, right: str) -> int:
    """How many parts the ends of two paths share."""
    count = 0
    pairs = zip(reversed(PurePath(left).parts), reversed(PurePath(right).parts), strict=False)
    for one, other in pairs:
        if one != other:
            break
        count += 1
    return count


def _with_called(kernel: JITFunction) -> Iterator[JITFunction]:
    """The kernel and the functions of Triton's language that its code names, and theirs."""
    seen: set[int] = set()
    waiting = [kernel]
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        yield function
        names = function.fn.__code__.co_names + function.fn.__code__.co_freevars
        scope = function.get_capture_scope()
        found = [scope.get(name) for name in names]
        for module in [x for x in found if isinstance(x, ModuleType)]:
            found += [getattr(module, name, None) for name in names]
        waiting += [x for x in found if isinstance(x, JITFunction)]
