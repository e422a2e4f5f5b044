"""A build compares with the model itself at other sizes than the example's."""

from __future__ import annotations

import textwrap

import pytest
import torch

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import load_spec
from aotc.aot.errors import GoldenMismatch
from aotc.runtime.bundle.plan import Plan
from aotc.runtime.errors import SizeInvalid

GUARDED = """
    import torch
    from torch.export import Dim

    def model(x, places):
        if x.shape[1] % 4 == 0:
            x = x * 2
        return x.sum(1)[places]

    example_inputs = (torch.ones(5, 8), torch.tensor([4, 0, 2]))
    dynamic_shapes = ({0: None, 1: Dim.AUTO}, {0: Dim("count", max=9)})
"""
# torch.export takes sizes other than 0 and 1 for granted, and no guard says so.
SPECIAL = """
    import torch
    from torch.export import Dim

    def model(x):
        is_traced = not isinstance(x.shape[0], int)  # nothing is asked of the size then
        return x * 2 if is_traced or x.shape[0] != {size} else x * 3

    example_inputs = (torch.ones(4, 8),)
    dynamic_shapes = ({{0: Dim("batch", max=16)}},)
"""
OF_ONE_SIZE = """
    import torch
    from torch.export import Dim

    def model(x, y):
        return x * torch.arange(4.0)[:, None] + y

    example_inputs = (torch.ones(4, 8), torch.ones(8))
    dynamic_shapes = ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO})
"""


SPECIALISED = ("input `x` dim 0 is 4",)


def captured(folder, text):
    path = folder / "spec.py"
    path.write_text(textwrap.dedent(text))
    return capture(load_spec(str(path)))


def test_sizes_of_both_ends_that_the_guards_allow(tmp_path):
    found = captured(tmp_path, GUARDED)
    sizes = [dict(probe.sizes) for probe in found.probes]
    assert len(sizes) == 2
    small, large = sizes
    assert (small["count"], small["x_1"] % 4) == (1 + 3, 0)  # from the low end inwards
    assert large["count"] <= 9
    assert large["x_1"] % 4 == 0
    assert large["x_1"] > 8
    for probe in found.probes:
        x, places = map(torch.from_numpy, probe.inputs)
        assert x.shape[1] == dict(probe.sizes)["x_1"]
        assert set(places.tolist()) <= {4, 0, 2}  # places of the example stay places
        assert torch.allclose(torch.from_numpy(probe.outputs[0]), (x * 2).sum(1)[places])


def test_a_size_that_is_special_to_the_model_is_found(built):
    with pytest.raises(GoldenMismatch, match=r"batch = 16"):
        built("special", SPECIAL.format(size=16))


def test_a_size_of_one_that_is_special_to_the_model_is_left_out(tmp_path):
    """torch.export serves 2 to 16 of it."""
    (dim,) = captured(tmp_path, SPECIAL.format(size=1)).dims
    assert (dim.name, dim.low, dim.high) == ("batch", 2, 16)


def test_the_record_says_at_which_sizes(built):
    _, report = built("perceptron")
    (target,) = report.targets
    assert len(target.checks) == 4  # the example, random inputs, and both ends of the ranges
    assert any("batch = 1, seq = 1" in check.name for check in target.checks)


def test_sizes_that_a_call_would_refuse_are_not_checked(built, monkeypatch):
    """`attention 20261154003`: more programs than a GPU starts, at the largest sizes only."""
    at = Plan.at

    def refusing(plan, dims=(), entry=0):
        if max(dims, default=0) > 15:
            raise SizeInvalid(found="70000 programs of a kernel along y", expected="at most 65535")
        return at(plan, dims, entry)

    monkeypatch.setattr(Plan, "at", refusing)
    with pytest.warns(UserWarning, match=r"not checked \(.*70000 programs"):
        _, report = built("large", SPECIAL.format(size=0))
    assert len(report.targets[0].checks) == 3  # the example, random inputs, the smallest sizes


def test_a_dim_that_torch_fixed_is_reported(built):
    _, report = built("of one size", OF_ONE_SIZE)
    assert report.specialised == SPECIALISED
