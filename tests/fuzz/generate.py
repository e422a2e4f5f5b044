"""Draws programs. A step is tried with eager torch in all environments before it is taken."""

from __future__ import annotations

import random
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from fuzz.draw import LARGE_NUMEL, Draw, Known, NoDraw, Profile
from fuzz.program import NAMES, NUMBERS, Input, Program, Step, evaluate
from fuzz.rows.row import Level, Op
from fuzz.rows.table import FAMILIES, ROWS
from fuzz.run import EAGER, Session, run_step
from fuzz.values import EDGED, PLAIN

TRIES = 40  # of rows for one step
MOST_OUTPUTS = 5
MOST_STEPS = 40

USUAL = {"f32": 6.0, "f64": 0.7, "f16": 1.2, "bf16": 1.2, "i64": 1.5, "i32": 1.0, "i16": 0.3,
         "i8": 0.4, "u8": 0.5, "bool": 0.6}  # fmt: skip
MIXED = {**dict.fromkeys(USUAL, 1.0), "f32": 2.0}
DIM_SIZES = ((2, 1, 5), (3, 4, 1), (5, 7, 2), (7, 3, 16), (8, 6, 13), (12, 5, 33), (4, 4, 9))


@dataclass(frozen=True, slots=True)
class Choice:
    """What is wanted of a program beside its family; chance decides the rest."""

    is_dynamic: bool = False
    has_gradients: bool = False


