"""Whether eager's own 16-bit floats pass the largest number half way, as those of others may."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

SHORT = (torch.float16, torch.bfloat16)


class Overflows(TorchDispatchMode):
    """Notes in `found` whether an op made an infinity in 16 bits of what it makes a number of in
    f64."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        infinite = [each for each in tree_leaves(result) if _is_infinite(each)]
        if infinite and not self.found:
            wide = _wide_result(function, args, kwargs or {})
            self.found = any(
                bool((one.isinf() & other.isfinite()).any())
                for one, other in zip(tree_leaves(result), tree_leaves(wide), strict=False)
                if _is_infinite(one) and isinstance(other, torch.Tensor)
            )
        return result


def _is_infinite(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in SHORT and bool(value.isinf().any())


def _wide_result(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """What an op gives of the same numbers in f64; None where it takes no f64."""

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.double() if value.dtype in SHORT else value
        is_type = isinstance(value, torch.dtype) and value in SHORT
        return torch.float64 if is_type else value

    try:
        return function(*tree_map(wide, list(args)), **tree_map(wide, dict(kwargs)))
    except (RuntimeError, TypeError):
        return None
