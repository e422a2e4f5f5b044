"""A producer and a consumer of each kind that the table of fusion has, all of [1, 2, 32, 32]."""

from __future__ import annotations

from collections.abc import Callable

from case_graphs import attention_attrs, op, operand, softmax
from source_cases_calls import CALL

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Node, make

SHAPE = (1, 2, 32, 32)
COUNT = 2 * 32 * 32


def _input(name: str, dtype: str = "f32") -> Node:
    return operand(name, *SHAPE, dtype=dtype)


def _attention(query: Node) -> Node:
    attrs = attention_attrs(0.25)
    return make("attention", (query, _input("k"), _input("v")), attrs)


def _call(data: Node) -> Node:
    attrs = {
        **CALL,
        "arguments": (("x_ptr", "read", (0, 0)), *CALL["arguments"][1:]),
        "results": (("f32", SHAPE),),
    }
    return make("call", (data,), {**attrs, "updates": (), "result": 0})


def _unrolled() -> Node:
    return b.drop(b.reduce("sum", operand("x", *SHAPE, 2), [4]), [4])


def _window_sum() -> Node:
    """A convolution of each channel by itself."""
    attrs = {"axes": (2, 3), "sizes": (3, 3), "strides": (1, 1), "dilations": (1, 1)}
    windows = make("window", (operand("x", 1, 2, 34, 34),), attrs)
    factors = operand("w", 1, 2, 1, 1, 3, 3)
    return b.drop(b.reduce("sum", op("mul", windows, factors), (4, 5)), (4, 5))


PRODUCERS: dict[str, Callable[[], Node]] = {
    "pointwise": lambda: op("exp", _input("x")),
    "view": lambda: b.transpose(_input("x")),
    "unrolled": _unrolled,
    "window-sum": _window_sum,
    "join": lambda: b.concat([op("exp", operand(f"x{at}", 1, 2, 32, 4)) for at in range(8)], 3),
    "lookup": lambda: make(
        "take", (operand("x", 1, 2, 90, 32), operand("places", 32, dtype="i64")), {"axis": 2}
    ),
    "concat": lambda: b.concat([operand("x", 1, 2, 32, 16), operand("y", 1, 2, 32, 16)], 3),
    "row": lambda: softmax(_input("x"), 3),
    "matmul": lambda: op("matmul", _input("x"), _input("y")),
    "attention": lambda: _attention(_input("x")),
}
CONSUMERS: dict[str, Callable[[Node], Node]] = {
    "pointwise": lambda data: op("tanh", data),
    "view": b.transpose,
    "reduce": lambda data: b.reduce("sum", data, [3]),
    "row": lambda data: softmax(data, 3),
    "matmul": lambda data: op("matmul", data, _input("z")),
    "attention": _attention,
    "call": _call,
}
