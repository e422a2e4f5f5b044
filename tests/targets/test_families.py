"""Device families: their names stand in few places, and a third one is two folders and a row."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("aot", "cache", "kernels", "runtime")
# Families' own folders, the table of them, DLPack's and torch's names of devices, and the command
# line.
MAY_NAME = (
    "aot/targets/cpu/",
    "aot/targets/cuda/",
    "runtime/drivers/cpu/",
    "runtime/drivers/cuda/",
    "runtime/drivers/__init__.py",
    "runtime/arrays/dlpack.py",
    "kernels/library/devices.py",
    "aot/dynamo/devices.py",
    "aot/cli/",
)
ROW = 'FAMILIES = ("cpu", "cuda")'

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = torch.nn.Linear(24, 48), torch.nn.Linear(48, 10)

    def forward(self, x):
        return torch.softmax(self.down(torch.nn.functional.gelu(self.up(x))), -1)

model = Model()
example_inputs = (torch.randn(5, 24),)
"""
SCRIPT = """
import sys

import torch

from aotc.aot.cli.program import run
from aotc.runtime import drivers, load

root, folder = sys.argv[1:]
assert drivers.__file__.startswith(root)
sys.path.insert(0, folder)
from model import model

for number, options in enumerate((["--tune", "quick"], ["--target", "cpu", "--tune", "off"])):
    path = f"{folder}/{number}.aotc"
    code = run(["build", f"{folder}/model.py", "-o", path, "--target", "twin", *options])
    assert code == 0, code
    with load(path, device="twin") as program, torch.no_grad():
        assert program.target.startswith("twin-x86-64"), program.target
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(5, 24)
            torch.testing.assert_close(program(x), model(x), rtol=1e-5, atol=1e-6)
"""


def modules():
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def texts(node):
    """The strings of a literal, or of the literals in a tuple, a list, a set or a dict's keys."""
    parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [node])
    return {each.value for each in parts if isinstance(each, ast.Constant)}


def is_cuda(text):
    return isinstance(text, str) and re.fullmatch(r"cuda([:-].*)?", text)


def named(path):
    """Lines that name CUDA, and those that compare with the name of a family or have a row of it.

    What is written about them, in docstrings and messages, is free.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and is_cuda(node.value):
            yield node.lineno
        if isinstance(node, (ast.Compare, ast.Dict)):
            parts = [node] if isinstance(node, ast.Dict) else [node.left, *node.comparators]
            if any("cpu" in texts(part) for part in parts):
                yield node.lineno


def test_families_are_named_where_they_may_be():
    found = {path.relative_to(ROOT).as_posix(): list(named(path)) for path in modules()}
    wrong = {name: lines for name, lines in found.items() if lines}
    assert {name for name in wrong if not name.startswith(MAY_NAME)} == set(), wrong
    assert found["runtime/drivers/__init__.py"], "the search finds nothing"


def twin_of(folder: Path) -> None:
    """A copy of a family's folder under another name; files it does not name stay as they are."""
    twin = folder.with_name("twin")
    shutil.copytree(folder, twin, ignore=shutil.ignore_patterns("__pycache__"))
    for path in twin.rglob("*.py"):
        path.write_text(re.sub(r"\bcpu\b", "twin", path.read_text()))


def third_family(root: Path) -> None:
    """The packages with a third family: two folders more, and one row changed."""
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, root / "aotc" / package, ignore=ignored)
    (root / "aotc" / "__init__.py").touch()
    twin_of(root / "aotc/aot/targets/cpu")
    twin_of(root / "aotc/runtime/drivers/cpu")
    table = root / "aotc/runtime/drivers/__init__.py"
    assert table.read_text().count(ROW) == 1
    table.write_text(table.read_text().replace(ROW, 'FAMILIES = ("cpu", "cuda", "twin")'))


def test_a_third_family_is_two_folders_and_a_row(tmp_path):
    """It builds, tunes, packs, loads and runs a model with right numbers, alone or with others."""
    root, folder = tmp_path / "packages", tmp_path / "work"
    third_family(root)
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    environment = {**os.environ, "PYTHONPATH": str(root), "AOTC_CACHE_DIR": str(folder / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(root), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
