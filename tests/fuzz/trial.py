"""One program, one or more ways: run, judged, classified."""

from __future__ import annotations

import random
import re
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from aotc.aot.errors import SpecError, UnsupportedError
from aotc.aot.tune.tune import RefusedFormWarning
from aotc.runtime.drivers.cpu.driver import features
from aotc.runtime.errors import AotcError, InputError
from fuzz.generate import Choice, generate
from fuzz.judge import Judge, TracedOtherwise, Verdict, is_exported_without_a_fault
from fuzz.program import Program
from fuzz.ways import (
    WAYS,
    Bench,
    FormFailed,
    GoldenCheckRefuses,
    NoNativeForm,
    Results,
    SizesRefused,
    bad_data,
    bad_variants,
)

RIGHT, REFUSED, UNJUDGEABLE = "right", "refused", "unjudgeable"
WRONG, INTERNAL, LATE = "wrong", "internal", "over time"
TORCH_DIES = "torch dies"  # where a new process, in which nothing of ours has run, dies of it too
BAD = (WRONG, INTERNAL, LATE)
TORCH_REFUSES = {
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "GuardOnDataDependentSymNode",
}
BAD_DATA = "bad-data"
DATA_ERRORS = ("index-out-of-range", "division-by-zero", "assertion-failed")
ROWS = {
    "cpu-x86-64-amx": 3,
    "cpu-x86-64-v4-bf16": 3,
    "cpu-x86-64-v4": 2,
    "cpu-x86-64-v3": 2,
}  # with their shares


@dataclass(frozen=True, slots=True)
class Task:
    """A program by how it is drawn, and the ways to run it (empty: as its seed says)."""

    family: str
    seed: int
    choice: Choice
    ways: tuple[tuple[str, str], ...] = ()  # with the target

    def program(self) -> Program:
        """The program itself."""
        return generate(self.family, self.seed, self.choice)

    def chosen_ways(self, program: Program, target: str) -> tuple[tuple[str, str], ...]:
        """One way or two; each of the CPU's rows has its share."""
        if self.ways:
            return self.ways
        rng = random.Random(self.seed * 7919 + len(self.family))
        if target == "cpu":
            rows = {row: share for row, share in ROWS.items() if runs_here(row)}
            (target,) = rng.choices([*rows], [*rows.values()])
        if program.has_gradients:
            return (("compile", target),)
        if self.seed % 9 == 4 and not program.dims and not program.states and bad_variants(program):
            return ((BAD_DATA, target),)
        if self.family == "fourier":  # torch.compile leaves complex numbers to Inductor
            return (("build", target),)
        way = "compile" if rng.random() < 0.4 and target != "cuda" else "build"
        ways = [(way, target)]
        more = rng.random()
        if more < 0.07 and not program.states:
            ways.append(("unfused", target))
        elif more > 0.86 and target != "cuda" and not program.states and not program.dims:
            ways.append(("gpu-forms" if more > 0.93 else "in-bounds", target))
        return tuple(ways)

    def __str__(self) -> str:
        words = [f"{self.family} {self.seed}"]
        words += ["dynamic"] if self.choice.is_dynamic else []
        words += ["gradients"] if self.choice.has_gradients else []
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a program by one way."""

    task: str
    family: str
    way: str
    verdict: str
    reason: str = ""
    steps: int = 0
    undecided: int = 0  # elements that could not be judged
    seconds: float = 0.0


def runs_here(target: str) -> bool:
    """Whether this processor has a row of the CPU target."""
    from aotc.aot.targets.families import find_target

    return set(find_target(target).needs) <= features()


def outcomes(task: Task, bench: Bench, target: str) -> Iterator[Outcome]:
    """The outcome of each way."""
    started = time.monotonic()
    program = task.program()
    for way, own in task.chosen_ways(program, target):
        verdict, reason, undecided = tried(program, way, own, bench)
        seconds = round(time.monotonic() - started, 3)
        yield Outcome(str(task), task.family, f"{way} {own}", verdict, reason,
                      len(program.steps), undecided, seconds)  # fmt: skip
        started = time.monotonic()


def tried(program: Program, way: str, target: str, bench: Bench) -> tuple[str, str, int]:
    """Verdict, its reason and how many elements could not be judged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RefusedFormWarning)
        try:
            if way == BAD_DATA:
                return _judged_with_bad_data(bad_data(program, bench, target))
            results = WAYS[way](program, bench, target)
            bench.judging()
            return _judged(program, results)
        except GoldenCheckRefuses as refused:
            bench.judging()
            verdict, reason, undecided = _judged(program, refused.results)
            if verdict in (RIGHT, UNJUDGEABLE):
                return REFUSED, f"the golden check: {refused}", undecided
            return verdict, reason, undecided
        except NoNativeForm as refused:
            return REFUSED, f"no form for GPUs that runs here: {type(refused).__name__}", 0
        except SizesRefused as refused:
            bench.judging()
            verdict, reason, undecided = _judged(program, refused.results)
            return (verdict, reason, undecided) if verdict in BAD else (REFUSED, str(refused), 0)
        except Exception as error:
            return (*classified(error), 0)


