"""Runs a program's steps with eager torch: as it is, in f64, or with its roundings perturbed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from aotc.aot.capture.decisions import Comparisons
from aotc.aot.capture.eager import ExactRests
from aotc.aot.capture.rounding_sensitivity import (
    OVERFLOWED,
    REPLACEMENTS,
    MovedAttention,
    MovedRoundings,
    large,
    moved,
    of_size,
    overflowed,
    small,
)
from fuzz.apart import apart
from fuzz.bent import Bent
from fuzz.program import NAMES, NAMESPACE, Program, Ref, Step
from fuzz.rows.row import Op
from fuzz.rows.table import ROWS
from fuzz.ties import taken

EPSILON = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
CALLS_WITH_STATE = 3
UNEVEN_PRIMES = (  # by which f64 transforms of lengths lose digits in torch's library
    17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109,
    113, 127,
)  # fmt: skip
Tensors = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Mode:
    """How steps are run: `eager`, `wide` (floats in f64), or perturbed by a few roundings.

    is_plain: with torch's plain implementation of attention in place of its fused one; is_by_op:
    perturbed are the ops that torch runs for the steps, on the way back too, rather than the steps;
    is_way_back: of these only the ops of the way back;
    large: what is put in place of operands whose sums or products may pass the largest number in
    some order; share: of which part of their elements, drawn with the seed `draw`;
    overflowed: what elements of such sums come to; small: how operands whose squares are no normal
    numbers are taken, as "zeros", or as numbers whose squares are ("squared");
    turn: by how much equal elements are turned before one of them is taken (`ties.py`);
    bent: how functions that bend and their gradients are computed (`bent.py`).
    """

    is_wide: bool = False
    seed: int | None = None  # of perturbations
    roundings: float = 2.0
    is_plain: bool = False
    is_by_op: bool = False
    is_way_back: bool = False
    large: float | None = None
    share: float = 1.0
    draw: int = 0
    overflowed: float | None = None
    small: str = ""
    turn: int | None = None
    bent: str = ""

    @property
    def hides_scores(self) -> bool:
        """Whether attention never looks at scores that it hides."""
        return self.is_plain and self.seed is not None and self.seed % 4 == 0

    @property
    def is_near_limits(self) -> bool:
        """Whether operands near the limits of their type are replaced."""
        return self.large is not None or bool(self.small)


EAGER, WIDE = Mode(), Mode(is_wide=True)
MIXTURES = 8  # in which some sums or products pass the limits and others do not
NEAR_LIMITS = (
    *(Mode(is_plain=True, large=each) for each in REPLACEMENTS),
    *(Mode(is_plain=True, overflowed=each) for each in (*OVERFLOWED, 0.0)),
    *(Mode(is_plain=True, large=math.inf, share=0.5, draw=each) for each in range(MIXTURES)),
)
ZEROS, SQUARED = (Mode(small=each) for each in ("zeros", "squared"))
SQUARES = 2.0


@functools.lru_cache(4096)
def _compiled(text: str, is_statement: bool) -> CodeType:
    # Its text in place of a file's name: where a process dies, this is all that is seen of it.
    name = text.replace('"', "'")
    return compile(text, f"<{name}>", "exec" if is_statement else "eval")


def run_step(step: Step, values: dict[str, Any], mode: Mode, generator: torch.Generator) -> Any:
    """The value of one step; a step without a name changes a state among the values."""
    row = ROWS[step.op]
    code = _compiled(step.expression(mode.is_wide), not step.name)
    if row.is_legal is not None and not row.is_legal(**_evaluated(step, values)):
        raise ValueError(f"{step.expression()}: not legal, and torch does not check it")
    given = values = {**values, **apart(step, values, code)}
    is_by_step = mode.seed is not None and not mode.is_by_op
    if row.accumulates and (is_by_step or mode.is_near_limits):
        changed = _near_limits if mode.is_near_limits else _all_perturbed
        given = {**values, **changed(step, values, mode, generator)}
    if not step.name:
        exec(code, {**NAMESPACE, **given})
        return None
    if row.breaks_ties and mode.seed is not None:
        given = {**given, **_in_another_order(step, given, generator)}
    if row.breaks_ties and mode.turn is not None:
        return taken(step, given, code, mode.turn, generator)
    hiding = MovedAttention(0, 0.0, hides=True) if mode.hides_scores else nullcontext()
    with sdpa_kernel(SDPBackend.MATH) if mode.is_plain else nullcontext(), hiding:
        value = eval(code, {**NAMESPACE, **given})
        if mode.overflowed is not None and row.accumulates:
            value = _overflowed(step, value, code, given, mode.overflowed)
        if not is_by_step:
            # In f64: rounded where the program converts, and f64 again.
            return value.double() if mode.is_wide and value.is_floating_point() else value
        return _rounded(step, value, code, given, mode, generator)


def _overflowed(step: Step, value: Any, code: CodeType, given: dict[str, Any], into: float) -> Any:
    """The value of a step that sums, less what may overflow in some order of its terms.

    Of squares these are the results that hang on an operand that is large: a deviation of infinity
    makes 0 of a norm.
    """
    names, degree = list(step.refs()), ROWS[step.op].degree
    if ROWS[step.op].sum_text:
        code = _compiled(replace(step, text=ROWS[step.op].sum_text).expression(), False)

    def summed(operands: Sequence[Any]) -> Any:
        return eval(code, {**NAMESPACE, **given, **dict(zip(names, operands, strict=True))})

    if degree == 1.0:
        return overflowed(value, into, [given[name] for name in names], summed)
    if degree != SQUARES or not _is_float(value):
        return value
    unknown = _replaced(names, given, degree, lambda value: torch.nan)
    if not unknown:
        return value
    hangs = summed([{**given, **unknown}[name] for name in names]).isnan()
    return torch.where(hangs, into, value)


def _rounded(
    step: Step,
    value: torch.Tensor,
    code: CodeType,
    given: dict[str, Any],
    mode: Mode,
    generator: torch.Generator,
) -> torch.Tensor:
    """The value of a step with its roundings moved, those of its way back too."""
    row = ROWS[step.op]
    if row.accumulates and value.is_floating_point():
        name = next(step.refs())
        if _narrows(given[name], value):  # each element rounds as it becomes such a float
            operand = _perturbed(given[name].to(value.dtype), mode, generator)
            value = eval(code, {**NAMESPACE, **given, name: operand})
    if row.level in ("bits", "values"):
        return value
    if value.requires_grad and (row.slope_cancels or not row.accumulates):
        value = _with_moved_slopes(step, value, code, given, mode, generator)
    value = _perturbed(value, mode, generator)
    if row.cancels:
        operand = given[next(step.refs())]
        # A sum of powers is at least 1, and so large are the roundings of its logarithm.
        size = operand if operand.shape == value.shape else torch.ones_like(value)
        value = value + _rounding_at(size, value, mode, generator)
    if row.is_of_norm and value.numel():
        size = value.detach().abs().amax().expand(value.shape) * _steps_of(row, given, step)
        value = value + _rounding_at(size, value, mode, generator, least=0.0)
    if value.requires_grad:
        value.register_hook(lambda slopes: _perturbed(slopes, mode, generator))
    return value


def _narrows(operand: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether an operand is of whole numbers or wider floats than what is summed of it."""
    return not operand.is_floating_point() or operand.element_size() > value.element_size()


