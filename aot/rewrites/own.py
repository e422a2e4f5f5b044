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
`own_applying.py` sees to that.
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

from aotc.aot.ir.match import AnyLiteral, Pattern, root_ops
from aotc.aot.rewrites.equations import bound_names, parameters
from aotc.aot.rewrites.own_errors import OwnRewriteInvalid, OwnRewritesUnreadable
from aotc.aot.rewrites.registry import OwnRewrite, register

_COLLECTING: ContextVar[list[OwnRewrite] | None] = ContextVar("collecting", default=None)


def rewrite(
    left: Callable[..., Any] | None = None,
    *,
    when: Callable[..., bool] | None = None,
    with_torch: bool = False,
) -> Callable[..., Any]:
    """Register a rewrite; it is used by every back end of this process from the next graph on.

    With a left side, the decorated function is the right side of an equation: over `ops`, or over
    tensors with `with_torch`. Without one it takes a `Graph` and gives one with the same signature.
    Raises `OwnRewriteInvalid`.
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


def load_rewrites(path: Path) -> tuple[OwnRewrite, ...]:
    """The rewrites of a file, which is run; raises `OwnRewritesUnreadable`."""
    if not path.is_file():
        raise OwnRewritesUnreadable(path=str(path), reason="no such file")
    found: list[OwnRewrite] = []
    token = _COLLECTING.set(found)
    sys.path.insert(0, str(path.resolve().parent))  # it may import what lies beside it
    try:
        runpy.run_path(str(path), run_name="rewrites")
    except OwnRewriteInvalid:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise OwnRewritesUnreadable(path=str(path), reason=reason) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
        _COLLECTING.reset(token)
    if not found:
        raise OwnRewritesUnreadable(path=str(path), reason="it registers no rewrite")
    return tuple(found)


# -- registering -----------------------------------------------------------------------------------


def _is_left_side(function: Callable[..., Any]) -> bool:
    """Whether `@rewrite(function)` gives a left side; bare, it decorates one over a graph."""
    return function.__name__ == "<lambda>" or list(inspect.signature(function).parameters) != [
        "graph"
    ]


def _register(own: OwnRewrite) -> None:
    target = _COLLECTING.get()
    if target is None:
        register(own)
        return
    for each in target:
        if each.name == own.name:
            reason = f"its name is that of another rewrite of the file ({each.source})"
            raise OwnRewriteInvalid(rule=own.name, source=own.source, reason=reason)
    target.append(own)


def _over_graph(function: Callable[..., Any]) -> OwnRewrite:
    return OwnRewrite(function.__name__, *_origin(function), function)


def _equation(
    left: Callable[..., Any],
    function: Callable[..., Any],
    when: Callable[..., bool] | None,
    with_torch: bool,
) -> OwnRewrite:
    name, (source, digest) = function.__name__, _origin(function)
    names = parameters(left)
    try:
        pattern = left(**names)
        if not isinstance(pattern, Pattern):
            raise ValueError(f"its left side gives `{pattern!r}`")
        root_ops(pattern)
    except (AttributeError, TypeError, ValueError) as error:
        raise OwnRewriteInvalid(rule=name, source=source, reason=str(error)) from error
    missing = [each for each in inspect.signature(function).parameters if each not in names]
    if missing:
        reason = f"its right side takes `{missing[0]}`, which its left side does not bind"
        raise OwnRewriteInvalid(rule=name, source=source, reason=reason)
    known = bound_names(pattern) | {"root"}
    unknown = (
        [each for each in inspect.signature(when).parameters if each not in known] if when else []
    )
    if unknown:
        reason = f"its `when` takes `{unknown[0]}`, expected one of: {', '.join(sorted(known))}"
        raise OwnRewriteInvalid(rule=name, source=source, reason=reason)
    literals = frozenset(each for each, of in names.items() if isinstance(of, AnyLiteral))
    return OwnRewrite(name, source, digest, function, pattern, when, with_torch, literals)


def _origin(function: Callable[..., Any]) -> tuple[str, str]:
    """`file:line` of a function, and the digest of the file; of its code where there is no file."""
    code = inspect.unwrap(function).__code__
    path = Path(code.co_filename)
    text = path.read_bytes() if path.is_file() else repr((code.co_code, code.co_consts)).encode()
    return f"{path.name}:{code.co_firstlineno}", hashlib.sha256(text).hexdigest()
