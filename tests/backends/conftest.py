"""Real little libraries for the tests of native back ends, compiled when they are asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aotc.runtime import backends

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))
HEADERS = Path(backends.__file__).parent
SOURCES = Path(__file__).parent / "libraries"
EXAMPLES = Path(__file__).parents[2] / "examples" / "native"
STRICT = ("-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{HEADERS}")

Compile = Callable[..., Path]


def compiler_of(source: Path) -> list[str]:
    """The command that compiles a source of its language; skips where there is no compiler."""
    name, standard = ("cc", "c11") if source.suffix == ".c" else ("c++", "c++17")
    if shutil.which(name) is None:
        pytest.skip(f"needs a compiler: there is no `{name}`")
    return [name, f"-std={standard}", *STRICT]


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """`compile_library(source, name, *flags)`: a lib<name>.so in a folder of its own."""
    made: dict[tuple[object, ...], Path] = {}

    def compiled(source: Path | str, name: str, *flags: str) -> Path:
        key = (source, name, flags)
        if key not in made:
            path = Path(source) if isinstance(source, Path) else SOURCES / source
            out = tmp_path_factory.mktemp(name) / f"lib{name}.so"
            command = [*compiler_of(path), *flags, str(path), "-o", str(out)]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, ran.stderr
            made[key] = out
        return made[key]

    return compiled


@pytest.fixture
def example(compile_library: Compile) -> Callable[[str], Path]:
    """The library of an example, as its Makefile builds it."""

    def compiled(name: str) -> Path:
        source = next(EXAMPLES.glob(f"{name}/{name}.c*"))
        return compile_library(source, name)

    return compiled


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts the folders of libraries on AOTC_BACKEND_PATH, in order."""

    def put(*libraries: Path) -> None:
        folders = os.pathsep.join(str(library.parent) for library in libraries)
        monkeypatch.setenv("AOTC_BACKEND_PATH", folders)

    return put
