"""Import rows of running sums, products and extremes."""

from __future__ import annotations

from typing import Any

from aotc.aot.capture.imports.call import Call, Row, Rows
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node


def scan_along(kind: str, data: Node, dim: int) -> Node:
    """Running results along `dim`; a tensor without dims, or elements, is its own."""
    if data.type.rank == 0 or data.type.numel == 0:
        return data
    return build.scan(kind, data, dim % data.type.rank)


def _running(kind: str) -> Row:
    def row(call: Call, data: Node, dim: int, *rest: Any) -> Node:
        return scan_along(kind, build.cast(data, call.dtype), dim)

    return row


def _extreme_with_index(kind: str) -> Row:
    def row(call: Call, data: Node, dim: int) -> tuple[Node, Node]:
        if data.type.rank == 0 or data.type.numel == 0:
            return data, build.expand(build.scalar(0, "i64"), data.shape)
        operand = build.cast(data, "i32") if data.dtype == "bool" else data
        best = build.cast(scan_along(kind, operand, dim), data.dtype)
        return best, build.cast(scan_along(f"{kind}_place", operand, dim), "i64")

    return row


ROWS: Rows = {
    "cumsum": _running("sum"),
    "cumprod": _running("prod"),
    "logcumsumexp": _running("log_sum"),
    "cummax": _extreme_with_index("max"),
    "cummin": _extreme_with_index("min"),
}
