"""torch's own guard, by which one C++ call checks that all tensors are like those of an earlier
call.

torch.compile guards its code with it. Where the installed torch has no guard that behaves as
expected, tensors are checked attribute by attribute.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Guard = Callable[..., bool]

_is_trusted: list[bool] = []  # what the first question found out


def guard_of(tensors: Sequence[Any]) -> Guard | None:
    """A function that is true for tensors of the same class, element type, shape, strides, device,
    layout, laziness and want of a gradient as these; None where torch does not give one.

    It is also false where it cannot tell: for one tensor given twice, or in another mode of torch.
    """
    torch = sys.modules["torch"]
    if not _is_trusted:
        from threading import Thread

        # Modes and dispatch keys belong to a thread, and decide the answer: a new one has none.
        trial = Thread(target=lambda: _is_trusted.append(_is_right(torch)))
        trial.start()
        trial.join()
    return _guard(torch, tensors) if _is_trusted[0] else None


def _guard(torch: Any, tensors: Sequence[Any]) -> Guard:
    sizes, strides = [list(each.shape) for each in tensors], [list(e.stride()) for e in tensors]
    kind = torch._C._dynamo.guards.TensorGuards
    guard: Any = kind(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    return guard.check  # type: ignore[no-any-return]


def _is_right(torch: Any) -> bool:
    """Whether this torch's guard rejects every tensor that it must reject."""
    try:
        like, other = (torch.zeros(2, 3, dtype=torch.float32, device="cpu") for _ in range(2))
        guard = _guard(torch, (like,))
        return guard(other) is True and not any(map(guard, _different(torch, other)))
    except Exception:  # a torch with another guard may raise whatever it likes
        return False


def _different(torch: Any, like: Any) -> tuple[Any, ...]:
    """Tensors that a guard made for `like` must reject, each for one reason."""
    return (
        like.double(),
        like.view(3, 2),
        like.view(3, 2).t(),
        like.to("meta"),
        like.to_sparse(),
        torch._neg_view(like),
        torch._efficientzerotensor(2, 3),
        torch.zeros(2, 3, dtype=like.dtype, device="cpu", requires_grad=True),
        torch.nn.Parameter(like, requires_grad=False),
        None,
    )
