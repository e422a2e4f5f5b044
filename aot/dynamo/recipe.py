"""A compiled graph as data: its steps in order, each a program of ours or code of torch's.

A recipe is what torch's AOTAutograd cache keeps beside its own record, so that a second process
neither traces nor compiles: a step of ours names an entry of the artifact cache.

Random numbers of a graph are a step too (`RandomStep`): torch's own generator of the device draws
them before the programs run, by the same ops, in the same layout and order as eager, so that a seed
gives the same numbers. The graph takes them as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.capture.aten_signature import reach
from aotc.aot.dynamo.calling import Boxed, Call, Dims, Interface, sizes_at
from aotc.aot.dynamo.control_flow import ControlFlow
from aotc.aot.dynamo.devices import device_at
from aotc.aot.dynamo.eager_graph import EagerGraph
from aotc.aot.dynamo.fallback import load_inductor
from aotc.aot.dynamo.options import Options
from aotc.aot.dynamo.programs import cached_program
from aotc.aot.dynamo.random_ops import DROPOUT_MASK
from aotc.cache import Key
from aotc.runtime.bundle.extent import Row, evaluate, reader

# -- random numbers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blank:
    """The layout of a tensor of random numbers to draw; its extents are integers or `Extent`s.
    ordinal: of its CUDA device, None on the CPU. offset: by how many elements its start is past an
    address that kernels may read in the widest vectors."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    ordinal: int | None = None
    offset: int = 0

    def made(self, number: Callable[[Any], Any]) -> torch.Tensor:
        """The tensor at a call's sizes."""
        shape, strides = (list(map(number, row)) for row in (self.shape, self.strides))
        device = None if self.ordinal is None else device_at(self.ordinal)
        if not self.offset:
            return torch.empty_strided(shape, strides, dtype=self.dtype, device=device)
        memory = torch.empty(reach(shape, strides) + self.offset, dtype=self.dtype, device=device)
        return memory.as_strided(shape, strides, self.offset)


@dataclass(frozen=True, slots=True)
class RandomOp:
    """One call of an op that draws.

    A checkpoint draws the same numbers twice: `saves_state` gives the generator's state from before
    the draw, as a result ahead of the tensor; `state` is the argument that has it again. ordinal:
    of the CUDA device whose generator draws, None for the CPU's.
    """

    operator: str  # `bernoulli.p` of ATen, or our `dropout_mask.default`
    args: tuple[Any, ...]  # plain values, `Blank`, `Extent`, and tuples of them
    kwargs: tuple[tuple[str, Any], ...]
    saves_state: bool = False
    state: int | None = None
    ordinal: int | None = None

    def results(self, number: Callable[[Any], Any], arguments: Sequence[Any]) -> list[torch.Tensor]:
        """The op's results at a call's sizes, after the state of the generator if that is saved.

        A draw from a given state leaves the generator as it was.
        """
        name, _, overload = self.operator.partition(".")
        namespace = torch.ops.aotc if name == DROPOUT_MASK else torch.ops.aten
        operator = getattr(getattr(namespace, name), overload)
        args = [_at(each, number) for each in self.args]
        named = dict(self.kwargs)
        if self.state is None:
            before = [self._generator().get_state()] if self.saves_state else []
            return [*before, operator(*args, **named)]
        generator = self._generator()
        found = generator.get_state()
        generator.set_state(arguments[self.state])
        try:
            return [operator(*args, **named)]
        finally:
            generator.set_state(found)

    def _generator(self) -> torch.Generator:
        """The one that torch draws by where a call names none."""
        if self.ordinal is None:
            return torch.default_generator
        return torch.cuda.default_generators[self.ordinal]


@dataclass(frozen=True, slots=True)
class RandomStep:
    """All draws of a graph in its order, and where the sizes of a call are read, as `Interface`."""

    draws: tuple[RandomOp, ...]
    dims: Dims
    rows: tuple[Row, ...]

    def opened(self) -> Boxed:
        """The callable: arguments of the graph in, tensors out."""

        def call(arguments: list[Any]) -> list[torch.Tensor]:
            number = reader(evaluate(self.rows, sizes_at(self.dims, arguments)))
            results = [each for draw in self.draws for each in draw.results(number, arguments)]
            arguments.clear()
            return results

        return call


