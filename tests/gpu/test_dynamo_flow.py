"""Control flow in graphs of torch.compile on CUDA tensors: drawn programs beside the branches and
loops of Python in f64."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from flow_programs import (  # noqa: E402
    SIMPLE,
    branches,
    drawn_program,
    each_row,
    gradients_of,
    loop,
    operands,
    over_rows,
)

from aotc.aot.dynamo import aotc  # noqa: E402

OPTIONS = {"fallback": "error"}
NESTINGS = [branches, loop, over_rows, each_row]


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """Caches of the test's own and a Dynamo that has met nothing."""
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path / "aotc"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("sign", [1, -1])
def test_each_form(nesting, sign):
    function, plain = nesting(SIMPLE[0], SIMPLE[0], SIMPLE[1], SIMPLE[1])
    compiled = torch.compile(function, backend=aotc, options=OPTIONS)
    x, w = operands(3, device="cuda", dtype=torch.float32)
    for _ in range(3):
        x = x.abs() * sign
        expected = plain(x.double().cpu(), w.double().cpu())
        found = compiled(x, w).double().cpu()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        x = x * 0.7


@pytest.mark.parametrize("seed", range(4))
def test_drawn_programs(seed):
    function, plain = drawn_program(random.Random(seed))
    compiled = torch.compile(function, backend=aotc, options=OPTIONS)
    for given in (operands(seed), operands(seed + 100)):
        on_device = [each.to("cuda", torch.float32) for each in given]
        found = compiled(*on_device).double().cpu()
        torch.testing.assert_close(found, plain(*given), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("nesting", [branches, over_rows, each_row])
def test_gradients(nesting):
    function, plain = nesting(SIMPLE[0], SIMPLE[0], SIMPLE[1], SIMPLE[1])
    compiled = torch.compile(function, backend=aotc, options=OPTIONS)
    given = operands(0, requires_grad=True)
    on_device = [each.detach().to("cuda", torch.float32).requires_grad_() for each in given]
    pairs = zip(gradients_of(compiled, on_device), gradients_of(plain, given), strict=True)
    for found, expected in pairs:
        torch.testing.assert_close(found.double().cpu(), expected, rtol=1e-3, atol=1e-4)
