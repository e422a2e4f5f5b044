"""What roundings decide is left out of the build's check, and nothing else is."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import numpy
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from aotc.aot import validation
from aotc.aot.capture import decisions, rounding_sensitivity
from aotc.aot.capture.capture import capture
from aotc.aot.capture.rounding_sensitivity import (
    BLOCK_ELEMENTS,
    MovedRoundings,
    answers,
    moved,
    parts,
    undecided,
)
from aotc.aot.capture.spec import spec_of
from aotc.aot.contents import tolerances
from aotc.aot.errors import GoldenMismatch
from aotc.aot.pipeline import BuildOptions, build
from aotc.aot.signature import signature

SHARES = """
import torch

torch.manual_seed(0)
example_inputs = (torch.randn(400, 37),)

def model(x):
    total = x.softmax(-1).sum(-1)
    return total > 1, total.floor(), 1 / (total - 1), x.sum(-1) > 0
"""


@pytest.fixture
def made(tmp_path, cache):
    spec = tmp_path / "model.py"
    spec.write_text(SHARES)
    return lambda: build(str(spec), tmp_path / "out", ["cpu"], BuildOptions(cache, force=True))


def test_decisions_of_the_last_bits_build_and_are_reported(made):
    """A sum of shares is 1 or its neighbour; which one, hangs on the order of the sum."""
    with pytest.warns(UserWarning, match="were not compared") as notes:
        report = made()
    assert all(check.is_ok for check in report.targets[0].checks)
    left_out = [str(each.message) for each in notes if "were not compared" in str(each.message)]
    assert {text.split("`")[1][:8] for text in left_out} == {"output_0", "output_1", "output_2"}


def test_a_fault_beside_what_roundings_decide_is_refused(made, monkeypatch):
    original = validation.run_in_a_row

    def run(*arguments):
        original(*arguments)
        for call in arguments[-1]:
            call.results[3][7] ^= True

    monkeypatch.setattr(validation, "run_in_a_row", run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(GoldenMismatch, match=r"output_3\[7\]"):
            made()


def sum_of_shares(x):
    return x.softmax(-1).sum(-1)


FAULTS = {
    "a comparison": (lambda x: x.sum(-1) > 0, 7, numpy.logical_not),
    "a place": (lambda x: x.argmax(-1), 7, lambda one: (one + 1) % 37),
    "a floor": (lambda x: (x * 3).floor(), (3, 5), lambda one: one + 1),
    "a sign": (lambda x: x.sum(-1).sign(), 7, lambda one: -one),
    "none of the choices": (lambda x: sum_of_shares(x).floor(), 7, lambda one: one + 7),
    "a float": (sum_of_shares, 7, lambda one: one * 1.001),
    "a float near 0": (lambda x: x - x.mean(-1, True), (3, 5), lambda one: one + 0.002),
    "a float beside jumps": (lambda x: (x * 1e6).floor() + x, (3, 5), lambda one: one * 1.01),
    "an infinity": (lambda x: x.abs().log(), (3, 5), lambda one: numpy.inf),
    "a lost number": (lambda x: x.sum(-1), 7, lambda one: numpy.nan),
    "a bit of an integer": (lambda x: x.sum(-1).mul(9).to(torch.int32), 7, lambda one: one ^ 1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_where_eager_agrees_with_itself_is_refused(name):
    model, place, fault = FAULTS[name]
    torch.manual_seed(0)
    captured = capture(spec_of(model, (torch.randn(64, 37),)))
    rows = [(captured.golden_outputs, captured.undecided, None)]
    rows += [(each.outputs, each.undecided, each.spreads) for each in captured.trials]
    for outputs, undecided_there, spreads in rows:
        limits = tolerances(captured, "ieee")
        row = validation._Row("", (), outputs, limits, undecided_there, spreads)
        specs = signature(captured.graph, captured.dims, captured.guards).outputs_at([(64, 37)])
        found = outputs[0].copy()
        assert all(check.is_ok for check in validation._compared(row, specs, (found,)))
        found[place] = fault(found[place])
        assert not all(check.is_ok for check in validation._compared(row, specs, (found,)))


def test_small_steps_that_roundings_decide_are_not_judged():
    """Steps of 3e-4 beside 1: further than is allowed, and far less than the value (places to
    sample from, of deformable attention)."""
    torch.manual_seed(0)
    data = torch.randn(64, 37)
    captured = capture(spec_of(lambda x: 1 + 3e-4 * ((x.sum(-1) * 1e6).floor() % 2), (data,)))
    (outputs,) = captured.golden_outputs
    other = numpy.where(outputs > 1.0001, numpy.float32(1), outputs.max())
    for found, is_open in ((other, True), (outputs + numpy.float32(2e-3), False)):
        (mask,) = captured.undecided((found,), (1e-4,))
        assert mask.all() if is_open else not mask.any()


def test_values_move_by_units_in_their_last_place():
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        kind = torch.finfo(dtype)
        normal = torch.randn(1000, dtype=torch.float64).to(dtype)
        away = (moved(normal, 1.0, generator).double() - normal.double()).abs()
        assert bool((away <= 1.51 * kind.eps * normal.double().abs()).all())
        assert 0.2 < (away > 0).double().mean() <= 1.0
        least = torch.full((1000,), kind.smallest_normal * kind.eps, dtype=dtype)
        found = moved(least, 1.0, generator)
        assert set((found / least).tolist()) == {0.0, 1.0, 2.0}
        still = torch.tensor([0.0, float("inf"), float("-inf"), kind.max], dtype=dtype)
        for _ in range(9):
            found = moved(still, 1.0, generator)
            assert torch.equal(found[:3], still[:3])
            assert bool(found[3].isfinite())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_tensors_move_like_small_ones(dtype):
    """In any memory order; and not all blocks alike."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(600, 1400, dtype=torch.float64, generator=generator).to(dtype)
    for own in (rows, rows.t(), rows[:, ::2], rows[:1].expand(900, 1400)):
        assert own.numel() > BLOCK_ELEMENTS
        found = moved(own, 1.0, generator)
        away = (found.double() - own.double()).abs()
        assert found.shape == own.shape
        assert bool((away <= 1.51 * torch.finfo(dtype).eps * own.double().abs()).all())
        assert 0.2 < (away > 0).double().mean() <= 1.0
    ones = torch.ones(3 * BLOCK_ELEMENTS, dtype=dtype)
    blocks = moved(ones, 4.0, generator).view(3, BLOCK_ELEMENTS)
    assert not torch.equal(blocks[0], blocks[1])


