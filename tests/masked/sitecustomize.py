"""Every process of a masked run sees another processor: without AVX-512, or with or without tiles.

The suite's own switches, both read from the environment:

    AOTC_TESTS_WITHOUT=avx512,amx scripts/test …   takes words that begin so out of /proc/cpuinfo
    AOTC_TESTS_TILES=emulated scripts/test …       adds AMX, by software (`tile_emulator.py`)

`tests/conftest.py` loads this file into pytest's process and puts its folder on PYTHONPATH, so that
Python loads it into the processes that tests start.
"""

import builtins
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
from pathlib import Path

CPUINFO = "/proc/cpuinfo"
WITHOUT, TILES = "AOTC_TESTS_WITHOUT", "AOTC_TESTS_TILES"
_open = io.open


def _masked(file, mode="r", *rest, **named):
    if file != CPUINFO and not (hasattr(file, "__fspath__") and os.fspath(file) == CPUINFO):
        return _open(file, mode, *rest, **named)
    with _open(CPUINFO, encoding="ascii", errors="replace") as found:
        lines = [_changed(line) for line in found]
    return io.BytesIO("".join(lines).encode()) if "b" in mode else io.StringIO("".join(lines))


def _changed(line):
    if not line.startswith("flags"):
        return line
    words = line.rstrip("\n").split(" ")
    hidden = tuple(filter(None, os.environ.get(WITHOUT, "").split(",")))
    words = [word for word in words if not word.startswith(hidden)] if hidden else words
    if os.environ.get(TILES):
        words += [flag for flag in _emulator().FLAGS if flag not in words]
    return " ".join(words) + "\n"


def _emulator():
    name = "tile_emulator"
    if name not in sys.modules:
        path = Path(__file__).with_name(f"{name}.py")
        found = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _compile_emulated(module):
    own = module.compile_module
    module.compile_module = lambda text, *rest: own(_emulator().emulated(text), *rest)


def _tell_apart(module):
    """Caches must not hand emulated code to other runs."""
    own, text = module.compiler_digest, Path(_emulator().__file__).read_bytes()
    mark = hashlib.sha256(text).hexdigest()[:16]
    module.compiler_digest = lambda *rest: f"{own(*rest)}-emulated-{mark}"


def _permit(module):
    module._asked = lambda: ""


CHANGES = {
    "aotc.aot.targets.digest": _tell_apart,
    "aotc.aot.targets.toolchain": _compile_emulated,
    "aotc.runtime.drivers.cpu.tile_permission": _permit,
}
"""What is done to a module when it has been imported."""


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of `CHANGES` as others do, and changes them."""

    def find_spec(self, name, path, target=None):
        if name not in CHANGES:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found is not None:
            execute = found.loader.exec_module

            def exec_module(module):
                execute(module)
                CHANGES[name](module)

            found.loader.exec_module = exec_module
        return found


def install():
    """Change what this process sees, where a variable is set."""
    if os.environ.get(WITHOUT) or os.environ.get(TILES):
        builtins.open = io.open = _masked
    if os.environ.get(TILES):
        sys.meta_path.insert(0, _Finder())


install()
