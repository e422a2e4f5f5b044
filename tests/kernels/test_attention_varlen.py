"""`aotc.kernels.attention_varlen`: sequences of random lengths against each one's attention in f64,
gradients by differences, torch's own checks, compilers, wrong offsets."""

from __future__ import annotations

import itertools
import json
import math
import random

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from gpu_compilation import compiling_for_a_gpu  # noqa: E402
from kernel_cases import EPSILON  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.aot.errors import (  # noqa: E402
    KernelDtypeUnsupported,
    KernelShapeInvalid,
    KernelValueInvalid,
)
from aotc.kernels import driver  # noqa: E402
from aotc.kernels.library import attention as library  # noqa: E402
from aotc.runtime import load  # noqa: E402

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DEFAULT = ((False, None, False), (True, None, True), (True, 7, True))
FORMS = [
    pytest.param(*form, marks=() if form in DEFAULT else pytest.mark.nightly)
    for form in itertools.product((False, True), (None, 1, 7), (False, True))
]
# Of random lengths each element type by day, in another form.
BY_DAY = set(zip(DEFAULT, DTYPES, strict=True))
FORMS_OF_TYPES = [
    pytest.param(*form, dtype, marks=() if (form, dtype) in BY_DAY else pytest.mark.nightly)
    for form in itertools.product((False, True), (None, 1, 7), (False, True))
    for dtype in DTYPES
]


def one_sequence(q, k, v, is_causal, window, sinks):
    """[T, heads, D] by the definition; the last query stands at the last key."""
    ratio = q.shape[1] // k.shape[1]
    q, k, v = (each.transpose(0, 1) for each in (q, k, v))
    k, v = (each.repeat_interleave(ratio, 0) for each in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    t, s = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])[None, :]
    t = t + k.shape[1] - q.shape[1]
    is_seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
    if is_causal:
        is_seen &= s <= t
    if window is not None:
        is_seen &= (s - t).abs() < window
    scores = scores.masked_fill(~is_seen, -math.inf)
    if sinks is not None:
        sink = sinks[:, None, None].expand(-1, q.shape[1], 1)
        scores = torch.cat([scores, sink], -1)
    weights = torch.softmax(scores, -1)[..., : k.shape[1]]
    weights = torch.where(is_seen.any(1)[:, None], weights, 0.0)
    return (weights @ v).transpose(0, 1)


def reference(q, k, v, lengths, is_causal, window, sinks):
    """Sequence by sequence."""
    queries, keys = zip(*lengths, strict=True)
    parts = zip(q.split(queries), k.split(keys), v.split(keys), strict=True)
    return torch.cat([one_sequence(*part, is_causal, window, sinks) for part in parts])


def starts_of(lengths, dtype=torch.int32):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=dtype)


def packed(lengths, heads, groups, width, value_width, has_sinks, dtype):
    """Arguments, and what follows them; queries, keys and values are views of wider tensors."""
    queries, keys = zip(*lengths, strict=True)
    shapes = [(sum(queries), heads, width), (sum(keys), groups, width),
              (sum(keys), groups, value_width)]  # fmt: skip
    made = [torch.randn(*shape[:2], shape[2] + 3, dtype=torch.float64).to(dtype)[..., 1:-2]
            for shape in shapes]  # fmt: skip
    if has_sinks:
        made.append(torch.randn(heads, dtype=torch.float64).to(dtype))
    offsets = (starts_of(queries), starts_of(keys, torch.int64), max(queries), max(keys))
    return [each.requires_grad_() for each in made], offsets


def check(lengths, sizes, form, dtype):
    """Results and all gradients; tolerances as those of the dense function's test. The gradient of
    a sink is a sum over queries of products with results that are rounded."""
    is_causal, window, has_sinks = form
    ours, offsets = packed(lengths, *sizes, has_sinks, dtype)
    wide = [each.detach().double().requires_grad_() for each in ours]
    found = kernels.attention_varlen(*ours[:3], *offsets, is_causal, window, None, *ours[3:])
    assert found.is_contiguous()
    sinks = wide[3] if has_sinks else None
    expected = reference(*wide[:3], lengths, is_causal, window, sinks)
    gradient = torch.randn(expected.shape, dtype=torch.float64).to(dtype)
    pairs = [(found.detach(), expected.detach())] + list(
        zip(
            torch.autograd.grad(found, ours, gradient),
            torch.autograd.grad(expected, wide, gradient.double()),
            strict=True,
        )
    )
    largest = max(float(other.abs().max()) if other.numel() else 0.0 for _, other in pairs)
    for one, other in pairs:
        assert one.dtype == dtype
        assert one.shape == other.shape
        if other.numel():
            allowed = 8 * EPSILON[dtype] * float(other.abs().max())
            allowed += 64 * EPSILON[torch.float32] * largest
            if has_sinks and one.dim() == 1:
                terms = (gradient.double() * expected.detach()).abs().sum((0, 2))
                allowed += EPSILON[dtype] * float(terms.max())
            assert float((one.double() - other).abs().max()) <= allowed


