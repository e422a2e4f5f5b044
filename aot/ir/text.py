"""The text form of a graph: deterministic, one node a line, printed and parsed.

Grammar (`literal` is a Python literal, also `nan`, `inf` and `-inf`):

    graph  = { node } "return" [ name "=" value { "," name "=" value } ]
    node   = value "=" op "(" [ item { "," item } ] ")" ":" type [ "#" source ]
    item   = value | attribute "=" literal
    value  = "%" name
    type   = dtype "[" [ extent { "," extent } ] "]"

Inputs and constants leave `dtype` and `shape` to the type: `%x = input(name='x') : f32[4, 8]`.
Inputs stand first, in the order of the signature. Lines that begin with `#` are comments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.ir.types import TensorType

_NODE = re.compile(r"%(\w+) = (\w+)\((.*)\) : (\w+\[[\d, ]*\])(?:\s+# (.*))?$")
_VALUE = re.compile(r"%(\w+)")
_DECLARED = ("input", "constant")
_PREFIX = "value_"


class GraphTextError(ValueError):
    """Text that is not a graph; names the line."""

    def __init__(self, line_number: int, line: str, reason: str) -> None:
        self.line_number, self.line, self.reason = line_number, line, reason
        super().__init__(f"line {line_number}: {reason}: {line}")


def print_graph(graph: Graph, with_sources: bool = False) -> str:
    """Text of `graph`; `with_sources` adds each node's line in the user's model."""
    names: dict[Node, str] = {}
    lines = []
    for number, node in enumerate(graph.nodes()):
        names[node] = node.attr("name") if node.op == "input" else str(number)
        source = f"  # {node.source}" if with_sources and node.source else ""
        lines.append(f"%{names[node]} = {_call(node, names)} : {node.type}{source}")
    pairs = zip(graph.output_names, graph.outputs, strict=True)
    results = ", ".join(f"{name}=%{names[node]}" for name, node in pairs)
    return "\n".join([*lines, f"return {results}".rstrip()]) + "\n"


def _call(node: Node, names: Mapping[Node, str]) -> str:
    hidden = ("dtype", "shape") if node.op in _DECLARED else ()
    items = [f"%{names[operand]}" for operand in node.inputs]
    # A percent sign in a text would read as a value.
    items += [
        f"{name}={value!r}".replace("%", "\\x25")
        for name, value in node.attrs
        if name not in hidden
    ]
    return f"{node.op}({', '.join(items)})"


def parse_type(text: str) -> TensorType:
    """`f32[4, 8]` → TensorType."""
    dtype, _, dims = text.partition("[")
    extents = [int(dim) for dim in dims.rstrip("]").split(",") if dim.strip()]
    return TensorType(dtype, tuple(extents))


def parse_graph(
    text: str,
    constants: Mapping[str, Constant] | None = None,
    fill: Callable[[str, TensorType], Constant] | None = None,
) -> Graph:
    """The graph that `text` prints.

    Constants come from `constants`; `fill(name, type)` makes those that are not there.
    Raises `GraphTextError` for bad text or a type that differs from the inferred one.
    """
    values: dict[str, Node] = {}
    inputs: list[Node] = []
    pool = dict(constants or {})
    for line_number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.startswith("return"):
            return _finish(line[len("return") :], values, tuple(inputs), pool)
        name, node = _parse_node(line_number, line, values)
        values[name] = node
        if node.op == "input":
            inputs.append(node)
        if node.op == "constant" and fill and node.attr("name") not in pool:
            pool[node.attr("name")] = fill(node.attr("name"), node.type)
    raise GraphTextError(len(text.splitlines()), "", "there is no `return`")


def _parse_node(line_number: int, line: str, values: Mapping[str, Node]) -> tuple[str, Node]:
    match = _NODE.match(line.strip())
    if match is None:
        raise GraphTextError(line_number, line, "expected `%name = op(…) : type`")
    name, op, items, type_text, source = match.groups()
    expected = parse_type(type_text)
    try:
        operands, attrs = _parse_items(items, values)
        if op in _DECLARED:
            attrs |= {"dtype": expected.dtype, "shape": expected.shape}
        node = make(op, operands, attrs, source)
    except (KeyError, SyntaxError, TypeError, ValueError) as error:
        raise GraphTextError(line_number, line, str(error)) from None
    if node.type != expected:
        raise GraphTextError(line_number, line, f"inferred {node.type}, text says {expected}")
    return name, node


def _parse_items(items: str, values: Mapping[str, Node]) -> tuple[tuple[Node, ...], dict[str, Any]]:
    arguments = _VALUE.sub(rf"{_PREFIX}\1", items)
    call = ast.parse(f"f({arguments})", mode="eval").body
    assert isinstance(call, ast.Call)
    operands = []
    for item in call.args:
        if not isinstance(item, ast.Name):
            raise ValueError("operands are values")
        operands.append(values[item.id.removeprefix(_PREFIX)])
    return tuple(operands), {str(item.arg): _literal(item.value) for item in call.keywords}


def _literal(expression: ast.expr) -> Any:
    if isinstance(expression, ast.Name):
        return float(expression.id)
    if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub):
        return -_literal(expression.operand)
    return ast.literal_eval(expression)


def _finish(
    results: str, values: Mapping[str, Node], inputs: tuple[Node, ...], pool: dict[str, Constant]
) -> Graph:
    pairs = [item.strip().partition("=%") for item in results.split(",") if item.strip()]
    outputs = tuple(values[value] for _, _, value in pairs)
    output_names = tuple(name for name, _, _ in pairs)
    input_names = tuple(node.attr("name") for node in inputs)
    empty = Graph(inputs, outputs, input_names, output_names, pool)
    return empty.with_outputs(outputs)