def _at(item: Any, number: Callable[[Any], Any]) -> Any:
    """An argument of a draw at a call's sizes."""
    if isinstance(item, Blank):
        return item.made(number)
    return [_at(each, number) for each in item] if isinstance(item, tuple) else number(item)


# -- recipes ---------------------------------------------------------------------------------------


class ProgramGone(Exception):
    """The artifact cache has lost the program of a recipe."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A region that a program of ours computes; no key where nothing is computed."""

    key: Key | None
    interface: Interface
    options: Options

    def opened(self) -> Boxed:
        """The callable, its program loaded from the cache; raises `ProgramGone`."""
        if self.key is None:
            return Call(self.interface, None, self.options.ordinal)
        program = cached_program(self.key, self.options)
        if program is None:
            raise ProgramGone(self.key.digest)
        return Call(self.interface, program, self.options.ordinal)


@dataclass(frozen=True, slots=True)
class LeftToTorch:
    """A region that torch computes: its graph, or Inductor's artifact of it."""

    content: EagerGraph | bytes

    def opened(self) -> Boxed:
        """The callable."""
        if isinstance(self.content, bytes):
            return load_inductor(self.content)
        return self.content.opened()


@dataclass(frozen=True, slots=True)
class Controlled:
    """A call of an op of control flow, and the recipes of the graphs that it runs."""

    flow: ControlFlow
    graphs: tuple[Recipe, ...]

    def opened(self) -> Boxed:
        """The callable; raises `ProgramGone`."""
        return self.flow.bound([each.opened() for each in self.graphs])


@dataclass(frozen=True, slots=True)
class Step:
    """One region. Slots hold the graph's arguments first, then the results of the steps.

    code: None for what cannot be kept.
    """

    code: Compiled | LeftToTorch | RandomStep | Controlled | None
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    freed: tuple[int, ...]  # slots that nothing reads afterwards


@dataclass(frozen=True, slots=True)
class Recipe:
    """A graph. `outputs`: (True, slot), or (False, number) for a result that is known now."""

    steps: tuple[Step, ...]
    slots: int
    outputs: tuple[tuple[bool, Any], ...]

    @property
    def is_whole(self) -> bool:
        """Whether one step takes the arguments and gives the results as they are."""
        if len(self.steps) != 1:
            return False
        (step,) = self.steps
        outputs = tuple((True, slot) for slot in step.results)
        return step.arguments == tuple(range(step.results[0] if step.results else self.slots)) and (
            outputs == self.outputs
        )

    @property
    def is_kept(self) -> bool:
        """Whether another process can open it."""
        return all(step.code is not None for step in self.steps)

    def after(self, drawn: RandomStep, first: int, stop: int) -> Recipe:
        """The recipe whose arguments from `first` to `stop` are drawn."""
        step = Step(drawn, tuple(range(first)), tuple(range(first, stop)), ())
        return Recipe((step, *self.steps), self.slots, self.outputs)

    def opened(self) -> Boxed:
        """The callable in a process that did not compile it; raises `ProgramGone`."""
        return self.bound([step.code.opened() for step in self.steps if step.code is not None])

    def bound(self, calls: Sequence[Boxed]) -> Boxed:
        """The callable of the whole from those of the steps."""
        if self.is_whole:
            return calls[0]
        rows = [
            (call, step.arguments, step.results, step.freed)
            for call, step in zip(calls, self.steps, strict=True)
        ]
        length, outputs = self.slots, self.outputs

        def run(arguments: list[Any]) -> list[Any]:
            slots = arguments + [None] * (length - len(arguments))
            arguments.clear()
            for call, taken, given, freed in rows:
                values = [slots[slot] for slot in taken]
                for slot in freed:
                    slots[slot] = None
                for slot, value in zip(given, call(values), strict=True):
                    slots[slot] = value
            return [slots[value] if is_slot else value for is_slot, value in outputs]

        return run