@pytest.mark.parametrize(("is_causal", "window", "has_sinks", "dtype"), FORMS_OF_TYPES)
def test_random_lengths(is_causal, window, has_sinks, dtype):
    """Several tiles long, empty, of one row, with more queries than keys and fewer."""
    generator = random.Random(f"{is_causal} {window} {has_sinks} {dtype}")
    torch.manual_seed(DTYPES.index(dtype))
    lengths = [(generator.choice((0, 1, 5, 33, 70)), generator.choice((0, 1, 9, 65, 130)))
               for _ in range(4)]  # fmt: skip
    lengths += [(40, 33), (0, 3), (3, 0)]
    generator.shuffle(lengths)
    check(lengths, (4, 2, 20, 33), (is_causal, window, has_sinks), dtype)


@pytest.mark.nightly
def test_two_hundred_random_calls():
    generator = random.Random(7)
    for number in range(200):
        torch.manual_seed(number)
        count = generator.randint(1, 6)
        lengths = [(generator.randint(0, 60), generator.randint(0, 90)) for _ in range(count)]
        lengths.append((generator.randint(33, 60), generator.randint(33, 90)))  # one size of tiles
        groups = generator.choice((1, 3))
        sizes = (groups * generator.choice((1, 4)), groups, *generator.choice(((8, 8), (33, 16))))
        form = (generator.random() < 0.5, generator.choice((None, 3, 50)),
                generator.random() < 0.5)  # fmt: skip
        check(lengths, sizes, form, generator.choice(DTYPES))


@pytest.mark.parametrize(("is_causal", "window", "has_sinks"), FORMS)
def test_gradients_by_differences(is_causal, window, has_sinks):
    lengths = [(3, 5), (0, 2), (4, 2), (1, 1)]
    given, offsets = packed(lengths, 4, 2, 2, 3, has_sinks, torch.float64)

    def call(q, k, v, sinks=None):
        window_here = window and min(window, 2)
        return kernels.attention_varlen(
            q, k, v, *offsets, is_causal, window_here, 0.7, sinks
        )  # fmt: skip

    assert torch.autograd.gradcheck(call, given)


def test_equal_lengths_are_the_dense_function():
    """Also with a window, and causal where queries and keys are as many."""
    q, k = torch.randn(3, 9, 4, 8), torch.randn(3, 9, 2, 8)
    offsets = starts_of([9] * 3)
    for form in ((False, None), (True, None), (True, 4), (False, 2)):
        found = kernels.attention_varlen(
            q.flatten(0, 1), k.flatten(0, 1), k.flatten(0, 1), offsets, offsets, 9, 9, *form
        )
        dense = kernels.attention(*(each.transpose(1, 2) for each in (q, k, k)), *form)
        assert torch.equal(found.unflatten(0, (3, 9)), dense.transpose(1, 2))


@pytest.mark.parametrize(
    "lengths", [[(0, 0)], [], [(0, 4), (0, 0)], [(4, 0)], [(0, 0), (1, 1)]], ids=str
)
def test_no_rows(lengths):
    """Of a sequence, of all queries or keys, and no sequence."""
    queries, keys = [each[0] for each in lengths], [each[1] for each in lengths]
    q = torch.randn(sum(queries), 2, 4, requires_grad=True)
    k = torch.randn(sum(keys), 1, 4, requires_grad=True)
    offsets = (starts_of(queries), starts_of(keys), max(queries, default=0), max(keys, default=0))
    found = kernels.attention_varlen(q, k, k, *offsets, True)
    assert found.shape == q.shape
    if lengths:
        assert torch.equal(found, reference(q, k, k, lengths, True, None, None).contiguous())
    for one in torch.autograd.grad(found.sum(), (q, k)):
        assert bool(one.isfinite().all())


