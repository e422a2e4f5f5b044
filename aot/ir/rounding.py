"""Which 16-bit values kernels must round, where they compute in f32.

A value of a 16-bit type may carry more bits than its type while it stays inside a kernel and has
one reader. Memory, conversions and whole numbers do not; what only chooses among such values does
not either. Readers that are not continuous (`OpDef.is_discontinuous`) see every operand rounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.types import SHORT_FLOATS, round_scalar

# Ops whose results have no bits beyond their type, whatever they read.
_ROUNDED = frozenset(
    {"input", "constant", "iota", "cast", "bitcast", "floor", "ceil", "round", "trunc", "sign"}
)

# Ops that are to give the integer part of just the number that they read: torch's quotient of two
# equal numbers is 1, and one unit of its last place less has the integer part 0.
_OF_INTEGER_PARTS = frozenset({"floor", "ceil", "round", "trunc", "fmod"})


def takes_integer_part(node: Node) -> bool:
    """Whether the op tells an integer from the number just below or above it."""
    if node.op == "cast":
        return node.type.kind == "int" and node.inputs[0].type.kind == "float"
    return node.op in _OF_INTEGER_PARTS


def of_integer_parts(order: Sequence[Node]) -> frozenset[Node]:
    """Of nodes in topological order, the elementwise ones whose integer parts are taken, moved or
    cast before. Sums and products of matrices round in no one order, in eager neither."""
    found: set[Node] = set()
    for node in reversed(order):
        passes_on = node in found and (node.op == "cast" or node.kind == "view")
        if passes_on or takes_integer_part(node):
            found.update(node.inputs)
    return frozenset(node for node in found if node.kind == "pointwise")


# Ops of floats that do not end with a multiplication, which a sum behind it could take in.
_NO_PRODUCTS = frozenset(
    {"add", "sub", "fma", "scale", "ldexp", "exp", "exp2", "div", "reciprocal", "sqrt"}
)


def computed_apart(order: Sequence[Node]) -> frozenset[Node]:
    """Of the nodes of a kernel, in topological order, the products that several readers may compute
    at different places: for p - p to be 0, none of them may be fused with a sum.

    A float of 16 bits with several readers is rounded before each of them.
    """
    inside = set(order)
    counts: Counter[Node] = Counter(each for node in order for each in node.inputs)
    moved: set[Node] = set()
    for node in reversed(order):
        if node.kind != "pointwise" or node in moved:
            moved.update(each for each in node.inputs if each in inside)
    return frozenset(
        node
        for node in moved
        if counts[node] > 1 and node.kind == "pointwise" and _is_product(node)
    )


def _is_product(node: Node) -> bool:
    row = OPS[node.op]
    is_float = node.type.kind == "float" and node.dtype not in SHORT_FLOATS
    return is_float and not (row.is_choice or row.is_discontinuous or node.op in _NO_PRODUCTS)


def is_rounded(node: Node, stored: Container[Node] = ()) -> bool:
    """Whether kernels have no more bits of `node` than its type, if `stored` is in memory."""
    seen: set[Node] = set()
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if item in seen or item.dtype not in SHORT_FLOATS or item in stored:
            continue
        seen.add(item)
        row = OPS[item.op]
        if item.op in _ROUNDED or (row.is_opaque and not row.is_choice):
            continue
        if item.op in ("scalar", "pad") and not _is_literal_rounded(item):
            return False
        if item.op != "scalar" and not row.is_choice:
            return False
        waiting += item.inputs
    return True


def _is_literal_rounded(node: Node) -> bool:
    value = node.attr("value")
    return bool(value != value or round_scalar(value, node.dtype) == value)


def rounded(node: Node) -> Node:
    """`node` with the bits of its type only: itself where it has no others."""
    return node if is_rounded(node) else make("cast", (node,), {"dtype": node.dtype})


def shared(graph: Graph) -> frozenset[Node]:
    """The 16-bit values with several readers, of which a result is one: each reader sees them
    rounded, so that all of them agree, in whichever kernels they are.

    A number beside tensors is none of them: it keeps the precision of f32 for every reader.
    """
    counts = {node: len(readers) for node, readers in graph.users().items()}
    for output in graph.outputs:
        counts[output] += 1
    found = (node for node, count in counts.items() if count > 1)
    return frozenset(node for node in found if node.dtype in SHORT_FLOATS and not _is_number(node))


def _is_number(node: Node) -> bool:
    """Whether the value is one literal, however often it is repeated."""
    while node.kind == "view":
        (node,) = node.inputs
    return node.op == "scalar"
