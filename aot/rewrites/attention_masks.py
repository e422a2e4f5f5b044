"""Constant attention masks: bands of keys become attributes, masks that hide nothing are removed.

A band are the keys that query t sees, from t + first to t + last: causal masks, sliding windows.
The values of a mask decide, not its expression: a mask that depends only on constants and positions
is evaluated, and compared with the band that its rows show. Each operand of an `and` is examined by
itself. If the number of rows or keys is dynamic, the mask must be comparisons of positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.affine import Affine, Counts
from aotc.aot.ir.graph import AttrValue, Constant, Graph, Node, fixed_constants, make, walk
from aotc.aot.ir.reference import evaluate_all
from aotc.aot.ir.rules import Context
from aotc.aot.ir.size import Extent, fixed, is_static, proves_at_most
from aotc.aot.ir.storage import Array, widen
from aotc.aot.rewrites.attention import HIDDEN, OF_ROWS, joined_masks
from aotc.aot.schedule.attention import ends_of, mask_of

LARGEST_MASK = 1 << 26  # elements of a mask that are worth computing at build time
GRADIENTS_MASK = 6  # the operand of `attention_backward`


@dataclass(frozen=True, slots=True)
class _Band:
    """Query t sees the keys from t + first to t + last; None: no bound on that side."""

    first: int | None = None
    last: int | None = None

    @property
    def sees_itself(self) -> bool:
        """Whether query t sees key t."""
        return (self.first or 0) <= 0 <= (self.last or 0)

    def within(self, other: _Band) -> _Band:
        """What both see."""
        return _Band(_of_both(max, self.first, other.first), _of_both(min, self.last, other.last))


def _of_both(choose: Callable[..., int], one: int | None, other: int | None) -> int | None:
    there = [bound for bound in (one, other) if bound is not None]
    return choose(there) if there else None


def known_masks(graph: Graph) -> tuple[Graph, int]:
    """`graph` with known masks taken out of its attentions, and how many were."""
    reader = _Reader(fixed_constants(graph.constants))

    def without_known(_: Node, node: Node) -> Node:
        place = _mask_place(node)
        return node if place is None else reader.without_known(node, place)

    return graph.rebuilt(without_known), reader.count


def _mask_place(node: Node) -> int | None:
    """Which operand is the mask of an attention; None where there is none, or ends beside it: those
    are no causal rows."""
    if node.op == "attention_backward":
        return GRADIENTS_MASK if len(node.inputs) > GRADIENTS_MASK else None
    if node.op not in OF_ROWS or mask_of(node) is None or ends_of(node) is not None:
        return None
    return node.inputs.index(mask_of(node), 3)


class _Reader:
    """Computes masks, each once, and rebuilds the attentions that they belong to."""

    def __init__(self, constants: Mapping[str, Constant]) -> None:
        self.constants = constants
        self.context = Context()
        self.counts = Counts(constants)
        self.known: dict[Node, Array | None] = {}
        self.count = 0

    def without_known(self, node: Node, place: int) -> Node:
        """The attention without the parts of its mask, operand `place`, that attributes say, or
        that hide none."""
        seen, added = masks_of(node.inputs[place])
        found = {part: self._band(part, node) for part in (*seen, *added)}
        attrs, band = dict(node.attrs), _band_of(dict(node.attrs))
        kept = []
        # A window is said by where it ends: masks that say this come first.
        for part, shown in sorted(found.items(), key=lambda item: _is_open(item[1])):
            both = None if shown is None else band.within(shown)
            said = None if both is None else _attributes(both, node)
            if both is None or said is None:
                kept.append(part)
            else:
                band, attrs = both, attrs | said
        for part in kept:  # what else a mask adds is read of the keys that it lets be seen
            shown = self._band_of_hidden(part, node)
            both = None if shown is None else band.within(shown)
            said = None if both is None else _attributes(both, node)
            if both is not None and said is not None:
                band, attrs = both, attrs | said
        if len(kept) == len(found) and attrs == dict(node.attrs):
            return node
        self.count += len(found) - len(kept)
        left = ([part for part in each if part in kept] for each in (seen, added))
        operands = (*node.inputs[:place], *joined(*left), *node.inputs[place + 1 :])
        return make(node.op, operands, attrs, node.source)

    def _band(self, part: Node, node: Node) -> _Band | None:
        """The band that a part of a mask lets through; None for other masks."""
        counted = _band_of_counts(part, self.counts)
        if counted is not None:
            return counted
        if part.sizes():
            return self._band_of_choice(part, node) or self._band_of_corner(part)
        return self._band_of_table(self._seen(part), node)

    def _band_of_hidden(self, part: Node, node: Node) -> _Band | None:
        """The band of the keys that a known mask of other numbers does not hide by -inf."""
        if part.dtype == "bool" or part.sizes() or node.op == "attention_backward":
            return None
        values = self._values_of(part)
        return None if values is None else self._band_of_table(values != -math.inf, node)

    def _band_of_table(self, seen: Array | None, node: Node) -> _Band | None:
        """The band of known booleans, alike for all batches and heads."""
        if seen is None:
            return None
        if seen.all():
            return _Band()
        table = seen.reshape(-1, *seen.shape[2:])
        rows, keys = fixed(node.inputs[0].shape[2]), fixed(node.inputs[1].shape[2])
        if (table != table[:1]).any() or table.shape[1] != rows:
            return None
        return band_of_values(numpy.broadcast_to(table[0], (rows, keys)))

    def _band_of_choice(self, part: Node, node: Node) -> _Band | None:
        """The band of numbers that are 0 where a key is seen and else as good as -inf, chosen by
        comparisons, where each row sees itself: then such a number hides a key."""
        chosen = _unaligned(part)
        if chosen.op != "where" or any(each.op != "scalar" for each in chosen.inputs[1:]):
            return None
        condition, (first, second) = (
            chosen.inputs[0],
            (each.attr("value") for each in chosen.inputs[1:]),
        )
        hidden = second if first == 0 else first
        if 0 not in (first, second) or not hidden <= HIDDEN:
            return None
        band = _band_of_counts(condition, self.counts, is_negated=first != 0)
        is_square = proves_at_most(node.inputs[0].shape[2], node.inputs[1].shape[2])
        return band if band is not None and is_square and band.sees_itself else None

    def _band_of_corner(self, part: Node) -> _Band | None:
        """The band of a mask of dynamic sizes that is the first rows and keys of a known one."""
        whole = _whole(part)
        if whole is None or whole.sizes() or set(whole.shape[:-2]) - {1}:
            return None
        seen = self._seen(whole)
        band = None if seen is None else band_of_values(seen.reshape(seen.shape[-2:]))
        if band is None or part.dtype == "bool":
            return band
        # Where a row of the corner sees no key, numbers that hide all of them weigh them alike.
        return band if band.sees_itself else None

    def _seen(self, part: Node) -> Array | None:
        """Values of a known mask as booleans; None where it is unknown or adds other numbers."""
        if part not in self.known:
            self.known[part] = self._values(part)
        return self.known[part]

    def _values_of(self, part: Node) -> Array | None:
        """The numbers of a known mask; None where it is unknown."""
        if not self.context.is_constant(part) or part.type.numel > LARGEST_MASK:
            return None
        read = (node.attr("name") for node in walk((part,)) if node.op == "constant")
        if not self.constants.keys() >= set(read):  # the weights of a call decide
            return None
        (stored,) = evaluate_all((part,), {}, self.constants)
        return widen(stored, part.dtype)

    def _values(self, part: Node) -> Array | None:
        values = self._values_of(part)
        if values is None or part.dtype == "bool":
            return values
        seen = values == 0
        hidden = values == -math.inf
        if (hidden | seen).all():
            return numpy.asarray(seen)
        # A finite number hides a key only beside one that is seen.
        is_hiding = bool((seen | (values <= HIDDEN)).all() and seen.any(axis=-1).all())
        return numpy.asarray(seen) if is_hiding else None


def _band_of(attrs: Mapping[str, AttrValue]) -> _Band:
    """The band that attributes of an attention say."""
    if not attrs["causal"]:
        return _Band()
    last, window = attrs["offset"], attrs["window"]
    return _Band(last - window + 1 if window else None, last)


def _is_open(band: _Band | None) -> bool:
    return band is None or band.last is None


def _attributes(band: _Band, node: Node) -> dict[str, AttrValue] | None:
    """The attributes that say a band; None where they cannot."""
    rows, keys = node.inputs[0].shape[2], node.inputs[1].shape[2]
    first, last = band.first, band.last
    if node.op == "attention_backward" and not _all_see_some(band, rows, keys):
        return None
    if first is None or proves_at_most(rows - 1, -first):  # no row begins after key 0
        is_causal = last is not None and not proves_at_most(keys - 1, last)
        return {"causal": is_causal, "offset": last if is_causal else 0, "window": 0}
    if last is None and is_static((keys,)):
        last = fixed(keys) - 1
    if last is None or last < first:
        return None
    return {"causal": True, "offset": last, "window": last - first + 1}


def _all_see_some(band: _Band, rows: Extent, keys: Extent) -> bool:
    """Whether each row sees a key, as the kernel of the gradients expects."""
    ends_inside = band.last is None or band.last >= 0
    return ends_inside and (band.first is None or proves_at_most(rows + band.first, keys))


def band_of_values(seen: Array) -> _Band | None:
    """The band of a mask [rows, keys], None where it is none."""
    rows, keys = seen.shape
    row, column = numpy.arange(rows), numpy.arange(keys)
    begins, ends = seen.argmax(1), keys - 1 - seen[:, ::-1].argmax(1)
    shown = [row[seen.any(1) & bound] for bound in (begins > 0, ends < keys - 1)]
    first, last = (
        int(bounds[at[0]] - at[0]) if at.size else None
        for bounds, at in zip((begins, ends), shown, strict=True)
    )
    band = numpy.ones_like(seen)
    if first is not None:
        band &= column >= row[:, None] + first
    if last is not None:
        band &= column <= row[:, None] + last
    return _Band(first, last) if numpy.array_equal(band, seen) else None


# a op b → whether b is the smaller one, and by how much it has to be smaller.
COMPARISONS = {"le": (False, 0), "lt": (False, 1), "ge": (True, 0), "gt": (True, 1)}
OPPOSITES = {"le": "gt", "gt": "le", "lt": "ge", "ge": "lt"}


def _band_of_counts(part: Node, counts: Counts, is_negated: bool = False) -> _Band | None:
    """The band of comparisons whose sides count rows and keys, alike for all batches and heads.
    is_negated: of the keys for which they do not hold."""
    if counts.decided(part) is not None:
        return _Band() if counts.decided(part) is not is_negated else None
    part = _unaligned(part)
    if part.op == "logical_not":
        return _band_of_counts(part.inputs[0], counts, not is_negated)
    if part.op == ("logical_or" if is_negated else "logical_and"):
        bands = (_band_of_counts(operand, counts, is_negated) for operand in part.inputs)
        return _of_both_sides(*bands)
    op = OPPOSITES.get(part.op, part.op) if is_negated else part.op
    if op not in COMPARISONS:
        return None
    is_reversed, less = COMPARISONS[op]
    small, large = part.inputs[::-1] if is_reversed else part.inputs
    small, limit = _unaligned(small), counts.affine(large)
    if small.op != "abs":
        return _bound(counts.affine(small), limit, less)
    # |a| ≤ b: a ≤ b and -a ≤ b
    inside = counts.affine(small.inputs[0])
    opposite = None if inside is None else inside.times(-1)
    return _of_both_sides(_bound(inside, limit, less), _bound(opposite, limit, less))


def _whole(node: Node) -> Node | None:
    """What a mask is the first rows and keys of: the mask of the constants that it slices."""
    if node.op in ("constant", "scalar"):
        return node
    operands = [_whole(operand) for operand in node.inputs]
    found = [operand for operand in operands if operand is not None]
    if len(found) < len(operands):
        return None
    if node.op == "slice":
        is_first = (node.attr("start"), node.attr("step")) == (0, 1)
        return found[0] if is_first and node.attr("axis") >= node.type.rank - 2 else None
    if node.kind == "pointwise":
        shapes = {operand.shape for operand in found if operand.type.rank}
        return make(node.op, tuple(found), node.attrs) if len(shapes) == 1 else None
    if node.op == "reshape" and found[0].type.rank >= 2 and keeps_rows_and_keys(node):
        return build.reshape(found[0], (*node.shape[:-2], *found[0].shape[-2:]))
    return None


def _of_both_sides(one: _Band | None, other: _Band | None) -> _Band | None:
    return None if one is None or other is None else one.within(other)


def _bound(small: Affine | None, large: Affine | None, less: int) -> _Band | None:
    """The band of small + less ≤ large."""
    if small is None or large is None:
        return None
    rank = max(len(small.steps), len(large.steps), 2)
    apart = small.among(rank).plus(large.among(rank), -1)
    if not isinstance(apart.constant, int) or any(apart.steps[:-2]):
        return None
    if apart.steps[-2:] == (-1, 1):
        return _Band(last=-apart.constant - less)
    if apart.steps[-2:] == (1, -1):
        return _Band(first=apart.constant + less)
    return None


def _unaligned(node: Node) -> Node:
    """Without views that leave rows and keys where they are."""
    while keeps_rows_and_keys(node):
        (node,) = node.inputs
    return node


def keeps_rows_and_keys(node: Node) -> bool:
    """Whether a view repeats elements, or only changes axes before the last two.

    A vector is the keys of one row.
    """
    if node.op == "reshape":
        before, after = ((1, 1, *shape)[-2:] for shape in (node.inputs[0].shape, node.shape))
        return before == after
    return node.op == "expand"


def _only_aligns(node: Node) -> bool:
    """Whether a view only adds axes of one element before the others, or drops such."""
    if node.op != "reshape" or min(node.type.rank, node.inputs[0].type.rank) < 2:
        return False
    before, after = node.inputs[0].shape, node.shape
    return before[-2:] == after[-2:] and {*before[:-2], *after[:-2]} <= {1}


def joined(seen: Iterable[Node], added: Iterable[Node]) -> tuple[Node, ...]:
    """What is seen and what is added in one mask, if there is any."""
    rows = [*((part, True) for part in seen), *((part, False) for part in added)]
    mask = joined_masks(rows)
    return () if mask is None else (mask,)


def masks_of(mask: Node) -> tuple[list[Node], list[Node]]:
    """The bools that say what a mask lets be seen, and the numbers that it adds, of its rank:

    where(b, x, -inf) is b and x, and x + y both.
    """
    if mask.dtype == "bool":
        return parts(mask), []
    whole = mask
    while _only_aligns(whole):
        (whole,) = whole.inputs
    if whole.op == "cast" and whole.inputs[0].type.kind == "float":
        seen, added = masks_of(build.align(whole.inputs[0], mask.type.rank))
        return (seen, added) if seen or len(added) > 1 else ([], [mask])
    if whole.op == "where" and whole.inputs[1].type.rank and _is_hidden(whole.inputs[2]):
        condition, rest = (build.align(each, mask.type.rank) for each in whole.inputs[:2])
        seen, added = masks_of(rest)
        return parts(condition) + seen, added
    if whole.op == "add" and all(each.type.rank for each in whole.inputs):
        sides = [masks_of(build.align(each, mask.type.rank)) for each in whole.inputs]
        return sides[0][0] + sides[1][0], sides[0][1] + sides[1][1]
    return [], [mask]


def _is_hidden(node: Node) -> bool:
    return node.op == "scalar" and node.attr("value") == -math.inf


def parts(mask: Node) -> list[Node]:
    """Masks of the same rank that are joined by `and`."""
    whole = mask
    while _only_aligns(whole):
        (whole,) = whole.inputs
    if whole.op != "logical_and" or whole.type.rank > mask.type.rank:
        return [mask]
    aligned = (build.align(operand, mask.type.rank) for operand in whole.inputs)
    return [part for operand in aligned for part in parts(operand)]
