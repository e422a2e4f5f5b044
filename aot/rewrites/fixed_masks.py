"""Masks that models hold in buffers, which programs may look at: causal masks, sliding windows.

A persistent buffer is a weight, which `load_weights` may give other values, so no rule looks at it.
One whose values are a triangle or a band of ones (or of zeros among -inf, added to scores), and of
which nothing but masks is made, is no weight: what attends by it is causal, or sees a window.
Bundles list such buffers with their digests, and refuse other values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aotc.aot.ir.control import nodes_within
from aotc.aot.ir.graph import Constant, Graph, Node
from aotc.aot.ir.size import is_static
from aotc.aot.ir.storage import Array, widen
from aotc.aot.rewrites.attention import HIDDEN
from aotc.aot.rewrites.attention_masks import COMPARISONS, LARGEST_MASK, band_of_values

_TESTS = frozenset((*COMPARISONS, "eq", "ne"))
_LOGIC = frozenset(("logical_and", "logical_or", "logical_not"))


def with_fixed_masks(graphs: Sequence[Graph]) -> tuple[list[Graph], dict[str, Constant]]:
    """The graphs of a model's entries, in which such buffers are constants; these, by the names of
    the model's tensors. One is fixed where all entries that read it make masks of it alone."""
    found: dict[str, bool] = {}
    held: dict[str, Constant] = {}
    for graph in graphs:
        for constant, is_mask in _candidates(graph):
            held[constant.name] = constant
            found[constant.name] = is_mask and found.get(constant.name, True)
    fixed = {name for name, is_mask in found.items() if is_mask}
    return [_without_weights(graph, fixed) for graph in graphs], {
        each: held[name] for name in sorted(fixed) for each in held[name].names
    }


def _without_weights(graph: Graph, fixed: set[str]) -> Graph:
    constants = {
        name: replace(each, names=()) if name in fixed else each
        for name, each in graph.constants.items()
    }
    return replace(graph, constants=constants)


def _candidates(graph: Graph) -> list[tuple[Constant, bool]]:
    """Constants that are weights with the values of a mask, and whether masks alone are made of
    them."""
    users = graph.users()
    nodes = {node.attr("name"): node for node in users if node.op == "constant"}
    bodies = [body for node in users if node.op == "control" for body in node.attr("bodies")]
    inside = {node for body in bodies for node in nodes_within(body.graph)}
    read_inside = {node.attr("name") for node in inside if node.op == "constant"}
    rows = []
    for name, constant in graph.constants.items():
        kind = _kind(constant) if constant.names else ""
        if kind:
            is_mask = name in nodes and name not in read_inside
            rows.append((constant, is_mask and _makes_masks(nodes[name], kind, users, graph)))
    return rows


def _kind(constant: Constant) -> str:
    """How values show a band: "seen" where they are 1 and else 0, or the other way round; "added"
    where they are 0 and else as good as -inf; empty where they show none."""
    shape = constant.type.shape
    if len(shape) < 2 or not is_static(shape) or set(shape[:-2]) - {1}:
        return ""
    if not 1 < constant.type.numel <= LARGEST_MASK:
        return ""
    values = widen(constant.array, constant.type.dtype).reshape(shape[-2:])
    is_one, is_zero = values == 1, values == 0
    if (is_one | is_zero).all():
        return "seen" if _is_band(is_one) or _is_band(is_zero) else ""
    return "added" if (is_zero | (values <= HIDDEN)).all() and _is_band(is_zero) else ""


def _is_band(seen: Array) -> bool:
    """Whether some keys are seen and others are not, by a bound that moves with the row."""
    if not seen.any() or seen.all():
        return False
    band = band_of_values(seen)
    return band is not None and (band.first, band.last) != (None, None)


def _makes_masks(
    buffer: Node, kind: str, users: Mapping[Node, tuple[Node, ...]], graph: Graph
) -> bool:
    """Whether a buffer's numbers are compared with a number, or added to others, and all that is
    read of the comparisons says which numbers are chosen."""
    waiting, met, returned = [buffer], {buffer}, {*graph.outputs}
    while waiting:
        node = waiting.pop()
        if node in returned:
            return False
        for user in users[node]:
            use = _use(node, user, kind)
            if use == "other":
                return False
            if use == "same" and user not in met:
                met.add(user)
                waiting.append(user)
    return True


def _use(node: Node, user: Node, kind: str) -> str:
    """What a reader makes of a mask: the same mask, another tensor by it ("end"), or "other"."""
    if node.dtype == "bool":
        if user.op in _LOGIC or user.kind == "view" or user.op == "copy":
            return "same"
        return "end" if user.op == "where" and node not in user.inputs[1:] else "other"
    if user.kind == "view" or user.op in ("cast", "copy"):
        return "same"
    others = [each for each in user.inputs if each is not node]
    if user.op in _TESTS and len(others) == 1:
        return "same" if others[0].op == "scalar" else "other"
    return "end" if kind == "added" and user.op == "add" and len(others) == 1 else "other"
