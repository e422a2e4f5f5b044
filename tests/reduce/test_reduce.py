"""`aotc reduce`: what is written is a spec, and fails as the whole model did."""

import json

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc.aot.capture.imports.table import ROWS  # noqa: E402
from aotc.aot.capture.spec import load_spec  # noqa: E402
from aotc.aot.cli.program import program  # noqa: E402
from aotc.aot.errors import GoldenMismatch, NothingToReduce  # noqa: E402
from aotc.aot.ir.build import scalar  # noqa: E402
from aotc.aot.ir.graph import make  # noqa: E402
from aotc.aot.options import BuildOptions  # noqa: E402
from aotc.aot.pipeline import build  # noqa: E402  needs torch
from aotc.aot.reduce.reduce import reduce  # noqa: E402
from aotc.runtime.errors import AotcError  # noqa: E402

pytestmark = pytest.mark.torch
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 24), torch.nn.Linear(12, 8)
        self.norm = torch.nn.LayerNorm(24)

    def forward(self, x, *, extra):
        left, right = torch.split(self.norm(self.first(x)), 12, dim=1)
        mixed = {expression}
        return {{"out": torch.softmax(self.second(mixed), -1), "sum": mixed.sum()}}

model = Model()
example_inputs = {{"x": torch.randn(4, 16), "extra": torch.randn(4, 12)}}
"""


@pytest.fixture
def spec(tmp_path):
    """`spec(expression)`: a model's file, with that expression in its middle."""

    def write(expression):
        path = tmp_path / "model.py"
        path.write_text(MODEL.format(expression=expression))
        return str(path)

    return write


@pytest.fixture
def options(tmp_path):
    return BuildOptions(cache_folder=tmp_path / "cache", jobs=1)


def silent(tried, left):
    pass


def test_an_operation_that_is_not_known(spec, options, tmp_path):
    out = tmp_path / "reduced.py"
    whole = spec("torch.relu(left) * torch.special.bessel_j0(right) + extra")
    report = reduce(whole, out, ["cpu"], options, 50, silent)
    assert (report.operations, report.failure.code) == (1, "ops-unsupported")
    assert report.total >= 8
    assert not report.has_values
    assert not out.with_suffix(".pt").exists()
    assert "bessel_j0" in out.read_text()
    with pytest.raises(AotcError) as caught:
        build(str(out), tmp_path / "bundle", ["cpu"], options)
    assert caught.value.code == "ops-unsupported"


def test_wrong_numbers(spec, options, tmp_path, monkeypatch):
    monkeypatch.setitem(ROWS, "sin", ROWS["cos"])
    out = tmp_path / "reduced.py"
    report = reduce(spec("torch.sin(left) * extra"), out, ["cpu"], options, 50, silent)
    assert (report.operations, report.failure.code) == (1, "golden-mismatch")
    assert "aten.sin" in out.read_text()
    spec_left = load_spec(str(out))
    assert spec_left.module(*spec_left.arguments)[0].shape == (4, 12)
    with pytest.raises(GoldenMismatch):
        build(str(out), tmp_path / "bundle", ["cpu"], options)


def test_values_that_matter_are_kept(spec, options, tmp_path, monkeypatch):
    """A fault that shows on the recorded values only, far from what random numbers reach."""
    right = ROWS["exp"]
    monkeypatch.setitem(
        ROWS, "exp", lambda call, data: right(call, make("minimum", (data, scalar(50.0, "f32"))))
    )
    out = tmp_path / "reduced.py"
    report = reduce(spec("torch.exp(left + 60.0)"), out, ["cpu"], options, 50, silent)
    assert (report.operations, report.has_values) == (1, True)
    assert out.with_suffix(".pt").is_file()
    with pytest.raises(GoldenMismatch):
        build(str(out), tmp_path / "bundle", ["cpu"], options)


def test_a_model_without_fault(spec, options, tmp_path):
    with pytest.raises(NothingToReduce):
        reduce(spec("left * right + extra"), tmp_path / "r.py", ["cpu"], options, 5, silent)
    assert not (tmp_path / "r.py").exists()


def test_the_command(spec, tmp_path):
    out = tmp_path / "reduced.py"
    arguments = ["reduce", spec("torch.special.bessel_j0(left)"), "-o", str(out), "--json"]
    done = CliRunner().invoke(program, [*arguments, "--quiet", "--cache", str(tmp_path / "c")])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["schema"] == "aotc.reduce/1"
    assert report["path"] == str(out)
    again = CliRunner().invoke(program, [*arguments, "--quiet"])
    assert getattr(again.exception, "code", "") == "output-exists"


OWN_OP = """
import torch

@torch.library.custom_op("aotc_reduce::softsign", mutates_args=())
def softsign(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())

@softsign.register_fake
def _(x):
    return torch.empty_like(x)

class Model(torch.nn.Module):
    def forward(self, x):
        return softsign(x.relu() + 1).softmax(-1)

model = Model()
example_inputs = (torch.randn(4, 8),)
"""
WRONG = "decompositions = {softsign: lambda x: x / (1 + 2 * x.abs())}\n"


@pytest.mark.parametrize("code", ["golden-mismatch", "ops-unsupported"])
def test_an_op_of_the_user_s_comes_with_the_file_that_registers_it(code, options, tmp_path):
    whole, out = tmp_path / "own.py", tmp_path / "elsewhere" / "reduced.py"
    out.parent.mkdir()
    whole.write_text(OWN_OP + (WRONG if code == "golden-mismatch" else ""))
    report = reduce(str(whole), out, ["cpu"], options, 50, silent)
    assert (report.operations, report.failure.code) == (1, code)
    assert str(whole) in out.read_text()
    with pytest.raises(AotcError) as caught:
        build(str(out), tmp_path / "bundle", ["cpu"], options)
    assert caught.value.code == code
