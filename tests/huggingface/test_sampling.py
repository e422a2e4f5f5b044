"""Draws of compiled programs: the right sets, the right shares, and the same numbers by seed."""

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("transformers")

from aotc.aot.huggingface.sampling import Sampling, penalised, sample, uniform  # noqa: E402
from aotc.aot.ir.reference import philox  # noqa: E402
from aotc.aot.options import BuildOptions  # noqa: E402
from aotc.aot.pipeline import build  # noqa: E402
from aotc.runtime import load  # noqa: E402
from aotc.runtime.errors import AssertionFailed  # noqa: E402

pytestmark = pytest.mark.torch
VOCABULARY = 61
NAN, INF = float("nan"), float("inf")


def options(rows, temperature=1.0, top_k=0, top_p=1.0, penalty=1.0, seed=0):
    return {
        "temperature": torch.full((rows,), temperature),
        "top_k": torch.full((rows,), top_k),
        "top_p": torch.full((rows,), top_p),
        "repetition_penalty": torch.full((rows,), penalty),
        "seed": torch.arange(rows) + seed,
    }


def kept_by_transformers(logits, is_seen, given):
    """bool[rows, vocabulary], and the probabilities: transformers' own processors, in its order."""
    from transformers import generation

    found = []
    for row, seen in zip(logits, is_seen, strict=True):
        ids = seen.nonzero().T
        row = row[None].double()
        if ids.numel():
            penalty = float(given["repetition_penalty"][0])
            row = generation.RepetitionPenaltyLogitsProcessor(penalty)(ids, row)
        row = row / float(given["temperature"][0])
        if given["top_k"][0]:
            row = generation.TopKLogitsWarper(int(given["top_k"][0]))(ids, row)
        row = generation.TopPLogitsWarper(float(given["top_p"][0]))(ids, row)
        found.append(row[0])
    return torch.stack(found).softmax(-1)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"top_k": 7},
        {"top_p": 0.6},
        {"top_k": 9, "top_p": 0.8, "penalty": 1.7},
        {"temperature": 0.4, "penalty": 0.5},
    ],
    ids=str,
)
def test_shares_are_those_of_transformers(given):
    """Draws of many seeds come to each token as often as transformers' probabilities say."""
    rows = 20_000
    generator = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(1, VOCABULARY, generator=generator)
    is_seen = torch.rand(1, VOCABULARY, generator=generator) < 0.3
    asked = options(rows, **given)
    expected = kept_by_transformers(logits, is_seen, asked)[0]
    every = penalised(
        logits.expand(rows, -1), is_seen.expand(rows, -1), asked["repetition_penalty"]
    )
    drawn = sample(every, torch.full((rows,), 5), Sampling(**asked))
    shares = torch.bincount(drawn, minlength=VOCABULARY) / rows
    assert not shares[expected == 0].any()
    spread = (expected * (1 - expected) / rows).sqrt()
    assert ((shares - expected).abs() <= 5 * spread + 1e-9).all()


def test_uniform_numbers_are_philox():
    seed = torch.tensor([0, 1, -5, 2**62 + 11, 7])
    place = torch.tensor([0, 3, 9, 2**31, 2**32 - 1])
    words = philox(seed.numpy(), numpy.int64(0), place.numpy(), 0, 0).view(numpy.uint32)
    assert torch.equal(uniform(seed, place), torch.from_numpy((words >> 9) * 2.0**-23).float())


class Draw(torch.nn.Module):
    def forward(self, logits, is_seen, position, temperature, top_k, top_p, penalty, seed):
        sampling = Sampling(temperature, top_k, top_p, penalty, seed)
        return sample(penalised(logits, is_seen, penalty), position, sampling)


SPEC = """
import torch
from test_sampling import Draw, arguments

model, example_inputs = Draw(), arguments(0)
"""
ROWS = 12


def arguments(trial):
    """Rows of every kind: equal logits, endless ones and all limits among them."""
    generator = torch.Generator().manual_seed(trial)

    def one_of(*choices):
        return torch.tensor(choices)[torch.randint(len(choices), (ROWS,), generator=generator)]

    logits = 3 * torch.randn(ROWS, VOCABULARY, generator=generator)
    logits[3:6] = logits[3:6].round()
    logits[4, ::2] = -torch.inf
    logits[7] = 1.5  # all equal
    is_seen = torch.rand(ROWS, VOCABULARY, generator=generator) < 0.2
    temperature = one_of(0.0, 1e-6, 2e-5, 1e-3, 0.7, 1.0, 1.0, 1.3, 50.0)
    top_k = one_of(-1, 0, 1, 2, 5, VOCABULARY - 1, VOCABULARY, 10 * VOCABULARY, 2**40)
    top_p = one_of(1.0, 1.0, 0.95, 0.5, 0.1, 1e-3, 1e-30)
    penalty = one_of(1.0, 1.2, 0.5, 1e-3, 1e3)
    place = torch.randint(0, 1000, (ROWS,), generator=generator)
    seed = torch.randint(-(2**63), 2**63 - 1, (ROWS,), generator=generator)
    return logits, is_seen, place, temperature, top_k, top_p, penalty, seed


