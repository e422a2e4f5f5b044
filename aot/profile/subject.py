"""What is profiled: the plan of a program at the sizes of a call, and the code behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotc.aot.call_sizes import sizes_of
from aotc.runtime import Program
from aotc.runtime.bundle.manifest import TensorSpec, find_entry
from aotc.runtime.bundle.plan import LaunchPlan, Plan
from aotc.runtime.bundle.signature import NO_SIZES


@dataclass(frozen=True, slots=True)
class Subject:
    """A plan of fixed shapes with its inputs and outputs; `executable` is the driver's."""

    executable: Any
    plan: LaunchPlan
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]


def subject_of(
    program: Program, entry: str | None = None, sizes: Mapping[str, int] = NO_SIZES
) -> Subject:
    """An entry of the program, at the example's sizes of its dims where they are dynamic, or at
    those that are given by name.

    Raises `EntryUnknown`, `EntryNotNamed` for None where there are several, `SizeUnknown`, and what
    a call raises for sizes that it does not take.
    """
    executable: Any = program._open().executable
    row = find_entry(program.manifest.entries, entry)
    signature = row.signature
    if program.plan.fixed is not None:
        sizes_of(signature, program.manifest.session, (), sizes)
        return Subject(executable, program.plan.fixed, row.inputs, row.outputs)
    number = program.manifest.entries.index(row)
    example = first_sizes(program.plan, number)
    chosen = sizes_of(signature, program.manifest.session, example, sizes).dims
    inputs, outputs = signature.at(signature.values(chosen))
    plan = program.plan.at(chosen, number)
    nbytes = (tuple(spec.nbytes for spec in specs) for specs in (inputs, outputs))
    return Subject(executable.at(plan, *nbytes), plan, inputs, outputs)


def first_sizes(plan: Plan, entry: int = 0) -> tuple[int, ...]:
    """The example's sizes, one a dim: those of the entry's first variant, which holds no others."""
    return next(sizes for sizes, number in plan.lows if number == entry)
