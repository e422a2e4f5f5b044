"""Torch dispatch modes that see every op of a model, also inside control flow and `flex_attention`.

Python runs the bodies of such higher-order ops op by op, with the mode active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

import torch
from torch._higher_order_ops import utils
from torch._ops import HigherOrderOperator
from torch.nn.attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from aotc.aot.capture.flex_attention import arithmetic

TRACE = "_hop_compile_and_call"
UNCOMPILED = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
# Of a loop on other inputs than the user's, on which it may have no end.
_MOST_TURNS: ContextVar[int | None] = ContextVar("most_turns", default=10_000)


class OpMode(TorchDispatchMode):
    """A mode whose `run_op` is given each op of torch's registry."""

    supports_higher_order_operators = True
    is_passed_over: ClassVar[bool] = False  # by Dynamo, which else traces nothing in a mode

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What Dynamo asks of a mode."""
        return OpMode.is_passed_over

    def run_op(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """The op's results."""
        raise NotImplementedError

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if not isinstance(function, HigherOrderOperator):
            return self.run_op(function, args, kwargs or {})
        if function.name() in KERNEL_CALLS:  # no ops of torch's are in it
            return function(*args, **(kwargs or {}))
        run = CONTROL_FLOW.get(function.name())
        if run is None:
            raise NotImplementedError(f"`{function.name()}` op by op")
        with self:
            return run(*args, **(kwargs or {}))


@contextmanager
def traced_control_flow() -> Iterator[None]:
    """Inside, torch traces control flow in these modes as it does outside of any, and compiles no
    `flex_attention`.

    It does so at each call, by Dynamo. What Dynamo meets in a mode first, it passes over for good:
    bodies would return what the user's functions do, which is not flat.
    """

    def traced(*args: Any, **kwargs: Any) -> Any:
        before, OpMode.is_passed_over = OpMode.is_passed_over, True
        try:
            return before_it[utils, TRACE](*args, **kwargs)
        finally:
            OpMode.is_passed_over = before

    meanwhile = {(utils, TRACE): traced, (flex_attention, UNCOMPILED): True}
    # torch 2.11 has no function of the first name.
    before_it = {each: getattr(*each) for each in meanwhile if hasattr(*each)}
    for each in before_it:
        setattr(*each, meanwhile[each])
    try:
        yield
    finally:
        for each, value in before_it.items():
            setattr(*each, value)


@contextmanager
def endless_loops() -> Iterator[None]:
    """Inside, loops may take any number of turns."""
    token = _MOST_TURNS.set(None)
    try:
        yield
    finally:
        _MOST_TURNS.reset(token)


def _cond(condition: Any, first: Any, other: Any, operands: Sequence[Any] = ()) -> Any:
    return (first if bool(condition) else other)(*operands)


def _while_loop(
    condition: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = ()
) -> tuple[Any, ...]:
    values, turns, most = tuple(carried), 0, _MOST_TURNS.get()
    while bool(condition(*values, *more)):
        if turns == most:
            raise RuntimeError(f"a loop has not ended after {turns} turns")
        values, turns = tuple(body(*values, *more)), turns + 1
    return tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in values)


def _scan(body: Any, begin: Sequence[Any], scanned: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    """The results as the body has them: flat, or as the user's function does where torch 2.11 did
    not trace it in a mode."""
    values, rows, form = list(begin), [], None
    for turn in range(scanned[0].shape[0]):
        made = body(*values, *(each[turn] for each in scanned), *more)
        leaves, form = tree_flatten(made)
        values = leaves[: len(begin)]
        rows.append(leaves[len(begin) :])
    found = [*values, *(torch.stack(column) for column in zip(*rows, strict=True))]
    return found if form is None else tree_unflatten(found, form)


def _map(body: Any, mapped: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    return _scan(body, (), mapped, more)


def _with_effects(token: Any, function: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Of an op that torch keeps in order by tokens, such as a check of its own."""
    found, after = function(*args, **kwargs), torch.tensor([])
    return (after, *found) if isinstance(found, tuple) else (after, found)


KERNEL_CALLS = frozenset({"triton_kernel_wrapper_functional", "triton_kernel_wrapper_mutation"})
CONTROL_FLOW: Mapping[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "flex_attention": arithmetic,
    "with_effects": _with_effects,
}
