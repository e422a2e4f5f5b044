"""`aotc.kernels.attention`: groups, windows, sinks, several tiles, empty sizes, a GPU's code."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gpu_compilation import compiling_for_a_gpu  # noqa: E402
from kernel_cases import EPSILON  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.aot.errors import KernelShapeInvalid, KernelValueInvalid  # noqa: E402
from aotc.kernels import driver  # noqa: E402
from aotc.kernels.library import attention as library  # noqa: E402


def reference(q, k, v, is_causal, window, sinks):
    """By its definition, in f64; the largest weight of a row is divided out."""
    ratio = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(ratio, 1) for each in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    t, s = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    is_seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if is_causal:
        is_seen &= s <= t
    if window is not None:
        is_seen &= (s - t).abs() < window
    scores = scores.masked_fill(~is_seen, -math.inf)
    if sinks is not None:
        sink = sinks[None, :, None, None].expand(q.shape[0], -1, q.shape[2], 1)
        scores = torch.cat([scores, sink], -1)
    weights = torch.softmax(scores, -1)[..., : k.shape[2]]
    return torch.where(is_seen.any(1)[:, None], weights, 0.0) @ v


DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DEFAULT = ((False, None, False), (True, 40, True))
FORMS = [
    pytest.param(*form, DTYPES[i % 3], marks=() if form in DEFAULT else pytest.mark.nightly)
    for i, form in enumerate(itertools.product((False, True), (None, 1, 40), (False, True)))
]


@pytest.mark.parametrize(("is_causal", "window", "has_sinks", "dtype"), FORMS)
def test_forms_over_several_tiles(is_causal, window, has_sinks, dtype):
    """Two groups of two heads; more keys than queries, none of the sizes a power of two. An element
    is a sum by weights that add up to 1: each of its factors is rounded to the type, and of the
    gradients two more products of such sums are. The gradients of q and k are of differences of
    numbers like those of v's, which f32 has rounded."""
    torch.manual_seed(7 * is_causal + (window or 0))
    shapes = ((2, 4, 70, 20), (2, 2, 133, 20), (2, 2, 133, 33), *([(4,)] if has_sinks else []))
    ours = [torch.randn(each, dtype=torch.float64).to(dtype).requires_grad_() for each in shapes]
    wide = [each.detach().double().requires_grad_() for each in ours]
    found = kernels.attention(*ours[:3], is_causal, window, None, *ours[3:])
    expected = reference(*wide[:3], is_causal, window, wide[3] if has_sinks else None)
    gradient = torch.randn(expected.shape, dtype=torch.float64).to(dtype)
    pairs = [(found.detach(), expected.detach())] + list(
        zip(
            torch.autograd.grad(found, ours, gradient),
            torch.autograd.grad(expected, wide, gradient.double()),
            strict=True,
        )
    )
    largest = max(float(other.abs().max()) for _, other in pairs)
    for one, other in pairs:
        assert one.dtype == dtype
        allowed = 8 * EPSILON[dtype] * float(other.abs().max()) + 64 * EPSILON[DTYPES[0]] * largest
        assert float((one.double() - other).abs().max()) <= allowed


@pytest.mark.parametrize(("is_causal", "window", "has_sinks", "_"), FORMS)
def test_gradients_by_differences_of_each_form(is_causal, window, has_sinks, _):
    shapes = ((1, 4, 3, 2), (1, 2, 5, 2), (1, 2, 5, 3), *([(4,)] if has_sinks else []))
    given = [torch.randn(each, dtype=torch.float64, requires_grad=True) for each in shapes]

    def call(q, k, v, sinks=None):
        return kernels.attention(q, k, v, is_causal, window and min(window, 2), 0.7, sinks)

    assert torch.autograd.gradcheck(call, given)


@pytest.mark.parametrize(
    ("q", "k"),
    [
        ((2, 2, 0, 4), (2, 1, 3, 4)),
        ((0, 2, 3, 4), (0, 2, 3, 4)),
        ((2, 2, 3, 4), (2, 1, 0, 4)),
        ((2, 0, 3, 4), (2, 0, 3, 4)),
        ((1, 1, 1, 1), (1, 1, 1, 1)),
    ],
)
def test_empty_sizes_and_ones(q, k):
    """Queries without a key give zeros."""
    query, key = torch.randn(q, requires_grad=True), torch.randn(k, requires_grad=True)
    found = kernels.attention(query, key, key)
    assert found.shape == query.shape
    if not k[2]:
        assert not found.any()
    for each in torch.autograd.grad(found.sum(), (query, key)):
        assert bool(each.isfinite().all())


