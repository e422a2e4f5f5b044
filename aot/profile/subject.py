"""What is profiled: the plan of a program at the sizes of its example, and the code behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aotc.runtime import Program
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import LaunchPlan, Plan


@dataclass(frozen=True, slots=True)
class Subject:
    """A plan of fixed shapes with its inputs and outputs; `executable` is the driver's."""

    executable: Any
    plan: LaunchPlan
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]


def subject_of(program: Program) -> Subject:
    """The program, at the example's sizes of its dims where they are dynamic."""
    executable: Any = program._open().executable
    if program.plan.fixed is not None:
        return Subject(executable, program.plan.fixed, program.inputs, program.outputs)
    chosen = example_sizes(program.plan)
    values = program.signature.values(chosen)
    inputs, outputs = program.signature.at(values)
    plan = program.plan.at(chosen)
    nbytes = (tuple(spec.nbytes for spec in specs) for specs in (inputs, outputs))
    return Subject(executable.at(plan, *nbytes), plan, inputs, outputs)


def example_sizes(plan: Plan) -> tuple[int, ...]:
    """The example's sizes, one a dim: those of the first variant, which holds no others."""
    return plan.lows[0]
