"""Complex tensors in graphs of `torch.compile`: given, made, kept for gradients, and marked."""

from __future__ import annotations

import logging

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.dynamo import aotc  # noqa: E402  needs torch

pytestmark = pytest.mark.torch
WHOLE = {"fallback": "error"}


def of_spectrum(z, x):
    spectrum = torch.fft.rfft(x, dim=1)
    odd = torch.fft.rfft2(x[:, 1:], norm="ortho")
    whole = torch.fft.fft(x, dim=0)  # of reals, without half of it left out
    back = torch.fft.irfft(spectrum * 2, n=x.shape[1], dim=1)
    return back, torch.fft.ifft(z).abs(), odd, whole


FUNCTIONS = {
    "arithmetic": lambda z, x: (z * x + z.conj() / (z + 3), (z - 1j).abs(), z.angle() * x),
    "views": lambda z, x: (z.t()[1:], torch.view_as_real(z), z.real + x, z.imag - x, z[:, ::2] * 2),
    "conjugates": lambda z, x: (z.conj(), z.mH, (z * x).conj(), z.conj().imag * 2),
    "products": lambda z, x: (z @ z.mH, torch.einsum("ab,cb->ac", z, z.conj()), z.sum(0), z.mean()),
    "functions": lambda z, x: (z.exp(), z.sqrt(), torch.polar(x.abs(), x), z.log().real),
    "writes": lambda z, x: (
        z.clone().index_fill_(0, torch.tensor([1]), 2.0),
        torch.cat([z, z * x]),
    ),
    "spectra": of_spectrum,
    "numbers": lambda z, x: (z * 2j, z / 3j, 1j / (z + 4), x * (2 - 1j), (z + 4) ** 0.5j),
    "alphas": lambda z, x: (
        z.add(x, alpha=2j),
        z.index_add(0, torch.tensor([1]), z[:1], alpha=2j),
        torch.addmm(z[:, :4], z, z.mT, alpha=1j),
    ),
    "choices": lambda z, x: (torch.where(x > 0, z, 0), torch.stack([z, z + 1], -1).flatten(1)),
}


def inputs(dtype, seed=0, shape=(4, 6)):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(shape, generator=generator, dtype=dtype)
    return z, torch.randn(shape, generator=generator, dtype=dtype.to_real())


def gradients(function, z, x):
    """Results, and gradients of a sum of all of them with weights."""
    z, x = (each.detach().requires_grad_() for each in (z, x))
    results = function(z, x)
    total = 0
    for place, each in enumerate(results):
        parts = torch.view_as_real(each.resolve_conj()) if each.is_complex() else each
        weights = torch.arange(parts.numel(), dtype=torch.float64).cos() + place
        total = total + (parts.double().flatten() * weights).sum()
    return [*results, *torch.autograd.grad(total, (z, x), allow_unused=True)]


def agree(found, expected, rtol=1e-4):
    for one, other in zip(found, expected, strict=True):
        if other is not None:
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * other.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=["c64", "c128"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_eagers(fresh, name, dtype):
    function = FUNCTIONS[name]
    compiled = torch.compile(function, backend=aotc, options=WHOLE)
    given = inputs(dtype)
    rtol = 1e-4 if dtype == torch.complex64 else 1e-10
    agree(gradients(compiled, *given), gradients(function, *given), rtol)


@pytest.mark.parametrize(
    "change",
    [
        lambda z: z.conj(),
        lambda z: z.t().contiguous().t(),
        lambda z: torch.cat([z, z], 1)[:, ::2],
        lambda z: z[:1].expand(4, 6),
        lambda z: z.flip(0).mH.mT,
    ],
    ids=["conjugated", "transposed", "stepped", "expanded", "both"],
)
def test_arguments_lie_in_any_way(fresh, change):
    def function(z, x):
        return z * x + 1, z.conj() @ z.mT, z.imag

    z, x = inputs(torch.complex64)
    compiled = torch.compile(function, backend=aotc, options=WHOLE)
    agree(compiled(change(z), x), function(change(z), x))


@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=str)
def test_what_torch_negates_by_a_mark_is_negated(fresh, shape):
    """As arguments, and as gradients that come back into a graph."""
    function = torch.compile(lambda x: x.sin() * 2, backend=aotc, options=WHOLE)
    marked = torch.randn(shape, dtype=torch.complex64).conj().imag
    assert marked.is_neg()
    torch.testing.assert_close(function(marked), marked.sin() * 2)
    left, right = (torch.randn(shape, requires_grad=True) for _ in range(2))
    found = []
    for each in (function, lambda x: x.sin() * 2):
        z = torch.complex(left, each(right))
        total = (z.conj() * torch.complex(right.detach(), left.detach())).sum().abs()
        found.append(torch.autograd.grad(total, right)[0])
    torch.testing.assert_close(*found)


