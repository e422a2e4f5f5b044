"""Computes a model on the CPU with TF32 convolutions, as eager torch computes it on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import count
from typing import Any

import torch

from aotc.aot.capture.custom_ops import base_name
from aotc.aot.capture.golden import apart, golden_tensors, quiet_settings, without_jumps
from aotc.aot.capture.imports.rng import GOLDEN_SEED, seeded
from aotc.aot.capture.op_modes import OpMode

CONVOLUTIONS = frozenset({
    "convolution", "_convolution", "mkldnn_convolution", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
})  # fmt: skip
LOST_BITS = 13  # of the 24 of f32


class RoundedConvolutions(OpMode):
    """Operands of convolutions of f32 are rounded to TF32, as cuDNN rounds them: to the nearest, or
    with a generator to either neighbour at random."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self._generator = generator

    def run_op(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if base_name(function) in CONVOLUTIONS:
            args = (*map(self._rounded, args[:2]), *args[2:])
        return function(*args, **kwargs)

    def _rounded(self, value: torch.Tensor) -> torch.Tensor:
        if value.dtype != torch.float32:
            return value
        whole = 1 << LOST_BITS
        more: torch.Tensor | int = whole // 2
        if self._generator is not None:
            how = {"generator": self._generator, "dtype": torch.int32}
            more = torch.randint(whole, value.shape, **how)
        bits = (value.detach().contiguous().view(torch.int32) + more) & -whole
        return torch.where(value.isnan(), value, bits.view(torch.float32))


def with_tf32(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call with convolutions of TF32: of the nearest numbers at first, then of neighbours."""
    turns = count()

    def rounded() -> Any:
        turn = next(turns)
        generator = torch.Generator().manual_seed(turn) if turn else None
        with RoundedConvolutions(generator):
            return call()

    return rounded


def tf32_roundings_of(call: Callable[[], Any]) -> Callable[[], tuple[float, ...]]:
    """How far a model's outputs move by it, relative to the largest of each; measured when asked.

    call: gives the model's tensors, each time anew.
    """

    @cache
    def asked() -> tuple[float, ...]:
        with torch.no_grad(), quiet_settings(), seeded(GOLDEN_SEED):
            pairs = zip(golden_tensors(with_tf32(call)), golden_tensors(call), strict=True)
            return tuple(without_jumps(apart(*pair)) for pair in pairs)

    return asked
