"""Shapes of results that a version of torch reports wrongly, corrected before a model is traced.

torch 2.11 leaves a dim of extent 1 in the norm over it where the dim is counted from the
end: the function that stands for `linalg_vector_norm` on tensors without data compares -1 with the
dims' places. Eager torch gives the right shape, and what is traced must have it too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._refs.linalg import vector_norm
from torch._subclasses.fake_tensor import FakeTensorMode

_NORM = torch.ops.aten.linalg_vector_norm.default
_LIBRARY = torch.library.Library("aten", "IMPL")


@functools.cache
def _keeps_a_dim() -> bool:
    return bool(vector_norm(torch.empty((1, 1), device="meta"), 2, -1).dim() != 1)


def _norm(
    data: Tensor,
    ord: Any = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The norm over dims that are counted from the front."""
    given = [dim] if isinstance(dim, int) else dim
    rank = max(1, data.dim())
    axes = None if given is None else [each % rank for each in given]
    found: Tensor = vector_norm(data, ord, axes, keepdim, dtype=dtype)
    return found


@functools.cache
def repair_shapes() -> None:
    """From now on tensors without data have the shapes that eager torch gives."""
    if not _keeps_a_dim():
        return
    _LIBRARY.impl("linalg_vector_norm", _norm, "Meta", allow_override=True)
    _NORM.py_kernels[torch._C.DispatchKey.Meta] = _norm
    _NORM._dispatch_cache.clear()
    FakeTensorMode.cache_clear()  # what torch remembers of shapes
