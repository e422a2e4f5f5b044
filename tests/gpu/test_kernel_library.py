"""Functions of `aotc.kernels` on a GPU: results and gradients against f64, of functions over rows
on shapes drawn around the borders of the tables that choose their tiles; which kernels attention
and products are computed by."""

import itertools
import math
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernel_cases import CASES, EPSILON, compare  # noqa: E402
from torch.nn import functional  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.kernels.library import attention_by_torch, linear_cross_entropy  # noqa: E402
from aotc.kernels.library.layouts import rows_like  # noqa: E402

DRAWS = 16
MOST_ELEMENTS = 1 << 21
DTYPES = (torch.bfloat16, torch.float32, torch.float16)
KINDS = ("softmax", "norm", "cross_entropy")
OVER_ROWS = [
    case for case in CASES if any(kind in case.name for kind in KINDS) and "linear" not in case.name
]
OTHERS = [case for case in CASES if case not in OVER_ROWS]


def shape_of(case, drawn):
    """Rows near a power of two or anything, few or many of them; channels of images for group
    norms."""
    length = 2 ** drawn.randint(0, 16)
    length = max(1, drawn.choice((length, length + 1, length - 1, drawn.randint(1, 70_000))))
    count = drawn.choice((1, 2, 3, 33, 700))
    if "group" in case.name:
        channels = 2 * drawn.choice((1, 2, 3, 8, 20))
        count, length = min(count, 40), max(1, length // channels)
        count = max(1, min(count, MOST_ELEMENTS // (channels * length)))
        return (count, channels, length)
    count = max(1, min(count, MOST_ELEMENTS // length))
    if "channels" in case.name:
        return (2, length, min(count, 40))
    return (count, max(2, length))


@pytest.mark.parametrize("number", range(DRAWS))
@pytest.mark.parametrize("case", OVER_ROWS, ids=lambda case: case.name)
def test_rows_are_those_of_f64(case, number):
    drawn = random.Random(f"{case.name} {number}")
    torch.manual_seed(number)
    dtype = drawn.choice(DTYPES)
    shape = shape_of(case, drawn)
    compare(case, [each.cuda() for each in case.tensors(shape, dtype)], dtype)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_in_a_graph_of_cuda_is_that_of_each_replay(reduction):
    """The kernel that adds up losses is launched early; it waits for those before it."""
    x = torch.randn(3000, 1000, device="cuda", dtype=torch.bfloat16)
    labels = torch.arange(3000, device="cuda") % 1000
    kernels.cross_entropy(x, labels, reduction=reduction)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = kernels.cross_entropy(x, labels, reduction=reduction)
    for _ in range(50):
        x.normal_()
        graph.replay()
        expected = torch.nn.functional.cross_entropy(x.double(), labels, reduction=reduction)
        torch.testing.assert_close(loss.double(), expected, rtol=2**-7, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_all_else_is_that_of_f64(case, dtype):
    for number, shape in enumerate((*case.sizes, *case.long)):
        torch.manual_seed(number)
        with torch.device("cuda"):  # of labels and positions as well
            compare(case, case.tensors(shape, dtype), dtype)


# -- the last linear layer and its loss ------------------------------------------------------------

SMALL_BLOCKS = {"MOST_LOGITS": 1 << 16, "MOST_CACHED": 1 << 14}


@pytest.mark.parametrize(("has_bias", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_loss_of_several_blocks_of_classes(monkeypatch, has_bias, dtype):
    for name, value in SMALL_BLOCKS.items():
        monkeypatch.setattr(linear_cross_entropy, name, value)
    torch.manual_seed(3)
    shapes = (100, 72), (1300, 72), *([(1300,)] if has_bias else [])
    given = [torch.randn(each, device="cuda").div(4).to(dtype).requires_grad_() for each in shapes]
    wide = [each.detach().double().requires_grad_() for each in given]
    labels = torch.arange(100, device="cuda") * 13
    labels[7] = -100
    found = kernels.linear_cross_entropy(*given[:2], labels, *given[2:])
    expected = functional.cross_entropy(functional.linear(*wide), labels)
    pairs = [(found, expected)] + list(
        zip(torch.autograd.grad(found, given), torch.autograd.grad(expected, wide), strict=True)
    )
    for one, other in pairs:
        away = (one.double() - other).abs().max()
        assert float(away / other.abs().max()) <= 4 * EPSILON[dtype]


def test_a_loss_has_no_logits_in_memory():
    x = torch.randn(8192, 256, device="cuda").bfloat16().requires_grad_()
    weight = torch.randn(64_000, 256, device="cuda").bfloat16().requires_grad_()
    labels = torch.arange(8192, device="cuda")

    def gradients_of():
        torch.autograd.grad(kernels.linear_cross_entropy(x, weight, labels), (x, weight))

    gradients_of()  # cuBLAS takes a workspace for each thread, and keeps it
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    gradients_of()
    most = torch.cuda.max_memory_allocated() - before
    gradients = 2 * (x.numel() + weight.numel()) + 4 * x.numel()
    blocks = 2 * linear_cross_entropy.MOST_LOGITS + 4 * linear_cross_entropy.MOST_CACHED
    assert most <= gradients + blocks + (1 << 24) < 2 * 8192 * 64_000


# -- attention -------------------------------------------------------------------------------------


def attention_reference(q, k, v, is_causal, window, sinks, is_packed=False):
    """By its definition, in f64. is_packed: the last query stands at the last key."""
    ratio = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(ratio, 1) for each in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    t = torch.arange(q.shape[2], device=q.device)[:, None]
    t = t + (k.shape[2] - q.shape[2] if is_packed else 0)
    s = torch.arange(k.shape[2], device=q.device)
    is_seen = (s <= t) if is_causal else (s > -1).expand(len(t), -1)
    if window is not None:
        is_seen = is_seen & ((s - t).abs() < window)
    scores = scores.masked_fill(~is_seen, -math.inf)
    if sinks is not None:
        sink = sinks[None, :, None, None].expand(q.shape[0], -1, q.shape[2], 1)
        scores = torch.cat([scores, sink], -1)
    weights = torch.softmax(scores, -1)[..., : k.shape[2]]
    return torch.where(is_seen.any(1)[:, None], weights, 0.0) @ v


LAYOUTS = {  # of [2, heads, 200, width]: in which order its memory has the dims, and its gaps
    "heads first": lambda h, w, **kind: torch.randn(2, h, 200, w, **kind),
    "rows first": lambda h, w, **kind: torch.randn(2, 200, h, w, **kind).transpose(1, 2),
    "a part of longer rows": lambda h, w, **kind: torch.randn(2, 200, h, 3 * w, **kind)[
        ..., :w
    ].transpose(1, 2),
}
FORMS = list(itertools.product((False, True), (None, 40), (False, True), LAYOUTS))


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_attention_by_torchs_kernels(number):
    """Each form with the widths, groups and types in turn. A gradient of sinks is a sum over all
    queries of differences, each of which has roundings of the type."""
    is_causal, window, has_sinks, layout = FORMS[number]
    dtype = (torch.bfloat16, torch.float16)[number % 2]
    width, groups = (64, 128, 256, 80)[number % 4], (4, 2, 1)[number % 3]
    torch.manual_seed(number)
    kind = {"device": "cuda", "dtype": dtype}
    given = [LAYOUTS[layout](heads, width, **kind) for heads in (4, groups, groups)]
    given += [torch.randn(4, **kind)] if has_sinks else []
    given = [each.detach().requires_grad_() for each in given]
    wide = [each.detach().double().requires_grad_() for each in given]
    form = attention_by_torch.Form(is_causal, window or 0, 1 / math.sqrt(width))
    assert attention_by_torch.choice(*given[:3], form) is not None
    found = kernels.attention(*given[:3], is_causal, window, None, *given[3:])
    assert found.stride() == rows_like(given[0]).stride()
    gradient = torch.randn_like(found)
    expected = attention_reference(*wide[:3], is_causal, window, wide[3] if has_sinks else None)
    gradients = torch.autograd.grad(found, given, gradient)
    theirs = torch.autograd.grad(expected, wide, gradient.double())
    away = distances([found, *gradients], [expected, *theirs])
    assert max(away[:4]) <= 4 * EPSILON[dtype]
    assert max(away[4:], default=0) <= 16 * EPSILON[dtype]


def distances(found, expected):
    pairs = zip(found, expected, strict=True)
    return [
        float((one.double() - other).abs().max() / other.abs().max().clamp(min=1e-30))
        for one, other in pairs
    ]


QUERIES, KEYS = (70, 0, 1, 130, 9), (70, 3, 200, 64, 0)  # of each sequence


@pytest.mark.parametrize("number", range(8))
def test_packed_attention_by_torchs_kernels(number):
    """Sequences without queries, without keys, and with more queries than keys; two rows and three
    behind the last sequence."""
    is_causal, window, has_sinks = number % 2 == 1, (None, 40)[number // 2 % 2], number // 4 == 1
    dtype, groups, width = (torch.bfloat16, torch.float16)[number % 2], 2, (64, 128)[number // 4]
    torch.manual_seed(number)
    kind = {"device": "cuda", "dtype": dtype}
    counts = (sum(QUERIES) + 2, sum(KEYS) + 3)
    given = [torch.randn(counts[0], 4, width, **kind)]
    given += [torch.randn(counts[1], groups, width, **kind) for _ in range(2)]
    given += [torch.randn(4, **kind)] if has_sinks else []
    given = [each.requires_grad_() for each in given]
    wide = [each.detach().double().requires_grad_() for each in given]
    starts = [
        torch.tensor([0, *itertools.accumulate(row)], device="cuda") for row in (QUERIES, KEYS)
    ]
    form = attention_by_torch.Form(is_causal, window or 0, 1 / math.sqrt(width))
    packing = attention_by_torch.Packing(*starts, max(QUERIES), max(KEYS))
    assert attention_by_torch.takes_packed(*given[:3], packing, form)
    found = kernels.attention_varlen(
        *given[:3], *starts, max(QUERIES), max(KEYS), is_causal, window, None, *given[3:]
    )
    rows = []
    parts = (each.split([*row, each.shape[0] - sum(row)]) for each, row in zip(
        wide[:3], (QUERIES, KEYS, KEYS), strict=True))  # fmt: skip
    for q, k, v in list(zip(*parts, strict=True))[:-1]:
        heads = (each.transpose(0, 1).unsqueeze(0) for each in (q, k, v))
        sinks = wide[3] if has_sinks else None
        made = attention_reference(*heads, is_causal, window, sinks, is_packed=True)
        rows.append(made.squeeze(0).transpose(0, 1))
    expected = torch.cat([*rows, wide[0].new_zeros(2, 4, width)])
    gradient = torch.randn_like(found)
    ours = torch.autograd.grad(found, given, gradient)
    theirs = torch.autograd.grad(expected, wide, gradient.double())
    away = distances([found, *ours], [expected, *theirs])
    assert max(away[:4]) <= 4 * EPSILON[dtype]
    assert max(away[4:], default=0) <= 16 * EPSILON[dtype]
    assert not found[-2:].any()
    assert not any(each[-3:].any() for each in ours[1:3])


@pytest.mark.parametrize("longest", [1, 5])
def test_a_step_of_decoding_with_an_idle_sequence(longest):
    """One query each, none of the idle one, and a row behind all; two groups of heads."""
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    q, k = torch.randn(3, 4, 64, **kind), torch.randn(90, 2, 64, **kind)
    starts = [torch.tensor(row, device="cuda") for row in ([0, 1, 1, 2], [0, 40, 60, 90])]
    found = kernels.attention_varlen(q, k, k, *starts, longest, 40, True)
    for row, (first, last) in enumerate([(0, 40), (60, 90)]):
        heads = (x.transpose(0, 1).unsqueeze(0).double() for x in (q[row : row + 1], k[first:last]))
        query, keys = heads
        expected = attention_reference(query, keys, keys, True, None, None, is_packed=True)
        away = distances([found[row]], [expected[0, :, 0]])
        assert max(away) <= 4 * EPSILON[torch.bfloat16]
    assert not found[2].any()


def test_windows_as_long_as_the_keys_of_fewer_keys_than_queries():
    """The first queries stand before the keys, and see none."""
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    q, k = torch.randn(100, 2, 64, **kind), torch.randn(10, 2, 64, **kind)
    starts = [torch.tensor([0, len(each)], device="cuda") for each in (q, k)]
    found = kernels.attention_varlen(q, k, k, *starts, 100, 10, False, 12)
    heads = [each.transpose(0, 1).unsqueeze(0).double() for each in (q, k, k)]
    expected = attention_reference(*heads, False, 12, None, is_packed=True)[0].transpose(0, 1)
    assert max(distances([found], [expected])) <= 4 * EPSILON[torch.bfloat16]
    assert not found[:70].any()


def test_no_sequences_and_no_queries():
    q = torch.randn(8, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    none, empty = (torch.tensor(row, device="cuda") for row in ([0], [0, 0]))
    for starts, longest in ((none, 8), (empty, 0)):
        found = kernels.attention_varlen(q, q, q, starts, starts, longest, longest)
        assert not found.any()
        assert not torch.autograd.grad(found.sum(), q)[0].any()


def test_where_torch_has_no_kernel_that_the_user_left():
    q = torch.randn(1, 2, 50, 60, device="cuda", dtype=torch.bfloat16)
    wide = q.double()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        for x, of in ((q, wide), (torch.randn_like(q.mT).mT, None)):
            found = kernels.attention(x, x, x)
            of = x.double() if of is None else of
            expected = attention_reference(of, of, of, False, None, None)
            assert max(distances([found], [expected])) <= 4 * EPSILON[torch.bfloat16]


def test_wrong_offsets_touch_no_memory_outside():
    q = torch.randn(100, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for starts in ([0, 1 << 30, 7], [-5, 90, 60, 200], [100, 0, 1 << 40]):
        offsets = torch.tensor(starts, device="cuda")
        found = kernels.attention_varlen(q, q, q, offsets, offsets, 100, 100, True)
        assert torch.autograd.grad(found.sum(), q)[0].shape == q.shape
    torch.cuda.synchronize()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda q: q.float(), id="f32"),
        pytest.param(lambda q: q[..., :60], id="rows of 60"),
        pytest.param(lambda q: q[..., 1:49], id="rows that begin anywhere"),
        pytest.param(lambda q: q[:, :1].expand(2, 4, 50, 64), id="heads that are one"),
        pytest.param(lambda q: q.mT, id="columns of memory"),
    ],
)
def test_what_torchs_kernels_lack_is_computed_by_ours(change):
    q = change(torch.randn(2, 4, 50, 64, device="cuda", dtype=torch.bfloat16)).detach()
    form = attention_by_torch.Form(False, 0, 1 / math.sqrt(q.shape[-1]))
    assert attention_by_torch.choice(q, q, q, form) is None
    found = kernels.attention(q, q, q)
    wide = q.double()
    expected = attention_reference(wide, wide, wide, False, None, None)
    away = (found.double() - expected).abs().max() / expected.abs().max()
    assert float(away) <= 4 * EPSILON[torch.bfloat16]


def test_deterministic_gradients_are_ours():
    q = torch.randn(2, 4, 300, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        form = attention_by_torch.Form(True, 0, 0.125)
        assert attention_by_torch.choice(q, q, q, form) is None
        one, other = (
            torch.autograd.grad(kernels.attention(q, q, q, True).sum(), q)[0] for _ in range(2)
        )
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(one, other)


# -- behind torch.compile --------------------------------------------------------------------------


def block(x, packed, out, classes, target):
    """Attention of two groups of two heads whose rows are parts of longer ones, and the loss."""
    batch, length, _ = x.shape
    q, k, v = functional.linear(x, packed).split([256, 128, 128], -1)
    q, k, v = (each.view(batch, length, -1, 64).transpose(1, 2) for each in (q, k, v))
    found = kernels.attention(q, k, v, True).transpose(1, 2).reshape(batch, length, 256)
    return kernels.linear_cross_entropy(x + functional.linear(found, out), classes, target)


@pytest.mark.parametrize("backend", ["aotc", "inductor"])
def test_compiled_graphs_call_what_has_no_scores_and_logits(monkeypatch, tmp_path, backend):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    shapes = ((4, 200, 256), (512, 256), (256, 256), (5000, 256))
    given = [torch.randn(each, device="cuda").mul(0.1).bfloat16() for each in shapes]
    given = [each.requires_grad_() for each in given]
    target = torch.arange(800, device="cuda").reshape(4, 200)
    options = {"options": {"fallback": "error"}} if backend == "aotc" else {}
    compiled = torch.compile(block, backend=backend, fullgraph=True, **options)
    calls = []
    own = attention_by_torch.forward
    monkeypatch.setattr(attention_by_torch, "forward", lambda *a: calls.append(a) or own(*a))
    wide = [each.detach().double().requires_grad_() for each in given]
    results = [
        [loss, *torch.autograd.grad(loss, of)]
        for loss, of in (
            (compiled(*given, target), given),
            (block(*given, target), given),
            (block(*wide, target), wide),
        )
    ]
    assert len(calls) == 2  # of the compiled graph, and of eager
    ours, eager = (distances(each, results[2]) for each in results[:2])
    assert max(ours) <= 2 * max(eager) + EPSILON[torch.bfloat16]