def generate(family: str, seed: int, choice: Choice) -> Program:
    """The program of a family and a seed; equal arguments give equal programs."""
    text = f"{family} {seed} {choice}"
    rng = random.Random(zlib.crc32(text.encode()) * 2**32 + seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            made = _Making(family, rng, choice).program(_label(family, seed, choice))
            if made is not None:
                return made


def _label(family: str, seed: int, choice: Choice) -> str:
    words = [f"--family {family} --seed {seed}"]
    words += ["--dynamic"] if choice.is_dynamic else []
    words += ["--gradients"] if choice.has_gradients else []
    words += ["--forward"] if choice == Choice() else []
    return " ".join(words)


class _Making:
    """One attempt at a program."""

    def __init__(self, family: str, rng: random.Random, choice: Choice) -> None:
        self.rng, self.choice, self.family = rng, choice, family
        dims = self._dims() if choice.is_dynamic else {}
        has_edges = not choice.has_gradients and rng.random() < 0.2
        kinds = EDGED if has_edges else PLAIN
        dtypes = MIXED if family == "types" or rng.random() < 0.15 else USUAL
        if choice.has_gradients:
            dtypes = {**dtypes, "f32": 12.0}
        zero_share = 0.01 if rng.random() < 0.8 else 0.1
        is_large = not dims and rng.random() < 0.08
        profile = Profile(family, dtypes, kinds, dims, is_large, zero_share)
        self.draw = Draw(rng, profile, bring_in=self._bring_in)
        self.count = max((len(sizes) for sizes in dims.values()), default=1)
        self.values: list[dict[str, Any]] = [{} for _ in range(self.count)]
        self.steps: list[Step] = []
        self.states: list[Input] = []
        weights = FAMILIES[family]
        self.rows = [row for row in ROWS.values() if weights.get(row.family, 0) and row.weight]
        if dims:
            self.rows = [row for row in self.rows if not row.is_fixed_only]
        totals: dict[str, float] = {}
        for row in self.rows:
            totals[row.family] = totals.get(row.family, 0) + row.weight
        self.weights = [weights[row.family] * row.weight / totals[row.family] for row in self.rows]

    def _dims(self) -> dict[str, tuple[int, ...]]:
        count = self.rng.choice((1, 1, 2))
        return {f"n{place}": self.rng.choice(DIM_SIZES) for place in range(count)}

    def _bring_in(self, given: Input) -> Known:
        """An input or a state as a value that there is, in each environment."""
        for place, values in enumerate(self.values):
            sizes = {name: row[place] for name, row in self.draw.profile.dims.items()}
            values[given.name] = evaluate(given.expression(sizes), {})
        return self._known(given.name, "bits")

    def _known(self, name: str, level: Level) -> Known:
        tensors = [values[name] for values in self.values]
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        return Known(name, NAMES[tensors[0].dtype], shapes, level)

    def program(self, label: str) -> Program | None:
        """The whole program; None where chance led nowhere."""
        count = min(MOST_STEPS, 3 + int(self.rng.expovariate(1 / 6)))
        first = self.draw.dtype()
        self.draw.tensor(first, self.draw.shape(self.rng.choice((1, 2, 2, 3, 3, 4))))
        if self.family == "states" and self.choice == Choice():
            self._add_states()
        for _ in range(count):
            if not self._add_step():
                break
        if len(self.steps) < 3:
            return None
        unused = [known.name for known in self.draw.pool.values()
                  if not known.uses and known.name.startswith("v")]  # fmt: skip
        outputs = unused[-MOST_OUTPUTS:]
        outputs += [each.name for each in self.states if self.rng.random() < 0.5]
        if not outputs or (self.states and not any(not step.name for step in self.steps)):
            return None
        if self.choice.has_gradients and not self._has_gradient(outputs):
            return None
        made = Program(
            label,
            tuple(self.draw.inputs),
            tuple(self.states),
            tuple(self.steps),
            tuple(outputs),
            self.draw.profile.dims,
            self.choice.has_gradients,
        )
        made = without_unused(made)
        return made if _is_legal(made) else None

    def _has_gradient(self, outputs: list[str]) -> bool:
        return any(self.values[0][name].is_floating_point() for name in outputs)

    def _add_states(self) -> None:
        """One buffer or two, read and changed like other values."""
        for place in range(self.rng.choice((1, 1, 2))):
            dtype, shape = self.draw.dtype(NUMBERS), self.draw.shape(self.rng.choice((1, 2, 2, 3)))
            drawn = self.draw._input(dtype, shape)
            state = replace(drawn, name=f"s{place}")
            self.draw.pool[state.name] = self._bring_in(state)
            self.states.append(state)

    def _add_step(self) -> bool:
        for _ in range(TRIES):
            row = self.rng.choices(self.rows, self.weights)[0]
            if self._try(row):
                return True
        return False

    def _try(self, row: Op) -> bool:
        """Draw a row's arguments and take the step, where it is legal in each environment."""
        pool, inputs = dict(self.draw.pool), list(self.draw.inputs)
        try:
            arguments = row.draw(self.draw)
            name = "" if row.is_statement else f"v{len(self.steps)}"
            step = Step(name, row.name, row.text, arguments)
            results = self._results(step)
        except (NoDraw, _Illegal):
            self.draw.pool, self.draw.inputs = pool, inputs
            return False
        if name:
            for values, result in zip(self.values, results, strict=True):
                values[name] = result
        read = [self.draw.pool[each] for each in step.refs()]
        for each in read:
            each.uses += 1
        if not row.is_statement:
            self.draw.pool[name] = self._known(name, self._level(row, read, results[0]))
        self.steps.append(step)
        return True

    def _results(self, step: Step) -> list[torch.Tensor]:
        results = []
        for values in self.values:
            try:
                result = run_step(step, values, EAGER, torch.Generator())
            except Exception as error:  # torch has no one type for what is not legal
                raise _Illegal from error
            if not step.name:
                continue
            if not isinstance(result, torch.Tensor) or result.dtype not in NAMES:
                raise _Illegal
            if result.numel() > 2 * LARGE_NUMEL or result.dim() > 6:
                raise _Illegal
            if self._is_spoilt(result, values, step) and self.draw.chance(0.9):
                raise _Illegal
            results.append(result)
        return results

    def _is_spoilt(self, result: torch.Tensor, values: Mapping[str, Any], step: Step) -> bool:
        """Whether a result lost what was finite, or all its elements became one."""
        if not result.is_floating_point() or not result.numel():
            return result.numel() == 0 and all(values[name].numel() for name in step.refs())
        return not bool(result.isfinite().any())

    def _level(self, row: Op, read: list[Known], result: torch.Tensor) -> Level:
        return level_of(row, [known.level for known in read], [known.dtype for known in read],
                        NAMES[result.dtype])  # fmt: skip


def _is_legal(program: Program) -> bool:
    """Whether eager torch runs the whole program, with gradients where it asks for them."""
    if not program.has_gradients:
        return True  # each step was run
    try:
        Session(program, 0, EAGER).outputs()
    except Exception:
        return False
    return True


class _Illegal(Exception):
    """The step raises with eager torch, or its result is of no use."""


def level_of(row: Op, levels: list[str], dtypes: list[str], result: str) -> Level:
    """How the value of a row is to be met, by its operands."""
    own: Level = row.level
    if own == "integers":
        whole = all(name not in ("f64", "f32", "f16", "bf16") for name in (*dtypes, result))
        own = "bits" if whole else ""
    order: tuple[Level, ...] = ("", "values", "bits")
    return order[min(order.index(each) for each in (own, *levels))]  # type: ignore[arg-type]


def levels(program: Program, dtypes: Mapping[str, str]) -> dict[str, Level]:
    """The level of each value of a program, whose element types are given."""
    found: dict[str, Level] = {each.name: "bits" for each in (*program.inputs, *program.states)}
    for _ in range(2):  # a call begins with the states of the one before
        for step in program.steps:
            read = list(dict.fromkeys(step.refs()))
            name = step.name or step.arguments["state"].name
            own = [found[each] for each in read], [dtypes[each] for each in read]
            found[name] = level_of(ROWS[step.op], *own, dtypes[name])
        if not program.states:
            break
    if program.states and any(not found[each.name] for each in program.states):
        found = dict.fromkeys(found, "")  # views of a state change with it
    return found


def without_unused(program: Program) -> Program:
    """The program without steps and inputs that no output needs."""
    needed = set(program.outputs)
    steps = []
    for step in reversed(program.steps):
        if not step.name or step.name in needed:
            needed.update(step.refs())
            steps.append(step)
    inputs = tuple(each for each in program.inputs if each.name in needed)
    states = tuple(each for each in program.states if each.name in needed)
    return replace(
        program,
        inputs=inputs or program.inputs[:1],
        states=states,
        steps=tuple(reversed(steps)),
        dims={name: sizes for name, sizes in program.dims.items()
              if any(name in each.shape for each in inputs)},
    )  # fmt: skip
