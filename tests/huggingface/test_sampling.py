"""Draws of compiled programs: the right sets, the right shares, and the same numbers by seed."""

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("transformers")

from aotc.aot.huggingface.sampling import Sampling, penalised, sample, uniform  # noqa: E402
from aotc.aot.ir.reference import philox  # noqa: E402
from aotc.runtime import load  # noqa: E402

pytestmark = pytest.mark.torch
VOCABULARY = 61


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


def arguments(trial):
    """Rows of every kind, equal logits and endless ones among them."""
    generator = torch.Generator().manual_seed(trial)
    rows = 12
    logits = 3 * torch.randn(rows, VOCABULARY, generator=generator)
    logits[3] = logits[3].round()
    logits[4, ::2] = -torch.inf
    is_seen = torch.rand(rows, VOCABULARY, generator=generator) < 0.2
    temperature = torch.tensor([0.0, 0.7, 1.0, 1.0, 1.3, 1.0] * 2)
    top_k = torch.tensor([0, 5, 0, 4, 0, 1] * 2)
    top_p = torch.tensor([1.0, 1.0, 0.5, 0.9, 1.0, 0.01] * 2)
    penalty = torch.tensor([1.0, 1.2] * 6)
    place = torch.randint(0, 1000, (rows,), generator=generator)
    seed = torch.randint(-(2**63), 2**63 - 1, (rows,), generator=generator)
    return logits, is_seen, place, temperature, top_k, top_p, penalty, seed


def test_compiled_draws_are_the_same_numbers(tmp_path, cache, aotc):
    """And do not depend on the row that a sequence is in, nor on its neighbours."""
    spec = tmp_path / "draw.py"
    spec.write_text(SPEC)
    code, _, errors = aotc("build", spec, "-o", tmp_path / "b", "--quiet", "--cache-dir", cache)
    assert code == 0, errors
    count = differing = 0
    with load(tmp_path / "b") as program:
        for trial in range(100):
            given = arguments(trial)
            found = torch.from_dlpack(program(*given))
            moved = torch.from_dlpack(program(*(each.flip(0).contiguous() for each in given)))
            assert torch.equal(moved.flip(0), found)
            expected = Draw()(*given)
            differing += int((found != expected).sum())
            count += len(found)
    # A number that falls on the border of two tokens may go to either by the sums' rounding.
    assert differing <= count / 200
