"""The CTC loss as a scan over frames of the log-probability of all alignments with the target.

torch's own kernel reads the values of the lengths, which a trace does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._higher_order_ops.scan import scan_op
from torch._ops import OperatorBase

from aotc.aot.capture.decompositions.replacing import MEAN, SUM, Replaced

aten = torch.ops.aten
OF_INPUT = "a length of an input given to `ctc_loss` is not one of its frames"
OF_TARGET = "a length of a target given to `ctc_loss` is not one of the targets that there are"
NEVER = -math.inf  # the logarithm of a chance of 0


def _loss(
    log_chances: Tensor, targets: Tensor, of_inputs: Any, of_targets: Any, blank: int = 0,
    reduction: int = MEAN, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """The negative log-probability of each target: each, their sum, or their mean by label."""
    losses, lengths = _losses(log_chances, targets, of_inputs, of_targets, blank)
    if zero_infinity:
        losses = torch.where(losses == math.inf, 0.0, losses)
    if reduction == MEAN:
        losses = (losses / lengths.clamp(min=1).to(losses.dtype)).mean()
    elif reduction == SUM:
        losses = losses.sum()
    return losses if reduction or log_chances.dim() == 3 else losses.squeeze(0)


def _losses(
    log_chances: Tensor, targets: Tensor, of_inputs: Any, of_targets: Any, blank: int
) -> tuple[Tensor, Tensor]:
    """Of each target, and the lengths.

    log_chances: f[frames, batch, classes] or f[frames, classes]; targets: whole numbers [batch, S],
    or in one row; of_inputs, of_targets: lengths. States of an alignment are the target's labels
    with a blank before, between and behind them; one may be left out between two that differ.
    """
    chances = log_chances if log_chances.dim() == 3 else log_chances.unsqueeze(1)
    frames, batch, _ = chances.shape
    inputs = _lengths(of_inputs, batch, chances.device)
    lengths = _lengths(of_targets, batch, chances.device)
    labels = _labels(targets, of_targets, lengths, batch)
    _check(inputs, lengths, frames, targets, labels)
    count = labels.shape[1]
    states = labels.new_full((batch, count, 2), blank)
    states[:, :, 1] = labels
    states = torch.nn.functional.pad(states.reshape(batch, 2 * count), (0, 1), value=blank)
    places = torch.arange(2 * count + 1, device=chances.device)
    seen = chances.gather(2, states.expand(frames, batch, 2 * count + 1))
    first = torch.where(places < 2, seen[0], NEVER)
    first = torch.where((places == 1) & (lengths == 0).unsqueeze(1), NEVER, first)
    before = torch.nn.functional.pad(states, (2, 0), value=blank)[:, : 2 * count + 1]
    # Past the blank between two labels that differ: never to a blank itself, which is as before.
    leaps = (states != before) & (places > 2)

    def next_frame(*values: Tensor) -> list[Tensor]:
        so_far, frame, number, leaps, inputs = values
        stepped = torch.nn.functional.pad(so_far, (1, 0), value=NEVER)[:, :-1]
        leapt = torch.nn.functional.pad(so_far, (2, 0), value=NEVER)[:, :-2]
        found = _either(so_far, stepped, torch.where(leaps, leapt, NEVER)) + frame
        found = torch.where((number < inputs).unsqueeze(1), found, so_far)
        return [found]

    last = first
    if frames != 1:  # no scan has no rows
        numbers = torch.arange(1, frames, device=chances.device)
        (last,) = scan_op(next_frame, [first], [seen[1:], numbers], (leaps, inputs))
    ends = _at(last, 2 * lengths), torch.where(lengths > 0, _at(last, 2 * lengths - 1), NEVER)
    chance = _either(*ends)
    chance = torch.where(inputs > 0, chance, torch.where(lengths > 0, NEVER, 0.0))
    return -chance, lengths


def _lengths(given: Any, batch: int, device: torch.device) -> Tensor:
    if not isinstance(given, Tensor):
        numbers = [torch.full((1,), each, dtype=torch.int64, device=device) for each in given]
        return torch.cat(numbers)
    return given.to(device, torch.int64).reshape(batch)


def _labels(targets: Tensor, given: Any, lengths: Tensor, batch: int) -> Tensor:
    """The targets as rows: of those that come one behind the other each as long as may be."""
    targets = targets.to(torch.int64)
    if targets.dim() == 2:
        return targets
    longest = targets.shape[0] if isinstance(given, Tensor) else max(given, default=0)
    starts = (lengths.cumsum(0) - lengths).unsqueeze(1)
    places = starts + torch.arange(longest, device=targets.device)
    if not targets.shape[0]:
        return targets.reshape(1, 0).expand(batch, 0)
    return targets[places.clamp(max=targets.shape[0] - 1)]


def _check(inputs: Tensor, lengths: Tensor, frames: int, targets: Tensor, labels: Tensor) -> None:
    are_inputs = ((inputs >= 0) & (inputs <= frames)).all()
    aten._assert_async.msg(are_inputs, OF_INPUT)
    are_targets = ((lengths >= 0) & (lengths <= labels.shape[1])).all()
    if targets.dim() == 1:
        are_targets = are_targets & (lengths.sum() == targets.shape[0])
    aten._assert_async.msg(are_targets, OF_TARGET)


def _either(first: Tensor, *others: Tensor) -> Tensor:
    """The logarithm of a sum of probabilities, which may all be 0 (log-sum-exp)."""
    most = first
    for each in others:
        most = most.maximum(each)
    shift = torch.where(most == NEVER, 0.0, most)
    total = (first - shift).exp()
    for each in others:
        total = total + (each - shift).exp()
    return total.log() + shift


def _at(chances: Tensor, places: Tensor) -> Tensor:
    return chances.gather(1, places.clamp(min=0).unsqueeze(1)).squeeze(1)


OPS = (aten.ctc_loss.IntList, aten.ctc_loss.Tensor)
# For the trace, which leaves the op whole and asks for its result, and for what takes it apart.
ALIGNED: Replaced = dict.fromkeys(OPS, (DispatchKey.CompositeImplicitAutograd, _loss))
ALIGNMENTS: Mapping[OperatorBase, Callable[..., Any]] = dict.fromkeys(OPS, _loss)
