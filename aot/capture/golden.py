"""Golden numbers: the exported model's own outputs, and how far its 16-bit roundings carry them.

A deep model in bf16 is far from the same model in f32: each rounding is amplified by what follows
it. Another order of summation lands as far away, so the distance is the scale on which our outputs
are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

HALVES = (torch.float16, torch.bfloat16)


def golden_tensors(call: Callable[[], Any]) -> tuple[torch.Tensor, ...]:
    """The tensors that the exported model returns, in order."""
    with _one_thread(), _StableSorts():
        return _tensors(call())


def roundings(call: Callable[[], Any], outputs: Sequence[torch.Tensor]) -> tuple[float, ...]:
    """For each output: its largest distance from the same model computed in f32, of its scale.

    0 for what holds no 16-bit floats anywhere and for whole numbers. An output that is not finite
    has none either.
    """
    # Below autograd: an op made of others comes whole, not after its check that types agree.
    with _one_thread(), torch._C._AutoDispatchBelowAutograd(), _Widened() as mode:
        wide = _tensors(call())
    if not mode.has_halves:
        return (0.0,) * len(outputs)
    return tuple(_distance(*pair) for pair in zip(outputs, wide, strict=True))


class _StableSorts(TorchDispatchMode):
    """Equal elements keep their order in sorts where torch leaves it open, as in compiled code."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.ops.aten.sort.default:
            return _sorted(*args, **(kwargs or {}))
        if function is torch.ops.aten.topk.default:
            return _highest(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _sorted(data: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    return torch.sort(data, stable=True, dim=dim, descending=descending)


def _highest(
    data: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    values, places = _sorted(data, dim, largest)
    return (
        (values, places) if not data.dim() else (values.narrow(dim, 0, k), places.narrow(dim, 0, k))
    )


class _Widened(TorchDispatchMode):
    """Every operation on 16-bit floats in f32, its result too."""

    def __init__(self) -> None:
        super().__init__()
        self.has_halves = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*self._wide(args), **self._wide(kwargs or {}))

    def _wide(self, values: Any) -> Any:
        return pytree.tree_map(self._one, values)

    def _one(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in HALVES:
            self.has_halves = True
            return value.float()
        return torch.float32 if isinstance(value, torch.dtype) and value in HALVES else value


def _distance(found: torch.Tensor, wide: torch.Tensor) -> float:
    if not wide.is_floating_point() or not wide.numel():
        return 0.0
    scale = wide.abs().max().item()
    distance = (found.float() - wide).abs().max().item()
    return distance / scale if 0.0 < scale < float("inf") and distance == distance else 0.0


def _tensors(results: Any) -> tuple[torch.Tensor, ...]:
    leaves = pytree.tree_leaves(results)
    return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Golden numbers do not depend on how many cores shared the sums.

    Nor on a race seen in torch 2.13: when several threads made a process's first call of MKL's
    vector logarithm, one of them once got it to 12 bits only.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