def of_types(z, x):
    kind = z.dtype
    return (
        x.sum(0, dtype=kind), x.mean(dtype=kind), x.cumsum(0, dtype=kind), x.prod(1, dtype=kind),
        x.cumprod(1, dtype=kind), x.sum(dtype=torch.complex128), (z * 1j).real.clone().copy_(z),
        z.view(x.dtype) + 1, z.view(6, 4), (x * 2).view(kind),
    )  # fmt: skip


def of_questions(z, x):
    wide = z.to(torch.complex128) + 1e-12
    near = x.double() + 1e-12
    found = z == wide, wide != z, z.real + 0j == near, (z.imag * 1j).bool(), (z * 0).bool()
    return tuple(each.to(x.dtype) for each in found)


@pytest.mark.parametrize("function", [of_types, of_questions], ids=lambda each: each.__name__)
def test_types_are_as_eagers(fresh, function):
    compiled = torch.compile(function, backend=aotc, options=WHOLE)
    given = inputs(torch.complex64)
    agree(compiled(*given), function(*given))


def test_the_sign_of_zero_chooses_the_root(fresh):
    parts = (-1.0, -0.0), (-1.0, 0.0), (1.0, -0.0), (-2.0, -1e-30), (0.0, -0.0)
    z = torch.tensor([complex(*each) for each in parts])
    compiled = torch.compile(torch.sqrt, backend=aotc, options=WHOLE)
    for each in (z, z.conj()):
        pair = (torch.view_as_real(f(each)) for f in (compiled, torch.sqrt))
        torch.testing.assert_close(*(torch.stack([v, v.signbit() * 1.0]) for v in pair))


def test_powers_of_zero(fresh):
    def function(z, w):
        return z**w, z ** (1 + 1j), z**0.5, torch.pow(0.0, w), torch.pow(w, z)

    z, w = torch.tensor([0j, 0j, 2 + 1j, -1]), torch.tensor([1 + 1j, 2, 1j + 0.5, 3 - 1j])
    compiled = torch.compile(function, backend=aotc, options=WHOLE)
    agree(compiled(z, w), function(z, w))


def test_sizes_vary(fresh):
    def function(z, x):
        return (z * x).sum(0), z.conj() + 1, z.abs()

    compiled = torch.compile(function, backend=aotc, options=WHOLE, dynamic=True)
    for rows in (3, 7, 12):
        given = inputs(torch.complex64, rows, (rows, 5))
        agree(gradients(compiled, *given), gradients(function, *given))


def test_an_argument_is_changed(fresh):
    def function(z, x):
        z.mul_(x)
        z[0] = 1j
        return z.t(), z.sum()

    compiled = torch.compile(function, backend=aotc, options=WHOLE)
    (z, x), (other, _) = inputs(torch.complex64), inputs(torch.complex64)
    agree((*compiled(z, x), z), (*function(other, x), other))


def test_an_op_without_arithmetic_cuts_the_graph(fresh, caplog):
    """What is around it takes and gives complex tensors; Inductor is not asked for them."""

    def function(z, x):
        return torch.linalg.solve(z @ z.mH + 4, z * x).exp(), z.abs()

    compiled = torch.compile(function, backend=aotc, options={"fallback": "eager"})
    given = inputs(torch.complex128)
    with caplog.at_level(logging.WARNING, "aotc"):
        agree(compiled(*given), function(*given), 1e-9)
    (line,) = {record.getMessage() for record in caplog.records}
    assert "linalg_solve" in line
    assert "placeholder" not in line


def test_the_first_call_is_compared(fresh):
    options = {"fallback": "error", "check": "first"}
    for name in ("arithmetic", "spectra"):
        compiled = torch.compile(FUNCTIONS[name], backend=aotc, options=options)
        given = inputs(torch.complex64)
        agree(gradients(compiled, *given), gradients(FUNCTIONS[name], *given))
