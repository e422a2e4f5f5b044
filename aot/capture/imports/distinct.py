"""`aotc::distinct`: numbers of which each call checks that no two are alike; writes rely on it.

Rows that are written at such places need no order among them: a kernel that computes the rows
writes them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aotc.aot.capture.distinct_values import NAME
from aotc.aot.capture.imports.call import Call, Rows
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make

_DISTINCT: ContextVar[set[Node] | None] = ContextVar("distinct", default=None)


@contextmanager
def marking_distinct() -> Iterator[None]:
    """Inside, `are_distinct` knows the results of `aotc::distinct`."""
    token = _DISTINCT.set(set())
    try:
        yield
    finally:
        _DISTINCT.reset(token)


def mark_distinct(node: Node) -> Node:
    """Note that a node has no negative number, and none twice, and return it."""
    known = _DISTINCT.get()
    if known is not None:
        known.add(node)
    return node


def are_distinct(node: Node) -> bool:
    """Whether that is noted of the node."""
    return node in (_DISTINCT.get() or ())


def _checked(call: Call, numbers: Node, message: str) -> Node:
    """The row of `aotc::distinct`."""
    (count,) = numbers.shape
    alike = make("eq", (build.reshape(numbers, (count, 1)), build.reshape(numbers, (1, count))))
    times = build.reduce("sum", build.cast(alike, "i64"), (1,))
    call.check_assertion(make("eq", (times, build.scalar(1, "i64"))), message)
    call.check_assertion(make("ge", (numbers, build.scalar(0, numbers.dtype))), message)
    return mark_distinct(numbers)


ROWS: Rows = {NAME: _checked}
