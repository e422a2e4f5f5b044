"""Drives samples through the compiler, many in one bundle, and judges their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from aotc.aot import rehearsal
from aotc.aot.capture.capture import Captured, capture
from aotc.aot.capture.spec import Spec
from aotc.aot.compile import Machinery, compile_for
from aotc.aot.errors import UnsupportedError
from aotc.aot.ir.interpret import interpret
from aotc.aot.ir.storage import Array
from aotc.aot.options import BuildOptions
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.stages import Clock
from aotc.aot.targets.families import find_target
from aotc.aot.targets.workers import Workers
from aotc.aot.tune.compiling import Counts
from aotc.cache import Store
from benchmarks.operators.judge import difference
from benchmarks.operators.samples import Batch, Sample

RIGHT, REFUSED, WRONG, BROKEN = "right", "refused", "wrong", "broken"
Runner = Callable[[Captured], list[Array]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one sample. `broken` is an error that does not refuse by name."""

    operator: str
    dtype: str
    number: int
    verdict: str
    reason: str = ""


def drive(samples: Sequence[Sample], run: Runner) -> Iterator[Outcome]:
    """One outcome a sample, in order; a batch that fails is halved until one is alone."""
    if not samples:
        return
    try:
        found = _results(samples, run)
    except Exception as error:
        if len(samples) > 1:
            middle = len(samples) // 2
            yield from drive(samples[:middle], run)
            yield from drive(samples[middle:], run)
            return
        verdict = REFUSED if isinstance(error, UnsupportedError) else BROKEN
        yield _outcome(samples[0], verdict, f"{type(error).__name__}: {error}")
        return
    for sample in samples:
        own = [found.pop(0) for _ in sample.expected]
        reasons = [difference(*pair) for pair in zip(own, sample.expected, strict=True)]
        worst = next(filter(None, reasons), "")
        yield _outcome(sample, WRONG if worst else RIGHT, worst)


def _outcome(sample: Sample, verdict: str, reason: str = "") -> Outcome:
    return Outcome(sample.operator, sample.dtype, sample.number, verdict, reason)


def _results(samples: Sequence[Sample], run: Runner) -> list[Array]:
    tensors = tuple(tensor for sample in samples for tensor in sample.tensors)
    spec = Spec("operators", "operators", tensors, {}, Batch(samples).eval())
    torch.manual_seed(0)
    return run(capture(spec))


def interpreted(captured: Captured) -> list[Array]:
    """Results of the numpy interpreter: the meaning of the import alone."""
    return interpret(captured.graph, captured.golden_inputs)


@contextmanager
def native(cache_folder: Path) -> Iterator[Runner]:
    """Results of the native code of this machine's CPU."""
    target = find_target("cpu")
    options = BuildOptions(cache_folder)
    with Workers() as workers:

        def run(captured: Captured) -> list[Array]:
            graph, _ = rewrite_each(captured.graph, ["cpu"])["cpu"]
            machinery = Machinery(workers, Store(cache_folder), Counts())
            made = compile_for(target, graph, options, machinery, Clock())
            constants = made.scheduled.graph.constants
            weights = {name: rehearsal.aligned(row.array) for name, row in constants.items()}
            inputs = [rehearsal.aligned(array) for array in captured.golden_inputs]
            outputs = [rehearsal.aligned(array) for array in captured.golden_outputs]
            for array in outputs:
                array.reshape(-1).view("uint8")[...] = (
                    0xA5  # nothing is right because nobody wrote it
                )
            rehearsal.run(target, made.library, made.plan, weights, inputs, outputs)
            return outputs

        yield run
