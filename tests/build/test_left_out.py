"""What stands beside the compiler can be left out: a build, a load and a call need none of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

LAYERS = Path(__file__).parent.parent / "test_layers.py"
SPEC = '''
import torch


class Model(torch.nn.Module):
    """A layer and its activation."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x):
        return torch.nn.functional.gelu(self.layer(x))


model = Model().eval()
example_inputs = (torch.ones(2, 8),)
'''
CODE = '''
import sys

BESIDE = {beside!r}


class LeftOut:
    """Finds nothing of what is left out."""

    def find_spec(self, name, path=None, target=None):
        if any((name + ".").startswith(f"aotc.{{each}}.") for each in BESIDE):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None


sys.meta_path.insert(0, LeftOut())
from aotc.aot.cli.program import run

cache = ["--cache-dir", "cache", "--quiet"]
assert run(["build", "model.py", "-o", "bundle", *cache]) == 0
assert run(["run", "bundle"]) == 0
assert run(["explain", "spec-file-missing"]) == 0
for command in ("profile", "reduce", "backends"):
    assert run([command, "bundle"]) == 7, command
try:
    import aotc.aot as aot

    aot.native_op
except Exception as error:
    assert error.code == "extension-missing", error
found = [name for name in sys.modules if name.startswith(tuple(f"aotc.{{e}}" for e in BESIDE))]
assert not found, found
print("whole")
'''


def _beside() -> list[str]:
    """The names of `BESIDE` in the test of layers."""
    for node in ast.parse(LAYERS.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "BESIDE":
            return list(ast.literal_eval(node.value))
    raise AssertionError("there is no `BESIDE`")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("left-out")
    (folder / "model.py").write_text(SPEC)
    code = CODE.format(beside=_beside())
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_model_is_built_and_run_without_what_stands_beside(ran):
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("whole\n")


@pytest.mark.parametrize("purpose", ["aotc profile", "aotc reduce", "aotc backends"])
def test_a_command_of_what_is_left_out_says_so(ran, purpose):
    assert f"is not installed, which {purpose} needs" in ran.stderr
    assert "Traceback" not in ran.stderr
