"""Sums near the limits of their element type: what passes them in one order and not in another.

A sum of terms near the largest number is a number in one order and infinite or not a number in
another; a square of a number near the smallest one is 0 where it is not scaled before. No wider
type is there to say which is right. A model is asked instead: with such operands replaced in two
ways, its answers part where they count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from aotc.aot.capture.golden import golden_tensors

# Op of ATen that sums → of which degree its terms are in an operand.
DEGREES: Mapping[str, float] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "convolution"), 1.0),
    **dict.fromkeys(("sum", "mean", "cumsum", "avg_pool1d", "avg_pool2d", "avg_pool3d"), 1.0),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "linalg_vector_norm"), 2.0),
    **dict.fromkeys(("var", "var_mean", "std", "std_mean", "_fused_rms_norm"), 2.0),
    **dict.fromkeys(("_cdist_forward", "_euclidean_dist"), 2.0),
    **dict.fromkeys(("prod", "cumprod"), math.inf),
}
REPLACEMENTS = math.inf, 1.0  # of large operands


def large(operands: Sequence[torch.Tensor], degree: float) -> Iterator[torch.Tensor]:
    """Of each operand, floats all, the finite elements of which a sum may pass the largest number.

    degree: of the sum's terms in an operand, infinite for a product of all of them. 16-bit floats
    are summed in f32.
    """
    sizes = [_largest(each) for each in operands]
    count = max((each.numel() for each in operands), default=0)
    for place, value in enumerate(operands):
        others = (*sizes[:place], *sizes[place + 1 :])
        limit = math.log2(torch.finfo(_summed(value)).max) - math.log2(max(count, 1))
        limit -= sum(max(math.log2(each), 0.0) for each in others)
        size = value.detach().double().abs()
        if math.isinf(degree):
            logs = torch.where(size.isfinite() & (size > 1), size, 1.0).log2()
            is_large = (size > 1) & (logs.sum() >= limit)
        else:
            is_large = degree * size.log2() >= limit
        yield is_large & value.isfinite()


def small(value: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The elements whose square is no normal number, and a power of two that makes it one."""
    least = math.log2(torch.finfo(_summed(value)).smallest_normal)
    size = value.detach().double().abs()
    return (size > 0) & (2 * size.log2() < least), 2.0 ** math.ceil(-least / 2)


def _summed(value: torch.Tensor) -> torch.dtype:
    return torch.promote_types(value.dtype, torch.float32)


def _largest(value: torch.Tensor) -> float:
    """The largest finite absolute value; 1 where that is 0 or there is none."""
    size = value.detach().double().abs()
    finite = torch.where(size.isfinite(), size, 0.0)
    return (finite.max().item() if finite.numel() else 0.0) or 1.0


class ReplacedLarge(TorchDispatchMode):
    """Operands of which a sum may overflow are replaced by one size, with their signs."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self._size = size

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function._schema.name.removeprefix("aten::")
        if name in DEGREES:
            args = self._replaced(args, DEGREES[name])
        return function(*args, **(kwargs or {}))

    def _replaced(self, args: Sequence[Any], degree: float) -> Sequence[Any]:
        places = [at for at, each in enumerate(args) if _is_float(each)]
        found = list(args)
        for at, is_large in zip(places, large([args[at] for at in places], degree), strict=True):
            if bool(is_large.any()):
                found[at] = torch.where(is_large, torch.sign(args[at]) * self._size, args[at])
        return found


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.numel())


def answers_without_large(call: Callable[[], Any]) -> tuple[tuple[torch.Tensor, ...], ...]:
    """What a model gives with such operands replaced by either size; nothing where it raises."""
    found = []
    for size in REPLACEMENTS:
        try:
            with ReplacedLarge(size), sdpa_kernel(SDPBackend.MATH):
                found.append(golden_tensors(call))
        except Exception:  # an op does not take what was replaced
            return ()
    return tuple(found)
