"""Calls whose tensors torch looks at all at once, since they are as those of earlier calls."""

import pytest

torch = pytest.importorskip("torch")

from aotc.runtime import load  # noqa: E402
from aotc.runtime.arrays import exchange  # noqa: E402
from aotc.runtime.errors import InputGradient, InputShape  # noqa: E402
from aotc.runtime.programs.session import GUARDED_FROM, MOST_MISSES  # noqa: E402

SPEC = """
import torch


def model(x, y, z):
    return x * 2 + y - z


example_inputs = tuple(torch.randn(4, 6) for _ in range(3))
"""


@pytest.fixture
def looked(monkeypatch):
    """The tensors that were looked at attribute by attribute."""
    seen = []
    address = exchange.TorchKind.address

    def counted(self, port, value, hold):
        seen.append(value)
        return address(self, port, value, hold)

    monkeypatch.setattr(exchange.TorchKind, "address", counted)
    return seen


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, cache):
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("guarded")
    (folder / "spec.py").write_text(SPEC)
    words = ["build", folder / "spec.py", "-o", folder / "bundle", "--quiet", "--cache-dir", cache]
    assert run([str(word) for word in words]) == 0
    return folder / "bundle"


@pytest.fixture
def program(bundle):
    with load(bundle) as opened:
        yield opened


def given(program):
    return [torch.randn(spec.shape) for spec in program.inputs]


def test_later_calls_are_looked_at_all_at_once(program, looked):
    xs = given(program)
    expected = program(*xs)
    for _ in range(GUARDED_FROM):
        program(*xs)
    looked.clear()
    for _ in range(3):
        assert torch.equal(program(*xs), expected)
        assert not torch.equal(program(*given(program)), expected)
    assert not looked


def test_other_tensors_are_looked_at_one_by_one(program, looked):
    xs = given(program)
    for _ in range(GUARDED_FROM):
        expected = program(*xs)
    looked.clear()
    first = xs[0]
    apart = first.repeat_interleave(2, dim=-1)[..., ::2]
    negated = torch._neg_view(-first)
    for value in (apart, negated, torch.nn.Parameter(first, requires_grad=False)):
        assert torch.equal(program(value, *xs[1:]), expected)
        assert looked.pop(0) is value
        looked.clear()
    with pytest.raises(InputShape):
        program(first[..., :-1], *xs[1:])
    with pytest.raises(InputGradient):
        program(first.clone().requires_grad_(), *xs[1:])
    with torch.no_grad():
        assert torch.equal(program(first.clone().requires_grad_(), *xs[1:]), expected)


def test_calls_in_other_modes(program):
    xs = given(program)
    with torch.no_grad():
        for _ in range(GUARDED_FROM + 1):
            expected = program(*xs)
        with torch.inference_mode():
            assert torch.equal(program(*[each.clone() for each in xs]), expected)
    with pytest.raises(InputGradient):  # the guard was made where none are taken
        program(*[each.clone().requires_grad_() for each in xs])


def test_it_stops_where_tensors_never_are_alike(program, looked):
    xs = given(program)
    for _ in range(GUARDED_FROM):
        program(*xs)
    with program.session() as session:
        for _ in range(GUARDED_FROM):
            session(*xs)
        instance = session._instance
        assert instance.guard is not None
        others = [torch.nn.Parameter(each, requires_grad=False) for each in xs]
        for _ in range(MOST_MISSES):
            session(*others)
        assert instance.guard is None
        looked.clear()
        session(*xs)
        assert len(looked) == len(xs)
