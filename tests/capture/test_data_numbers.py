"""Numbers that depend on data: operands and assertions are taken, sizes and positions refused."""

from __future__ import annotations

import numpy
import pytest

from aotc import runtime
from aotc.aot.errors import OpsUnsupported
from aotc.aot.ir.reference import interpret
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.runtime.errors import AssertionFailed

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
DATA = torch.randn(4, 3, generator=torch.Generator().manual_seed(3))
WHOLE = torch.tensor([2, 3])


def checked_whole(x, i):
    torch._check_tensor_all(i >= 0)
    return x[i] * 2


def checked_number(x, i):
    count = i[0].item()
    torch._check(count >= 2)
    torch._check(count + i[1].item() < 9)
    return x + count


CASES = {
    "floats": (lambda x, i: x * x.sum().item() + x[0, 0].item(), 0),
    "quotient of numbers": (lambda x, i: x / (x[0, 0].item() * 2.0 + i[0].item()), 0),
    "whole number": (lambda x, i: (x + i[0].item(), i * i[1].item()), 0),
    "filled": (lambda x, i: torch.full((2, 3), i[0].item()), 0),
    "truth of all": (checked_whole, 1),
    "range of a number": (checked_number, 2),
    "clamped": (lambda x, i: x.clamp(max=x[0, 0].item()), 0),
    "added": (lambda x, i: torch.add(x, x, alpha=x[1, 1].item()), 0),
    "power": (lambda x, i: x.abs().pow(x[0, 1].item()), 0),
    "slope": (lambda x, i: torch.nn.functional.leaky_relu(x, x[0, 2].item()), 0),
    "chosen": (lambda x, i: torch.where(x > 0, x[0, 0].item(), x[0, 1].item()), 0),
    "filled by mask": (lambda x, i: x.masked_fill(x > 0, x[0, 0].item()), 0),
    "compared": (lambda x, i: x > x[0, 0].item(), 0),
}
REFUSED = {
    "row": lambda x, i: x[_small(i[0].item())],
    "size": lambda x, i: torch.zeros(_small(i[0].item())),
    "part": lambda x, i: x.narrow(0, _small(i[0].item()), 1),
    "shift": lambda x, i: torch.roll(x, _small(i[0].item()), 0),
}


def _small(number):
    torch._check(number >= 2)
    torch._check(number < 4)
    return number


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_torch(name):
    model, checks = CASES[name]
    captured = capture(spec_of(model, (DATA, WHOLE)))
    outputs = len(captured.golden_outputs)
    found = interpret(captured.graph, captured.golden_inputs)
    for got, expected in zip(found, captured.golden_outputs, strict=False):
        numpy.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
        assert got.dtype == expected.dtype
    made = [each for each in captured.graph.output_names if each.startswith("check:")]
    assert bool(made) == bool(checks)
    assert len(captured.graph.outputs) == outputs + len(made)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_call_decides_is_refused_by_name(name):
    with pytest.raises(OpsUnsupported, match=r"depends on data|only known at the call"):
        capture(spec_of(REFUSED[name], (DATA, WHOLE)))


def test_a_number_is_no_output():
    with pytest.raises(OpsUnsupported, match="number that depends on data: keep it a tensor"):
        capture(spec_of(lambda x, i: (x + 1, i[0].item()), (DATA, WHOLE)))


MODEL = """
import torch

def model(x, i):
    torch._check_tensor_all(i >= 0)
    torch._check(i[0].item() != 2)
    return x[i] * 2

example_inputs = (torch.ones(4, 3), torch.tensor([1, 3]))
"""


def test_a_call_that_breaks_an_assertion_is_refused(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    build(str(tmp_path / "model.py"), tmp_path / "b", ("cpu",), BuildOptions(tmp_path / "cache"))
    with runtime.load(tmp_path / "b") as program:
        data = DATA.numpy()
        numpy.testing.assert_array_equal(program(data, numpy.array([3, 0])), data[[3, 0]] * 2)
        for broken in ([1, -1], [2, 1]):
            with pytest.raises(AssertionFailed, match=r"an assertion of the model .*model\.py:"):
                program(data, numpy.array(broken))
