"""Are these eager's numbers? Within what roundings explain, which eager itself is asked for.

Answers of eager torch bound a float: its own, the same program in f64, runs whose every rounding is
moved at random by a few units in the last place, forward and on the way back, every second of them
with torch's plain implementation of attention; operands in memory of their own (`apart.py`). In a
second opinion half of the runs move each op that torch runs for a step, and what it reads where it
sums terms: terms that cancel leave roundings as large as they were. What lies in the answers' span,
widened, is right. Where these answers part altogether (a comparison or an order of nearly equal
values, a row whose every score is not a number), and where sums count that pass the largest number
in some order, the element cannot be judged, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.capture.decisions import WAYS, Comparisons
from aotc.aot.capture.rounding_sensitivity import (
    explained,
    parts,
    parts_near_limits,
    span_of,
)
from fuzz import bent
from fuzz.generate import levels
from fuzz.overflows import Overflows
from fuzz.program import DTYPES, NAMES, Program
from fuzz.rows.table import ROWS
from fuzz.run import (
    EAGER,
    EPSILON,
    MIXTURES,
    NEAR_LIMITS,
    SQUARED,
    WIDE,
    ZEROS,
    Mode,
    Session,
)
from fuzz.ties import MANY, largest_group

PERTURBED_RUNS = 6
SECOND_RUNS = 24
TIED_RUNS = 200  # of several ops that take some of equal elements, one after the other
# Times the span; a few units of 16-bit floats are so large that no more than these are forgiven.
WIDENED = {"f64": 4.0, "f32": 4.0, "f16": 1.5, "bf16": 1.5}
FEW = 512  # one wrong element of so many may be noise
EXPLAINED = 8.0  # times the span, where answers part: further away is wrong all the same
UNITS = {"f64": 16.0, "f32": 16.0, "f16": 2.0, "bf16": 2.0}  # of the last place beside it
TINY = {"f64": 5e-323, "f32": 1e-44, "f16": 2.4e-7, "bf16": 4e-40}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison found: elements that are wrong, and those that cannot be judged."""

    wrong: int = 0
    undecided: int = 0
    text: str = ""


class TracedOtherwise(Exception):
    """torch's own trace of a program has an output of another type or shape than eager gives."""


def is_exported_without_a_fault(program: Program) -> bool:
    """Whether torch.export's program of core ops runs on data on which eager raises: an op whose
    result nothing reads, its shape perhaps, is not part of it."""
    names: dict[str, Any] = {}
    exec(program.source(), names)
    model = names["build_model"]() if program.states else _Module(names["model"])
    inputs = program.values(0, program.inputs)
    try:
        exported = torch.export.export(model, tuple(inputs)).run_decompositions()
        exported.module()(*inputs)
    except Exception:  # what torch raises of data has no one type
        return False
    return True


class _Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._function(*inputs)


