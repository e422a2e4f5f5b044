"""Golden numbers: the exported model's own outputs, and how much its rounding errors change them.

A deep model in bf16 is far from the same model in f32, since each rounding error is amplified by
what follows. Another order of summation is as far away, so this distance is the scale by which our
outputs are judged. So is the distance between a model in f32 and the same in f64, where a
recurrence amplifies enough.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aotc.aot.capture.eager import ATEN_NAMESPACES, Eager
from aotc.aot.capture.op_modes import OpMode, traced_control_flow
from aotc.aot.ir.control import nodes_within
from aotc.aot.ir.graph import Graph

# Element type → that in which a model's roundings are too small to count.
HALVES = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
SINGLES = {torch.float32: torch.float64}
# Distances up to these change no tolerance, of models without and with 16-bit floats.
SETTLED = (1e-5, 3e-3)
JUMP, SMOOTH = 0.05, 0.001  # relative to max |output|: made by a decision only, and by roundings
REINTERPRETING = (
    torch.ops.aten.view.dtype,
    torch.ops.aten.view_copy.dtype,
    torch.ops.prims.view_of_dtype.default,
)


@contextmanager
def quiet_settings() -> Iterator[None]:
    """TransformerEncoder's fast path off, since it changes padded rows; no torch chatter."""
    fast_path, level = torch.backends.mha.get_fastpath_enabled(), logging.root.manager.disable
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.ERROR)  # what torch logs there, our errors say
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        logging.disable(level)


def golden_tensors(call: Callable[[], Any]) -> tuple[torch.Tensor, ...]:
    """The tensors that the exported model returns, in order."""
    with _steady(), Eager():
        return _tensors(call())


def has_halves(graph: Graph) -> bool:
    """Whether a graph holds 16-bit floats."""
    return any(node.type.dtype in ("f16", "bf16") for node in nodes_within(graph))


def roundings(
    call: Callable[[], Any],
    outputs: Sequence[torch.Tensor],
    is_narrow: bool,
    is_decomposed: bool = False,
) -> tuple[float, ...]:
    """For each output: max error against the model in wider floats, relative to max |output|.

    In f32 where the model `is_narrow`, has 16-bit floats, else in f64. 0 for whole numbers and for
    an output that is not finite; without the elements that roundings decide (`without_jumps`).
    Raises what the model does where an op refuses what was widened.
    """
    return tuple(map(without_jumps, distances(call, outputs, is_narrow, is_decomposed)))


def distances(
    call: Callable[[], Any],
    outputs: Sequence[torch.Tensor],
    is_narrow: bool,
    is_decomposed: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Each element's error against the model in wider floats, relative to max |output|;
    nothing for one that `roundings` gives 0.

    is_decomposed: `call` runs the model's decompositions, `outputs` are those of the model itself.
    What is far from them then may be a decomposition that is wrong and no rounding: it is measured
    from the decompositions' own answer.
    """
    mode = _Widened(HALVES) if is_narrow else _WidenedTwice(SINGLES)
    # Below autograd: an op made of others comes whole, not after its check that types agree.
    with _steady(), torch._C._AutoDispatchBelowAutograd(), Eager(), mode:
        wide = _tensors(call())
    away = tuple(apart(*pair) for pair in zip(outputs, wide, strict=True))
    if is_decomposed and max(map(largest, away), default=0.0) > SETTLED[is_narrow]:
        away = tuple(apart(*pair) for pair in zip(golden_tensors(call), wide, strict=True))
    return away


def widest(call: Callable[[], Any], types: Sequence[torch.dtype]) -> tuple[torch.Tensor, ...]:
    """The tensors that a model returns with all its floats in f64, in the types that they have.

    Raises what the model does where an op refuses what was widened.
    """
    mode = _WidenedTwice({**dict.fromkeys(HALVES, torch.float64), **SINGLES})
    with _steady(), torch._C._AutoDispatchBelowAutograd(), Eager(), mode:
        return tuple(each.to(own) for each, own in zip(_tensors(call()), types, strict=True))


def largest(away: torch.Tensor) -> float:
    """The largest of distances; 0 of none."""
    return away.max().item() if away.numel() else 0.0


def without_jumps(away: torch.Tensor) -> float:
    """The largest distance, without those few elements whose distance comes from a discontinuity
    and is far above all others. If rounding errors were merely amplified, the other elements would
    show it too."""
    jumps = away > JUMP
    rest = away[~jumps]
    if bool(jumps.any()) and rest.numel() >= jumps.sum() and largest(rest) < SMOOTH:
        return largest(rest)
    return largest(away)


class _Widened(OpMode):
    """Every operation on the floats of a table in the wider ones, its result too."""

    def __init__(self, wider: Mapping[torch.dtype, torch.dtype]) -> None:
        super().__init__()
        self.wider = wider

    def run_op(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if function in REINTERPRETING:  # a float's bits, which a wider one does not have
            raise NotImplementedError(f"{function} in wider floats")
        return function(*self._wide(args), **self._wide(kwargs))

    def _wide(self, values: Any) -> Any:
        return pytree.tree_map(self._one, values)

    def _one(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in self.wider:
            return value.to(self.wider[value.dtype])
        return self.wider.get(value, value) if isinstance(value, torch.dtype) else value


class _WidenedTwice(_Widened):
    """The same for f32, where a wrong distance would forgive what must not be forgiven.

    Refused are ops of libraries, which are for the floats that they were written for, and ops that
    write into an operand, which here would write into a wider copy of it.
    """

    def run_op(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if function.namespace not in ATEN_NAMESPACES or function._schema.is_mutable:
            raise NotImplementedError(f"{function} in f64")
        return super().run_op(function, args, kwargs)


def apart(found: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """The error of each element against another result, relative to max |output|; 0 for
    integers."""
    none = torch.zeros(0)
    if not wide.is_floating_point() or not wide.numel():
        return none
    scale = wide.abs().max().item()
    away = (found.to(wide.dtype) - wide).abs().flatten()
    return away / scale if 0.0 < scale < float("inf") and not bool(away.isnan().any()) else none


def _tensors(results: Any) -> tuple[torch.Tensor, ...]:
    """The tensors among results, complex ones as their parts."""
    leaves = pytree.tree_leaves(results)
    return tuple(
        torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf.resolve_neg()
        for leaf in leaves
        if isinstance(leaf, torch.Tensor)
    )


@contextmanager
def _steady() -> Iterator[None]:
    """Golden numbers do not depend on how many cores shared the sums, and control flow is traced.

    Nor on a race seen in torch 2.13: when several threads made a process's first call of MKL's
    vector logarithm, one of them once got it to 12 bits only.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with traced_control_flow():
            yield
    finally:
        torch.set_num_threads(threads)