# Relative to the row's sum: of f32 weights, their difference to the largest logit below 104 (beyond
# it a weight is 0) rounded by half an ulp of 2^-17, the exponential by 2 ulp, and of sums of 61.
ROUNDING = 2.0**-18 + (2 + VOCABULARY) * 2.0**-23


def drawn_by_numpy(logits, is_seen, place, temperature, top_k, top_p, penalty, seed):
    """One row's token, and whether rounding of f32 sums may give another one.

    Logits are f32, as a program's; what comes after them is f64. Of tokens that are equal to the
    last one that a limit keeps, all are kept.
    """
    with numpy.errstate(over="ignore", invalid="ignore"):
        weighed = numpy.where(logits > 0, logits / penalty, logits * penalty)
    logits = numpy.where(is_seen, weighed, logits)
    if temperature < 1e-5:
        return int(logits.argmax()), True
    scaled = logits / temperature
    assert scaled.dtype == numpy.float32
    if 0 < top_k < len(scaled):
        scaled = numpy.where(scaled >= numpy.sort(scaled)[-top_k], scaled, -numpy.inf)
    weights = numpy.exp(scaled.astype("f8") - scaled.max())
    weights /= weights.sum()
    is_sure = True
    if top_p < 1:
        masses = numpy.array([weights[weights >= each].sum() for each in weights])
        is_sure = numpy.abs(masses - float(top_p)).min() > ROUNDING
        least = weights[masses >= float(top_p)].max()
        weights = numpy.where(weights >= least, weights, 0)
    word = philox(seed, numpy.int64(0), place, 0, 0).view(numpy.uint32)
    chosen = float((word >> 9) * 2.0**-23) * weights.sum()
    running = weights.cumsum()
    is_sure &= numpy.abs(running[weights > 0] - chosen).min() > ROUNDING
    return int((running <= chosen).sum()), bool(is_sure)


@pytest.fixture(scope="module")
def bundle(cache, tmp_path_factory):
    """Draws, compiled."""
    folder = tmp_path_factory.mktemp("draws")
    (folder / "draw.py").write_text(SPEC)
    build(str(folder / "draw.py"), folder / "b", ("cpu",), BuildOptions(cache))
    return folder / "b"


def test_compiled_draws_are_those_of_a_reference_in_numpy(bundle):
    """And do not depend on the row that a sequence is in, nor on its neighbours."""
    sure = 0
    with load(bundle) as program:
        for trial in range(200):
            given = arguments(trial)
            found = torch.from_dlpack(program(*given))
            moved = torch.from_dlpack(program(*(each.flip(0).contiguous() for each in given)))
            assert torch.equal(moved.flip(0), found)
            rows = zip(*(each.numpy() for each in given), strict=True)
            for number, row in enumerate(rows):
                expected, is_sure = drawn_by_numpy(*row)
                assert found[number] == expected or not is_sure, (trial, number, row[3:])
                sure += is_sure
    assert sure > 0.99 * 200 * ROWS


@pytest.mark.parametrize(
    ("place", "number"),
    [(3, -0.5), (3, NAN), (3, INF), (4, -2), (4, -(2**63)), (5, 0.0), (5, -0.1), (5, 1.001),
     (5, NAN), (6, 0.0), (6, -1.2), (6, NAN), (6, INF)],
)  # fmt: skip
def test_numbers_out_of_their_ranges_are_refused(bundle, place, number):
    """Of one row of many, greedy rows too; the next call is right again."""
    given = arguments(0)
    wrong = [each.clone() for each in given]
    wrong[place][ROWS - 1] = number
    with pytest.raises(RuntimeError, match="out of its range"):
        Draw()(*wrong)
    with load(bundle) as program:
        with pytest.raises(AssertionFailed, match="sampling is out of its range"):
            program(*wrong)
        assert torch.equal(torch.from_dlpack(program(*given)), Draw()(*given))
