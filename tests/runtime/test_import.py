"""What `import runtime` brings: the standard library alone; one module under two names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import aotc.runtime

FOLDER = Path(aotc.runtime.__file__).resolve().parent
HEAVY = {
    "torch", "triton", "numpy", "dataclasses", "typing", "pathlib", "json", "logging", "re",
    "subprocess", "inspect", "pickle", "asyncio", "socket", "tempfile", "threading", "msgpack",
    "datetime", "collections",
}  # fmt: skip
LIST_MODULES = "import sys; print(*sys.modules, sep='\\n')"


def modules_after(code: str, *options: str, env: dict[str, str] | None = None) -> set[str]:
    ran = subprocess.run(
        [sys.executable, *options, "-c", f"{code}\n{LIST_MODULES}"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **(env or {})},
        cwd="/",
    )
    return set(ran.stdout.split())


def test_import_brings_the_standard_library_alone():
    added = modules_after("from aotc.runtime import *") - modules_after("")
    ours = {name for name in added if name.split(".")[0] == "aotc"}
    assert not added & HEAVY
    assert {name.split(".")[0] for name in added - ours} <= set(sys.stdlib_module_names)
    assert not {name for name in ours if name.startswith(("aotc.aot", "aotc.cache"))}


def test_import_brings_what_names_stand_for_at_their_first_use():
    added = modules_after("import aotc.runtime") - modules_after("")
    # An editable install may have brought the first one, or not.
    assert added - {"__future__"} == {"aotc", "aotc.runtime", "aotc.runtime.alias"}
    assert "aotc.runtime.loading" not in modules_after("import aotc.runtime as r; r.check")
    modules_after("import aotc.runtime as r; r.load; r.check('/nowhere')")  # no module of that name


def test_load_brings_no_heavy_module(native):
    code = f"import aotc.runtime; aotc.runtime.load({str(native)!r})(bytes(8 * 192))"
    assert not (modules_after(code) - modules_after("")) & HEAVY


def test_import_reads_no_setting_and_writes_nothing(tmp_path):
    code = (
        "import sys, os\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, args: seen.append((event, args))"
        " if event == 'open' and args[1] not in ('r', 'rb', None) else None)\n"
        "os.environ = None\n"
        "import aotc.runtime\n"
        "assert not seen, seen\n"
    )
    modules_after(code, env={"PYTHONDONTWRITEBYTECODE": "1"})


def run_in(folder: Path, code: str, *options: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def checkout(tmp_path):
    """A bare checkout: the folder `runtime`, nothing else (`-S` leaves site out)."""
    (tmp_path / "runtime").symlink_to(FOLDER)
    return tmp_path


def test_bare_checkout(checkout, native):
    code = (
        "import runtime, runtime.errors, sys\n"
        f"program = runtime.load({str(native)!r})\n"
        "import array; numbers = array.array('q', range(192))\n"
        "assert program(numbers).tolist() == [15 * each for each in numbers]\n"
        "assert 'aotc' not in sys.modules\n"
        "try: program(1)\n"
        "except runtime.InputError as error: assert type(error).__module__ == 'runtime.errors'\n"
    )
    run_in(checkout, code, "-S")


def test_checkout_beside_an_install_is_the_install(checkout):
    code = (
        "import runtime, aotc.runtime\n"
        "from aotc import runtime as other\n"
        "import runtime.errors as errors\n"
        "assert runtime is aotc.runtime is other\n"
        "assert errors is aotc.runtime.errors\n"
        "assert errors.InputError is runtime.InputError\n"
        "import runtime.drivers.memory, aotc.runtime.drivers.memory\n"  # not imported before
        "assert runtime.drivers.memory is aotc.runtime.drivers.memory\n"
        "assert runtime.drivers.memory.__spec__.name == 'aotc.runtime.drivers.memory'\n"
    )
    run_in(checkout, code)


def test_alias_module():
    alias = FOLDER.parent / "scripts" / "alias"
    code = (
        f"import sys; sys.path.insert(0, {str(alias)!r})\n"
        "import runtime, aotc.runtime, runtime.errors\n"
        "assert runtime is aotc.runtime and runtime.errors is aotc.runtime.errors\n"
        "assert sys.modules['runtime'] is aotc.runtime\n"
    )
    run_in(Path("/"), code)


def test_runtime_imports_itself_relatively():
    """Only so does a bare checkout work under the name `runtime`."""
    import ast

    for file in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import) and file != FOLDER / "__init__.py":
                names = [each.name for each in node.names]
                assert not [name for name in names if name.startswith("aotc")], file
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert not (node.module or "").startswith(("aotc", "runtime")), file


def test_size_of_the_runtime():
    """Less than a megabyte on disk."""
    sizes = [each.stat().st_size for each in FOLDER.rglob("*") if each.suffix in (".py", ".md")]
    assert sum(sizes) < 1 << 20
