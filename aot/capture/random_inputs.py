"""Runs the model itself on random inputs, besides its example.

Assumptions that a stage made from the example alone (equal arguments, the state after one call
only) are found by comparing the model's own numbers on other inputs with the bundle's. The inputs
are the example's values in another order, so that their ranges stay valid: probabilities remain
probabilities, and integers remain indices. Eager torch is the reference; inputs for which it raises
an error are skipped, with a note.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

from aotc.aot.capture.exporting import unchanged
from aotc.aot.capture.golden import apart, golden_tensors, roundings, without_jumps
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.rounding_sensitivity import Undecided, undecided_of
from aotc.aot.ir.storage import Array

CALLS_IN_A_ROW = 3  # with the example's, where a call changes a state
SHUFFLED_ELEMENTS = 1 << 20  # of a tensor; larger ones are rotated, which costs a copy
NUDGE = 2.0**-21  # relative, a few units in the last place of f32: what no model may depend on

Leaves = list[Any]
Call = Callable[..., Any]


class TrialWarning(UserWarning):
    """The build could not compare the bundle with the model on random inputs."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Random inputs and the model's outputs, after the calls before it.

    spreads: max error by the model's own roundings, relative to max |value|, of outputs and states;
    undecided: the elements that they decide. Asked only where the numbers differ.
    """

    name: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]  # then the states
    spreads: Callable[[], tuple[float, ...]]
    undecided: Undecided


def trials(
    model: Call,
    arguments: Sequence[Any],
    keyword_arguments: dict[str, Any],
    known: Sequence[Array],
    is_narrow: bool,
    states: Sequence[torch.Tensor] = (),
    more: tuple[Array, ...] = (),
) -> tuple[Trial, ...] | str:
    """What `model` gives on random inputs: one call, or two after the example's with states.
    Or why the model gives nothing to compare with.

    known: outputs and states after the example's call; states: the tensors that a call changes,
    which are as before afterwards; more: inputs of the graph that the model does not take;
    is_narrow: whether the model holds 16-bit floats.
    """
    example, layout = pytree.tree_flatten((tuple(arguments), dict(keyword_arguments)))
    if not any(isinstance(leaf, torch.Tensor) for leaf in example) and not states:
        return ()

    def call(leaves: Leaves) -> Any:
        given, named = pytree.tree_unflatten(leaves, layout)
        return model(*given, **named)

    count = CALLS_IN_A_ROW if states else 2
    reasons = []
    for keeps_whole_numbers in (False, True):
        try:
            rows = [_drawn(example, turn, keeps_whole_numbers) for turn in range(1, count)]
            found = _outputs(call, [example, *rows] if states else rows, states)[-len(rows) :]
        except Exception as error:  # whatever the model raises: it has no numbers to compare with
            reasons.append(f"the model raised {type(error).__name__}")
            continue
        if any(_is_worse(outputs, known) for outputs in found):
            reasons.append("the model gives numbers that are not finite")
            continue
        before = [example, *rows] if states else rows

        def again(turn: int, before: Sequence[Leaves] = before) -> Any:
            if not states:
                return call([_copy(leaf) for leaf in before[turn]])
            return _outputs(call, before[: turn + 2], states)[-1]

        return tuple(
            _trial(
                call, rows[turn], turn, outputs, is_narrow, bool(states), more, partial(again, turn)
            )
            for turn, outputs in enumerate(found)
        )
    return reasons[0]


def judged(found: tuple[Trial, ...] | str) -> tuple[Trial, ...]:
    """The trials; a warning where there are none, with the reason."""
    if not isinstance(found, str):
        return found
    text = f"compared with the model on its example only: on random inputs {found}"
    warnings.warn(text, TrialWarning, stacklevel=2)
    return ()


def _outputs(
    call: Call, rows: Sequence[Leaves], states: Sequence[torch.Tensor]
) -> list[tuple[torch.Tensor, ...]]:
    """Outputs and states after each call, in a row."""
    found = []
    with unchanged(list(states)) as held:
        for leaves in rows:
            outputs = golden_tensors(lambda leaves=leaves: call(leaves))
            found.append(tuple(each.clone() for each in (*outputs, *held)))
    return found


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _is_worse(outputs: Sequence[torch.Tensor], known: Sequence[Array]) -> bool:
    """Whether an output is of another shape than the example's, or not finite where that is."""
    if [tuple(each.shape) for each in outputs] != [each.shape for each in known]:
        return True
    return any(
        not _is_finite(one) and _is_finite(torch.from_numpy(numpy.array(other)).view(one.dtype))
        for one, other in zip(outputs, known, strict=True)
        if one.is_floating_point()
    )


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _trial(
    call: Call,
    leaves: Leaves,
    turn: int,
    outputs: tuple[torch.Tensor, ...],
    is_narrow: bool,
    is_stateful: bool,
    more: tuple[Array, ...],
    again: Callable[[], Any],
) -> Trial:
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    name = f"call {turn + 2}, random inputs" if is_stateful else "random inputs"

    def asked() -> tuple[float, ...]:
        if is_stateful:  # a call in wider floats would change the states of others
            return (0.0,) * len(outputs)
        return spreads(call, leaves, outputs, is_narrow)

    inputs = (*(to_array(tensor).copy() for tensor in tensors), *more)
    expected = tuple(map(to_array, outputs))
    return Trial(name, inputs, expected, asked, undecided_of(again, expected))


