"""Answers that differ from eager's and are as right: others of equal elements, slopes at equal
values, functions that bend, sums in narrower floats, noise of 16 bits, overflows, hidden scores."""

from __future__ import annotations

import math

import pytest
import torch

from fuzz.judge import Judge, _is_noise
from fuzz.program import Input, Program, Ref, Step
from fuzz.rows.table import ROWS

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["topk", "kthvalue", "median", "msort"])
def test_any_of_equal_elements_may_be_taken(name):
    given = Input("x0", "f32", (4, 2), "torch.tensor([1.0, 1.0, 0.0, 5.0]).repeat(2, 1).mT", 1)
    arguments = {"x": Ref("x0"), "k": 2 if name != "kthvalue" else 3, "axis": 0, "flag": True}
    step = Step("v0", name, ROWS[name].text, arguments)
    judge = Judge(Program("", (given,), (), (step,), ("v0",), has_gradients=True), 0)
    value, slope = judge.eager
    assert not judge.verdict([value, slope[[1, 0, 2, 3]]]).wrong
    assert judge.verdict([value, slope[[0, 2, 1, 3]] + slope[[3, 1, 2, 0]]]).wrong


def test_each_of_many_equal_elements_may_be_taken():
    """`sorts 20261126556` and `sorts 20261126584`: a few draws at random miss some."""
    given = Input("x0", "f32", (1, 40), "torch.ones({shape})", 1)
    for name in ("topk", "median"):
        arguments = {"x": Ref("x0"), "k": 1, "axis": 1, "flag": True}
        step = Step("v0", name, ROWS[name].text, arguments)
        judge = Judge(Program("", (given,), (), (step,), ("v0",), has_gradients=True), 0)
        value, slope = judge.eager
        for place in range(40):
            assert not judge.verdict([value, slope.sum() * torch.eye(40)[place : place + 1]]).wrong
        assert judge.verdict([value, slope + 9]).wrong == 40


def test_equal_elements_may_be_taken_by_several_ops_in_turn():
    """`sorts 202611272044`: choices of three ops are more than can be drawn."""
    given = Input("x0", "f32", (64, 64), "(torch.arange(4096) % 2.0).reshape({shape})", 1)
    names = (("v0", "msort", "x0", {}), ("v1", "topk", "v0", {"k": 2, "axis": 0, "flag": True}),
             ("v2", "topk", "v1", {"k": 3, "axis": 1, "flag": True}))  # fmt: skip
    steps = tuple(Step(own, op, ROWS[op].text, {"x": Ref(of), "axis": 0, **more})
                  for own, op, of, more in names)  # fmt: skip
    judge = Judge(Program("", (given,), (), steps, ("v2",), has_gradients=True), 0)
    value, slope = judge.eager
    (x,) = judge.program.values(0, judge.program.inputs)
    generator = torch.Generator().manual_seed(5)
    for _ in range(2):
        other = slope.clone()
        for number in x.unique():  # dealt anew among equals
            own = slope[x == number]
            other[x == number] = own[torch.randperm(own.numel(), generator=generator)]
        assert not judge.verdict([value, other]).wrong
    assert judge.verdict([value, other.roll(1, 1)]).wrong  # to others
    assert judge.verdict([value, torch.where(other == 0, 0.25, other)]).wrong  # to all


def test_roundings_of_slopes_are_as_large_as_the_slopes_at_equal_values():
    """`norms 202611272102`: beside rows of equal elements the slopes of a norm are far smaller."""
    given = Input("x0", "f32", (1, 64), "torch.arange(64.).reshape({shape})", 1)
    steps = [Step("v0", "expand", "{x}.expand(3, 64)", {"x": Ref("x0")}),
             Step("v1", "centred", ROWS["centred"].text, {"x": Ref("v0"), "axis": 0})]  # fmt: skip
    for place, name in ((1, "rms_norm"), (2, "layer_norm"), (3, "layer_norm")):
        own = {"x": Ref(f"v{place}"), "shape": (64,), "weight": None, "bias": None}
        steps.append(Step(f"v{place + 1}", name, ROWS[name].text, own))
    judge = Judge(Program("", (given,), (), tuple(steps), ("v4",), has_gradients=True), 0)
    value, slope = judge.eager
    noise = slope.abs().max() * torch.where(torch.arange(64) % 3 == 0, 1.0, -1.0)[None]
    assert not judge.verdict([value, noise]).wrong
    assert judge.verdict([value, 1e4 * noise]).wrong


