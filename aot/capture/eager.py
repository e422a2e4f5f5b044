"""Eager torch as a reference, without the errors and the unspecified results of its kernels.

- Where several elements of an operand share one address (`expand`, `unfold`), its `median` returns
  what a buffer held before, and `slice_scatter` writes an address several times: such operands are
  copied.
- The vectorised `fmod` gives NaN if the quotient overflows, the scalar tail the exact remainder:
  remainders of floats are exact here.
- Sorts are stable where torch leaves the order open, as in compiled code.
- Its `kthvalue` takes quadratic time on sorted data; it is taken from a sort instead.
- A quotient for which torch's own kernel would end the process raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

from aotc.aot.capture.op_modes import OpMode

aten = torch.ops.aten
APART = 0  # torch's answer where no two elements surely lie in one place
ATEN_NAMESPACES = ("aten", "prims")  # whose ops take f64 where they take f32
# Products read elements wherever they lie; a batch of one matrix would be copied for each row.
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution")
COPIES = ("clone", "_to_copy")
TRUNCATING = (
    aten.div.Tensor_mode, aten.div.Scalar_mode, aten.div.out_mode,
    aten.div_.Tensor_mode, aten.div_.Scalar_mode,
)  # fmt: skip


class Eager(OpMode):
    """Every op as the module says."""

    def run_op(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if function in TRUNCATING:
            _refuse_overflow(*args, **kwargs)
        if _reads_memory(function):
            args, kwargs = pytree.tree_map(_apart, (args, kwargs))
        return EXACTLY.get(function, function)(*args, **kwargs)


class ExactRests(OpMode):
    """Exact rests of floats alone."""

    def run_op(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        exactly = RESTS.get(function, function)
        return exactly(*args, **kwargs)


def _reads_memory(function: Any) -> bool:
    """Whether an op's kernel may depend on where its operands' elements lie."""
    if function.namespace not in ATEN_NAMESPACES or function.is_view:
        return False
    is_one_by_one = torch.Tag.pointwise in function.tags
    name = function._schema.name.rpartition("::")[2]
    return not (function._schema.is_mutable or is_one_by_one or name in (*PRODUCTS, *COPIES))


def _apart(value: Any) -> Any:
    """A tensor in memory of its own where two of its elements may lie in one place."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    if torch._debug_has_internal_overlap(value) == APART:
        return value
    return value.clone()  # in the order of its memory, as what is made of it may be viewed


def _refuse_overflow(
    data: torch.Tensor, divisor: Any, *, rounding_mode: str | None = None, **_: Any
) -> None:
    """Raises `OverflowError` for the smallest integer by -1, whose quotient its type lacks: the
    processor's division, to which torch leaves those that truncate, ends the process there."""
    kind = torch.result_type(data, divisor)
    if rounding_mode != "trunc" or kind not in (torch.int32, torch.int64):
        return
    is_least = torch.as_tensor(data).to(kind) == torch.iinfo(kind).min
    if bool((is_least & (torch.as_tensor(divisor).to(kind) == -1)).any()):
        raise OverflowError(f"{torch.iinfo(kind).min} / -1: eager torch ends the process there")


def _sorted(data: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    return torch.sort(data, stable=True, dim=dim, descending=descending)


def _highest(
    data: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    values, places = _sorted(data, dim, largest)
    if not data.dim():
        return values, places
    return tuple(each.narrow(dim, 0, k).contiguous() for each in (values, places))


def _kth_lowest(
    data: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    if not data.dim() or not 0 < k <= data.shape[dim]:
        return torch.kthvalue(data, k, dim, keepdim)
    values, places = (each.narrow(dim, k - 1, 1).contiguous() for each in _sorted(data, dim))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _truncated_rest(data: Any, divisor: Any) -> torch.Tensor:
    """x - y · trunc(x / y): a number of the type for every quotient, which the C library gives."""
    kind = torch.result_type(data, divisor)
    if not kind.is_floating_point:
        return torch.fmod(data, divisor)
    pair = [
        each.to(kind) if isinstance(each, torch.Tensor) else torch.tensor(each, dtype=kind)
        for each in (data, divisor)
    ]
    with numpy.errstate(invalid="ignore"):
        found = numpy.fmod(*(each.double().numpy(force=True) for each in pair))
    place = data.device if isinstance(data, torch.Tensor) else divisor.device
    return torch.as_tensor(found).to(place, kind)


def _floored_rest(data: Any, divisor: Any) -> torch.Tensor:
    """x - y · floor(x / y): the truncated rest, and y more where their signs differ."""
    if not torch.result_type(data, divisor).is_floating_point:
        return torch.remainder(data, divisor)
    rest = _truncated_rest(data, divisor)
    return torch.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)


RESTS: Mapping[Any, Callable[..., Any]] = {
    aten.fmod.Tensor: _truncated_rest,
    aten.fmod.Scalar: _truncated_rest,
    aten.remainder.Tensor: _floored_rest,
    aten.remainder.Scalar: _floored_rest,
    aten.remainder.Scalar_Tensor: _floored_rest,
}
EXACTLY: Mapping[Any, Callable[..., Any]] = {
    **RESTS,
    aten.sort.default: _sorted,
    aten.topk.default: _highest,
    aten.kthvalue.default: _kth_lowest,
}