def spreads(
    call: Call, leaves: Leaves, outputs: tuple[torch.Tensor, ...], is_narrow: bool
) -> tuple[float, ...]:
    """The larger of two distances: of the model from itself in wider floats, and from itself on
    inputs that differ in their last bits."""
    found = [0.0] * len(outputs)
    with torch.no_grad():
        try:
            carried = roundings(lambda: call(leaves), outputs, is_narrow)
            found = list(carried)
        except Exception:  # an op does not take what was widened
            pass
        nudged = golden_tensors(lambda: call([_nudged(leaf) for leaf in leaves]))
    for place, (one, other) in enumerate(zip(outputs, nudged, strict=True)):
        found[place] = max(found[place], without_jumps(apart(one, other)))
    return tuple(found)


def _nudged(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
        return leaf
    waves = torch.arange(leaf.numel(), dtype=torch.float32).sin().reshape(leaf.shape)
    return leaf * (1 + NUDGE * waves).to(leaf.dtype)


def _drawn(example: Leaves, turn: int, keeps_whole_numbers: bool) -> Leaves:
    generator = torch.Generator().manual_seed(turn)
    return [
        _other(leaf, place + turn, generator, keeps_whole_numbers)
        if isinstance(leaf, torch.Tensor)
        else leaf
        for place, leaf in enumerate(example)
    ]


def _other(
    tensor: torch.Tensor, shift: int, generator: torch.Generator, keeps_whole_numbers: bool
) -> torch.Tensor:
    """The tensor's elements in another order; floats that are all equal are drawn near their
    value."""
    is_float = tensor.is_floating_point()
    if tensor.numel() < 2 or (keeps_whole_numbers and not (is_float or tensor.is_complex())):
        return tensor
    flat = tensor.detach().flatten()
    if is_float and tensor.element_size() > 1 and bool((flat == flat[0]).all()):
        step = abs(flat[0].item()) or 1.0
        drawn = torch.rand(flat.shape, generator=generator) * (step / 4)
        return (flat + (drawn if flat[0] >= 0 else -drawn).to(flat.dtype)).reshape(tensor.shape)
    if flat.numel() > SHUFFLED_ELEMENTS:
        return flat.roll(int(flat.numel() * 0.382) + shift).reshape(tensor.shape)
    return flat[torch.randperm(flat.numel(), generator=generator)].reshape(tensor.shape)
