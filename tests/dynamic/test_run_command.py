"""`aotc run` of a bundle whose sizes vary: which sizes random inputs have."""

import json

import numpy
import pytest

from aotc.aot.cli.inspect import inspect_bundle

pytestmark = pytest.mark.torch
MODEL = """
    import torch
    from torch.export import Dim

    def model(x, y):
        return (x + y).sum(-1)

    batch, width = Dim("batch", max=16), Dim("width", min=2, max=16)
    example_inputs = (torch.ones(3, 4), torch.ones(3, 4))
    dynamic_shapes = ({0: batch, 1: width}, {0: batch, 1: width})
"""
PICTURES = """
    import torch
    from torch import nn
    from torch.export import Dim

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3), nn.Softmax(-1),
    )
    example_inputs = (torch.zeros(4, 1, 16, 16),)
    dynamic_shapes = ({0: Dim("batch", max=64)},)
"""


@pytest.fixture
def run(built, aotc):
    path, _ = built("run_command", MODEL)

    def call(*options):
        code, text, errors = aotc("run", path, "--json", *options)
        return code, json.loads(text), errors

    return call


def test_those_of_the_example(run):
    code, report, errors = run("--seed", 1)
    assert code == 0, errors
    assert report["outputs"][0]["shape"] == [3]


def test_those_of_an_input_that_is_given(run, tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.ones((7, 5), "f4"))
    code, report, errors = run("--seed", 1, "--input", f"x=@{tmp_path}/x.npy")
    assert code == 0, errors
    assert report["outputs"][0]["shape"] == [7]


def test_inspect_and_build_count_the_same_kernels(built):
    """Two ranges of sizes have kernels with the same code here."""
    path, report = built("two_ranges", PICTURES)
    (inspected,), (target,) = inspect_bundle(path)["targets"], report.targets
    assert target.kernels == len(inspected["kernels"]) >= 1


def test_inspect_says_which_kernels_serve_which_sizes(built, aotc):
    path, _ = built("two_ranges", PICTURES)
    code, text, errors = aotc("inspect", path)
    assert code == 0, errors
    record = inspect_bundle(path)["targets"][0]
    ranges = record["entries"][0]["ranges"]
    assert ranges[0]["sizes"] == {"batch": [4, 4]}  # the example's own shape
    assert {symbol for each in ranges for symbol in each["launches"]} == {
        row["symbol"] for row in record["kernels"]
    }
    for each in ranges:
        assert sum(each["launches"].values()) == each["steps"]
    lines = text.splitlines()
    assert any(line.endswith("a call with batch = 4") for line in lines)
    (heads,) = (line.split() for line in lines if line.startswith("  kernel  ") and "sizes" in line)
    assert heads[:3] == ["kernel", "sizes", "launches"]
    table = lines[lines.index(next(line for line in lines if "sizes" in line)) + 1 :]
    assert not any(" 0  " in line for line in table[: len(record["kernels"])])


def test_without_an_example_they_are_asked_for(run, built, tmp_path):
    path, _ = built("run_command")
    golden = path / "golden.safetensors"
    golden.rename(tmp_path / "golden")
    try:
        assert run("--seed", 1)[:2][0] == 2
        numpy.save(tmp_path / "x.npy", numpy.ones((7, 5), "f4"))
        assert run("--seed", 1, "--input", f"x=@{tmp_path}/x.npy")[0] == 0
    finally:
        (tmp_path / "golden").rename(golden)