def test_large_sinks_of_rows_behind_the_last_sequence():
    """Whose sums are 0: the exponential of a sink alone may have no number."""
    q = torch.randn(7, 2, 8)
    sinks = torch.full((2,), 100.0, requires_grad=True)
    starts = starts_of([3, 2])
    found = kernels.attention_varlen(q, q, q, starts, starts, 3, 3, True, None, None, sinks)
    (gradient,) = torch.autograd.grad(found.sum(), sinks)
    assert bool(gradient.isfinite().all())


def test_rows_behind_the_last_sequence_and_longer_limits():
    """They give zeros, and take none: buffers of a fixed size."""
    q = torch.randn(12, 2, 4, requires_grad=True)
    offsets = torch.tensor([0, 3, 7], dtype=torch.int32)
    found = kernels.attention_varlen(q, q, q, offsets, offsets, 50, 4)
    expected = kernels.attention_varlen(*[q[:7]] * 3, offsets, offsets, 4, 4)
    torch.testing.assert_close(found[:7], expected)  # a GPU takes other tiles for longer ones
    assert not found[7:].any()
    (gradient,) = torch.autograd.grad(found.square().sum(), q)
    assert not gradient[7:].any()
    assert bool(gradient[:7].any(-1).all())


@pytest.mark.cpu_only("on a GPU the host does not read offsets")
@pytest.mark.parametrize(
    "starts", [[0, 5, 3, 6], [0, 2, 7], [1, 6], [-1, 6], [0, 2, 1 << 40], [3]], ids=str
)
def test_wrong_offsets_are_named(starts):
    q, right = torch.ones(6, 2, 4), torch.tensor([0, *[6] * (len(starts) - 1)])
    wrong = torch.tensor(starts)
    with pytest.raises(KernelValueInvalid, match=r"`cu_seqlens_q` is \[.*from 0 to 6 that begin"):
        kernels.attention_varlen(q, q, q, wrong, right, 6, 6)
    with pytest.raises(ValueError, match="`cu_seqlens_k` is"):
        kernels.attention_varlen(q, q, q, right, wrong, 6, 6)


def test_wrong_arguments_are_named():
    q, starts = torch.ones(6, 4, 2), torch.tensor([0, 6])
    call = kernels.attention_varlen
    with pytest.raises(KernelDtypeUnsupported, match=r"`cu_seqlens_q` is of type torch\.float32"):
        call(q, q, q, starts.float(), starts, 6, 6)
    with pytest.raises(NotImplementedError, match=r"`k` is of type torch\.float16"):
        call(q, q.half(), q, starts, starts, 6, 6)
    with pytest.raises(KernelShapeInvalid, match=r"`cu_seqlens_k` has shape \[3\], expected \[2\]"):
        call(q, q, q, starts, torch.tensor([0, 3, 6]), 6, 6)
    with pytest.raises(KernelShapeInvalid, match=r"shape \[0\], expected \[sequences \+ 1\]"):
        call(q, q, q, starts[:0], starts[:0], 6, 6)
    with pytest.raises(RuntimeError, match=r"`q` has shape \[1, 6, 4, 2\]"):
        call(q[None], q, q, starts, starts, 6, 6)
    with pytest.raises(KernelShapeInvalid, match=r"`k` has shape \[6, 4, 1\]"):
        call(q, q[..., :1], q, starts, starts, 6, 6)
    with pytest.raises(KernelShapeInvalid, match=r"`v` has shape \[5, 4, 2\]"):
        call(q, q, q[:5], starts, starts, 6, 6)
    with pytest.raises(KernelValueInvalid, match="a divisor of the 4 heads"):
        call(q, q[:, :3], q[:, :3], starts, starts, 6, 6)
    with pytest.raises(KernelValueInvalid, match="`max_seqlen_k` is -1"):
        call(q, q, q, starts, starts, 6, -1)
    with pytest.raises(KernelValueInvalid, match="`window` is 0"):
        call(q, q, q, starts, starts, 6, 6, window=0)


@pytest.mark.cpu_only("on a GPU the host does not read offsets")
def test_a_longer_sequence_than_was_said():
    q, starts = torch.ones(6, 4, 2), torch.tensor([0, 1, 6])
    with pytest.raises(KernelValueInvalid, match="`max_seqlen_q` is 4, expected at least 5"):
        kernels.attention_varlen(q, q, q, starts, starts, 4, 5)


