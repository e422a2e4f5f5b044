"""`aotc::distinct`: numbers of which each call checks that no two are alike; writes rely on it.

Rows that are written at such places need no order among them: a kernel that computes the rows
writes them too.
"""

from __future__ import annotations

from aotc.aot.capture.distinct_values import NAME
from aotc.aot.capture.imports.call import Call, Rows
from aotc.aot.capture.node_set import NodeSet
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make

DISTINCT = NodeSet("distinct")  # of which no element is below 0, and no two are alike


def _checked(call: Call, numbers: Node, message: str) -> Node:
    """The row of `aotc::distinct`."""
    (count,) = numbers.shape
    alike = make("eq", (build.reshape(numbers, (count, 1)), build.reshape(numbers, (1, count))))
    times = build.reduce("sum", build.cast(alike, "i64"), (1,))
    call.check_assertion(make("eq", (times, build.scalar(1, "i64"))), message)
    call.check_assertion(make("ge", (numbers, build.scalar(0, numbers.dtype))), message)
    return DISTINCT.add(numbers)


ROWS: Rows = {NAME: _checked}