def _steps_of(row: Op, given: dict[str, Any], step: Step) -> float:
    """How often a transform rounds: n numbers in log2 n steps, some of which cancel.

    torch's own transforms in f64 are off by up to five times p roundings of the largest result
    where p, from 17 to 127, is a prime that divides the length (MKL of torch 2.13, lengths up to
    260, against 80-bit arithmetic). Those of f32 are judged by f64.
    """
    operand = given[next(step.refs())]
    count = operand.numel()
    if row.family != "fourier" or not count:
        return 1.0
    steps = max(1.0, math.log2(count) / 3)
    if operand.dtype != torch.float64:
        return steps
    return max(steps, *(each for each in UNEVEN_PRIMES if count % each == 0), 0.0)


def _with_moved_slopes(
    step: Step,
    value: torch.Tensor,
    code: CodeType,
    given: dict[str, Any],
    mode: Mode,
    generator: torch.Generator,
) -> torch.Tensor:
    """The value with gradients as of operands that are moved: where a slope passes through 0 it is
    a difference, whose roundings are as large as its terms."""
    is_moved = ROWS[step.op].accumulates  # its operands are, before it is run
    changed = {each: given[each] for each in step.refs()} if is_moved else {}
    changed = changed or _all_perturbed(step, given, mode, generator)
    if ROWS[step.op].slope_cancels:
        name = next(step.refs())
        operand = changed[name] = changed[name].view_as(changed[name])
        incoming: list[torch.Tensor] = []
        operand.register_hook(
            lambda slopes: slopes + _rounding_at(incoming[-1], slopes, mode, generator, least=0.0)
        )
    beside = eval(code, {**NAMESPACE, **given, **changed})
    away = (value - beside).detach()
    if ROWS[step.op].slope_cancels:
        beside.register_hook(incoming.append)
    # Slopes of what is not finite are as they are.
    return torch.where(away.isfinite(), beside + away, value)