@pytest.mark.parametrize("has_sinks", [False, True])
def test_torchs_own_checks_of_the_ops(has_sinks):
    given, offsets = packed([(3, 5), (0, 2), (4, 2)], 4, 2, 8, 5, has_sinks, torch.float32)
    q, k, v, *sinks = (each.detach().contiguous().requires_grad_() for each in given)
    sink = sinks[0] if sinks else None
    forward = torch.ops.aotc.attention_varlen.default
    numbers = (*offsets, True, 3, 0.5)
    torch.library.opcheck(forward, (q, k, v, sink, *numbers))
    with torch.no_grad():
        out, sums = forward(q, k, v, sink, *numbers)
    tensors = [None if each is None else each.detach() for each in (out, q, k, v, sink, out, sums)]
    torch.library.opcheck(
        torch.ops.aotc.attention_varlen_backward.default, (*tensors, *numbers),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip


class Packed(torch.nn.Module):
    """Heads of products, packed attention, a product."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(12, 32), torch.nn.Linear(16, 12)
        self.sinks = torch.nn.Parameter(torch.randn(4))

    def forward(self, x, starts):
        q, k, v = self.inner(x).view(-1, 8, 4).split((4, 2, 2), 1)
        found = kernels.attention_varlen(q, k, v, starts, starts, 5, 5, True, 3, None, self.sinks)
        return self.outer(found.flatten(1))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aotc"])
def test_compiled_results_and_gradients(tmp_path, monkeypatch, backend):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path))
    own = {"fallback": "error", "unchecked_indices": torch.get_default_device().type != "cpu"}
    options = {"options": own} if backend == "aotc" else {}
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, x, starts = Packed(), torch.randn(11, 12), starts_of([5, 0, 2, 4])

    def results(function):
        found = function(x, starts)
        return [found, *torch.autograd.grad(found.square().sum(), list(module.parameters()))]

    expected = results(module)
    compiled = torch.compile(module, backend=backend, fullgraph=True, **options)
    for one, other in zip(results(compiled), expected, strict=True):
        scale = float(other.detach().abs().max())
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * scale)
    torch._dynamo.reset()


def test_export_keeps_one_call():
    torch.manual_seed(0)
    module, x, starts = Packed(), torch.randn(11, 12), starts_of([5, 0, 2, 4])
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(module, (x, starts), dynamic_shapes=({0: rows}, None))
    names = [str(node.target) for node in program.graph.nodes]
    assert names.count("aotc.attention_varlen.default") == 1
    torch.testing.assert_close(program.module()(x, starts), module(x, starts))
    shorter = starts_of([3, 1, 1, 2])
    found = program.module()(x[:7], shorter)
    torch.testing.assert_close(found, module(x[:7], shorter))


@pytest.mark.cpu_only("it has launches on the CPU compile for a GPU")
def test_packed_kernels_compile_for_a_gpu(monkeypatch):
    """With at most the shared memory that all GPUs have since sm_80."""
    found = []
    monkeypatch.setattr(driver, "run_on_cpu", compiling_for_a_gpu(found))
    monkeypatch.setitem(library.TILES, "cpu", library.TILES["cuda"])
    q = torch.zeros(256, 2, 128, dtype=torch.bfloat16, requires_grad=True)
    starts = starts_of([100, 0, 156])
    sinks = torch.zeros(2, dtype=torch.bfloat16)
    kernels.attention_varlen(
        q, q, q, starts, starts, 156, 156, True, 64, None, sinks
    ).sum().backward()  # fmt: skip
    assert len(found) == 3
    assert [kernel.metadata.shared for kernel in found if kernel.metadata.shared > 99 * 1024] == []


SPEC = """
import torch
from test_attention_varlen import Packed, starts_of

def build_model():
    torch.manual_seed(3)
    return Packed()

example_inputs = (torch.randn(11, 12), starts_of([5, 0, 2, 4]))
"""


@pytest.mark.cpu_only("its bundle is one for the CPU")
def test_a_bundle_takes_other_offsets(tmp_path, aotc, cache, monkeypatch):
    monkeypatch.syspath_prepend("tests/kernels")
    spec, out = tmp_path / "spec.py", tmp_path / "bundle"
    spec.write_text(SPEC)
    code, text, errors = aotc(
        "build", spec, "-o", out, "--json", "--quiet", "--cache-dir", cache, "--target", "cpu"
    )
    assert code == 0, errors
    assert json.loads(text)["kernels"]
    torch.manual_seed(3)
    module, x, program = Packed(), torch.randn(11, 12), load(out)
    for lengths in ([5, 0, 2, 4], [1, 5, 5, 0]):
        found, expected = program(x, starts_of(lengths)), module(x, starts_of(lengths))
        torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)
