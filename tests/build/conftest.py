"""A tiny model, built once for the folder, and a way to run the program in this process."""

import json

import pytest

from aotc.aot.cli.program import run

SPEC = """
import torch


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(48)
        self.linear = torch.nn.Linear(48, 80)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(self.norm(x))).softmax(-1)


def build_model():
    return Tiny()


example_inputs = (torch.randn(12, 48),)
"""


@pytest.fixture(scope="session")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("spec") / "tiny.py"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One artifact cache for all tests that do not ask how full it is."""
    return tmp_path_factory.mktemp("cache-of-tests")


@pytest.fixture
def aotc(capsys):
    """Run `aotc` in this process: exit code, standard output, standard error."""

    def call(*arguments):
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def build(aotc, spec, cache):
    """Build the tiny model; the parsed `--json` report. Fails the test when the build fails."""

    def call(out, *options, cache_dir=cache):
        code, text, errors = aotc(
            "build", spec, "-o", out, "--json", "--quiet", "--cache-dir", cache_dir, *options
        )
        assert code == 0, errors
        return json.loads(text)

    return call


@pytest.fixture(scope="session")
def bundle(spec, cache, tmp_path_factory):
    """The tiny model as a bundle that no test changes."""
    out = tmp_path_factory.mktemp("bundle-of-tests") / "tiny"
    arguments = ["build", spec, "-o", out, "--quiet", "--debug", "--cache-dir", cache]
    assert run([str(argument) for argument in arguments]) == 0
    return out