def _in_another_order(
    step: Step, values: dict[str, Any], generator: torch.Generator
) -> dict[str, Any]:
    """The operand with its elements along the step's axis in another order, as it breaks ties."""
    name, axis = next(step.refs()), step.arguments["axis"]
    value = values[name]
    if not value.dim():
        return {}
    return {name: value.index_select(axis, torch.randperm(value.shape[axis], generator=generator))}


def _all_perturbed(
    step: Step, values: dict[str, Any], mode: Mode, generator: torch.Generator
) -> dict[str, Any]:
    """The operands of a step, each element moved."""
    return {name: _perturbed(values[name], mode, generator) for name in step.refs()}


def _near_limits(
    step: Step, values: dict[str, Any], mode: Mode, generator: torch.Generator
) -> dict[str, Any]:
    """The operands of a step, less those elements of which a sum may pass the largest number, or
    with those whose squares are no normal numbers made smaller or larger."""
    names = [name for name in step.refs() if _is_float(values[name])]
    degree, replacement, found = ROWS[step.op].degree, mode.large, {}
    if replacement is not None:
        return _replaced(
            names, values, degree, lambda value: _of_size(value, mode, degree, generator)
        )
    if degree == SQUARES:
        for name in names:
            value = values[name]
            is_small, factor = small(value)
            if bool(is_small.any()):
                factor = factor if mode.small == "squared" else 0.0
                found[name] = torch.where(is_small, value * factor, value)
    return found


def _of_size(
    value: torch.Tensor, mode: Mode, degree: float, generator: torch.Generator
) -> torch.Tensor:
    """The mode's numbers in place of those of a tensor, or of its share of them."""
    assert mode.large is not None
    found = of_size(value, mode.large, degree)
    if mode.share == 1.0:
        return found
    return torch.where(torch.rand(value.shape, generator=generator) < mode.share, found, value)


def _replaced(
    names: Sequence[str], values: dict[str, Any], degree: float, by: Callable[[torch.Tensor], Any]
) -> dict[str, Any]:
    """Those operands, floats among them, that have large elements, with others in their place."""
    floats = [name for name in names if _is_float(values[name])]
    operands = [values[name] for name in floats]
    return {
        name: torch.where(is_large, by(value), value)
        for name, value, is_large in zip(floats, operands, large(operands, degree), strict=True)
        if bool(is_large.any())
    }


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.numel())


