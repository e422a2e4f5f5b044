"""Random numbers of a graph as data: drawn by torch before the graph's programs run.

torch's own generator draws them, by the same ops into the same layout and in the same order as
eager, so that a seed gives what it gives there. The graph takes them as arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.dynamo.calling import Boxed
from aotc.aot.dynamo.interface import number_of
from aotc.runtime.bundle.extent import Row, evaluate


@dataclass(frozen=True, slots=True)
class Blank:
    """A tensor of any content, whose layout says what is drawn; numbers, or `Numbered`."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class RandomOp:
    """One call of an ATen op that draws.

    A checkpoint draws the same numbers twice: `saves_state` gives the generator's state from before
    the draw, as a result ahead of the tensor; `state` is the argument that has it again.
    """

    operator: str  # `bernoulli.p`
    args: tuple[Any, ...]  # plain values, `Blank`, `Numbered`, and tuples of them
    kwargs: tuple[tuple[str, Any], ...]
    saves_state: bool = False
    state: int | None = None

    def results(self, values: list[int], arguments: Sequence[Any]) -> list[torch.Tensor]:
        """What the op gives at a call's sizes; the state of the generator ahead, where it is kept.

        RandomStep from a given state, the generator is left as it was found.
        """
        name, _, overload = self.operator.partition(".")
        operator = getattr(getattr(torch.ops.aten, name), overload)
        args = [_at(each, values) for each in self.args]
        if self.state is None:
            before = [torch.get_rng_state()] if self.saves_state else []
            return [*before, operator(*args, **dict(self.kwargs))]
        found = torch.get_rng_state()
        torch.set_rng_state(arguments[self.state])
        try:
            return [operator(*args, **dict(self.kwargs))]
        finally:
            torch.set_rng_state(found)


@dataclass(frozen=True, slots=True)
class RandomStep:
    """All draws of a graph in its order, and where the sizes of a call are read, as `Interface`."""

    draws: tuple[RandomOp, ...]
    dims: tuple[tuple[int, int | None], ...]
    rows: tuple[Row, ...]

    def opened(self) -> Boxed:
        """The callable: arguments of the graph in, tensors out."""

        def call(arguments: list[Any]) -> list[torch.Tensor]:
            sizes = [
                arguments[place] if axis is None else arguments[place].shape[axis]
                for place, axis in self.dims
            ]
            values = evaluate(self.rows, sizes)
            results = [each for draw in self.draws for each in draw.results(values, arguments)]
            arguments.clear()
            return results

        return call


def _at(item: Any, values: list[int]) -> Any:
    """An argument of a draw at a call's sizes."""
    if isinstance(item, Blank):
        shape, strides = (
            [number_of(each, values) for each in row] for row in (item.shape, item.strides)
        )
        return torch.empty_strided(shape, strides, dtype=item.dtype)
    if isinstance(item, tuple):
        return [_at(each, values) for each in item]
    return number_of(item, values)
