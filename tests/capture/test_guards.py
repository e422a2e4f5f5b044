"""Guards of torch's as conditions on sizes: they hold where Python says that they do."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture import sizes  # noqa: E402  needs torch
from aotc.aot.errors import GuardUnsupported  # noqa: E402
from aotc.aot.ir.size import Dim, fixed, size_of, substitute  # noqa: E402

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
    found = [sizes._guard(each, text, [("x", Sized)]) for each in comparisons]
    code = text.replace(A, "a").replace(B, "b").replace("torch.sym_float", "float")
    for a in range(1, 41):
        for b in range(1, 41):
            given = dict(zip(DIMS, (a, b), strict=True))
            holds = True
            for guard in found:
                value = 0 if guard is None else fixed(substitute(guard.size, given))
                if guard is not None:
                    holds &= guard.low is None or value >= guard.low
                    holds &= guard.high is None or value <= guard.high
            assert holds == eval(code, {"a": a, "b": b, "math": math, "float": float}), (a, b)


@pytest.mark.parametrize("text", [f"{A} > 1 or {A} == {B}", f"math.trunc(0.3*{A}) == 2"])
def test_other_guards_are_refused(text, monkeypatch):
    monkeypatch.setattr(sizes, "extent_of", lambda size: size)
    with pytest.raises(GuardUnsupported):
        [sizes._guard(each, text, [("x", Sized)]) for each in sizes._comparisons(text)]
