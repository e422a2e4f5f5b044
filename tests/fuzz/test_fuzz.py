"""The fuzzer itself: programs are drawn alike again, judged, reduced; and a few of each family."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
import torch

from fuzz.generate import Choice, generate
from fuzz.judge import Judge
from fuzz.program import NAMES, Input, Program, Ref, Step
from fuzz.reduce import Reducer
from fuzz.rows.table import FAMILIES, ROWS
from fuzz.run import EAGER, Session
from fuzz.trial import BAD, Task, outcomes
from fuzz.values import index_text
from fuzz.ways import Bench, bad_variants

pytestmark = [pytest.mark.torch, pytest.mark.triton]
FIXED_SEED = 0


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTC_CACHE_DIR", "")
        with Bench.opened(tmp_path_factory.mktemp("fuzz")) as opened:
            yield opened
    torch.set_num_threads(threads)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_program_of_a_fixed_seed_is_right(family, bench):
    for outcome in outcomes(Task(family, FIXED_SEED, Choice()), bench, "cpu"):
        assert outcome.verdict not in BAD, f"{outcome.way}: {outcome.reason}"


@pytest.mark.skipif(
    "CI" in os.environ, reason="four of a thousand programs are findings still: docs/fuzz.md"
)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_program_of_a_fresh_seed_is_right(family, bench):
    seed = random.SystemRandom().randrange(10**6)
    way = "build" if family in ("fourier", "states") else "compile"
    (outcome,) = outcomes(Task(family, seed, Choice(), ((way, "cpu"),)), bench, "cpu")
    said = f"scripts/fuzz --family {family} --seed {seed} --programs 1: {outcome.reason}"
    assert outcome.verdict not in BAD, said


@pytest.mark.parametrize(("family", "seed"), [("norms", 20261122040), ("pooling", 20261122003)])
def test_forms_for_gpus_of_empty_values_and_of_checked_data_are_right(family, seed, bench):
    way = ("gpu-forms", "cpu")
    (outcome,) = outcomes(Task(family, seed, Choice(), (way,)), bench, "cpu")
    assert outcome.verdict == "right", outcome.reason


def test_places_out_of_range_are_numbers_of_their_type():
    for dtype, bound in (("u8", 5), ("i8", 100), ("i64", 3), ("u8", 256)):
        program = Program("", (Input("x0", dtype, (4,), index_text(bound), 1),), (), (), ("x0",))
        found = [each.values(0, each.inputs)[0] for each in bad_variants(program)]
        assert len(found) == int(bound < 256)
        for places in found:
            assert NAMES[places.dtype] == dtype
            assert bool(((places >= bound) | (places < -bound)).any())


def test_equal_seeds_give_equal_programs():
    for choice in (Choice(), Choice(is_dynamic=True), Choice(has_gradients=True)):
        first, second = (generate("movement", 11, choice) for _ in range(2))
        assert first.source() == second.source()
        assert first.source() != generate("movement", 12, choice).source()


def test_a_program_prints_as_code_that_gives_its_values():
    for seed in range(20):
        program = generate("reductions", seed, Choice())
        namespace = {}
        exec(program.source(), namespace)
        found = namespace["model"](*namespace["example_inputs"])
        expected = Session(program, 0, EAGER).outputs()
        for own, wanted in zip(found, expected, strict=True):
            assert torch.equal(own.nan_to_num(), wanted.nan_to_num())


def _one_step(op, kind="torch.randn({shape}, generator={generator}).to({dtype})", **more):
    given = Input("x0", "f32", (5, 7), kind, 1)
    step = Step("v0", op, ROWS[op].text, {"x": Ref("x0"), **more})
    return Program("by hand", (given,), (), (step,), ("v0",))


def test_the_judge_takes_what_rounding_explains_and_nothing_more():
    judge = Judge(_one_step("softmax", axis=1, keep=False), 0)
    (eager,) = judge.eager
    assert not judge.verdict([eager * (1 + 1e-7)]).wrong
    off = eager.clone()
    off[2, 3] *= 1.001
    verdict = judge.verdict([off])
    assert verdict.wrong == 1
    assert "[2, 3]" in verdict.text
    assert judge.verdict([eager[:4]]).wrong
    assert judge.verdict([eager.double()]).wrong


def test_the_judge_wants_movement_to_the_bit_with_the_sign_of_zero():
    judge = Judge(_one_step("neg", "torch.zeros({shape})"), 0)
    (eager,) = judge.eager
    assert not judge.verdict([eager.clone()]).wrong
    assert judge.verdict([eager.abs()]).wrong == 35


def test_whole_numbers_round_where_they_are_summed_as_floats():
    big = "torch.randint(-(2**40), 2**40, {shape}, generator={generator})"
    given = Input("x0", "i64", (33, 11), big, 1)
    step = Step("v0", "sum of sums", ROWS["sum of sums"].text, {"x": Ref("x0"), "axis": 0})
    judge = Judge(Program("by hand", (given,), (), (step,), ("v0",)), 0)
    (numbers,) = judge.program.values(0, judge.program.inputs)
    ordered = numbers.sort(0).values.float().cumsum(0)[-1]
    assert not judge.verdict([ordered]).wrong
    assert judge.verdict([ordered + 2.0**30]).wrong


def test_places_between_elements_round_as_well():
    given = Input("x0", "f32", (1, 1, 5, 7), "torch.randn({shape}, generator={generator})", 1)
    given = replace(given, text=f"{given.text}.index_fill(3, torch.tensor([4]), 1e-3)")
    more = {"size": None, "factor": 1.5, "mode": "bicubic", "corners": True}
    op = "resize of 2 axes"
    step = Step("v0", op, ROWS[op].text, {"x": Ref("x0"), **more})
    judge = Judge(Program("by hand", (given,), (), (step,), ("v0",)), 0)
    (eager,) = judge.eager
    assert not judge.verdict([eager + 3e-7]).wrong
    assert judge.verdict([eager + 1e-4]).wrong == eager.numel()


def test_a_bad_place_is_one_that_its_type_holds():
    for seed in range(20):
        given = Input("x0", "u8", (3,), index_text(200), seed)
        for each in bad_variants(Program("by hand", (given,), (), (), ("x0",))):
            each.values(0, each.inputs)


def test_nearly_equal_values_cannot_be_judged():
    program = _one_step("softmax", axis=1, keep=False)
    order = Step("v1", "argmax", ROWS["argmax"].text, {"x": Ref("v0"), "axis": 1, "keep": False})
    equal = "torch.ones({shape}).add(torch.rand({shape}, generator={generator}) * 1e-7)"
    program = Program("", (Input("x0", "f32", (1, 7), equal, 1),), (),
                      (*program.steps, order), ("v1",))  # fmt: skip
    judge = Judge(program, 0)
    assert not any(judge.verdict([torch.tensor([place])]).wrong for place in range(7))


def test_a_failing_program_is_made_small():
    program = generate("movement", 5, Choice())
    assert len(program.steps) > 4
    wanted = program.steps[len(program.steps) // 2].op

    def fails(candidate):
        return any(step.op == wanted for step in candidate.steps)

    small = Reducer(program, fails, 60).reduced()
    assert [step.op for step in small.steps] == [wanted]
