"""Torch's switch for convolutions of f32 decides what a GPU computes; a CPU has only f32."""

import json

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.torch

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import load_spec  # noqa: E402
from aotc.aot.contents import TF32_TOLERANCE, TOLERANCES, tolerances  # noqa: E402
from aotc.aot.facts.bundle_facts import PRECISIONS  # noqa: E402
from aotc.aot.pipeline import BuildOptions, build  # noqa: E402
from aotc.runtime import load  # noqa: E402

SPEC = """
import torch
from torch import nn

{switch}
torch.manual_seed(0)
model = {model}
example_inputs = (torch.randn(2, 16, 9, 11),)
"""
CONVOLUTION = "nn.Sequential(nn.Conv2d(16, 24, 3), nn.ReLU(), nn.Conv2d(24, 8, 3)).eval()"
SWITCH = "torch.backends.cudnn.allow_tf32 = {}"


@pytest.fixture(autouse=True)
def switches():
    """Torch's, as they were."""
    before = torch.backends.cudnn.conv.fp32_precision  # `allow_tf32` may not be asked for any more
    yield
    torch.backends.cudnn.allow_tf32 = before == "tf32"


def written(folder, allows, model=CONVOLUTION):
    path = folder / "spec.py"
    path.write_text(SPEC.format(switch=SWITCH.format(allows), model=model))
    return str(path)


@pytest.mark.parametrize(
    ("allows", "model", "expected"),
    [
        (True, CONVOLUTION, "tf32"),
        (False, CONVOLUTION, "ieee"),
        (True, "nn.Linear(11, 5)", "ieee"),
        (True, f"{CONVOLUTION}.double()", "ieee"),
    ],
)
def test_the_switch_is_that_of_the_models_file(allows, model, expected, tmp_path):
    path = written(tmp_path, allows, model)
    if "double" in model:
        (tmp_path / "spec.py").write_text(
            (tmp_path / "spec.py").read_text().replace("9, 11)", "9, 11).double()")
        )
    assert capture(load_spec(path)).convolution_precision == expected


AMPLIFIED = "nn.Sequential(nn.Conv2d(16, 24, 3), Amplified()).eval()"
PLACES = "nn.Sequential(twins(nn.Conv2d(16, 64, 3)), Places()).eval()"
MODULES = '''
class Amplified(nn.Module):
    def forward(self, x):
        return (30 * (x - x.mean())).sin()

def twins(layer):
    """A convolution of whose channels each has another one that differs little."""
    with torch.no_grad():
        layer.weight[32:] = layer.weight[:32] + 1e-5 * torch.randn(32, 16, 3, 3)
        layer.bias[32:] = layer.bias[:32]
    return layer

class Places(nn.Module):
    def forward(self, x):
        return x.argmax(1)
'''


def captured(folder, allows, model):
    path = folder / "spec.py"
    path.write_text(SPEC.format(switch=SWITCH.format(allows) + MODULES, model=model))
    return capture(load_spec(str(path)))


def rounded_to_tf32(array):
    bits = array.astype("f4").view("i4")
    return ((bits + 4096) & -8192).view("f4")


def eager_with_tf32(folder, model):
    """The example's answer with both operands of the convolution rounded."""
    spec = load_spec(str(folder / "spec.py"))
    (x,) = spec.arguments
    with torch.no_grad():
        first = spec.module[0]
        first.weight.copy_(torch.from_numpy(rounded_to_tf32(first.weight.numpy())))
        return spec.module(torch.from_numpy(rounded_to_tf32(x.numpy()))).numpy()


def test_a_tolerance_grows_with_what_roundings_to_tf32_amount_to(tmp_path):
    found = captured(tmp_path, True, AMPLIFIED)
    expected = found.golden_outputs[0]
    away = (
        numpy.abs(eager_with_tf32(tmp_path, AMPLIFIED) - expected).max() / numpy.abs(expected).max()
    )
    assert away > TF32_TOLERANCE
    assert found.tf32_roundings() == pytest.approx((away,))
    assert tolerances(found, "tf32") == pytest.approx((3 * away,))
    assert tolerances(found, "ieee") == (TOLERANCES["f32"],)
    exact = captured(tmp_path, False, AMPLIFIED)
    assert tolerances(exact, "tf32") == (TF32_TOLERANCE,)


def test_places_that_roundings_to_tf32_decide_are_left_out_there_only(tmp_path):
    found = captured(tmp_path, True, PLACES)
    (expected,) = found.golden_outputs
    ours = eager_with_tf32(tmp_path, PLACES)
    differs = ours != expected
    assert differs.any()
    assert (found.undecided([ours], (0.0,), True)[0][differs]).all()
    assert not found.undecided([ours], (0.0,))[0].any()
    wrong = numpy.where(differs, expected, (expected + 1) % 64)
    assert not found.undecided([wrong], (0.0,), True)[0].all()


def test_a_bundle_for_both_keeps_f32_on_the_cpu(tmp_path):
    out = tmp_path / "both.aotc"
    build(
        written(tmp_path, True), str(out), ["cpu", "cuda:sm_90"], BuildOptions(tmp_path / "cache")
    )
    facts = json.loads((out / "provenance.json").read_text())["targets"]
    (cpu,) = [row for name, row in facts.items() if name.startswith("cpu")]
    rows = [[row[key] for key, _ in PRECISIONS] for row in (cpu, facts["cuda-sm_90"])]
    assert rows == [["ieee", "ieee"], ["ieee", "tf32"]]
    operations = [" ".join(each["operations"] for each in row["groups"]) for row in facts.values()]
    assert ["tf32" in each for each in operations] == ["cuda" in name for name in facts]
    spec = load_spec(str(tmp_path / "spec.py"))
    x = torch.randn(2, 16, 9, 11)
    with load(out) as program, torch.no_grad():
        found, expected = program(x.numpy()), spec.module(x).numpy()
    numpy.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