def _evaluated(step: Step, values: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a step, with tensors for the values that it reads."""
    return {
        name: values[each.name] if isinstance(each, Ref) else each
        for name, each in step.arguments.items()
    }


def _perturbed(value: Any, mode: Mode, generator: torch.Generator) -> Any:
    """Each element of a float moved, by a smallest subnormal at least; what is infinite stays."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    with torch.no_grad():
        units = mode.roundings if value.element_size() > 2 else min(1.0, mode.roundings)
        away = moved(value, units, generator) - value.detach()
        away = torch.where(away.isfinite(), away, torch.zeros_like(away))
    return value + away if bool(away.any()) else value


def _rounding_at(
    operand: torch.Tensor,
    value: torch.Tensor,
    mode: Mode,
    generator: torch.Generator,
    least: float = 1.0,
) -> torch.Tensor:
    """A rounding of what is as large as the operand, or as 1."""
    noise = torch.rand(operand.shape, generator=generator, dtype=torch.float64) * 2 - 1
    size = operand.detach().double().abs().nan_to_num(0.0, 0.0, 0.0).clamp_min(least)
    moved = noise * size * (mode.roundings * EPSILON[NAMES[value.dtype]])
    return (moved + torch.zeros_like(value, dtype=torch.float64)).to(value.dtype).detach()


@dataclass(slots=True)
class Session:
    """A program's inputs and states in an environment, in the types of a mode."""

    program: Program
    environment: int
    mode: Mode
    comparisons: Comparisons | None = None  # of a mode by op: watched, or changed

    def outputs(self) -> Tensors:
        """Outputs, then gradients; of each of a few calls where there are states."""
        program = self.program
        with torch.random.fork_rng(devices=[]):
            inputs = [self._typed(t) for t in program.values(self.environment, program.inputs)]
            states = [self._typed(t) for t in program.values(self.environment, program.states)]
        generator = torch.Generator().manual_seed(self.mode.seed or self.mode.draw)
        found: Tensors = []
        is_all_moved = self.mode.is_by_op and not self.mode.is_way_back
        bending = Bent(self.mode.bent) if self.mode.bent else nullcontext()
        # What moves roundings sees each op of a step first: a rest by what may be 0 is open.
        with bending, ExactRests(), self._moving() if is_all_moved else nullcontext():
            for _ in range(CALLS_WITH_STATE if states else 1):
                found += self._call([each.clone() for each in inputs], states, generator)
        return found

    def _moving(self) -> MovedRoundings:
        return MovedRoundings(self.mode.seed or 0, self.mode.roundings, self.comparisons)

    def _typed(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.double() if self.mode.is_wide and tensor.is_floating_point() else tensor

    def _call(self, inputs: Tensors, states: Tensors, generator: torch.Generator) -> Tensors:
        program = self.program
        if program.has_gradients:
            for tensor in inputs:
                tensor.requires_grad_(tensor.is_floating_point())
        values = self._values(inputs, states, generator)
        outputs = [values[name] for name in program.outputs]
        if not program.has_gradients:
            return [each.detach().clone() for each in outputs]
        with self._moving() if self.mode.is_way_back else nullcontext():
            slopes = gradients(inputs, outputs)
        return [*(each.detach().clone() for each in outputs), *slopes]

    def _values(
        self, inputs: Tensors, states: Tensors, generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        program = self.program
        names = [each.name for each in (*program.inputs, *program.states)]
        values: dict[str, torch.Tensor] = dict(zip(names, (*inputs, *states), strict=True))
        for step in program.steps:
            result = run_step(step, values, self.mode, generator)
            if step.name:
                values[step.name] = result
        return values

    def traced(self) -> list[tuple[torch.dtype, tuple[int, ...]]]:
        """Types and shapes of one call's outputs as torch's own trace has them: on tensors without
        elements, on which torch runs Python in place of its kernels. None where it cannot."""
        program = self.program
        rows = [program.values(self.environment, each) for each in (program.inputs, program.states)]
        try:
            with FakeTensorMode() as fake:
                inputs, states = ([fake.from_tensor(each) for each in row] for row in rows)
                values = self._values(inputs, states, torch.Generator())
        except Exception:  # a step reads its data
            return []
        return [(values[name].dtype, tuple(values[name].shape)) for name in program.outputs]

    def values(self) -> dict[str, torch.Tensor]:
        """All values of one call, by name."""
        inputs, states = (
            list(map(self._typed, self.program.values(self.environment, each)))
            for each in (self.program.inputs, self.program.states)
        )
        return self._values(inputs, states, torch.Generator().manual_seed(self.mode.seed or 0))


def gradients(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> Tensors:
    """Gradients of the inputs for fixed gradients of the outputs; zeros where nothing flows."""
    ends = [each for each in outputs if each.requires_grad]
    if not ends:
        return []
    wanted = [each for each in inputs if each.requires_grad]
    seeds = [_slopes(each) for each in ends]
    found = torch.autograd.grad(ends, wanted, seeds, allow_unused=True)
    return [
        torch.zeros_like(own) if each is None else each
        for own, each in zip(wanted, found, strict=True)
    ]


def _slopes(output: torch.Tensor) -> torch.Tensor:
    """Gradients of an output that no sum makes equal: quarters, exact in every float."""
    count = math.prod(output.shape)
    return ((torch.arange(count) % 7 - 2) / 4).reshape(output.shape).to(output.dtype)


def type_name(tensor: torch.Tensor) -> str:
    """Our name of a tensor's element type."""
    return NAMES[tensor.dtype]
