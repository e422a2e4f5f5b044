"""A random program as data: inputs, states, applications of ops, outputs; and as plain torch code.

A program runs in several environments: in each one its dims have other sizes. The first one is the
example's. Programs of fixed shapes have one environment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from aotc.aot.capture.imports.call import DTYPE_NAMES

NAMES = DTYPE_NAMES
DTYPES: Mapping[str, torch.dtype] = {name: dtype for dtype, name in NAMES.items()}
FLOATS = ("f64", "f32", "f16", "bf16")
SIGNED = ("i64", "i32", "i16", "i8")
INTEGERS = (*SIGNED, "u8")
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, "bool")


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the program by its name: `x0` an input, `s0` a state, `v0` what a step gives."""

    name: str


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a value along an axis, read at the call."""

    name: str
    axis: int


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type as an argument; `is_rounding` where the f64 run rounds to it as well."""

    name: str
    is_rounding: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """An input or a state: an extent is a number or the name of a dim; `text` gives its values."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    text: str  # an expression of torch code with `{shape}`, `{dtype}` and `{generator}`
    seed: int

    def expression(self, sizes: Mapping[str, int]) -> str:
        """The expression that makes the values at these sizes."""
        shape = tuple(sizes[each] if isinstance(each, str) else each for each in self.shape)
        generator = f"torch.Generator().manual_seed({self.seed})"
        return self.text.format(shape=shape, dtype=DTYPES[self.dtype], generator=generator)


@dataclass(frozen=True, slots=True)
class Step:
    """One application of an op: the row's text, with arguments by the names in its braces."""

    name: str  # of the value; empty where the step changes a state
    op: str
    text: str
    arguments: Mapping[str, Any]

    def refs(self) -> Iterator[str]:
        """Names of the values that it reads, for their elements or their extents."""
        yield from _refs(tuple(self.arguments.values()))

    def expression(self, is_wide: bool = False) -> str:
        """The step as torch code; where `is_wide`, with f64 in place of other floats."""
        texts = {name: printed(value, is_wide) for name, value in self.arguments.items()}
        return self.text.format(**texts)


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program; `dims` are sizes by environment."""

    label: str  # how it was made: family and seed
    inputs: tuple[Input, ...]
    states: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    has_gradients: bool = False

    @property
    def environments(self) -> int:
        """How many sets of sizes it is run with."""
        return max((len(sizes) for sizes in self.dims.values()), default=1)

    def sizes(self, environment: int) -> dict[str, int]:
        """Sizes of the dims in an environment."""
        return {name: sizes[environment] for name, sizes in self.dims.items()}

    def values(self, environment: int, inputs: Sequence[Input]) -> list[torch.Tensor]:
        """The values of inputs or states in an environment."""
        sizes = self.sizes(environment)
        return [evaluate(each.expression(sizes), {}) for each in inputs]

    def source(self) -> str:
        """The program as a runnable spec."""
        names = ", ".join(each.name for each in self.inputs)
        body = [
            f"{step.name} = {step.expression()}" if step.name else step.expression()
            for step in self.steps
        ]
        body.append(f"return ({', '.join(self.outputs)},)")
        lines = [f'"""{self.label}"""', "", "import torch", "import torch.nn.functional as F", ""]
        if self.states:
            lines += self._module(names, body)
        else:
            lines += ["", f"def model({names}):", *(f"    {line}" for line in body), "", ""]
        sizes = self.sizes(0)
        texts = [each.expression(sizes) for each in self.inputs]
        lines += ["example_inputs = (", *(f"    {text}," for text in texts), ")"]
        if self.dims:
            lines += ["dynamic_shapes = (", *map(self._dynamic, self.inputs), ")"]
        return "\n".join(lines) + "\n"

    def _module(self, names: str, body: Sequence[str]) -> list[str]:
        lines = ["", "class Model(torch.nn.Module):", "    def __init__(self):"]
        lines.append("        super().__init__()")
        for state in self.states:
            text = state.expression(self.sizes(0))
            lines.append(f'        self.register_buffer("{state.name}", {text})')
        lines += ["", f"    def forward(self, {names}):"]
        lines += [f"        {state.name} = self.{state.name}" for state in self.states]
        lines += [f"        {line}" for line in body]
        return [*lines, "", "", "def build_model():", "    return Model()", "", ""]

    def _dynamic(self, given: Input) -> str:
        axes = [f"{axis}: torch.export.Dim.AUTO" for axis, each in enumerate(given.shape)
                if isinstance(each, str)]  # fmt: skip
        return f"    {{{', '.join(axes)}}},"


def printed(value: Any, is_wide: bool = False) -> str:
    """An argument as torch code."""
    if isinstance(value, Ref):
        return value.name
    if isinstance(value, Extent):
        return f"{value.name}.shape[{value.axis}]"
    if isinstance(value, Dtype):
        if is_wide and value.name in FLOATS and not value.is_rounding:
            return "torch.float64"
        return str(DTYPES[value.name])
    if isinstance(value, list):
        return f"[{', '.join(printed(each, is_wide) for each in value)}]"
    if isinstance(value, tuple):
        inner = ", ".join(printed(each, is_wide) for each in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


NAMESPACE = {"torch": torch, "F": torch.nn.functional}


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """The value of an expression of torch code over values by name."""
    return eval(text, {**NAMESPACE, **values})


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, Ref | Extent):
        yield value.name
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _refs(each)
