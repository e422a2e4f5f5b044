"""The text form of a graph: deterministic, one node a line, printed and parsed.

Grammar (`literal` is a Python literal, also `nan`, `inf` and `-inf`):

    graph  = { node } "return" [ name "=" value { "," name "=" value } ]
    node   = value "=" op "(" [ item { "," item } ] ")" ":" type [ "#" source ]
    item   = value | attribute "=" literal
    value  = "%" name
    type   = dtype "[" [ extent { "," extent } ] "]"

Inputs and constants leave `dtype` and `shape` to the type: `%x = input(name='x') : f32[4, 8]`.
Extents, also among the literals, are formulas over the names of dims: `2*batch + 1`, `max(n, 8)`.
Inputs stand first, in the order of the signature. Lines that begin with `#` are comments. A body
of `control` is a literal, its text and how many of its last inputs are states.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from aotc.aot.ir.graph import Body, Constant, Graph, Node, State, make
from aotc.aot.ir.size import Dim, Extent, UndecidedSize, largest, size_of, smallest
from aotc.aot.ir.types import TensorType

_NODE = re.compile(r"%(\w+) = (\w+)\((.*)\) : (\w+\[[^\[\]]*\])(?:\s+# (.*))?$")
_VALUE = re.compile(r"%(\w+)")
_DECLARED = ("input", "constant")
_OPERAND = "operand"  # in place of each, so that equal attributes are equal text
_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_CHOICES: Mapping[str, Callable[[Any, Any], Any]] = {"max": largest, "min": smallest}

Dims = Mapping[str, Dim]


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
        lines.append(f"%{names[node]} = {_call(node, names, with_sources)} : {node.type}{source}")
    pairs = zip(graph.output_names, graph.outputs, strict=True)
    results = ", ".join(f"{name}=%{names[node]}" for name, node in pairs)
    return "\n".join([*lines, f"return {results}".rstrip()]) + "\n"


def body_of(graph: Graph) -> Body:
    """A graph, of no constants, as an attribute."""
    found = dict.fromkeys(size for node in graph.nodes() for size in node.sizes())
    return Body(graph, print_graph(graph), tuple(found))


def _call(node: Node, names: Mapping[Node, str], with_sources: bool) -> str:
    hidden = ("dtype", "shape") if node.op in _DECLARED else ()
    items = [f"%{names[operand]}" for operand in node.inputs]
    # A percent sign in a text would read as a value.
    items += [
        f"{name}={_literal_of(value, with_sources)}".replace("%", "\\x25")
        for name, value in node.attrs
        if name not in hidden
    ]
    return f"{node.op}({', '.join(items)})"


def _literal_of(value: Any, with_sources: bool) -> str:
    """An attribute's value, perhaps with the lines that nodes of bodies come from."""
    if not (with_sources and isinstance(value, tuple) and value and isinstance(value[0], Body)):
        return repr(value)
    return repr(tuple((print_graph(each.graph, True), len(each.graph.states)) for each in value))


def parse_type(text: str, dims: Sequence[Dim] = ()) -> TensorType:
    """`f32[4, 2*batch]` → TensorType; dims: those whose names stand in it."""
    dtype, _, extents = text.partition("[")
    found = _literal(_parsed(f"[{extents}"), {dim.name: dim for dim in dims})
    return TensorType(dtype, tuple(found))


def parse_extent(text: str, dims: Sequence[Dim]) -> Extent:
    """`2*batch + 1` → the size; raises `ValueError`."""
    found = _literal(_parsed(text), {dim.name: dim for dim in dims})
    if isinstance(found, bool | float | str | None | tuple):
        raise ValueError(f"no size: {text}")
    extent: Extent = found
    return extent


