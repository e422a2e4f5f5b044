"""Complex numbers inside a model, and Fourier transforms, against torch."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.complex_pairs import roots
from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
GENERATOR = torch.Generator().manual_seed(5)
PAIRS = torch.randn(6, 4, 2, generator=GENERATOR)
SIGNAL = torch.randn(3, 2048, generator=GENERATOR, dtype=torch.float64)
PI = numpy.longdouble("3.14159265358979323846264338327950288")
LENGTHS = (1, 2, 3, 5, 16, 49, 63, 64, 65, 97, 100, 128, 499, 1021, 1024, 1531, 2048)
TURNS = torch.polar(torch.ones(6, 4), torch.randn(6, 4, generator=GENERATOR))
WEIGHT = torch.randn(4, 5, generator=GENERATOR, dtype=torch.complex64)


def real(*values):
    return tuple(
        torch.view_as_real(each.resolve_conj()) if each.is_complex() else each for each in values
    )


def arithmetic(x):
    z = torch.view_as_complex(x)
    w = z.conj() + (2 - 1j)
    return real(
        z * TURNS,
        z * w,
        z / w,
        1 / z,
        z * 1j,
        2 - z,
        z - z.real,
        z + 3,
        (z * 1e30) / (w * 1e30),
        z.reciprocal(),
        z == z.clone(),
        z != w,
        torch.where(x[..., 0] > 0, z, w),
        -z,
        z.real * z,
        z.imag,
    )


def functions(x):
    z = torch.view_as_complex(x)
    return real(
        z.abs(),
        (z * 1e25).abs(),
        z.angle(),
        z.sgn(),
        z.exp(),
        z.log(),
        z.sqrt(),
        z**3,
        z**-2,
        z**0.5,
        z.sin() + z.cos(),
        torch.polar(x[..., 0].abs(), x[..., 1]),
        torch.complex(x[..., 0], x[..., 1]),
    )


def movement(x):
    z = torch.view_as_complex(x)
    return real(
        torch.cat([z, z.conj()], 1),
        torch.stack([z, z * 2]),
        z.T.reshape(3, 8).flip(0),
        z[1:, ::2].sum(0),
        z.mean(1),
        z @ WEIGHT,
        torch.addmm(torch.ones(5, dtype=torch.complex64), z, WEIGHT, alpha=2),
        torch.nn.functional.linear(z, WEIGHT.T),
        z.unsqueeze(0).expand(2, 6, 4).roll(1, 1),
        torch.cat([z, torch.zeros(1, 4, dtype=torch.complex64)]),
        torch.view_as_real(z.to(torch.complex128)).float(),
    )


def more_functions(x):
    z = torch.view_as_complex(x)
    near = z * 1e-3
    return real(
        z.sinh(),
        z.cosh(),
        z.tanh(),
        (z * 60).tanh(),
        z.tan(),
        (z * 60j).tan(),
        z.expm1(),
        near.expm1(),
        z.exp2(),
        z.log2(),
        z.log10(),
        z.rsqrt(),
        (z / 0).isnan(),
        (z / 0).isinf(),
        z.isfinite(),
        torch.logical_not(z * (x[..., 0] > 0)),
        torch.logical_and(z, z - z[0, 0]),
        torch.logical_xor(z - z[0, 0], x[..., 1]),
        z.norm(dim=1),
        torch.linalg.vector_norm(z, 1),
    )


def writes(x):
    z = torch.view_as_complex(x)
    rows, places = torch.tensor([0, 3, 3]), torch.tensor([[0, 1, 1, 2]])
    pad = torch.nn.functional.pad
    written = z.clone()
    written[rows[:2]] = z[1:3] * 2
    written[:, 1] = x[..., 0][:, 2]
    written.diagonal().mul_(1j)
    masked = z.clone()
    masked[x[..., 1] > 0] = 2.5
    return real(
        pad(z, (1, 2)),
        pad(z, (1, 2), value=1.5),
        pad(z, (2, 0, 1, 1), value=-2),
        z.index_add(0, rows, z[:3]),
        z.index_copy(0, rows[:2], z[4:]),
        z.index_put((rows,), z[:3], accumulate=True),
        z.index_put((rows[:1],), torch.tensor(2.0 - 1j)),
        z.scatter(1, places, 3.0),
        z.scatter(1, places[:, :2], z[:1, :2]),
        z.scatter_add(1, places, z[:1]),
        z.take(rows),
        written,
        masked,
        z.masked_fill(x[..., 0] > 0, 1.0),
    )


def transforms(x):
    found = []
    for length in LENGTHS:
        row = x[:, :length]
        half = torch.fft.rfft(row)
        whole = torch.fft.fft(torch.complex(row, row.flip(1)))
        found += [half, torch.fft.irfft(half, n=length), whole]
        found += [torch.fft.ifft(whole, norm="ortho"), torch.fft.ifft(whole)]
    return real(*found)


def transforms_of_reals(x):
    """Lengths of two factors, drawn anew for each width of the signal."""
    pairs = numpy.random.default_rng(x.shape[1]).integers(9, 45, (4, 2))
    found = []
    for length in (*pairs.prod(1).tolist(), 66, 512):
        row = x[:, :length]
        found += [torch.fft.fft(row), torch.fft.rfft(row), torch.fft.ifft(row).real.sum(1)]
    return real(*found)


def planes(x):
    image = x[:, : 24 * 30].reshape(3, 24, 30)
    half = torch.fft.rfft2(image)
    return real(
        half,
        torch.fft.irfft2(half, s=(24, 30)),
        torch.fft.fft2(image, norm="forward"),
        torch.fft.fft(torch.fft.fft(image, dim=-1), dim=-2).real,
        torch.fft.fftshift(torch.fft.fftn(image)),
        torch.fft.hfft(torch.complex(image, image)),
        torch.fft.rfft(image, n=40, dim=1),
        torch.fft.irfft(half, n=16),
        torch.fft.ihfft(image),
    )


@pytest.mark.parametrize(
    ("model", "example", "limit"),
    [
        (arithmetic, PAIRS, 1e-5),
        (functions, PAIRS, 1e-5),
        (more_functions, PAIRS, 1e-5),
        (writes, PAIRS, 1e-5),
        (movement, PAIRS, 1e-5),
        (transforms, SIGNAL, 1e-12),
        (transforms, SIGNAL.float(), 2e-6),
        (transforms_of_reals, SIGNAL, 1e-12),
        (transforms_of_reals, SIGNAL[:, :-1].float(), 2e-6),
        (planes, SIGNAL.float(), 2e-6),
    ],
)
def test_pairs_of_reals_give_what_torch_gives(model, example, limit):
    captured = capture(spec_of(model, (example,), "complexes.py"))
    found = interpret(captured.graph, captured.golden_inputs)
    for place, (own, torchs) in enumerate(zip(found, captured.golden_outputs, strict=True)):
        own, torchs = numpy.asarray(own, float).reshape(torchs.shape), torchs.astype(float)
        scale = numpy.abs(torchs).max()
        assert numpy.abs(own - torchs).max() <= limit * scale, place


def test_roots_are_exact_at_quarters_and_right_elsewhere():
    for order in (1, 2, 3, 4, 6, 7, 8, 12, 64, 97, 1 << 12):
        exponents = numpy.arange(3 * order)
        cosine, sine = roots(-1, exponents, order)
        angles = -2 * PI * (exponents % order).astype(numpy.longdouble) / order
        assert numpy.abs(cosine - numpy.cos(angles)).max() < 2e-16
        assert numpy.abs(sine - numpy.sin(angles)).max() < 2e-16
        quarters = exponents[4 * exponents % order == 0]
        for values in (cosine[quarters], sine[quarters]):
            assert set(values) <= {0.0, 1.0, -1.0}


def test_ends_of_a_real_spectrum_are_real_whatever_the_data():
    def model(x):
        return torch.view_as_real(torch.fft.rfft(x)), torch.fft.rfft(x[:, :1]).imag

    x = SIGNAL[:, :6].float().clone()
    x[0, 0], x[1, 0] = float("inf"), float("nan")
    captured = capture(spec_of(model, (x,), "complexes.py"))
    spectrum, single = interpret(captured.graph, captured.golden_inputs)
    assert (spectrum[:, [0, 3], 1] == 0).all()
    assert (single == 0).all()


def test_transforms_of_a_batch_whose_size_varies():
    from dataclasses import replace

    def model(x):
        return torch.fft.irfft(torch.fft.rfft(x) * 2, n=x.shape[1])

    spec = spec_of(model, (torch.randn(3, 24),), "complexes.py")
    batch = torch.export.Dim("batch", min=1, max=64)
    captured = capture(replace(spec, dynamic_shapes=({0: batch},)))
    assert str(captured.graph.outputs[0].type) == "f32[batch, 24]"


def test_a_complex_state_is_refused_with_what_to_write_instead():
    class Kept(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(4, dtype=torch.complex64))

        def forward(self, x):
            self.last.copy_(torch.view_as_complex(x)[0])
            return x * 2

    with pytest.raises(errors.OpsUnsupported, match="view_as_real") as caught:
        capture(spec_of(Kept(), (PAIRS,), "complexes.py"))
    assert caught.value.exit_code == 3


EDGES = {
    "copies": lambda z, x: (z.clone().copy_(x), z.clone().fill_(2j)),
    "rows": lambda z, x: (
        torch.slice_scatter(z, z[:1] * 2, 0, 1, 2),
        torch.select_scatter(z, z[0], 0, 1),
    ),
    "masks": lambda z, x: (z.masked_fill(x > 0, 1j), z.index_fill(0, torch.tensor([0]), 3 - 1j)),
    "steps": lambda z, x: torch.as_strided_scatter(z, z[0, :2].clone(), (2,), (3,), 1),
    "marks": lambda z, x: (z.conj().imag, z.mH.imag * 2, torch.stack([z, z]).conj()),
    "products": lambda z, x: (z.prod(), z.prod(1), z.cumprod(0), z[0, 0].prod()),
    "spreads": lambda z, x: (z.var(1), z.std(), *torch.var_mean(z, 0, keepdim=True)),
    "truths": lambda z, x: (z.any(), (z * 0).any(0), z.all(1)),
    "functions": lambda z, x: (z.sigmoid(), (z * 1e-5).log1p(), z.log1p()),
    "vectors": lambda z, x: torch.addmv(z[:, 0], z, z[0], alpha=2, beta=3),
    "nothing": lambda z, x: (z[:0] @ z[:0].mT, z[:, :0] @ z[:0, :4].mT[:0], z[:0].sum(0)),
}


@pytest.mark.parametrize("name", EDGES)
def test_models_take_and_give_complex_tensors(name):
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(3, 5, generator=generator, dtype=torch.complex128)
    x = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    captured = capture(spec_of(EDGES[name], (z, x), "complexes.py"))
    expected = EDGES[name](z, x)
    expected = real(*(expected if isinstance(expected, tuple) else (expected,)))
    found = interpret(captured.graph, captured.golden_inputs)
    for one, other in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(one, other.resolve_neg().numpy(), rtol=1e-10, atol=1e-12)
