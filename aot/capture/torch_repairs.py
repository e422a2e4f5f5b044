"""Corrections of torch while a model is traced: a wrong shape, and work that torch repeats.

torch 2.11 keeps a dim of extent 1 in a norm over it if the dim is counted from the end: the
function that computes `linalg_vector_norm` on tensors without data compares -1 with the dims'
positions. What it decomposes an LSTM into there gives the last states of a layer with a dim too
many, unless the batch is one. Eager torch gives the right shapes, and the trace must have them too.
The rest saves time in decompositions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table, decompositions
from torch._export import utils
from torch._refs.linalg import vector_norm
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import decomp_utils, exported_program

_NORM = torch.ops.aten.linalg_vector_norm.default
_LIBRARY = torch.library.Library("aten", "IMPL")
# torch's lists of the backends that a composite op gets rules for.
KEYS = ("_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE", "_BACKEND_KEYS_TO_OVERRIDE")
_LIST_OPS = getattr(utils, "_materialize_cpp_cia_ops", None)
_FIND_OPS = getattr(utils, "_collect_all_valid_cia_ops", None)
_FINDERS = (decomp_utils, exported_program)  # modules that imported it


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


def _layer_of_lstm(
    whole: Callable[..., Any], data: Tensor, hidden: Sequence[Tensor], *rest: Any, **named: Any
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """A layer's results, and its last states with the dims of the first ones."""
    found, last = whole(data, hidden, *rest, **named)
    pairs = zip(last, hidden, strict=True)
    return found, tuple(each if each.dim() == own.dim() else each.squeeze(0) for each, own in pairs)


@functools.cache
def repair_shapes() -> None:
    """From now on tensors without data have the shapes that eager torch gives."""
    layer = getattr(decompositions, "one_layer_lstm", None)
    if layer is not None:
        decompositions.one_layer_lstm = functools.partial(_layer_of_lstm, layer)
    if not _keeps_a_dim():
        return
    decomposition_table[_NORM] = _norm  # asked where sizes vary
    _LIBRARY.impl("linalg_vector_norm", _norm, "Meta", allow_override=True)
    _NORM.py_kernels[torch._C.DispatchKey.Meta] = _norm
    _NORM._dispatch_cache.clear()
    FakeTensorMode.cache_clear()  # what torch has cached of shapes


@contextmanager
def ops_listed_once() -> Iterator[None]:
    """Inside, torch looks all of its composite ops up once.

    A decomposition asks twice for those of each namespace, of which there are some thirty, and for
    each torch finds anew every composite op of every namespace: a third of a small model's capture.
    Ops that are defined inside are not among those that may stay whole.
    """
    if _LIST_OPS is None or _FIND_OPS is None:  # a torch that does it otherwise
        yield
        return
    _LIST_OPS()
    utils._materialize_cpp_cia_ops = lambda: None
    found = functools.cache(_FIND_OPS)
    for module in _FINDERS:
        module._collect_all_valid_cia_ops = found
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = _LIST_OPS
        for module in _FINDERS:
            module._collect_all_valid_cia_ops = _FIND_OPS


@contextmanager
def rules_of_devices(types: Collection[str]) -> Iterator[None]:
    """Inside, a decomposition gives its composite ops rules for these types of devices alone.

    torch writes one for each of its 21 kinds of backends into each of some 560 ops and takes them
    out again: a third of a small model's capture. A type that the lists lack asks for all.
    """
    lists = [getattr(exported_program, name, []) for name in KEYS]
    backends = [torch._C._dispatch_key_for_device(each) for each in types]
    wanted = {f"{prefix}{name}" for name in backends for prefix in ("", "Autograd")}
    if not wanted <= {key.name for keys in lists for key in keys}:
        yield
        return
    before = [list(keys) for keys in lists]
    for keys in lists:
        keys[:] = [key for key in keys if key.name in wanted]
    try:
        yield
    finally:
        for keys, own in zip(lists, before, strict=True):
            keys[:] = own