@lru_cache(4096)  # types and attributes repeat
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def parse_graph(
    text: str,
    constants: Mapping[str, Constant] | None = None,
    fill: Callable[[str, TensorType], Constant] | None = None,
    dims: Sequence[Dim] = (),
) -> Graph:
    """The graph that `text` prints, of no states.

    Constants come from `constants`; `fill(name, type)` makes those that are not there. dims: those
    whose names stand in extents.
    Raises `GraphTextError` for bad text or a type that differs from the inferred one.
    """
    values: dict[str, Node] = {}
    inputs: list[Node] = []
    pool = dict(constants or {})
    sizes = {dim.name: dim for dim in dims}
    for line_number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.startswith("return"):
            return _finish(line[len("return") :], values, tuple(inputs), pool)
        name, node = _parse_node(line_number, line, values, sizes)
        values[name] = node
        if node.op == "input":
            inputs.append(node)
        if node.op == "constant" and fill and node.attr("name") not in pool:
            pool[node.attr("name")] = fill(node.attr("name"), node.type)
    raise GraphTextError(len(text.splitlines()), "", "there is no `return`")


def _parse_node(
    line_number: int, line: str, values: Mapping[str, Node], dims: Dims
) -> tuple[str, Node]:
    match = _NODE.match(line.strip())
    if match is None:
        raise GraphTextError(line_number, line, "expected `%name = op(…) : type`")
    name, op, items, type_text, source = match.groups()
    try:
        expected = parse_type(type_text, tuple(dims.values()))
        operands, attrs = _parse_items(items, values, dims)
        if op in _DECLARED:
            attrs |= {"dtype": expected.dtype, "shape": expected.shape}
        if op == "control":
            sizes = tuple(dims.values())
            rows = attrs["bodies"]
            attrs["bodies"] = tuple(_parse_body(text, states, sizes) for text, states in rows)
        node = make(op, operands, attrs, source)
    except (KeyError, SyntaxError, TypeError, ValueError, UndecidedSize) as error:
        raise GraphTextError(line_number, line, str(error)) from None
    if node.type != expected:
        raise GraphTextError(line_number, line, f"inferred {node.type}, text says {expected}")
    return name, node


def _parse_body(text: str, states: int, dims: Sequence[Dim]) -> Body:
    """A body; raises `GraphTextError`, a `ValueError`."""
    graph = parse_graph(text, dims=dims)
    return body_of(with_states(graph, states))


def with_states(graph: Graph, count: int) -> Graph:
    """A graph whose last inputs, and the last outputs but for checks, are so many states."""
    names = graph.input_names[len(graph.inputs) - count :]
    states = tuple(State(name, None) for name in names)
    ends = graph.inputs, graph.outputs, graph.input_names, graph.output_names
    return Graph(*ends, graph.constants, states)


def _parse_items(
    items: str, values: Mapping[str, Node], dims: Dims
) -> tuple[tuple[Node, ...], dict[str, Any]]:
    call = _parsed(f"f({_VALUE.sub(_OPERAND, items)})")
    assert isinstance(call, ast.Call)
    names = _VALUE.findall(items)
    if [getattr(item, "id", "") for item in call.args] != [_OPERAND] * len(names):
        raise ValueError("operands are values")
    operands = tuple(values[name] for name in names)
    return operands, {str(item.arg): _literal(item.value, dims) for item in call.keywords}


def _literal(expression: ast.expr, dims: Dims) -> Any:
    """The value of a literal, or the size that a formula over dims is."""
    if isinstance(expression, ast.Name):
        dim = dims.get(expression.id)
        return float(expression.id) if dim is None else size_of(dim)
    if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub):
        return -_literal(expression.operand, dims)
    if isinstance(expression, ast.Tuple | ast.List):
        items = (_literal(item, dims) for item in expression.elts)
        return tuple(items) if isinstance(expression, ast.Tuple) else list(items)
    if isinstance(expression, ast.BinOp) and type(expression.op) in _OPERATIONS:
        sides = (_literal(side, dims) for side in (expression.left, expression.right))
        return _OPERATIONS[type(expression.op)](*sides)
    if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name):
        choose = _CHOICES[expression.func.id]
        return choose(*(_literal(item, dims) for item in expression.args))
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
