"""Guards of torch's as the runtime's conditions: they hold where Python says that they do."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture import sizes  # noqa: E402  needs torch
from aotc.aot.errors import GuardUnsupported  # noqa: E402
from aotc.aot.ir.size import Dim, size_of  # noqa: E402
from aotc.aot.ir.size_table import SizeTable  # noqa: E402
from aotc.runtime.bundle.extent import evaluate  # noqa: E402

pytestmark = pytest.mark.torch
DIMS = [Dim(name, 1, 40, 7) for name in "ab"]
A, B = ("L['x'].size()[0]", "L['x'].size()[1]")
GUARDS = (
    f"min({A}, 17*{A}) == {A}",
    f"min({A}, {B}*{A}, 60) >= 3",
    f"max(1, (-2) + {A}) == ((-2) + {A})",
    f"5*max(1, ({B} - 2) // 3) > 5",
    f"{A} == 1 or {A} == {B}",
    f"{A} == 3 or {A} == {B} or {B} == 2",
    f"(35*{A}) != max(2, (-2) + {B})",
    f"math.trunc(1.5*torch.sym_float({A})) == 7",
    f"math.trunc(3.0*torch.sym_float(2*{A})) <= 48",
)


class Sized:
    shape = tuple(map(size_of, DIMS))


@pytest.mark.parametrize("text", GUARDS)
def test_a_guard_holds_where_python_says_so(text, monkeypatch):
    monkeypatch.setattr(sizes, "extent_of", lambda size: size)
    comparisons = sizes._comparisons(text)
    found = [sizes._guard(each, text, {"x": Sized}) for each in comparisons]
    table = SizeTable(DIMS)
    conditions = [table.condition(guard) for guard in found if guard is not None]
    code = text.replace(A, "a").replace(B, "b").replace("torch.sym_float", "float")
    for a in range(1, 41):
        for b in range(1, 41):
            values = evaluate(table.rows, [a, b])
            holds = all(condition.holds(values) for condition in conditions)
            assert holds == eval(code, {"a": a, "b": b, "math": math, "float": float}), (a, b)


@pytest.mark.parametrize("text", [f"{A} > 1 or {A} == {B}", f"math.trunc(0.3*{A}) == 2"])
def test_other_guards_are_refused(text, monkeypatch):
    monkeypatch.setattr(sizes, "extent_of", lambda size: size)
    with pytest.raises(GuardUnsupported):
        [sizes._guard(each, text, {"x": Sized}) for each in sizes._comparisons(text)]


def test_a_dim_that_inputs_show_only_as_a_multiple():
    from torch.export import Dim as TorchDim

    from aotc.aot.capture.capture import capture
    from aotc.aot.capture.spec import spec_of

    twice = ({0: 2 * TorchDim("n", min=1, max=500)},)
    spec = spec_of(torch.nn.ReLU(), (torch.zeros(64, 3),), dynamic_shapes=twice)
    captured = capture(spec)
    (dim,) = captured.dims
    assert (dim.low, dim.high) == (1, 500)
    assert captured.graph.inputs[0].shape == (2 * size_of(dim), 3)


def test_inputs_that_torch_numbers_are_named():
    """Where torch reads the model's code, guards name inputs by their numbers."""
    from torch.export import Dim as TorchDim

    from aotc.aot.capture.capture import capture
    from aotc.aot.capture.spec import spec_of

    class Half(torch.nn.Module):
        def forward(self, x, y, z):
            return x[::2], y + z

    n, m = TorchDim("n", min=1, max=99), TorchDim("m", min=1, max=99)
    inputs = (torch.randn(30), torch.randn(7), torch.randn(7))
    spec = spec_of(Half(), inputs, "half.py", dynamic_shapes=({0: n}, {0: m}, {0: m}))
    (guard,) = capture(spec).guards
    assert guard.text == "((1 + x.shape[0]) // 2) >= 2"