def test_large_weights_stay_where_each_term_has_another_factor():
    x, weights = torch.randn(2, 512), torch.randn(512, BLOCK_ELEMENTS // 256)
    with MovedRoundings(1, 1.0) as mode:
        found = x @ weights
        rows = weights.sum(0)
    assert not torch.equal(found, x @ weights)
    torch.testing.assert_close(found, x @ weights, rtol=1e-4, atol=1e-4)
    assert not torch.equal(rows, weights.sum(0))
    products = x.numel() + found.numel()
    assert mode.elements == products + weights.numel() + rows.numel()


def test_answers_part_where_they_are_of_two_kinds():
    inf, nan = float("inf"), float("nan")
    rows = torch.tensor([[1.0, 1.0, inf, nan, inf, 0.0], [1.01, 1.2, inf, nan, -inf, nan]])
    assert parts(rows.double()).tolist() == [False, True, False, False, True, True]
    assert parts(torch.tensor([[3, 4], [3, 5]])).tolist() == [False, True]


def test_movement_is_not_moved_and_sums_are_by_their_operands():
    x = torch.randn(8, 8)
    with MovedRoundings(1, 1.0):
        assert torch.equal(x.flip(0).t().relu().clone(), x.flip(0).t().relu())
        y = x.clone()
        y += 1
        total = (x - x.mean()).sum()
    assert not torch.equal(y, x + 1)
    torch.testing.assert_close(y, x + 1, rtol=1e-5, atol=1e-5)
    assert total != (x - x.mean()).sum()


def test_a_model_that_cannot_be_moved_excuses_nothing():
    def call():
        raise ValueError

    expected, found = numpy.ones(3, bool), numpy.zeros(3, bool)
    (mask,) = undecided(call, (expected,), (found,), (0.0,))
    assert not mask.any()


def test_answers_are_compared_with_their_roundings_unmoved():
    ones = torch.ones(3)
    for _ in answers(lambda: torch.sin(ones), 2):
        assert torch.equal(torch.add(ones, ones), torch.full((3,), 2.0))


@pytest.mark.parametrize(("limit", "runs"), [(1 << 28, 16), (3 * 5, 6), (0, 4)])
def test_large_models_are_run_less_often(monkeypatch, limit, runs):
    monkeypatch.setattr(rounding_sensitivity, "MOVED_LIMIT", limit)
    assert len(list(answers(lambda: torch.sin(torch.ones(3))))) == runs


def test_what_one_answer_explains_is_asked_no_more(monkeypatch):
    """Of 100 floors of nearly whole numbers each answer explains about half of those left."""
    counts = []
    compare = rounding_sensitivity._Differing.compare

    def counted(self, answer):
        compare(self, answer)
        counts.append(len(self.places))

    monkeypatch.setattr(rounding_sensitivity._Differing, "compare", counted)
    x = torch.full((100,), 0.1)
    call = lambda: torch.floor(x * 10.0)  # noqa: E731
    (expected,) = (numpy.asarray(call()),)
    (mask,) = undecided(call, [expected], [1 - expected], [0.0])
    assert mask.all()
    assert counts == sorted(counts, reverse=True)
    assert len(counts) > 1


def _flipped(found, open_places):
    """The outputs with the elements at some places otherwise."""
    changed = found.copy()
    changed[open_places] = ~changed[open_places]
    return changed


def test_equality_of_nearly_equal_floats_may_come_out_either_way():
    """Of a transform back and forth: no motion at random makes two such numbers equal."""
    x = torch.randn(4, 17, generator=torch.Generator().manual_seed(1))

    def call():
        again = torch.fft.irfft(torch.fft.rfft(x), 17)
        return again != x, x != 2 * x, x == x.amax(-1, keepdim=True)

    expected = [each.numpy() for each in call()]
    found = [_flipped(each, (slice(None), slice(0, 5))) for each in expected]
    masks = undecided(call, expected, found, (0.0,) * 3)
    assert masks[0][:, :5].all()
    assert not masks[1].any()
    assert not masks[2].any()  # an element is the largest one, or it is not


@pytest.mark.parametrize(
    ("function", "keywords", "edge"),
    [
        (torch.ops.aten.round.default, {}, 2.5),
        (torch.ops.aten.floor.default, {}, 3.0),
        (torch.ops.aten.ceil.default, {}, -2.0),
        (torch.ops.aten.trunc.default, {}, 1.0),
        (torch.ops.aten._to_copy.default, {"dtype": torch.int8}, 7.0),
    ],
)
def test_whole_numbers_near_a_jump_may_come_out_either_way(function, keywords, edge):
    """A code of a quantised model, whose quotient no run moved across the edge."""
    away = torch.tensor([2e-6, -2e-6, 1e-3, 0.0], dtype=torch.float64)
    comparisons = decisions.Comparisons()
    for step in (0.0, 1e-6):
        comparisons.begin()
        value = edge + away + step * torch.tensor([1.0, -1.0, 1.0, 0.0])
        comparisons.operands(function, (value,), keywords)
    found = set()
    for way in range(decisions.WAYS):
        comparisons.begin(way)
        (changed,) = comparisons.operands(function, (value,), keywords)
        assert comparisons.found
        assert torch.equal(changed[2:], value[2:])  # far from it, and one that never moves
        found |= {tuple(function(changed[:2], **keywords).tolist())}
    assert len(found) > 1


@pytest.mark.parametrize("is_in_place", [True, False])
def test_what_rounds_in_place_is_rounded(is_in_place):
    x = torch.tensor([2.5, 0.3, 7.1])

    def call():
        y = x * 1.1 / 1.1
        return (y.round_() if is_in_place else y.round(),)

    wrong = numpy.float32([2, 0.3, 7.1])  # a compiler that leaves the rounding out
    (found,) = undecided(call, [call()[0].numpy()], [wrong], [1e-4])
    assert not found[1:].any()


def test_casts_to_floats_are_no_jumps():
    comparisons = decisions.Comparisons()
    cast = torch.ops.aten._to_copy.default
    for step in (-1e-6, 1e-6, 0.0):
        comparisons.begin(None if step else 0)
        value = torch.tensor([1.0 + step], dtype=torch.float64)
        comparisons.operands(cast, (value,), {"dtype": torch.float32})
    assert not comparisons.found


def test_sums_that_may_overflow_are_not_judged_and_others_are():
    rows = torch.tensor([[3e38, 3e38, -3e38, -3e38], [3.0, 3.0, -3.0, 1.0]])
    expected = [each.numpy() for each in (rows.sum(-1), rows.softmax(-1))]
    found = [numpy.full_like(each, 7.0) for each in expected]
    masks = undecided(lambda: (rows.sum(-1), rows.softmax(-1)), expected, found, (1e-4,) * 2)
    assert masks[0].tolist() == [True, False]
    assert not masks[1].any()


LARGE = torch.tensor([3e38, 3e38, -3e38, -3e38, 1.0, -1.0, 3e38, 3e38])
ROWS = torch.stack([LARGE, LARGE.flip(0), LARGE / 2, torch.ones(8)])
SMALL = torch.tensor([1e-30, 1e-30, 1e30, 1.0])  # whose product is 0 or 1e-30
ONES, FIRST = torch.ones(8), torch.zeros(8, dtype=torch.int64)


def _joined(how):
    return {
        f"scatter_reduce {how}": lambda: torch.ones(2).scatter_reduce(0, FIRST, LARGE, how),
        f"index_reduce {how}": lambda: torch.ones(2).index_reduce(0, FIRST, LARGE, how),
    }


SUMS = {
    "sum": lambda: ROWS.sum(-1),
    "nansum": lambda: ROWS.nansum(-1),
    "mean": lambda: ROWS.mean(-1),
    "trace": lambda: ROWS.trace(),
    "cumsum": lambda: LARGE.cumsum(0),
    "prod": lambda: ROWS.prod(-1),
    "cumprod": lambda: ROWS.cumprod(-1),
    "mv": lambda: ROWS.mv(ONES),
    "addmv": lambda: torch.addmv(torch.zeros(4), ROWS, ONES),
    "addbmm": lambda: torch.addbmm(torch.zeros(4, 1), ROWS[None], ONES.reshape(1, 8, 1)),
    "einsum": lambda: torch.einsum("ij,j->i", ROWS, ONES),
    "bilinear": lambda: functional.bilinear(ROWS, torch.ones(4, 8), torch.ones(2, 8, 8)),
    "conv1d": lambda: functional.conv1d(ROWS[None], torch.ones(2, 4, 8)),
    "avg_pool1d": lambda: functional.avg_pool1d(ROWS[None], 4),
    "adaptive_avg_pool2d": lambda: functional.adaptive_avg_pool2d(ROWS[None], (2, 3)),
    "adaptive_avg_pool3d": lambda: functional.adaptive_avg_pool3d(ROWS[None, None], (1, 2, 3)),
    "scatter_add": lambda: torch.zeros(2).scatter_add(0, FIRST, LARGE),
    "scatter_add_": lambda: torch.zeros(2).scatter_add_(0, FIRST, LARGE),
    "index_add": lambda: torch.zeros(2).index_add(0, FIRST, LARGE),
    **_joined("mean"),
    **_joined("prod"),
    "index_put": lambda: torch.zeros(2).index_put((FIRST,), LARGE, accumulate=True),
    "put": lambda: torch.zeros(2).put(FIRST, LARGE, accumulate=True),
    "embedding_bag": lambda: functional.embedding_bag(
        torch.arange(8)[None], LARGE[:, None], mode="sum"
    ),
    "fold": lambda: functional.fold(LARGE.repeat(2).reshape(1, 4, 4), (3, 3), (2, 2)),
    "batch_norm": lambda: functional.batch_norm(ROWS, None, None, training=True),
    "attention": lambda: functional.scaled_dot_product_attention(
        ROWS[None], torch.ones(1, 4, 8), ROWS[None]
    ),
    "rfft": lambda: torch.fft.rfft(LARGE).abs(),
    "cumprod of small": lambda: SMALL.cumprod(0),
    "prod of small": lambda: SMALL.prod(),
    "prod of small and an infinity": lambda: torch.tensor([1e-30, 1e-30, torch.inf]).prod(),
}
NO_SUMS = {
    **_joined("amax"),
    **_joined("amin"),
    "index_put": lambda: torch.zeros(2).index_put((FIRST[:1],), LARGE[:1]),
    "scatter": lambda: torch.zeros(8).scatter(0, torch.arange(8), LARGE),
    "amax": lambda: ROWS.amax(-1),
    "softmax": lambda: ROWS.softmax(-1),
    "relu": lambda: ROWS.relu(),
    "prod": lambda: torch.randn(300, generator=torch.Generator().manual_seed(1)).prod(),
    "prod of one small": lambda: SMALL[1:].prod(),
}


@pytest.mark.filterwarnings("ignore:.*is in beta")
@pytest.mark.parametrize("name", SUMS)
def test_every_sum_may_overflow(name):
    assert _hangs_on_large(SUMS[name])


@pytest.mark.filterwarnings("ignore:.*is in beta")
@pytest.mark.parametrize("name", NO_SUMS)
def test_what_sums_nothing_may_not_overflow(name):
    assert not _hangs_on_large(NO_SUMS[name])


def _hangs_on_large(call):
    rows = rounding_sensitivity.answers_without_large(call)
    assert rows
    return any(bool(parts(torch.stack(each)).any()) for each in zip(*rows, strict=True))


def test_a_mean_overflows_where_its_sum_does():
    """Its absolute terms are 3e38 in the mean, which f32 holds, and 1.2e39 before."""
    rows = torch.tensor([[3e38, 3e38, -3e38, -3e38], [1.0, 2.0, 3.0, 4.0]])
    with rounding_sensitivity.OverflowedSums(torch.inf):
        assert rows.mean(-1).tolist() == [torch.inf, 2.5]
        assert rows.mean().item() == torch.inf


def test_an_order_of_terms_that_overflows_decides_and_infinite_terms_do_not():
    """-3e38 and -3e38 are -inf unless 4e38 in two terms stands between them."""
    rows = torch.tensor([[-3e38, -3e38, 2e38, 2e38], [-torch.inf, 1.0, 2.0, 3.0]])
    call = lambda: (torch.pow(rows.sum(-1), 1.5), rows.sum(-1))  # noqa: E731
    expected = [each.numpy() for each in call()]
    found = [numpy.full_like(each, numpy.nan) for each in expected]
    found[0][:1] = numpy.inf if numpy.isnan(expected[0][0]) else numpy.nan
    masks = undecided(call, expected, found, (1e-4,) * 2)
    assert [mask.tolist() for mask in masks] == [[True, False]] * 2


def test_hidden_scores_decide_nothing_where_torch_itself_does_not_look_at_them():
    generator = torch.Generator().manual_seed(0)
    heads = [torch.randn(1, 2, 9, 8, generator=generator) for _ in range(3)]
    heads[1][..., 6, 0] = torch.inf
    expected = functional.scaled_dot_product_attention(*heads, is_causal=True)
    found = rounding_sensitivity.hidden_attention(*heads, is_causal=True)
    torch.testing.assert_close(found[..., :6, :], expected[..., :6, :])
    with sdpa_kernel(SDPBackend.MATH):
        plain = functional.scaled_dot_product_attention(*heads, is_causal=True)
    assert plain[..., :6, 0].isnan().any()
    given = [each.numpy() for each in (plain, expected)]
    call = lambda: (functional.scaled_dot_product_attention(*heads, is_causal=True),)  # noqa: E731
    with sdpa_kernel(SDPBackend.MATH):
        (mask,) = undecided(call, given[:1], given[1:], (1e-4,))
    assert mask[..., :6, 0][numpy.isnan(given[0][..., :6, 0])].all()


@pytest.mark.parametrize("dims", [3, 4])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("masked", [{}, {"is_causal": True}, {"attn_mask": torch.ones(5, 5) > 0}])
def test_attention_of_16_bit_floats_moves_by_their_units(dims, dtype, masked):
    """Its plain implementation computes in f32; others round the probabilities to 16 bits."""
    generator = torch.Generator().manual_seed(0)
    shape = (2,) * (dims - 2) + (5, 8)
    heads = [torch.randn(shape, generator=generator).to(dtype) for _ in range(3)]
    call = lambda: functional.scaled_dot_product_attention(*heads, **masked)  # noqa: E731
    expected = call()
    for (found,) in answers(call, 4):
        assert (found != expected).double().mean() > 0.3
        torch.testing.assert_close(found, expected, rtol=0.1, atol=0.2)


def test_gradients_pass_attention_that_is_moved():
    x = torch.randn(1, 2, 5, 8, requires_grad=True)
    with rounding_sensitivity.MovedAttention(1, 1.0):
        functional.scaled_dot_product_attention(x, x, x).sum().backward()
    assert x.grad is not None


def test_the_model_in_f64_is_one_of_its_answers():
    """A product that overflows on its way, in f32 alone."""
    x = torch.tensor([3e30, 3.0])

    def call():
        return (x * x / x,)

    expected = [each.numpy() for each in call()]
    assert numpy.isinf(expected[0][0])
    (mask,) = undecided(call, expected, (x.numpy() + numpy.float32([0, 1]),), (1e-4,))
    assert mask.tolist() == [True, False]
