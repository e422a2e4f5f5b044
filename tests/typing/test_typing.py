"""Types for users: `aotc stubs` writes a module that runs and that type checkers read, and a user's
file is clean under mypy --strict and pyright, on a bare checkout, an editable install, a wheel."""

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SPEC = """
import torch
from aotc.aot import EntryPoint


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(1, 8))

    def encode(self, pair, scale, mask=None):
        one, other = pair
        return {"hidden": self.linear(one) * scale + other, "mask": mask["mask"] * 2}

    def decode(self, x):
        self.count.add_(1)
        return self.linear(x) + self.count, x * 2


def build_model():
    return Model()


x = torch.randn(4, 8)
entry_points = {
    "encode": EntryPoint(example_inputs=((x, x), 2.0, {"mask": x})),
    "decode": EntryPoint(example_inputs=(torch.randn(1, 8),)),
}
"""


@pytest.fixture(scope="module")
def user(cache, tmp_path_factory):
    """A folder with a bundle, its typed module and the user's file."""
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("user")
    (folder / "spec.py").write_text(SPEC)
    words = ["build", folder / "spec.py", "-o", folder / "bundle", "--cache-dir", cache, "--quiet"]
    assert run(list(map(str, words))) == 0
    for name in ("typed_bundle.py", "types_only.pyi"):
        assert run(["stubs", str(folder / "bundle"), "-o", str(folder / name)]) == 0
    shutil.copy(HERE / "user.py", folder)
    return folder


def module_of(path):
    found = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_typed_module_runs_the_bundle(user):
    torch = pytest.importorskip("torch")
    x = torch.ones(4, 8)
    with module_of(user / "typed_bundle.py").load(user / "bundle") as program:
        found = program.encode((x, x), 2.0, {"mask": x})
        assert torch.equal(found["mask"], 2 * x)
        assert torch.equal(
            program.untyped.encode((x, x), 2.0, {"mask": x})["hidden"], found["hidden"]
        )
        program.encode((x, x), 2.0, {"mask": x}, out=found)
        with program.session() as session:
            first, second = session.decode(x[:1]), session.decode(x=x[:1])
            assert torch.allclose(second[0], first[0] + 1)


def test_names_and_docstrings(aotc, user, bundle):
    text = (user / "typed_bundle.py").read_text()
    for line in ("pair: tuple[Array, Array],", "scale: float,", "class EncodeMask(TypedDict,",
                 "pair_0: f32[4, 8]", "scale = 2.0, fixed at build time"):  # fmt: skip
        assert line in text
    code, text, _ = aotc("stubs", bundle)
    assert code == 0
    assert "x: f32[12, 48]" in text
    assert "def __call__(" in text
    assert "TypedDict" not in text  # nothing is imported that is not used
    code, _, errors = aotc("stubs", bundle, "-o", user / "typed_bundle.py")
    assert code == 2
    assert "exists" in errors


def mypy(folder, *options, **variables):
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder / "mypy", *options,
         "user.py", "typed_bundle.py", "types_only.pyi"],
        capture_output=True, text=True, check=False, cwd=folder,
        env={"PATH": os.environ["PATH"], **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def environment(place, lines=""):
    """An interpreter with packages of its own, those in the folders that `lines` names."""
    venv.create(place, with_pip=False, symlinks=True)
    packages = next(place.glob("lib/python*/site-packages"))
    (packages / "aotc.pth").write_text(lines)
    return place / "bin" / "python", packages


def test_mypy_on_a_bare_checkout(user):
    mypy(user, MYPYPATH=str(ROOT))


def test_mypy_on_an_editable_install(user, tmp_path):
    """Which is one line of a .pth file, by setuptools' rule: one folder holds all there is."""
    import tomllib

    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    (folder,) = table["package-dir"].values()
    assert list(table["package-dir"]) == [""]
    assert table["packages"]["find"]["where"] == [folder]
    names = {path.name for path in (ROOT / folder).iterdir()}
    assert {name for name in names if not name.endswith(("__pycache__", ".egg-info"))} == {
        "aotc", "runtime.py"
    }  # fmt: skip
    python, _ = environment(tmp_path / "environment", f"{ROOT / folder}\n")
    mypy(user, "--python-executable", python)
    done = subprocess.run(
        [python, "-I", "-c", "import runtime, aotc.runtime; print(runtime is aotc.runtime)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "True\n"


def test_mypy_and_the_program_on_a_wheel(user, wheel, tmp_path):
    python, packages = environment(tmp_path / "environment")
    zipfile.ZipFile(wheel).extractall(packages)
    for name in ("click", "filelock"):
        place = Path(importlib.util.find_spec(name).origin).parent
        (packages / name).symlink_to(place)
    mypy(user, "--python-executable", python)
    done = subprocess.run(
        [python, "-I", "-m", "aotc.aot.cli", "verify", user / "bundle"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("install", ["checkout", "editable", "wheel"])
def test_pyright(user, wheel, tmp_path, install):
    import json

    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed (it needs node)")
    paths = {"checkout": "", "editable": f"{ROOT / 'scripts' / 'alias'}\n", "wheel": ""}
    _, packages = environment(tmp_path / "environment", paths[install])
    if install == "wheel":
        zipfile.ZipFile(wheel).extractall(packages)
    settings = {
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
        "venvPath": str(tmp_path),
        "venv": "environment",
        "extraPaths": [str(ROOT)] if install == "checkout" else [],
    }
    (user / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "user.py", "typed_bundle.py"],
        capture_output=True, text=True, check=False, cwd=user,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