@pytest.mark.parametrize("name", ["hardtanh", "softshrink", "hardswish", "elu", "celu"])
def test_gradients_at_nan_are_those_of_vectors_or_of_single_elements(name):
    """`scans 20261124030`: which elements vectors hold hangs on where the operands lie."""
    given = Input("x0", "f32", (1, 70), "torch.full({shape}, float('nan'))", 1)
    step = Step("v0", name, ROWS[name].text, {"x": Ref("x0")})
    judge = Judge(Program("", (given,), (), (step,), ("v0",), has_gradients=True), 0)
    value, slope = judge.eager
    passed = (torch.arange(70) % 7 - 2) / 4  # the judge's gradients of a result
    for at in (0, 5, 69):
        other = slope.clone()
        other[0, at] = passed[at]
        assert not judge.verdict([value, other]).wrong
        other[0, at] = 17.0
        assert judge.verdict([value, other]).wrong == 1


def test_zeros_of_softshrink_are_those_of_vectors_or_of_single_elements():
    """`types 20261124032`: vectors give +0, the last elements the operand's sign."""
    given = Input("x0", "f32", (1, 40), "torch.full({shape}, -0.25)", 1)
    first = Step("v0", "softshrink", ROWS["softshrink"].text, {"x": Ref("x0")})
    second = Step("v1", "reciprocal", "({x}).reciprocal()", {"x": Ref("v0")})
    judge = Judge(Program("", (given,), (), (first, second), ("v1",)), 0)
    for infinity in (math.inf, -math.inf):
        assert not judge.verdict([torch.full((1, 40), infinity)]).wrong
    assert judge.verdict([torch.full((1, 40), 2.0)]).wrong >= 32  # of vectors


def test_sums_of_f64_in_f32_are_as_exact_as_those_of_f32():
    """`fourier 20261127074`: f32 holds none of the elements, and their order is open."""
    text = "torch.randn({shape}, generator=torch.Generator().manual_seed(1708)).double() + 0.1"
    given = Input("x0", "f64", (5, 8), text, 1)
    step = Step("v0", "sum of sums", ROWS["sum of sums"].text, {"x": Ref("x0"), "axis": 0})
    judge = Judge(Program("", (given,), (), (step,), ("v0",)), 0)
    (x,) = judge.program.values(0, judge.program.inputs)
    other = torch.zeros(8)
    for row in x.flip(0):
        other += row.float()
    assert not judge.verdict([other]).wrong
    assert judge.verdict([other + 1e-4]).wrong == 8


def test_logarithms_of_sums_of_powers_are_rounded_as_these_are():
    """`lookups 20261127191`: of a sum near 1 the logarithm is as exact as the sum."""
    row = "[-7.3200256, -7.549176, -6.2722004, -5.9144111, 0.0]"
    given = Input("x0", "f32", (2, 5), f"torch.tensor({row}).repeat(2, 1)", 1)
    labels = Input("x1", "i64", (2,), "torch.full({shape}, 4)", 1)
    arguments = {"x": Ref("x0"), "labels": Ref("x1"), "count": 5, "how": "none"}
    step = Step("v0", "cross_entropy", ROWS["cross_entropy"].text, arguments)
    judge = Judge(Program("", (given, labels), (), (step,), ("v0",)), 0)
    (value,) = judge.eager
    assert not judge.verdict([value - 2**-23]).wrong
    assert judge.verdict([value - 2**-18]).wrong == 2


def test_noise_of_gradients_in_16_bits_is_of_few_elements_and_no_larger_than_eagers():
    exact = torch.linspace(-1, 1, 2048, dtype=torch.float64)
    eager = (exact + 0.1 * torch.sin(997 * exact)).bfloat16()
    found, wrong = exact.bfloat16(), torch.zeros(2048, dtype=torch.bool)
    wrong[7] = True
    near, far = found.clone(), found.clone()
    near[7] += 0.05
    far[7] += 0.5
    assert _is_noise(near, eager, exact, wrong).nonzero().tolist()[7] == [7]
    assert not (wrong & _is_noise(far, eager, exact, wrong)).any()
    assert not _is_noise(near.float(), eager.float(), exact, wrong).any()
    assert not _is_noise(near, found, exact, wrong).any()
    assert not _is_noise(near, eager, exact, exact > 0.9).any()


