"""Data that torch's kernels refuse and arithmetic would take: compiled graphs raise as eager does,
forward and with gradients, and take what eager takes."""

from __future__ import annotations

import logging

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from aotc.aot.dynamo import aotc  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
NAN, INF = float("nan"), float("inf")


def segments(data, lengths):
    return torch.segment_reduce(data, "mean", lengths=lengths)


def segments_inside(data, lengths):
    return torch.segment_reduce(data.view(2, 3), "max", lengths=lengths, axis=1)


def drawn(chances):
    return torch.bernoulli(chances) * chances


DATA = torch.arange(1.0, 7.0)
WHOLE, TARGETS = torch.tensor([2, 1, 3]), torch.tensor([0.0, 1.0])
# A function, arguments that it takes, and such that it does not.
CASES = [
    (segments, (DATA, WHOLE), (DATA, torch.tensor([2, 1, 2]))),
    (segments, (DATA, WHOLE), (DATA, torch.tensor([2, 1, 4]))),
    (segments, (DATA, WHOLE), (DATA, torch.tensor([4, -1, 3]))),
    (
        segments_inside,
        (DATA, torch.tensor([[3, 0], [1, 2]])),
        (DATA, torch.tensor([[3, 0], [1, 1]])),
    ),
    (functional.binary_cross_entropy, (torch.tensor([0.0, 0.5]), TARGETS), (DATA[:2], TARGETS)),
    (
        functional.binary_cross_entropy,
        (torch.tensor([1.0, 0.5]), TARGETS),
        (torch.tensor([NAN, 0.5]), TARGETS),
    ),
    (drawn, (torch.tensor([0.0, 1.0, 0.4]),), (torch.tensor([0.0, 1.1, 0.4]),)),
    (drawn, (torch.tensor([0.0, 1.0, 0.4]),), (torch.tensor([NAN, 1.0, 0.4]),)),
]


@pytest.mark.parametrize("has_gradient", [False, True])
@pytest.mark.parametrize(("function", "right", "wrong"), CASES)
def test_data_are_refused_as_eager_does(fresh, function, right, wrong, has_gradient):
    def given(arguments):
        return [
            each.clone().requires_grad_(has_gradient and place == 0)
            for place, each in enumerate(arguments)
        ]

    compiled = torch.compile(function, backend=aotc, options={"fallback": "error"})
    taken = given(right), given(right)
    results = []
    for call, arguments in zip((compiled, function), taken, strict=True):
        torch.manual_seed(0)
        results.append(call(*arguments))
    torch.testing.assert_close(*results)
    if has_gradient:
        gradients = [
            torch.autograd.grad(each.sum(), own[0])
            for each, own in zip(results, taken, strict=True)
        ]
        torch.testing.assert_close(*gradients)
    for call in (function, compiled):
        with pytest.raises(RuntimeError):
            call(*given(wrong))


@pytest.mark.parametrize("least", [NAN, INF])
def test_a_histogram_without_a_range_is_of_finite_data(fresh, least):
    compiled = torch.compile(lambda x: torch.histc(x, 4), backend=aotc)
    assert torch.equal(compiled(DATA), torch.histc(DATA, 4))
    with pytest.raises(RuntimeError):
        compiled(torch.cat([torch.tensor([least]), DATA[1:]]))


RAISING = {
    "powers": lambda x: x**-1,
    "bounds": lambda x: x.to(torch.int8).clamp(max=300),
    "divisors of floats": lambda x: torch.gcd(x.float(), x.float()),
    "multiples of booleans": lambda x: torch.gcd(x > 1, x > 0),
    "greatest of none": lambda x: x.reshape(2, 2)[:, :0].max(1),
    "middle of none": lambda x: x.float().reshape(2, 2)[:, :0].median(1),
}


@pytest.mark.parametrize("name", RAISING)
def test_what_raises_at_every_call_raises(fresh, caplog, name):
    """By torch's own ops, and not for a bug of ours."""
    function, x = RAISING[name], torch.tensor([1, 2, 3, 4])
    with pytest.raises(Exception) as expected:  # noqa: PT011  of several types
        function(x)
    with caplog.at_level(logging.WARNING, "aotc"), pytest.raises(expected.type):
        torch.compile(function, backend=aotc, options={"fallback": "eager"})(x)
    assert "internal error" not in caplog.text


def test_the_middle_of_nothing_is_no_number(fresh, caplog):
    with caplog.at_level(logging.WARNING, "aotc"):
        found = torch.compile(torch.median, backend=aotc, options={"fallback": "eager"})
        assert found(torch.empty(0, 3)).isnan()
    assert "internal error" not in caplog.text
