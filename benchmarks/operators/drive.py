"""Drives samples through the compiler, many in one bundle, and judges their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from aotc.aot import validation
from aotc.aot.capture.capture import Captured, capture
from aotc.aot.capture.spec import Spec
from aotc.aot.compile import Resources, compile_for
from aotc.aot.errors import UnsupportedError
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import Array
from aotc.aot.options import BuildOptions
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.stages import Clock
from aotc.aot.targets.families import find_target
from aotc.aot.tasks.workers import Workers
from aotc.aot.tune.compiling import Counts
from aotc.cache import Store
from benchmarks.operators.judge import difference
from benchmarks.operators.samples import NAME_PREFIX, Batch, Sample

BATCH = 150  # samples of one bundle
RIGHT, REFUSED, WRONG, BROKEN = "right", "refused", "wrong", "broken"
# Records that draw random numbers: eager draws others, so torch runs the captured program instead.
DRAWN = frozenset({
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial",
    "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
    "nn.functional.multi_head_attention_forward", "nn.functional.scaled_dot_product_attention",
    "normal", "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform",
})  # fmt: skip
INPUT = re.compile(r"`tensors_(\d+)`")  # as `Batch.forward` calls them
INPUTS = re.compile(rf" ({INPUT.pattern}(, )?)+")
Runner = Callable[[Captured], list[Array]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one sample. `broken` is an error that names no op."""

    operator: str
    dtype: str
    number: int
    verdict: str
    reason: str = ""


def drive(samples: Sequence[Sample], run: Runner) -> list[Outcome]:
    """One outcome a sample, in order.

    Samples go in batches. Those that a refusal names by their lines or inputs are left out and the
    rest is tried again; a batch that fails without names is halved until one is alone.
    """
    outcomes: dict[int, Outcome] = {}
    numbered = list(enumerate(samples))
    waiting = [numbered[start : start + BATCH] for start in range(0, len(numbered), BATCH)]
    while waiting:
        batch = waiting.pop()
        try:
            found, golden = _results([sample for _, sample in batch], run)
        except Exception as error:
            named = _named_by(error, [sample for _, sample in batch]) if len(batch) > 1 else {}
            for place, reason in named.items():
                number, sample = batch[place]
                outcomes[number] = _outcome(sample, REFUSED, reason)
            rest = [item for place, item in enumerate(batch) if place not in named]
            if named:
                waiting += [rest] if rest else []
            elif len(batch) > 1:
                waiting += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
            else:
                number, sample = batch[0]
                verdict = REFUSED if isinstance(error, UnsupportedError) else BROKEN
                outcomes[number] = _outcome(sample, verdict, f"{type(error).__name__}: {error}")
            continue
        for number, sample in batch:
            own = [found.pop(0) for _ in sample.expected]
            drawn = [golden.pop(0) for _ in sample.expected]
            expected = sample.expected
            if sample.operator in DRAWN:
                expected = tuple(map(_tensor, drawn, sample.expected))
            outcomes[number] = _judged(sample, own, expected)
    return [outcomes[number] for number in range(len(samples))]


def _named_by(error: Exception, samples: Sequence[Sample]) -> dict[int, str]:
    """The lines of a refusal by the place of the sample that each one names."""
    if not isinstance(error, UnsupportedError):
        return {}
    owners = [place for place, sample in enumerate(samples) for _ in sample.tensors]
    found: dict[int, str] = {}
    for line in str(error).splitlines():
        reason = f"{type(error).__name__}: {INPUTS.sub('', line).strip()}"
        for number in INPUT.findall(line):
            found.setdefault(owners[int(number)], reason)
        place = re.search(rf"in {NAME_PREFIX}(\d+)", line)
        if place is not None:
            found.setdefault(int(place[1]), reason)
    return found


def _tensor(array: Array, like: torch.Tensor) -> torch.Tensor:
    """An array of a capture as a tensor; bf16 is stored as its bits."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if like.dtype == torch.bfloat16 else tensor


def _judged(sample: Sample, found: Sequence[Array], expected: Sequence[torch.Tensor]) -> Outcome:
    """Right is what eager says, or what it says in f32 where it rounds 16-bit steps."""
    worst = _worst(sample, found, expected)
    if worst and sample.precise and not _worst(sample, found, sample.precise):
        worst = ""
    return _outcome(sample, WRONG if worst else RIGHT, worst)


def _worst(sample: Sample, found: Sequence[Array], expected: Sequence[torch.Tensor]) -> str:
    pairs = zip(found, expected, strict=True)
    reasons = (difference(sample.operator, *pair) for pair in pairs)
    return next(filter(None, reasons), "")


def _outcome(sample: Sample, verdict: str, reason: str = "") -> Outcome:
    return Outcome(sample.operator, sample.dtype, sample.number, verdict, reason)


def _results(samples: Sequence[Sample], run: Runner) -> tuple[list[Array], list[Array]]:
    """Ours, and those of torch running the captured program, which draws the same bits."""
    tensors = tuple(tensor for sample in samples for tensor in sample.tensors)
    spec = Spec("operators", "operators", tensors, {}, Batch(samples).eval())
    torch.manual_seed(0)
    captured = capture(spec)
    return run(captured), list(captured.golden_outputs)


def interpreted(captured: Captured) -> list[Array]:
    """Results of the numpy interpreter: the meaning of the import alone."""
    return interpret(captured.graph, captured.golden_inputs)


@contextmanager
def native(cache_folder: Path, target_name: str = "cpu") -> Iterator[Runner]:
    """Results of the compiled code of a target that runs here: `cpu`, or the `cuda` present."""
    target = find_target(target_name)
    options = BuildOptions(cache_folder)
    with Workers() as workers:

        def run(captured: Captured) -> list[Array]:
            graph, _ = rewrite_each(captured.graph, {target.device: target.traits})[target.device]
            resources = Resources(workers, Store(cache_folder), Counts())
            made = compile_for(target, [graph], options, resources, Clock())
            weights = {name: validation.aligned(row.array) for name, row in made.constants.items()}
            inputs = [validation.aligned(array) for array in captured.golden_inputs]
            outputs = [validation.aligned(array) for array in captured.golden_outputs]
            for array in outputs:
                # Nothing is right because nobody wrote it.
                array.reshape(-1).view("uint8")[...] = 0xA5
            validation.run(target, made.library, made.plan.at(), weights, inputs, outputs)
            return outputs

        yield run
