"""Rewrites that users bring along: `@aot.rewrite` and the files that `--rewrites` names.

    @aot.rewrite(lambda x: x * ops.sigmoid(x))      # an equation: its left side …
    def swish(x):
        return ops.silu(x)                          # … and its right side

    @aot.rewrite(lambda x, y: ops.silu(x) * y, with_torch=True)
    def gated(x, y):                                # tensors of torch: a kernel of one's own
        return torch.ops.mine.gated(x, y)

    @aot.rewrite
    def fewer_outputs(graph):                       # a function over the whole graph
        return graph

What a rewrite gives back must have the type of what it takes out, be legal, and come to an end;
`apply_user_rewrites.py` sees to that.
"""

from __future__ import annotations

import hashlib
import inspect
import runpy
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from aotc.aot.errors import UserError
from aotc.aot.ir.match import AnyLiteral, Pattern, root_ops
from aotc.aot.rewrites.equations import bound_names, parameters
from aotc.aot.rewrites.registry import UserRewrite, register


class UserRewriteRejected(UserError):
    """A rewrite of the user's made something that cannot stand in the place of what it took out."""

    code = "user-rewrite-rejected"
    template = "rewrite `{rule}` ({source}) is rejected: {reason}\nbefore:\n{before}after:\n{after}"
    hint = "give back what has the same type and reads the same values"


class UserRewriteEndless(UserError):
    """A rewrite of the user's still fired after as many times as any end can take."""

    code = "user-rewrite-endless"
    template = (
        "rewrite `{rule}` ({source}) does not come to an end: it fired {count} times\n"
        "before:\n{before}after:\n{after}"
    )
    hint = "what it gives back matches it again: make its pattern or its `when` narrower"


class UserRewriteInvalid(UserError):
    """`@aot.rewrite` was given what is no rewrite."""

    code = "user-rewrite-invalid"
    template = "rewrite `{rule}` ({source}): {reason}"
    hint = "see docs/rewrites.md for the three forms of a rewrite"


class UserRewritesUnreadable(UserError):
    """The file that `--rewrites` names cannot be read as Python, or holds no rewrite."""

    code = "user-rewrites-unreadable"
    template = "rewrites `{path}`: {reason}"
    hint = "name a Python file in which functions carry `@aot.rewrite`"


_COLLECTING: ContextVar[list[UserRewrite] | None] = ContextVar("collecting", default=None)


def rewrite(
    left: Callable[..., Any] | None = None,
    *,
    when: Callable[..., bool] | None = None,
    with_torch: bool = False,
) -> Callable[..., Any]:
    """Register a rewrite; it is used by every back end of this process from the next graph on.

    With a left side, the decorated function is the right side of an equation: over `ops`, or over
    tensors with `with_torch`. Without one it takes a `Graph` and gives one with the same signature.
    Raises `UserRewriteInvalid`.
    """
    if left is not None and not callable(left):
        raise TypeError(f"`@aot.rewrite` is given {left!r}, expected a function")
    if left is not None and not _is_left_side(left):
        _register(_over_graph(left))
        return left

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        whole = (
            _over_graph(function) if left is None else _equation(left, function, when, with_torch)
        )
        _register(whole)
        return function

    return decorate


def load_rewrites(path: Path) -> tuple[UserRewrite, ...]:
    """The rewrites of a file, which is run; raises `UserRewritesUnreadable`."""
    if not path.is_file():
        raise UserRewritesUnreadable(path=str(path), reason="no such file")
    found: list[UserRewrite] = []
    token = _COLLECTING.set(found)
    sys.path.insert(0, str(path.resolve().parent))  # it may import what lies beside it
    try:
        runpy.run_path(str(path), run_name="rewrites")
    except UserRewriteInvalid:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserRewritesUnreadable(path=str(path), reason=reason) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
        _COLLECTING.reset(token)
    if not found:
        raise UserRewritesUnreadable(path=str(path), reason="it registers no rewrite")
    return tuple(found)


# -- registering -----------------------------------------------------------------------------------


def _is_left_side(function: Callable[..., Any]) -> bool:
    """Whether `@rewrite(function)` gives a left side; bare, it decorates one over a graph."""
    return function.__name__ == "<lambda>" or list(inspect.signature(function).parameters) != [
        "graph"
    ]


def _register(own: UserRewrite) -> None:
    target = _COLLECTING.get()
    if target is None:
        register(own)
        return
    for each in target:
        if each.name == own.name:
            reason = f"its name is that of another rewrite of the file ({each.source})"
            raise UserRewriteInvalid(rule=own.name, source=own.source, reason=reason)
    target.append(own)


def _over_graph(function: Callable[..., Any]) -> UserRewrite:
    return UserRewrite(function.__name__, *_origin(function), function)


def _equation(
    left: Callable[..., Any],
    function: Callable[..., Any],
    when: Callable[..., bool] | None,
    with_torch: bool,
) -> UserRewrite:
    name, (source, digest) = function.__name__, _origin(function)
    names = parameters(left)
    try:
        pattern = left(**names)
        if not isinstance(pattern, Pattern):
            raise ValueError(f"its left side gives `{pattern!r}`")
        root_ops(pattern)
    except (AttributeError, TypeError, ValueError) as error:
        raise UserRewriteInvalid(rule=name, source=source, reason=str(error)) from error
    missing = [each for each in inspect.signature(function).parameters if each not in names]
    if missing:
        reason = f"its right side takes `{missing[0]}`, which its left side does not bind"
        raise UserRewriteInvalid(rule=name, source=source, reason=reason)
    known = bound_names(pattern) | {"root"}
    unknown = (
        [each for each in inspect.signature(when).parameters if each not in known] if when else []
    )
    if unknown:
        reason = f"its `when` takes `{unknown[0]}`, expected one of: {', '.join(sorted(known))}"
        raise UserRewriteInvalid(rule=name, source=source, reason=reason)
    literals = frozenset(each for each, of in names.items() if isinstance(of, AnyLiteral))
    return UserRewrite(name, source, digest, function, pattern, when, with_torch, literals)


def _origin(function: Callable[..., Any]) -> tuple[str, str]:
    """`file:line` of a function, and the digest of the file; of its code where there is no file."""
    code = inspect.unwrap(function).__code__
    path = Path(code.co_filename)
    text = path.read_bytes() if path.is_file() else repr((code.co_code, code.co_consts)).encode()
    return f"{path.name}:{code.co_firstlineno}", hashlib.sha256(text).hexdigest()
