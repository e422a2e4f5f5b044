"""Constants that are computed of others, and their values.

Schedules make such constants, and commands of a machine without numpy load the schedules' modules:
numpy is imported where values are computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from aotc.aot.ir.graph import Constant, Graph, Node, walk
from aotc.aot.ir.text import print_graph

if TYPE_CHECKING:
    from aotc.aot.ir.storage import Array


def folded_constant(node: Node, constants: Mapping[str, Constant], is_weight: bool) -> Constant:
    """What an expression of constants is, stored; is_weight: it reads some that a program may be
    given others of: its values are computed when they are asked for."""
    # Named by what it is computed from: hashing the values of large weights takes seconds.
    text = print_graph(Graph((), (node,), (), ("value",), {}))
    name = f"folded_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if is_weight:
        return stored_constant(name, node, constants)
    return Constant(name, node.type, _stored(node, constants))


def stored_constant(name: str, node: Node, constants: Mapping[str, Constant]) -> Constant:
    """A constant that is computed of weights, when it is asked for."""
    expression, leaves = _raw_expression(node, constants)
    values = partial(_stored, expression, {leaf.name: leaf for leaf in leaves})
    return Constant(name, node.type, values, (), expression, leaves)


def value_of(node: Node, constants: Mapping[str, Constant]) -> Array:
    """Value of an expression of constants."""
    from aotc.aot.ir.reference import evaluate_all

    return evaluate_all((node,), {}, constants)[0]


def _raw_expression(
    node: Node, constants: Mapping[str, Constant]
) -> tuple[Node, tuple[Constant, ...]]:
    """`node` with constants that were computed of weights replaced by what they were computed
    from, and the constants that stand in it then."""
    new: dict[Node, Node] = {}
    leaves: dict[Constant, None] = {}
    for each in walk((node,)):
        new[each] = each.on(tuple(new[operand] for operand in each.inputs))
        if each.op == "constant":
            known = constants[each.attr("name")]
            new[each] = known.expression or each
            leaves |= dict.fromkeys(known.leaves or (known,))
    return new[node], tuple(leaves)


def _stored(node: Node, constants: Mapping[str, Constant]) -> Array:
    import numpy

    return numpy.ascontiguousarray(value_of(node, constants)).reshape(node.shape)