@pytest.mark.parametrize(("high", "overflows"), [(1.0, True), (0.25, False)])
def test_gradients_whose_terms_pass_the_largest_number_may_be_none(high, overflows):
    """`scans 202611287000017`: 4 · v³ is infinite in f16, and what eager leaves of it half of the
    gradient."""
    values = f"torch.rand({{shape}}, generator={{generator}}).mul({high}).half()"
    given = Input("x0", "f16", (1, 14, 4), values, 5079)
    steps = [("logcumsumexp", {"axis": -1}), ("cumsum", {"axis": -2}), ("pow", {"n": 4})]
    steps = [Step(f"v{at}", name, ROWS[name].text, {"x": Ref(f"v{at - 1}" if at else "x0"), **more})
             for at, (name, more) in enumerate(steps)]  # fmt: skip
    if not overflows:
        steps = steps[:1]
    output = steps[-1].name
    judge = Judge(Program("", (given,), (), tuple(steps), (output,), has_gradients=True), 0)
    value, slope = judge.eager
    infinite = torch.full_like(slope, math.inf)
    verdict = judge.verdict([value, infinite])
    assert bool(verdict.wrong) != overflows


def test_a_rest_by_what_another_order_of_a_sum_makes_0_is_open():
    """`fourier 202611288000004`: (-2e-308 - 100) + 100 is 0, which leaves no rest."""
    column = "torch.tensor([[-2.2250738585072014e-308], [-100.0], [100.0]], dtype=torch.float64)"
    given = Input("x0", "f64", (3, 1), column, 1)
    transform = {"x": Ref("x0"), "axis": 0, "norm": None}
    steps = (Step("v0", "rfft", ROWS["rfft"].text, transform),
             Step("v1", "fmod of floats", ROWS["fmod of floats"].text,
                  {"x": Ref("v0"), "y": Ref("v0")}))  # fmt: skip
    judge = Judge(Program("", (given,), (), steps, ("v1",)), 0)
    found = judge.eager[0].clone()
    found[0, 0, 0] = math.nan
    assert not judge.verdict([found]).wrong
    found[1, 0, 1] = math.nan  # the rest of 173 by itself
    assert judge.verdict([found]).wrong == 1


@pytest.mark.parametrize("has_mask", [False, True])
def test_rows_whose_hidden_scores_are_no_numbers_cannot_be_judged(has_mask):
    """torch's plain implementation adds to them, so that a row of one that is no number is none."""
    text = "torch.randn({{shape}}, generator={{generator}}).mul(torch.tensor([[1.0], [1.0], [{}]]))"
    rows = [Input(f"x{at}", "f32", (1, 1, 3, 4), text.format(last), at)
            for at, last in enumerate(("1.0", 'float("nan")', "1.0"))]  # fmt: skip
    mask = Input("x3", "bool", (3, 3), "torch.ones({shape}).tril().bool()", 3)
    refs = {name: Ref(f"x{at}") for at, name in enumerate("qkv")}
    hides = {"mask": Ref("x3") if has_mask else None, "causal": not has_mask, "scale": None}
    step = Step("v0", "attention", ROWS["attention"].text, {**refs, **hides})
    judge = Judge(Program("", (*rows, mask), (), (step,), ("v0",)), 0)
    q, k, v = (each[0, 0] for each in judge.program.values(0, tuple(rows)))
    scores = (q @ k.mT / 2).masked_fill(~torch.ones(3, 3).tril().bool(), -math.inf)
    unseen = (scores.softmax(-1)[:2, :2] @ v[:2])[None, None]
    last = torch.full((1, 1, 1, 4), math.nan)
    for found in (unseen, torch.full_like(unseen, math.nan)):
        assert not judge.verdict([torch.cat([found, last], 2)]).wrong
    assert judge.verdict([torch.cat([unseen + 0.1, last], 2)]).undecided == 8
    assert judge.verdict([torch.cat([unseen, 0 * unseen[:, :, :1]], 2)]).wrong == 4
