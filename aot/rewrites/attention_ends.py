"""Attention masks with a bound that depends on data: keys up to a computed place for each query.

    mask = key ≤ last(query)  →  ends = last + 1, an operand of the attention

With key > last(query) - w as well, w is its window. The kernel reads no keys beyond the bounds: of
a cache that is partly filled, only the filled part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from aotc.aot.ir import build
from aotc.aot.ir.affine import Counts
from aotc.aot.ir.graph import Graph, Node, fixed_constants, make
from aotc.aot.rewrites.attention import OF_ROWS
from aotc.aot.rewrites.attention_masks import (
    COMPARISONS,
    joined,
    keeps_rows_and_keys,
    masks_of,
)
from aotc.aot.schedule.attention import ends_of, mask_of


@dataclass(frozen=True, slots=True)
class _Bound:
    """Keys up to `place + shift` are seen, or from there on; place: integers [.., rows or 1, 1]."""

    place: Node
    shift: int
    is_last: bool


def bounded_masks(graph: Graph) -> tuple[Graph, int]:
    """`graph` with such masks replaced by ends, and how many were replaced."""
    counts, found = Counts(fixed_constants(graph.constants)), 0
    known: dict[tuple[Node, ...], Node] = {}  # one for an attention and the sums of its rows

    def with_ends(_: Node, node: Node) -> Node:
        nonlocal found
        if node.op not in OF_ROWS or node.attr("causal") or not _has_mask_alone(node):
            return node
        made = known.setdefault(node.inputs, node)
        if made is node:
            made = known[node.inputs] = _with_ends(node, counts)
        found += made.inputs is not node.inputs
        attrs = {**dict(node.attrs), "window": made.attr("window")}
        return make(node.op, made.inputs, attrs, node.source)

    return graph.rebuilt(with_ends), found


def _has_mask_alone(attention: Node) -> bool:
    return mask_of(attention) is not None and ends_of(attention) is None


def has_ends(attention: Node) -> bool:
    """Whether the mask of an attention gives, as integers, how many keys each row sees."""
    mask = mask_of(attention)
    seen = [] if mask is None else masks_of(mask)[0]
    bounds = [_bounds(part, Counts()) for part in seen]
    return any(bound.is_last for each in bounds for bound in each or ())


def _with_ends(node: Node, counts: Counts) -> Node:
    lasts, firsts, kept = list[_Bound](), dict[Node, list[_Bound]](), list[Node]()
    (*operands, mask), sinks = node.inputs[:4], node.inputs[4:]
    seen, added = masks_of(mask)
    for part in seen:
        bounds = _bounds(part, counts)
        lasts += [bound for bound in bounds or () if bound.is_last]
        others = [bound for bound in bounds or () if not bound.is_last]
        if bounds is None:
            kept.append(part)
        elif others:
            firsts[part] = others
    if not lasts:
        return node
    window, said = _window(lasts, [each for others in firsts.values() for each in others])
    if not said:
        kept += firsts
    ends = reduce(build.minimum, [bound.place + (bound.shift + 1) for bound in lasts])
    read = (*operands, *joined(kept, added), ends, *sinks)
    return make(node.op, read, {**dict(node.attrs), "window": window}, node.source)


def _window(lasts: list[_Bound], firsts: list[_Bound]) -> tuple[int, bool]:
    """How many keys a row sees, and whether that says all of `firsts`: where all bounds are of one
    place."""
    if len(lasts) != 1 or any(bound.place is not lasts[0].place for bound in firsts):
        return 0, not firsts
    if not firsts:
        return 0, True
    window = lasts[0].shift - max(bound.shift for bound in firsts) + 1
    return (window, True) if window > 0 else (0, False)


def _bounds(part: Node, counts: Counts) -> list[_Bound] | None:
    """The bounds that a mask is made of; None where it is made of something else."""
    if part.op == "logical_and":
        both = [_bounds(operand, counts) for operand in part.inputs]
        return None if None in both else [bound for each in both for bound in each or ()]
    if keeps_rows_and_keys(part):
        inner = _bounds(part.inputs[0], counts)
        return None if inner is None else [_viewed(bound, part) for bound in inner]
    bound = _compared(part, counts) if part.op in COMPARISONS else None
    return None if bound is None else [bound]


def _viewed(bound: _Bound, view: Node) -> _Bound:
    """The bound as a view of its mask sees it, which leaves rows and keys as they are."""
    tail, place = (bound.place.shape[-2], 1), bound.place
    if view.op == "reshape":
        place = build.expand(place, (*view.inputs[0].shape[:-2], *tail))
        place = build.reshape(place, (*view.shape[:-2], *tail))
    else:
        place = build.expand(place, (*view.shape[:-2], *tail))
    return _Bound(place, bound.shift, bound.is_last)


def _compared(test: Node, counts: Counts) -> _Bound | None:
    """The bound of a comparison of a count of keys with integers that are the same for all keys."""
    is_reversed, less = COMPARISONS[test.op]
    small, large = test.inputs[::-1] if is_reversed else test.inputs
    rank = max(2, test.type.rank)
    for side, other, is_last in ((small, large, True), (large, small, False)):
        count, place = counts.affine(side), _for_all_keys(other, rank)
        if count is None or place is None or not isinstance(count.constant, int):
            continue
        if count.among(rank).steps == (*[0] * (rank - 1), 1):
            shift = -count.constant - less if is_last else less - count.constant
            base, added = _without_added(place, counts)
            return _Bound(build.align(base, rank), shift + added, is_last)
    return None


def _for_all_keys(node: Node, rank: int) -> Node | None:
    """Integers that do not depend on the key, with one element along the keys."""
    while node.op == "expand":
        (node,) = node.inputs
    if node.type.kind != "int" or not 0 < node.type.rank <= rank or node.shape[-1] != 1:
        return None
    return node


def _without_added(place: Node, counts: Counts) -> tuple[Node, int]:
    """x + c → (x, c)"""
    added = 0
    while place.op in ("add", "sub") and place.inputs[0].shape == place.shape:
        number = counts.affine(place.inputs[1])
        if number is None or any(number.steps) or not isinstance(number.constant, int):
            break
        added += number.constant if place.op == "add" else -number.constant
        place = place.inputs[0]
    return place, added