def test_operands_are_read_where_they_lie():
    packed = torch.randn(2, 9, 3, 4, 6, dtype=torch.float64)  # [batch, T, which, heads, D]
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    found = kernels.attention(q, k, v, True)
    torch.testing.assert_close(found, reference(q, k, v, True, None, None), rtol=1e-12, atol=1e-12)


def test_rows_that_overlap():
    """Layouts that torch takes over for another tensor, but whose rows are not dense there."""
    q = torch.randn(1, 2, 40, dtype=torch.float64).unfold(-1, 16, 1)[:, :, :8].requires_grad_()
    wide = q.detach().clone().requires_grad_()
    found, expected = (
        kernels.attention(q, q, q, True),
        reference(wide, wide, wide, True, None, None),
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    gradient = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, q, gradient), torch.autograd.grad(expected, wide, gradient),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sinks", [(4,), ()])
def test_a_checkpoint_computes_it_again(sinks):
    """Which looks at what is saved once alone."""
    given = [torch.randn(1, 4, 5, 8, requires_grad=True) for _ in range(3)]
    given += [torch.randn(each, requires_grad=True) for each in [sinks] if each]

    def call(q, k, v, *sinks):
        return kernels.attention(q, k, v, True, None, None, *sinks)

    checked = torch.utils.checkpoint.checkpoint(call, *given, use_reentrant=False)
    pairs = (torch.autograd.grad(each.sum(), given) for each in (checked, call(*given)))
    for one, other in zip(*pairs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("backend", ["aot_eager", "aotc"])
def test_compiled_results_have_the_layout_of_the_queries(tmp_path, monkeypatch, backend):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path))

    def call(x):
        q = x.view(2, 6, 4, 8).transpose(1, 2)
        return kernels.attention(q, q, q, True).transpose(1, 2).view(2, 6, 32)

    torch._dynamo.reset()
    x = torch.randn(2, 6, 32)
    torch.testing.assert_close(torch.compile(call, backend=backend)(x), call(x))


def test_large_scores_and_masked_rows_stay_finite():
    q, k = torch.randn(1, 1, 5, 4) * 1e4, torch.randn(1, 1, 9, 4) * 1e4
    assert bool(kernels.attention(q, k, k).isfinite().all())
    far = kernels.attention(torch.randn(1, 1, 9, 4), k[:, :, :2], k[:, :, :2], window=3)
    assert not far[:, :, 4:].any()  # their windows begin behind the last key
    assert bool(far[:, :, :4].any(-1).all())


def test_wrong_arguments_are_named():
    q, k = torch.ones(1, 4, 3, 2), torch.ones(1, 3, 3, 2)
    with pytest.raises(
        KernelValueInvalid, match="`groups` is 3, expected a divisor of the 4 heads"
    ):
        kernels.attention(q, k, k)
    with pytest.raises(KernelShapeInvalid, match=r"`v` has shape \[1, 4, 2, 2\]"):
        kernels.attention(q, q, q[:, :, :2])
    with pytest.raises(RuntimeError, match=r"`k` has shape \[4, 3, 2\]"):
        kernels.attention(q, q[0], q)
    with pytest.raises(ValueError, match="`window` is 0, expected a number from 1 on"):
        kernels.attention(q, q, q, window=0)
    with pytest.raises(KernelShapeInvalid, match=r"`sinks` has shape \[3\]"):
        kernels.attention(q, q, q, sinks=torch.ones(3))


WIDTHS = [(torch.bfloat16, 128)] + [
    pytest.param(dtype, width, marks=pytest.mark.nightly)
    for dtype, width in (
        (torch.bfloat16, 64), (torch.float16, 256), (torch.float32, 64), (torch.float32, 128),
        (torch.float64, 64),
    )
]  # fmt: skip


@pytest.mark.cpu_only("it has launches on the CPU compile for a GPU")
@pytest.mark.parametrize(("dtype", "width"), WIDTHS)
def test_whole_tiles_compile_for_a_gpu(monkeypatch, dtype, width):
    """With at most the shared memory that all GPUs have since sm_80."""
    found = []
    monkeypatch.setattr(driver, "run_on_cpu", compiling_for_a_gpu(found))
    monkeypatch.setitem(library.TILES, "cpu", library.TILES["cuda"])
    q = torch.zeros(1, 1, 256, width, dtype=dtype, requires_grad=True)
    kernels.attention(q, q, q, True).sum().backward()
    assert len(found) == 3
    assert [kernel.metadata.shared for kernel in found if kernel.metadata.shared > 99 * 1024] == []
