"""Tokens of bundles beside eager's greedy ones: each architecture, f32 and bf16, batch 1 and 8.

    python -m benchmarks.greedy_tokens [--only llama gpt2] [--dtypes float32] [--batches 1 8]
        [--steps 256] [--target cpu] [--cache FOLDER]

Small models of random weights (`tests/huggingface/architectures.py`), prompts of mixed lengths.
Each step is given eager's own tokens up to there, so that one that differs changes no other. A
token is sure where eager's two best logits differ by more than the tolerance, a share of the
largest logit, where eager in f32 with the same weights, all places at once, gives it too, and, in
mixtures of experts, where the scores of the last expert that is taken and of the first that is not
differ by more than that share of the largest score.
Prints one row of a table as each case ends; the exit status is 1 where a sure token differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

MODELS = Path(__file__).parents[1] / "tests" / "huggingface"
SPEC = """
import sys

sys.path.insert(0, {folder!r})
import torch
from architectures import make
from aotc.aot.huggingface import causal_lm

model, entry_points = causal_lm(
    make({name!r}, {positions}).to(torch.{dtype}), max_length={length}, batch={batch},
    max_prompt={prompt}, sampling=False,
)
"""
STEPS, PROMPT = 256, 30
# Of the largest logit: what roundings of the two programs make of it.
SHARES = {"float32": 1e-4, "bfloat16": 4e-2}
BATCHES = (1, 8)
VOCABULARY = 97
HEAD = "| architecture | type | batch | tokens | sure | equal of these | equal of all |"


@dataclass(frozen=True, slots=True)
class Tokens:
    """How many tokens a case has, how many are sure, and how many of these and of all are equal."""

    total: int
    sure: int
    equal_sure: int
    equal: int


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What eager makes of prompts: tokens, and which of them are sure, each [prompts, steps]."""

    prompts: list[list[int]]
    tokens: Any
    is_sure: Any


def expected_of(name: str, dtype: str, count: int, steps: int = STEPS) -> Expected:
    """Eager's greedy tokens of `count` prompts of mixed lengths, each by itself."""
    import torch

    sys.path.insert(0, str(MODELS))
    from architectures import continued, make

    draw = numpy.random.default_rng(0)
    counts = draw.integers(2, PROMPT, max(BATCHES))
    prompts = [draw.integers(1, VOCABULARY, each).tolist() for each in counts][:count]
    model = make(name, length_of(steps) + 32).to(getattr(torch, dtype))
    found = continued(model, prompts, steps)
    largest = max(model(torch.tensor([each])).logits.abs().max().item() for each in prompts)
    tokens = numpy.array([each for each, _ in found])
    is_sure = numpy.array([each for _, each in found]) > SHARES[dtype] * largest
    in_f32 = make(name, length_of(steps) + 32).to(getattr(torch, dtype)).to(torch.float32)
    for row, (prompt, own) in enumerate(zip(prompts, tokens, strict=True)):
        ids = [*prompt, *own[:-1].tolist()]
        is_sure[row] &= _routed_surely(model, ids, SHARES[dtype])[len(prompt) - 1 :]
        is_sure[row] &= _best(in_f32, ids)[len(prompt) - 1 :] == own
    return Expected(prompts, tokens, is_sure)


def _best(model: Any, ids: list[int]) -> Any:
    """The likeliest token after each of `ids`: i64[len(ids)]."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].argmax(-1).numpy()


def _routed_surely(model: Any, ids: list[int], share: float) -> Any:
    """At which places each router of `model` chooses its experts by more than a share of its
    largest score: bool[len(ids)], all of them for models without experts."""
    scores: list[Any] = []

    def note(module: Any, given: Any, result: Any) -> None:
        scores.append((result[0] if isinstance(result, tuple) else result).detach().float())

    routers = [
        part for name, part in model.named_modules() if name.endswith(("mlp.gate", "mlp.router"))
    ]
    hooks = [router.register_forward_hook(note) for router in routers]
    _best(model, ids)
    for hook in hooks:
        hook.remove()
    found = numpy.ones(len(ids), bool)
    for each in scores:
        taken = model.config.num_experts_per_tok
        best = each.reshape(len(ids), -1).topk(taken + 1).values
        found &= (best[:, -2] - best[:, -1] > share * each.abs().max()).numpy()
    return found


def length_of(steps: int) -> int:
    """Tokens that the cache has to hold."""
    return steps + PROMPT + 2


def compare(
    name: str, dtype: str, batch: int, folder: Path, cache: Path,
    steps: int = STEPS, target: str = "cpu", expected: Expected | None = None,
) -> Tokens:  # fmt: skip
    """Build a bundle of an architecture in `folder`, and hold its tokens against eager's."""
    from aotc import runtime
    from aotc.aot.options import BuildOptions
    from aotc.aot.pipeline import build

    length = length_of(steps)
    spec = folder / "spec.py"
    fields = {"name": name, "dtype": dtype, "batch": batch, "folder": str(MODELS)}
    spec.write_text(SPEC.format(**fields, positions=length + 32, length=length, prompt=PROMPT))
    build(str(spec), folder / "b", [target], BuildOptions(cache))
    known = expected or expected_of(name, dtype, batch, steps)
    tokens, is_sure = known.tokens[:batch], known.is_sure[:batch]
    with runtime.load(folder / "b") as program, program.session() as session:
        is_equal = _continued_by(session, known.prompts[:batch], tokens) == tokens
    sure, equal_sure = int(is_sure.sum()), int((is_equal & is_sure).sum())
    return Tokens(is_sure.size, sure, equal_sure, int(is_equal.sum()))


def _continued_by(session: Any, prompts: list[list[int]], tokens: Any) -> Any:
    """The session's tokens, each after eager's own up to there."""
    lengths = numpy.array([len(each) for each in prompts])
    ids = numpy.array([each + [0] * (lengths.max() - len(each)) for each in prompts])
    rows = [_host(session.prefill(ids, lengths, numpy.arange(len(prompts)))["tokens"])]
    for step in range(tokens.shape[1] - 1):
        rows.append(_host(session.decode(tokens[:, step].copy(), lengths + step)["tokens"]))
    return numpy.stack(rows, 1)


def _host(array: Any) -> Any:
    return numpy.array(array)


def main() -> int:
    """Print the table; see the module."""
    sys.path.insert(0, str(MODELS))
    from architectures import ARCHITECTURES

    from aotc.aot.project import cache_folder

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(ARCHITECTURES), choices=ARCHITECTURES)
    parser.add_argument("--dtypes", nargs="*", default=list(SHARES), choices=SHARES)
    parser.add_argument("--batches", nargs="*", type=int, default=list(BATCHES))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--cache", type=Path, default=cache_folder(None))
    given = parser.parse_args()
    print(f"{HEAD}\n|---|---|---:|---:|---:|---:|---:|", flush=True)
    cases = [(n, d) for n in given.only for d in given.dtypes]
    wrong = 0
    for name, dtype, batch in ((*case, batch) for case in cases for batch in given.batches):
        began = time.perf_counter()
        if batch == given.batches[0]:  # all batches begin with the same prompts
            expected = expected_of(name, dtype, max(given.batches), given.steps)
        with tempfile.TemporaryDirectory() as folder:
            rest = (Path(folder), given.cache, given.steps, given.target, expected)
            found = compare(name, dtype, batch, *rest)
        wrong += found.sure - found.equal_sure
        counts = f"{found.total} | {found.sure} | {found.equal_sure} | {found.equal}"
        print(f"| {name} | {dtype} | {batch} | {counts} |", flush=True)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
