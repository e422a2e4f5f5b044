"""The sdist and the wheel: what they hold, and that the wheel, in an empty environment of each
Python, loads a bundle with nothing beside it and has the command line where click is."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13")
WHEEL_BYTES = 2_090_000  # sources alone; and of those that a server imports:
RUNTIME_BYTES = 327_500


def test_what_the_wheel_holds(wheel):
    files = zipfile.ZipFile(wheel).infolist()
    names = [file.filename for file in files]
    assert wheel.stat().st_size <= WHEEL_BYTES
    runtime = [file.compress_size for file in files if file.filename.startswith("aotc/runtime/")]
    assert sum(runtime) <= RUNTIME_BYTES
    assert {name.split("/")[0] for name in names} == {
        "aotc", "runtime.py", f"{wheel.name.partition('-py3')[0]}.dist-info"
    }  # fmt: skip
    assert {name.split("/")[1] for name in names if name.startswith("aotc/")} == {
        "__init__.py", "py.typed", "aot", "cache", "kernels", "runtime"
    }  # fmt: skip
    assert {name for name in names if name.endswith("py.typed")} == {
        f"aotc/{each}py.typed" for each in ("", "aot/", "cache/", "kernels/", "runtime/")
    }
    assert not [name for name in names if name.endswith((".md", ".pyc"))]


def test_the_wheel_holds_every_file_of_the_packages(packages):
    """But for documents; one of a new kind needs a row in `package-data`."""
    names = set(zipfile.ZipFile(packages.wheel).namelist())
    files = {
        f"aotc/{path.relative_to(packages.tree)}"
        for package in ("aot", "cache", "kernels", "runtime")
        for path in (packages.tree / package).rglob("*")
        if path.is_file() and path.suffix not in (".md", ".pyc")
    }
    assert files <= names


def test_the_sdist_holds_what_a_build_needs_alone(packages):
    with tarfile.open(packages.sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        assert all(each.isfile() or each.isdir() for each in archive.getmembers())
    tops = {name.partition("/")[0] for name in names if name}
    assert tops == {"scripts", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "PKG-INFO",
                    "setup.cfg"}  # fmt: skip
    assert {name for name in names if name.startswith("scripts/")} == {
        name for name in names if name.startswith("scripts/alias")
    }


def test_what_the_documents_make_in_a_checkout_is_ignored():
    """Else linters and packages would take an environment for a part of the project."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout of git")
    pages = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
    made = {name for page in pages for name in re.findall(r"-m venv ([\w.-]+)", page.read_text())}
    made -= {"serving"}  # beside the checkout, in the tutorial's own folder
    assert "building" in made
    for name in made:
        done = run("git", "check-ignore", "--quiet", f"{name}/bin/python", folder=ROOT)
        assert done.returncode == 0, name


def test_the_pythons_are_those_of_the_project():
    lowest, end = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    assert [f"3.{minor}" for minor in range(int(lowest), int(end))] == list(PYTHONS)
    check = (ROOT / "scripts" / "package-check").read_text()
    assert f"for version in {' '.join(PYTHONS)};" in check


def python_of(version):
    """An interpreter of that version that runs, on the PATH or pyenv's; None where none is."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    asked = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for path in filter(None, found):
        done = subprocess.run([path, "-c", asked], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return path
    return None


RUNS = """
import json, sys
import runtime, aotc.runtime
assert runtime is aotc.runtime
with runtime.load(sys.argv[1]) as program:
    shape = program.inputs[0].shape
    x = memoryview(bytearray(4 * shape[0] * shape[1])).cast("f", shape)
    found = program(x).shape
heavy = [name for name in ("click", "numpy", "torch", "triton") if name in sys.modules]
print(json.dumps([sys.version_info[:2], found, heavy, aotc.runtime.__file__]))
"""
COMMANDS = """
import contextlib, io, sys
from aotc.aot.cli.program import run
for words in (["--help"], ["--version"], ["explain"], ["doctor", "--json"],
              *([name, sys.argv[1]] for name in ("inspect", "verify", "stubs"))):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(words) == 0, words
    assert out.getvalue(), words
"""


def run(*words, folder):
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)


def installed(package, base, folder):
    """An environment with that package alone, and its interpreter."""
    pytest.importorskip("pip")
    place = folder / "environment"
    python = place / "bin" / "python"
    done = run(base, "-m", "venv", "--without-pip", place, folder=folder)
    assert done.returncode == 0, done.stderr
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
               "--no-deps", "--no-compile", package, folder=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return place, python


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_in_an_empty_environment(bundle, wheel, tmp_path, version):
    base = python_of(version)
    if base is None:
        pytest.skip(f"Python {version} is not installed")
    place, python = installed(wheel, base, tmp_path)
    done = run(python, "-I", "-c", RUNS, bundle, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found, shape, heavy, file = json.loads(done.stdout)
    assert found == [int(part) for part in version.split(".")]
    assert (shape, heavy) == ([12, 80], [])
    assert Path(file).is_relative_to(place)

    program = place / "bin" / "aotc"
    done = run(program, "--help", folder=tmp_path)
    assert (done.returncode, "`click` is not installed" in done.stderr) == (7, True)
    site = next(place.glob("lib/python*/site-packages"))
    for name in ("click", "filelock"):
        (site / name).symlink_to(Path(importlib.util.find_spec(name).origin).parent)
    done = run(program, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Compile a model into a bundle." in done.stdout
    done = run(python, "-I", "-c", COMMANDS, bundle, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_editable_install_is_the_checkout(bundle, packages, tmp_path):
    """`pip install --editable .`: what is changed there counts without installing it again."""
    _, python = installed(packages.editable, sys.executable, tmp_path)
    done = run(python, "-I", "-c", RUNS, bundle, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(json.loads(done.stdout)[3]).is_relative_to(packages.tree / "scripts" / "alias")
