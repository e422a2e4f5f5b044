"""Gradients that ask which elements equal the largest one: those of maxima and of their norms."""

import pytest
import torch

pytestmark = [pytest.mark.torch, pytest.mark.triton]


def value(x):
    """A chain of cheap ops, which the backward graph would compute again."""
    return (((x.abs() + 0.1).rsqrt()).abs() + 0.2).reciprocal()


def normalized(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:]).sigmoid() * 3


def model(x):
    v, w = value(x), normalized(x)
    norms = torch.linalg.vector_norm(v, float("inf"), 0), torch.linalg.vector_norm(w, float("inf"))
    return (v.max(), v.amax(-1), w.amin(), v.aminmax().max, *norms, torch.maximum(v, v.amax(0)))


def gradients(call, x):
    """Of each output alone, in one backward pass each."""
    leaf = x.clone().requires_grad_()
    rows = call(leaf)
    return [torch.autograd.grad(each.sum(), leaf, retain_graph=True)[0] for each in rows]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_largest_element_has_a_gradient(dtype, cache, monkeypatch):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    torch._dynamo.reset()
    call = torch.compile(model, backend="aotc", options={"fallback": "error"})
    # Steps that leave no two elements nearly equal, so that eager and ours choose the same one.
    steps = torch.randperm(24, generator=torch.Generator().manual_seed(7)).reshape(4, 6)
    x = (0.11 + steps * 0.13).to(dtype)
    tolerance = {torch.float32: 1e-5}.get(dtype, 0.1)
    for own, expected in zip(gradients(call, x), gradients(model, x), strict=True):
        assert bool(own.isfinite().all())
        torch.testing.assert_close(own, expected, atol=tolerance, rtol=tolerance)


def test_a_value_that_is_kept_and_reduced_has_one_rounding(cache, monkeypatch):
    """x · a - m · a: a multiply-add in one of the loops alone made elements of the largest none."""

    def normalized_by_numbers(x, mean, variance):
        v = torch.nn.functional.batch_norm(x, mean, variance)
        return v, v.abs().amax(0)

    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    torch._dynamo.reset()
    call = torch.compile(normalized_by_numbers, backend="aotc", options={"fallback": "error"})
    x = torch.randn(5, 27, generator=torch.Generator().manual_seed(1))
    steps = torch.arange(27.0)
    value, largest = call(x, steps, steps + 0.5)
    assert torch.equal(value.abs().amax(0), largest)
