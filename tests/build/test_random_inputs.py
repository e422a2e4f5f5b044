"""The build compares with the model on inputs of its own, and after calls in a row."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import numpy
import torch

from aotc.aot.capture import capture as capture_module
from aotc.aot.capture import random_inputs as trials_module
from aotc.aot.capture.capture import capture
from aotc.aot.capture.random_inputs import TrialWarning, trials
from aotc.aot.capture.spec import spec_of
from aotc.aot.contents import TOLERANCES, tolerances
from aotc.aot.errors import GoldenMismatch
from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load

TWICE = """
import torch

x = torch.randn(2, 5)
example_inputs = (x, x, {"again": x})

def model(a, b, c):
    return a * 2 + b * 3 - c["again"]
"""
COUNTER = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total += x
        return self.total * 2

model = Model()
example_inputs = (torch.randn(4),)
"""


@pytest.fixture
def made(tmp_path, cache):
    def make(text):
        spec = tmp_path / "model.py"
        spec.write_text(textwrap.dedent(text))
        options = BuildOptions(cache, force=True)
        return build(str(spec), tmp_path / "out", ["cpu"], options)

    return make


def test_one_tensor_given_twice_is_two_inputs(made, tmp_path):
    report = made(TWICE)
    names = [check.name for check in report.targets[0].checks]
    assert names == ["output_0", "output_0 (random inputs)"]
    a, b, c = torch.randn(3, 2, 5)
    with load(tmp_path / "out") as program:
        torch.testing.assert_close(program(a, b, {"again": c}), a * 2 + b * 3 - c)


def test_a_program_that_is_right_on_the_example_alone_is_refused(made, tmp_path, monkeypatch):
    """As it was while torch.export merged the arguments: the example cannot show it."""
    monkeypatch.setattr(capture_module, "with_distinct_inputs", lambda spec: spec)
    with pytest.raises(GoldenMismatch, match=r"`output_0\[\d, \d\] \(random inputs\)` differs"):
        made(TWICE.replace("2 + b", "7 + b"))
    assert not (tmp_path / "out").exists()


def test_an_input_that_is_a_parameter_is_an_input():
    linear = torch.nn.Linear(3, 3, bias=False)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def forward(self, x, w):
            return self.linear(x) + w

    captured = capture(spec_of(Model(), (torch.randn(3, 3), linear.weight)))
    assert len(captured.graph.inputs) == 2


def test_states_are_compared_after_three_calls_in_a_row(made):
    report = made(COUNTER)
    names = [check.name for check in report.targets[0].checks]
    calls = ("", " (call 2, random inputs)", " (call 3, random inputs)")
    assert names == [f"{name}{call}" for call in calls for name in ("output_0", "total")]
    assert all(check.is_ok for check in report.targets[0].checks)


def test_a_state_that_a_second_call_does_not_see_is_refused(made, monkeypatch):
    """The trials' numbers are those of calls in a row: made from the first state they differ."""
    original = trials_module._outputs
    monkeypatch.setattr(
        trials_module,
        "_outputs",
        lambda call, rows, states: [original(call, [row], states)[0] for row in rows],
    )
    with pytest.raises(GoldenMismatch, match=r"\(call 2, random inputs\)"):
        made(COUNTER)


def drawn(model, *inputs):
    outputs = model(*inputs)
    known = [outputs.numpy()]
    return trials(model, inputs, {}, known, False)


def test_drawn_values_are_the_examples_in_another_order():
    x, again = torch.rand(6, 7), torch.rand(6, 7)
    places, mask = torch.arange(6), torch.tensor([True, False] * 3)
    seen = []

    def model(*inputs):
        seen.append(inputs)
        return inputs[0] + inputs[1]

    (trial,) = drawn(model, x, again, places, mask)
    for given, made in zip((x, again, places, mask), trial.inputs, strict=True):
        assert made.shape == tuple(given.shape)
        assert numpy.array_equal(numpy.sort(made, None), numpy.sort(given.numpy(), None))
    assert not numpy.array_equal(trial.inputs[0], x.numpy())


def test_equal_tensors_are_drawn_apart():
    zeros = torch.zeros(3, 4)
    (trial,) = drawn(lambda a, b: a + b, zeros, zeros.clone())
    assert not numpy.array_equal(*trial.inputs)
    x = torch.randn(9)
    (trial,) = drawn(lambda a, b: a + b, x, x.clone())
    assert not numpy.array_equal(*trial.inputs)


def test_whole_numbers_that_the_model_does_not_take_in_another_order_stay():
    offsets = torch.tensor([0, 2, 5])

    def model(x, offsets):
        if offsets[0] != 0:
            raise ValueError("offsets begin with 0")
        return x * 2

    (trial,) = drawn(model, torch.randn(8), offsets.clone())
    assert trial.inputs[1].tolist() in ([0, 2, 5], [0, 5, 2])


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda x: torch.where(x[:1] > 0.9, x, x / 0), "numbers that are not finite"),
        (lambda x: x if x[0] > 0.9 else x.view(-3), "the model raised RuntimeError"),
    ],
)
def test_inputs_that_the_model_does_not_take_are_left_out_with_a_note(model, reason):
    example = torch.cat([torch.ones(1), torch.zeros(300)])
    found = drawn(model, example)
    assert reason in found
    with pytest.warns(TrialWarning, match=reason):
        assert trials_module.judged(found) == ()


def test_what_roundings_decide_is_not_judged():
    """The place of the maximum of values that differ in their last bits."""
    near = 1 + torch.rand(64) * 2**-22
    (trial,) = drawn(lambda x: (x * 3).argmax(), near)
    other = (numpy.array((int(trial.outputs[0]) + 1) % 64),)
    assert trial.undecided(other, (0.0,))[0].all()
    (trial,) = drawn(lambda x: (x * 3).argmax(), torch.rand(64))
    other = (numpy.array((int(trial.outputs[0]) + 1) % 64),)
    assert not trial.undecided(other, (0.0,))[0].any()


def test_states_are_judged_by_the_models_own_distance():
    """16-bit states come under the rule of 16-bit outputs."""

    class Deep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(8, dtype=torch.bfloat16))

        def forward(self, x):
            for _ in range(6):
                x = (x * 3 - x.mean()).sin() * 5
            self.kept.copy_(x)
            return x.float().sum()

    torch.manual_seed(0)
    captured = capture(spec_of(Deep(), (torch.randn(8).bfloat16(),)))
    assert captured.golden_roundings[1] > TOLERANCES["bf16"] / 3
    assert tolerances(captured, "ieee")[1] > TOLERANCES["bf16"]


def test_inputs_that_would_end_the_process_are_left_out():
    """The example has no smallest integer by -1; in another order it has."""
    values = torch.tensor([-(2**31)] * 4 + [8] * 4, dtype=torch.int32)
    divisors = torch.tensor([2] * 4 + [-1] * 4, dtype=torch.int32)

    def model(x, y):
        return torch.div(x, y, rounding_mode="trunc")

    known = (model(values, divisors).numpy(),)
    (trial,) = trials(model, (values, divisors), {}, known, False)
    assert numpy.array_equal(trial.outputs[0], known[0])
