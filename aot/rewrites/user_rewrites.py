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

Equations written as two functions: `ops.silu(x)` builds what is looked for and what replaces it.

    left  = lambda x: x * ops.sigmoid(x)
    right = lambda x: ops.silu(x)

Both are called with patterns for their parameters. A parameter annotated `float` stands for a
literal. An attribute is bound to a name by the left side, `ops.sum(x, axes="axes")`, and on the
right side given that name or a value.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from aotc.aot.errors import UserError
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.match import AnyLiteral, AnyNode, Call, Literal, Pattern, any_node, call, root_ops
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.types import Scalar
from aotc.aot.rewrites.registry import UserRewrite, register, registered

# -- equations -------------------------------------------------------------------------------------


class Ops:
    """Every op of `aot/ir/ops.py` as a function of patterns and numbers."""

    def __getattr__(self, name: str) -> Callable[..., Call]:
        if name not in OPS:
            raise AttributeError(f"there is no op `{name}`, expected one of: {', '.join(OPS)}")

        def made(*operands: Pattern | Scalar, **attrs: Any) -> Call:
            expected = OPS[name].attributes
            for each in attrs:
                if each not in expected:
                    known = ", ".join(expected) or "none"
                    raise ValueError(f"op `{name}` has no attribute `{each}`, expected: {known}")
            return call(name, *operands, **attrs)

        return made


ops = Ops()


def bound_names(pattern: Pattern) -> set[str]:
    """The names that a match of the left side binds: parameters, and names of attributes."""
    if isinstance(pattern, AnyNode | AnyLiteral):
        return {pattern.name}
    if not isinstance(pattern, Call):
        return set()
    names = {value for _, value in pattern.attrs if isinstance(value, str)}
    return names.union(*map(bound_names, pattern.operands))


def parameters(function: Callable[..., Any]) -> dict[str, Pattern]:
    """The patterns of a side's parameters: any node, or any literal where it says `float`."""
    found = inspect.signature(function).parameters.values()
    is_literal = {each.name: each.annotation in (float, "float") for each in found}
    return {name: AnyLiteral(name) if is_literal[name] else any_node(name) for name in is_literal}


def instantiate(pattern: Pattern | Scalar, known: Mapping[str, Any], dtype: str = "") -> Node:
    """The node that a right side stands for, its names bound; numbers take the operands' type.

    Raises `ValueError` for what is no expression, and what `make` raises.
    """
    if isinstance(pattern, AnyNode):
        node: Node = known[pattern.name]
        return node
    if isinstance(pattern, AnyLiteral):
        return build.scalar(known[pattern.name], dtype)
    if isinstance(pattern, Literal):
        return build.scalar(pattern.value, dtype)
    if not isinstance(pattern, Call):
        raise ValueError(f"gives `{pattern!r}`, expected an expression of `ops`")
    return _instantiate_call(pattern, known)


def _instantiate_call(pattern: Call, known: Mapping[str, Any]) -> Node:
    is_number = [isinstance(each, AnyLiteral | Literal) for each in pattern.operands]
    operands = [
        None if number else instantiate(each, known)
        for each, number in zip(pattern.operands, is_number, strict=True)
    ]
    nodes = [each for each in operands if each is not None]
    if not nodes:
        raise ValueError(f"`{pattern.op}` is given numbers only")
    rank = max(each.type.rank for each in nodes)
    whole = [
        instantiate(each, known, nodes[-1].dtype) if operand is None else operand
        for each, operand in zip(pattern.operands, operands, strict=True)
    ]
    if OPS[pattern.op].kind == "pointwise":
        whole = [build.align(each, rank) if each.type.rank else each for each in whole]
    attrs = {name: known.get(value, value) for name, value in pattern.attrs}
    return make(pattern.op, tuple(whole), attrs)


# -- registering -----------------------------------------------------------------------------------


class UserRewriteRejected(UserError):
    """A rewrite of the user's made something that cannot stand in the place of what it took out."""

    template = "rewrite `{rule}` ({source}) is rejected: {reason}\nbefore:\n{before}after:\n{after}"
    hint = "give back what has the same type and reads the same values"


class UserRewriteEndless(UserError):
    """A rewrite of the user's still fired after as many times as any end can take."""

    template = (
        "rewrite `{rule}` ({source}) does not come to an end: it fired {count} times\n"
        "before:\n{before}after:\n{after}"
    )
    hint = "what it gives back matches it again: make its pattern or its `when` narrower"


class UserRewriteInvalid(UserError):
    """`@aot.rewrite` was given what is no rewrite."""

    template = "rewrite `{rule}` ({source}): {reason}"
    hint = "see docs/rewrites.md for the three forms of a rewrite"


class UserRewritesUnreadable(UserError):
    """The file that `--rewrites` names cannot be read as Python, or holds no rewrite."""

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


def rewrites_of(given: Any) -> tuple[UserRewrite, ...]:
    """The rewrites that a build is given, one or several: files of them, and functions of this
    process that carry `@aot.rewrite`. Raises TypeError for what is neither, and what
    `load_rewrites` raises."""
    is_one = callable(given) or isinstance(given, str | os.PathLike | UserRewrite)
    found: list[UserRewrite] = []
    for each in [given] if is_one else given:
        if isinstance(each, str | os.PathLike):
            found += load_rewrites(Path(each))
        elif isinstance(each, UserRewrite):
            found.append(each)
        else:
            known = [own for own in registered() if own.function is each]
            if not known:
                expected = "a file, or a function with `@aot.rewrite`"
                raise TypeError(f"`rewrites` has {each!r}, expected {expected}")
            found += known
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