class Judge:
    """Judges results of one program in one environment; references are made when asked for."""

    def __init__(self, program: Program, environment: int) -> None:
        self.program, self.environment = program, environment
        self.eager = Session(program, environment, EAGER).outputs()
        self._references: list[list[torch.Tensor]] = []
        self._overflows: list[list[torch.Tensor]] | None = None
        self._comparisons = Comparisons()
        self._met: list[list[torch.Tensor]] | None = None
        self._taken: list[list[torch.Tensor]] | None = None
        self._back: list[list[torch.Tensor]] | None = None
        self._bent: list[list[torch.Tensor]] | None = None
        self._half_way: bool | None = None

    def verdict(self, found: Sequence[torch.Tensor]) -> Verdict:
        """The verdict on all outputs."""
        if len(found) != len(self.eager):
            return Verdict(1, 0, f"{len(found)} results, expected {len(self.eager)}")
        wrong = undecided = 0
        texts = []
        for place, (own, expected) in enumerate(zip(found, self.eager, strict=True)):
            each = self._output(place, own, expected)
            wrong, undecided = wrong + each.wrong, undecided + each.undecided
            if each.wrong:
                texts.append(f"output {place}: {each.text}")
        return Verdict(wrong, undecided, "; ".join(texts))

    def _output(self, place: int, found: torch.Tensor, expected: torch.Tensor) -> Verdict:
        if found.dtype != expected.dtype or found.shape != expected.shape:
            own, wanted = (f"{each.dtype} {list(each.shape)}" for each in (found, expected))
            if self._is_traced_as(place, found):
                raise TracedOtherwise(f"torch traces {own}, eager gives {wanted}")
            return Verdict(1, 0, f"{own}, expected {wanted}")
        if not expected.numel():
            return Verdict()
        level = self._level(place)
        differs = _differs(found, expected, level)
        if not bool(differs.any()):
            return Verdict()
        if level:
            return Verdict(int(differs.sum()), 0, _shown(found, expected, differs))
        wrong, undecided = self._excused(place, found, expected)
        text = _shown(found, expected, wrong) if bool(wrong.any()) else ""
        return Verdict(int(wrong.sum()), int(undecided.sum()), text)

    def _excused(
        self, place: int, found: torch.Tensor, expected: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Which elements of floats are wrong, and which cannot be judged; what costs most is asked
        last."""
        wrong, undecided = self._within(place, found, expected, PERTURBED_RUNS)
        if bool(wrong.any()):
            may_overflow = self.overflows()[place]
            wrong, undecided = wrong & ~may_overflow, undecided | (wrong & may_overflow)
        if bool(wrong.any()):  # a second opinion: more runs, moved further
            first = undecided
            wrong, undecided = self._within(place, found, expected, SECOND_RUNS)
            wrong, undecided = wrong & ~first, undecided | (wrong & first)
        for is_right in (self._may_be_taken, self._may_bend, self._may_come_back):
            if bool(wrong.any()):
                wrong &= ~is_right(place, found, expected)
        for excuse in (self._may_underflow, self._may_meet, self._may_pass_limits):
            if bool(wrong.any()):
                is_open = excuse(place, found, expected)
                wrong, undecided = wrong & ~is_open, undecided | (wrong & is_open)
        for answers in (self._taken, self._met):
            if bool(wrong.any()) and answers:  # some choices fell one way, some another
                is_open = wrong & _is_between(answers, place, found)
                wrong, undecided = wrong & ~is_open, undecided | is_open
        if bool(wrong.any()) and self._taken and place >= len(self.program.outputs):
            is_open = self._may_be_dealt(place, found, wrong)
            wrong, undecided = wrong & ~is_open, undecided | is_open
        if bool(wrong.any()) and place >= len(self.program.outputs):
            is_open = self._may_overflow_half_way(found) & wrong
            wrong, undecided = wrong & ~is_open, undecided | is_open
        if bool(wrong.any()) and place >= len(self.program.outputs):
            is_open = wrong & _is_noise(found, expected, self._references[0][place], wrong)
            wrong, undecided = wrong & ~is_open, undecided | is_open
        return wrong, undecided

    def _is_traced_as(self, place: int, found: torch.Tensor) -> bool:
        """Whether torch's trace has an output as what was found: no compiler behind it could give
        eager's shape (torch 2.11: a norm along -1 of extent 1 keeps that axis)."""
        rows = Session(self.program, self.environment, EAGER).traced()
        return bool(rows) and rows[place % len(rows)] == (found.dtype, tuple(found.shape))

    def _level(self, place: int) -> str:
        """How an output is to be met; gradients follow the outputs and are sums."""
        count = len(self.program.outputs)
        calls = self.program.states and not self.program.has_gradients
        if place >= count and not calls:
            return ""
        return self._levels()[self.program.outputs[place % count]]

    def _levels(self) -> dict[str, str]:
        return dict(levels(self.program, element_types(self.program, self.environment)))

    def references(self, count: int) -> list[list[torch.Tensor]]:
        """Eager's other answers: in f64, then perturbed."""
        if not self._references:
            wide = Session(self.program, self.environment, WIDE).outputs()
            self._references.append(
                [each.to(own.dtype) for each, own in zip(wide, self.eager, strict=True)]
            )
        while len(self._references) <= count:
            number = len(self._references)
            is_second = number > PERTURBED_RUNS
            is_by_op = is_second and number % 4 < 2
            units = 4.0 if is_second and not is_by_op else 1.0
            mode = Mode(False, number, units, is_plain=number % 2 == 0, is_by_op=is_by_op)
            watching = self._comparisons if is_by_op and not mode.is_plain else None
            self._comparisons.begin()
            session = Session(self.program, self.environment, mode, watching)
            self._references.append(session.outputs())
        return self._references[: count + 1]

    def overflows(self) -> list[torch.Tensor]:
        """For each output, the elements that hang on sums which may pass the largest number."""
        return [
            parts_near_limits(own[:-MIXTURES]) | parts(torch.stack(own[-MIXTURES:]))
            for own in zip(*self._near_limits(), strict=True)
        ]

    def _near_limits(self) -> list[list[torch.Tensor]]:
        if self._overflows is None:
            self._overflows = [
                Session(self.program, self.environment, each).outputs() for each in NEAR_LIMITS
            ]
        return self._overflows

    def _may_pass_limits(
        self, place: int, found: torch.Tensor, expected: torch.Tensor
    ) -> torch.Tensor:
        """Where what was found is near to what eager gives when sums do pass the largest number:
        a later op may make the same of all that such sums come to."""
        return self._is_near(self._near_limits(), place, found, expected)

    def _may_underflow(
        self, place: int, found: torch.Tensor, expected: torch.Tensor
    ) -> torch.Tensor:
        """Where squares count that are no normal numbers, and what was found lies among answers
        without them and with larger ones. In f64, since other floats are asked for in that too."""
        if expected.dtype != torch.float64:
            return torch.zeros_like(found, dtype=torch.bool)
        rows = [Session(self.program, self.environment, each).outputs()[place]
                for each in (ZEROS, SQUARED)]  # fmt: skip
        return explained(torch.stack([expected, *rows]), found, 0.0)

    def _may_meet(self, place: int, found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Where comparisons that may come out otherwise decide, and what was found is near to what
        they make of it."""
        if self._met is None:
            self._met = []
            for way in range(WAYS):
                self._comparisons.begin(way)
                mode = Mode(False, 100 + way, 1.0, is_by_op=True)
                session = Session(self.program, self.environment, mode, self._comparisons)
                self._met.append(session.outputs())
                if not self._comparisons.found:
                    self._met.clear()
                    break
        return self._is_near(self._met, place, found, expected)

    def _may_be_taken(
        self, place: int, found: torch.Tensor, expected: torch.Tensor
    ) -> torch.Tensor:
        """Where what was found is near to what eager gives when others of equal elements are taken,
        of which torch does not say which."""
        if self._taken is None:
            self._taken = []
            steps = [each for each in self.program.steps if ROWS[each.op].breaks_ties]
            values = Session(self.program, self.environment, EAGER).values() if steps else {}
            size = max((largest_group(step, values) for step in steps), default=1)
            turns = (*range(size), *range(MANY, MANY + TIED_RUNS)) if size > 1 else ()
            for turn in turns:
                mode = Mode(turn=turn)
                self._taken.append(Session(self.program, self.environment, mode).outputs())
        return self._is_near(self._taken, place, found, expected)

    def _may_bend(self, place: int, found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Where what was found is near to what eager gives by vectors alone, or by none."""
        if self._bent is None:
            modes = [Mode(bent=way) for way in bent.WAYS]
            self._bent = [Session(self.program, self.environment, m).outputs() for m in modes]
        return self._is_near(self._bent, place, found, expected)

    def _may_come_back(
        self, place: int, found: torch.Tensor, expected: torch.Tensor
    ) -> torch.Tensor:
        """Where a gradient is within what roundings of the way back alone explain: where values are
        exactly equal, slopes may be far larger than beside them (a norm of a row of zeros), and so
        is what their roundings leave."""
        if place < len(self.program.outputs) or not self.program.has_gradients:
            return torch.zeros_like(found, dtype=torch.bool)
        if self._back is None:
            modes = [Mode(False, 200 + turn, 1.0, is_by_op=True, is_way_back=True)
                     for turn in range(SECOND_RUNS)]  # fmt: skip
            self._back = [Session(self.program, self.environment, m).outputs() for m in modes]
        rows = torch.stack([expected, *(each[place] for each in self._back)]).double()
        wrong, is_open = _floats(found.double(), rows, NAMES[expected.dtype])
        return ~wrong & ~is_open

    def _may_overflow_half_way(self, found: torch.Tensor) -> torch.Tensor:
        """Elements of a gradient that are no numbers, where eager's 16-bit floats pass the largest
        number on the way: what becomes of that infinity hangs on how later ops are written."""
        if self._half_way is None:
            with Overflows() as seen:
                Session(self.program, self.environment, EAGER).outputs()
            self._half_way = seen.found
        return ~found.isfinite() & self._half_way

    def _may_be_dealt(self, place: int, found: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
        """Those of the wrong elements of a gradient that are what an equal element of its input
        gets in one of the answers, where such elements together get what they get there: several
        ops that take some of equal elements deal in more ways than are tried."""
        is_dealt = torch.zeros_like(wrong)
        steps = [each for each in self.program.steps if ROWS[each.op].breaks_ties]
        if len(steps) < 2 or not self._taken:
            return is_dealt
        inputs = self.program.values(self.environment, self.program.inputs)
        number = place - len(self.program.outputs)
        operand = [each for each in inputs if each.is_floating_point()][number]
        answers, own = torch.stack([row[place] for row in self._taken]).double(), found.double()
        unit = UNITS[NAMES[found.dtype]] * 2 * EPSILON[NAMES[found.dtype]]
        for value in operand[wrong].unique():
            is_equal = operand == value
            rows, mine = answers[:, is_equal], own[is_equal]
            sums, margin = rows.sum(-1), unit * rows.abs().sum(-1).max()
            if sums.min() - margin <= mine.sum() <= sums.max() + margin:
                away = (mine[:, None] - rows.unique()).abs().amin(-1)
                is_dealt[is_equal] = away <= unit * mine.abs()
        return is_dealt & wrong

    def _is_near(
        self,
        answers: Sequence[list[torch.Tensor]],
        place: int,
        found: torch.Tensor,
        expected: torch.Tensor,
    ) -> torch.Tensor:
        """Where what was found is near to one of the answers, as near as roundings bring it."""
        is_near = torch.zeros_like(found, dtype=torch.bool)
        others = [expected, *(each[place] for each in self._references[: PERTURBED_RUNS + 1])]
        low, high, _ = span_of(torch.stack(others).double())
        name = NAMES[expected.dtype]
        for row in answers:
            if not expected.is_floating_point():
                is_near |= row[place] == found
                continue
            met, own = row[place].double(), found.double()
            size = UNITS[name] * 2 * EPSILON[name] * met.abs() + TINY[name]
            near = (own - met).abs() <= WIDENED[name] * (high - low).clamp_min(0) + size
            is_near |= (near & met.isfinite()) | (own == met) | (own.isnan() & met.isnan())
        return is_near

    def _within(
        self, place: int, found: torch.Tensor, expected: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Which elements are wrong, and which cannot be judged."""
        others = [expected, *(row[place] for row in self.references(count))]
        rows = torch.stack([each.double() if each.is_floating_point() else each for each in others])
        if not expected.is_floating_point():
            is_one = (rows == found).any(0)
            return ~is_one & ~parts(rows), ~is_one & parts(rows)
        return _floats(found.double(), rows, NAMES[expected.dtype])


def _is_between(
    answers: Sequence[list[torch.Tensor]], place: int, found: torch.Tensor
) -> torch.Tensor:
    """Where answers part and what was found lies between them: each makes one choice for all of
    the elements that are equal or may be, and they are free to fall apart."""
    if not found.is_floating_point():
        return torch.zeros_like(found, dtype=torch.bool)
    low, high, has_finite = span_of(torch.stack([row[place] for row in answers]).double())
    own = found.double()
    return has_finite & (low < high) & (own >= low) & (own <= high)


def _is_noise(
    found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor, wrong: torch.Tensor
) -> torch.Tensor:
    """Which elements of a gradient in 16 bits are no further from f64 than eager's furthest, where
    few are wrong and eager is further away on the whole: roundings that a softmax or a mean of
    large numbers has spread over all elements."""
    nothing = torch.zeros_like(wrong)
    if expected.dtype not in (torch.bfloat16, torch.float16):
        return nothing
    own, theirs = ((each.double() - exact.double()).abs() for each in (found, expected))
    is_usual = own.isfinite() & theirs.isfinite()
    if int(wrong.sum()) > max(1, wrong.numel() // FEW) or not bool(is_usual.any()):
        return nothing
    if own[is_usual].square().mean() > theirs[is_usual].square().mean():
        return nothing
    return is_usual & (own <= theirs[is_usual].max())


def _floats(
    found: torch.Tensor, rows: torch.Tensor, name: str
) -> tuple[torch.Tensor, torch.Tensor]:
    low, high, has_finite = span_of(rows)
    size = torch.maximum(low.abs(), high.abs())
    span = high - low
    margin = WIDENED[name] * span + UNITS[name] * 2 * EPSILON[name] * size + TINY[name]
    is_inside = (found >= low - margin) & (found <= high + margin) & has_finite
    is_same = ((rows == found) | (rows.isnan() & found.isnan())).any(0)
    right = is_inside | is_same
    # A sum that rounds to infinity in one order is the largest number in another.
    edge = torch.finfo(DTYPES[name]).max * (1 - 16 * EPSILON[name])
    right |= found.isinf() & has_finite & (size >= edge) & ((low * found > 0) | (high * found > 0))
    right |= (found.abs() >= edge) & (rows == found.sign() * float("inf")).any(0)
    is_open = explained(rows, found, EXPLAINED)
    return ~right & ~is_open, ~right & is_open


def _differs(found: torch.Tensor, expected: torch.Tensor, level: str) -> torch.Tensor:
    if not expected.is_floating_point():
        return found != expected
    differs = (found != expected) & ~(found.isnan() & expected.isnan())
    if level == "bits":
        differs |= (torch.signbit(found) != torch.signbit(expected)) & ~expected.isnan()
    return differs


def _shown(found: torch.Tensor, expected: torch.Tensor, differs: torch.Tensor) -> str:
    place = int(differs.flatten().nonzero()[0])
    left, right = found.flatten()[place].item(), expected.flatten()[place].item()
    where = [int(each) for each in torch.unravel_index(torch.tensor(place), found.shape)]
    count = f"{int(differs.sum())} of {found.numel()} elements differ"
    return f"{count}: at {where} {left!r}, expected {right!r}"


def element_types(program: Program, environment: int) -> dict[str, str]:
    """The element type of each value."""
    values = Session(program, environment, EAGER).values()
    return {name: NAMES[value.dtype] for name, value in values.items()}