def _judged(program: Program, results: Results) -> tuple[str, str, int]:
    try:
        return _verdict_of(program, results)
    except TracedOtherwise as error:
        return REFUSED, f"torch: {error}", 0
    except Exception as error:  # of the judge's own
        return INTERNAL, f"the judge: {type(error).__name__}: {error}", 0


def _verdict_of(program: Program, results: Results) -> tuple[str, str, int]:
    total = Verdict()
    for environment, found in enumerate(results):
        each = Judge(program, environment).verdict(found)
        text = f"sizes {program.sizes(environment)}: {each.text}" if program.dims else each.text
        if each.wrong:
            return WRONG, text, each.undecided
        total = Verdict(0, total.undecided + each.undecided)
    return (UNJUDGEABLE if total.undecided else RIGHT), "", total.undecided


def _judged_with_bad_data(
    calls: list[tuple[Program, list[torch.Tensor] | InputError]],
) -> tuple[str, str, int]:
    """Ours raises where eager does, and gives its numbers where it does not.

    Where eager raises in an op that torch.export leaves out, the call is counted as unjudgeable.
    """
    undecided = 0
    for program, found in calls:
        try:
            judge = Judge(program, 0)
        except Exception as error:  # what eager raises of data has no one type
            if isinstance(found, InputError) and found.code in DATA_ERRORS:
                continue
            if not isinstance(found, InputError) and is_exported_without_a_fault(program):
                undecided += 1
                continue
            bad = next(each.text for each in program.inputs if "index_fill" in each.text)
            return WRONG, f"eager raises {type(error).__name__}: {error}, ours {found!r}: {bad}", 0
        if isinstance(found, InputError):
            return WRONG, f"ours raises where eager does not: {found}", 0
        verdict = judge.verdict(found)
        if verdict.wrong:
            return WRONG, verdict.text, verdict.undecided
        undecided += verdict.undecided
    return (UNJUDGEABLE if undecided else RIGHT), "", undecided


def classified(error: Exception) -> tuple[str, str]:
    """Whose an error is: a refusal with its reason, or a fault of ours."""
    own = _of_ours(error)
    if isinstance(own, UnsupportedError):
        return REFUSED, f"{own.code}: {own.message}"
    if isinstance(own, SpecError):
        return REFUSED, f"torch: {own.code}: {own.message}"
    if own is not None:
        return INTERNAL, f"{own.code}: {own.message}"
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__module__}.{type(error).__name__}: {' '.join(lines[:2])}"
    if _is_of_torch(error):
        return REFUSED, f"torch: {text}"
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames)
    return INTERNAL, f"{text} ({places})"


def _of_ours(error: BaseException | None) -> AotcError | None:
    """The innermost of our errors behind one of torch.compile's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, AotcError):
            return error
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
    return None


def _is_of_torch(error: BaseException) -> bool:
    """Whether torch could not trace the program: by the error, or since no frame is ours."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(error, KeyError | FormFailed):
        return False
    if {type(error).__name__, type(inner).__name__} & TORCH_REFUSES:
        return True
    frames = [*traceback.extract_tb(error.__traceback__)]
    if inner is not None:
        frames += traceback.extract_tb(inner.__traceback__)
    if not frames or "/torch/" not in frames[-1].filename:
        return False
    return not any(re.search(r"/(aot|runtime|cache|kernels)/", each.filename) for each in frames)
