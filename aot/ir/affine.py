"""Integer tensors that are affine in their index: a constant plus a step along each axis.

What indices and masks are made of keeps this form through views, sums and lookups, whatever the
sizes, so that comparisons of it are decided where no element would be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

import numpy

from aotc.aot.ir.graph import Constant, Node, walk
from aotc.aot.ir.size import Extent, Shape, proves_at_most
from aotc.aot.ir.types import DTYPES

COUNTED_DTYPES = ("i32", "i64")  # narrower ones may not hold what they would count
MOST_NODES = 512  # behind a node that is asked for
MOST_ELEMENTS = 1 << 20  # of a constant whose values are looked at


@dataclass(frozen=True, slots=True)
class Affine:
    """An element is `constant` plus `steps[axis]` times its place along each axis.

    Axes of one element have no step.
    """

    constant: Extent
    steps: tuple[int, ...]

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """The sum with `factor` times another of the same rank."""
        pairs = zip(self.steps, other.steps, strict=True)
        steps = tuple(one + factor * another for one, another in pairs)
        return Affine(self.constant + other.constant * factor, steps)

    def times(self, factor: int) -> Affine:
        """Each element times `factor`."""
        return Affine(self.constant * factor, tuple(step * factor for step in self.steps))

    def among(self, rank: int) -> Affine:
        """The form at a higher rank, whose axes more come first."""
        return Affine(self.constant, (*[0] * (rank - len(self.steps)), *self.steps))

    def range(self, shape: Shape) -> tuple[Extent, Extent]:
        """The least and the largest element of a tensor that has one."""
        low = high = self.constant
        for step, extent in zip(self.steps, shape, strict=True):
            end = (extent - 1) * step
            low, high = (low + end, high) if step < 0 else (low, high + end)
        return low, high


class Counts:
    """Forms of nodes, each looked for once; of the constants that are given, by their values."""

    def __init__(self, constants: Mapping[str, Constant] = MappingProxyType({})) -> None:
        self._constants = constants
        self._known: dict[Node, Affine | bool | None] = {}

    def affine(self, node: Node) -> Affine | None:
        """The form of a node of integers; None where it has none that is seen."""
        found = self._found(node)
        return found if isinstance(found, Affine) else None

    def decided(self, node: Node) -> bool | None:
        """What all elements of a node of booleans are; None where they may differ."""
        found = self._found(node)
        return found if isinstance(found, bool) else None

    def _found(self, node: Node) -> Affine | bool | None:
        if node not in self._known:
            behind = list(islice(walk((node,), self._known), MOST_NODES))
            if len(behind) == MOST_NODES:
                return None
            for each in behind:
                self._known[each] = self._form(each)
        return self._known[node]

    def _form(self, node: Node) -> Affine | bool | None:
        is_seen = node.dtype == "bool" or node.dtype in COUNTED_DTYPES
        if not is_seen or 0 in node.shape:
            return None
        found: Form = None
        if node.op == "constant" and node.dtype != "bool":
            found = _stored(self._constants.get(node.attr("name")))
        elif node.op in _ROWS:
            found = _ROWS[node.op](node, [self._known.get(each) for each in node.inputs])
        if found is None and node.op == "take":
            found = self._flat_lookup(node)
        return found if isinstance(found, bool) or _fits(found, node) else None

    def _flat_lookup(self, node: Node) -> Affine | None:
        """x[a, b, ..] as it is written of memory: x as one row, and a · n + b for x's n columns."""
        source, digits = self.digits(node)
        form = self._known.get(source)
        if not isinstance(form, Affine) or not digits:
            return None
        total = _alike(form.constant, node.inputs[1])
        for step, digit in zip(form.steps, digits, strict=True):
            total = total.plus(digit.times(step))
        return total

    def digits(self, node: Node) -> tuple[Node, list[Affine]]:
        """The source of a look-up `take`, and for each of its axes the form of the place there, all
        of them inside and at the index's rank; no forms where that is not seen."""
        data, place = node.inputs
        rank = place.type.rank
        source = data.inputs[0] if data.op == "reshape" and data.type.rank == 1 else data
        if node.attr("axis") != 0 or data.type.rank != 1:
            return source, []
        found: list[Affine] = []
        for axis in reversed(range(source.type.rank)):
            extent, digit = source.shape[axis], place
            if axis:
                parted = self._quotient(place, extent)
                if parted is None:
                    return source, []
                place, digit = parted
            form = self.affine(digit)
            if form is None:
                return source, []
            low, high = form.range(digit.shape)
            if not (proves_at_most(0, low) and proves_at_most(high, extent - 1)):
                return source, []
            found.append(form.among(rank))
        return source, found[::-1]

    def _quotient(self, place: Node, extent: Extent) -> tuple[Node, Node] | None:
        """a and b of a · extent + b; None for what is not written so."""
        for product, digit in _in_both_orders(place, "add"):
            for whole, factor in _in_both_orders(product, "mul"):
                if self.affine(factor) == _alike(extent, factor):
                    return whole, digit
        return None


Form = Affine | bool | None
Row = Callable[[Node, Sequence[Form]], Form]


def _in_both_orders(node: Node, op: str) -> Iterator[tuple[Node, Node]]:
    """The two operands of an op that commutes, if the node is one."""
    if node.op == op:
        left, right = node.inputs
        yield left, right
        yield right, left


def _stored(constant: Constant | None) -> Affine | None:
    """The form of known integers."""
    if constant is None or constant.type.numel > MOST_ELEMENTS:
        return None
    values = constant.array
    first = values.reshape(-1)[0]
    seconds = [tuple(int(at == axis) for at in range(values.ndim)) for axis in range(values.ndim)]
    with numpy.errstate(over="ignore"):  # a form whose elements fit is right all the same
        steps = tuple(
            int(values[second] - first) if extent > 1 else 0
            for second, extent in zip(seconds, values.shape, strict=True)
        )
        places = numpy.indices(values.shape, sparse=True)
        counted = first + sum(step * place for step, place in zip(steps, places, strict=True))
    return Affine(int(first), steps) if numpy.array_equal(values, counted) else None


def _fits(form: Affine | None, node: Node) -> bool:
    """Whether the type holds all elements, so that none went round its end."""
    if form is None:
        return False
    low, high = form.range(node.shape)
    limits = numpy.iinfo(DTYPES[node.dtype].numpy)
    return proves_at_most(int(limits.min), low) and proves_at_most(high, int(limits.max))


def _alike(value: Extent, node: Node) -> Affine:
    """The form of a node of equal elements."""
    return Affine(value, (0,) * node.type.rank)


def _iota(node: Node, _: Sequence[Form]) -> Form:
    axis = node.attr("axis")
    return Affine(0, tuple(int(at == axis and node.shape[at] != 1) for at in range(node.type.rank)))


def _scalar(node: Node, _: Sequence[Form]) -> Form:
    value = node.attr("value")
    return bool(value) if node.dtype == "bool" else _alike(int(value), node)


def _cast(node: Node, operands: Sequence[Form]) -> Form:
    (form,) = operands
    if isinstance(form, bool) and node.dtype != "bool":
        return _alike(int(form), node)
    return form if isinstance(form, Affine) and node.dtype != "bool" else None


def _reshape(node: Node, operands: Sequence[Form]) -> Form:
    """Axes of one element come and go; equal elements take any shape."""
    (form,) = operands
    if not isinstance(form, Affine):
        return form
    if not any(form.steps):
        return _alike(form.constant, node)
    before = [(extent, step) for extent, step in _axes(form, node.inputs[0]) if extent != 1]
    kept = [at for at, extent in enumerate(node.shape) if extent != 1]
    if [extent for extent, _ in before] != [node.shape[at] for at in kept]:
        return None
    steps = dict(zip(kept, (step for _, step in before), strict=True))
    return Affine(form.constant, tuple(steps.get(at, 0) for at in range(node.type.rank)))


def _axes(form: Affine, node: Node) -> list[tuple[Extent, int]]:
    return list(zip(node.shape, form.steps, strict=True))


def _expand(node: Node, operands: Sequence[Form]) -> Form:
    (form,) = operands
    return _broadcast(form, node.type.rank)


def _broadcast(form: Form, rank: int) -> Form:
    """The form among others of more axes, which come first."""
    return form.among(rank) if isinstance(form, Affine) else form


def _permute(node: Node, operands: Sequence[Form]) -> Form:
    (form,) = operands
    if not isinstance(form, Affine):
        return form
    return Affine(form.constant, tuple(form.steps[axis] for axis in node.attr("dims")))


def _slice(node: Node, operands: Sequence[Form]) -> Form:
    (form,), axis = operands, node.attr("axis")
    if not isinstance(form, Affine):
        return form
    step = form.steps[axis]
    steps = list(form.steps)
    steps[axis] = 0 if node.shape[axis] == 1 else step * node.attr("step")
    return Affine(form.constant + node.attr("start") * step, tuple(steps))


def _pad(node: Node, operands: Sequence[Form]) -> Form:
    """Equal elements between others like them."""
    (form,), value = operands, node.attr("value")
    if isinstance(form, bool):
        return form if form == bool(value) else None
    is_alike = form is not None and not any(form.steps) and form.constant == int(value)
    return form if is_alike else None


def _concat(node: Node, operands: Sequence[Form]) -> Form:
    """Parts that count on where the one before them ends."""
    axis = node.attr("axis")
    if not all(isinstance(form, Affine) for form in operands):
        return operands[0] if all(form is operands[0] for form in operands) else None
    forms = [form for form in operands if isinstance(form, Affine)]
    longer = [form for form, each in zip(forms, node.inputs, strict=True) if each.shape[axis] != 1]
    step = longer[0].steps[axis] if longer else forms[-1].constant - forms[-2].constant
    if not isinstance(step, int):
        return None
    steps = list(forms[0].steps)
    steps[axis] = step
    whole = Affine(forms[0].constant, tuple(steps))
    before: Extent = 0
    for form, part in zip(forms, node.inputs, strict=True):
        if form != _part(whole, axis, before, part):
            return None
        before = before + part.shape[axis]
    return whole


def _part(whole: Affine, axis: int, first: Extent, part: Node) -> Affine:
    """The form of a part that begins at a place along the axis."""
    steps = list(whole.steps)
    constant = whole.constant + first * steps[axis]
    if part.shape[axis] == 1:
        steps[axis] = 0
    return Affine(constant, tuple(steps))


def _take(node: Node, operands: Sequence[Form]) -> Form:
    """data[.., index, ..]: the step along the axis times the index, which lies inside."""
    (data, index), axis = operands, node.attr("axis")
    source, places = node.inputs
    if isinstance(data, Affine) and not any(data.steps):
        return _alike(data.constant, node)
    if not isinstance(data, Affine) or not isinstance(index, Affine):
        return None
    low, high = index.range(places.shape)
    if not (proves_at_most(0, low) and proves_at_most(high, source.shape[axis] - 1)):
        return None
    counted = index.times(data.steps[axis])
    steps = (*data.steps[:axis], *counted.steps, *data.steps[axis + 1 :])
    return Affine(data.constant + counted.constant, steps)


def _are_alike(form: Form) -> bool:
    return isinstance(form, Affine) and not any(form.steps)


def _sum(node: Node, operands: Sequence[Form]) -> Form:
    """Zeros have the sum zero, and so have they one after the other."""
    (form,) = operands
    is_zero = isinstance(form, Affine) and form == Affine(0, (0,) * len(form.steps))
    return _alike(0, node) if is_zero else None


def _add(node: Node, operands: Sequence[Form]) -> Form:
    left, right = _both(node, operands)
    return left.plus(right) if left and right else None


def _sub(node: Node, operands: Sequence[Form]) -> Form:
    left, right = _both(node, operands)
    return left.plus(right, -1) if left and right else None


def _mul(node: Node, operands: Sequence[Form]) -> Form:
    for form, other in (_both(node, operands), _both(node, operands)[::-1]):
        if form and not any(form.steps) and isinstance(form.constant, int):
            if form.constant == 0:
                return form
            return other.times(form.constant) if other else None
    return None


def _neg(_: Node, operands: Sequence[Form]) -> Form:
    (form,) = operands
    return form.times(-1) if isinstance(form, Affine) else None


def _both(node: Node, operands: Sequence[Form]) -> list[Affine | None]:
    """Two operands of integers at the rank of the result."""
    found = [_broadcast(form, node.type.rank) for form in operands]
    return [form if isinstance(form, Affine) else None for form in found]


def _where(node: Node, operands: Sequence[Form]) -> Form:
    condition, *branches = operands
    first, second = (_broadcast(form, node.type.rank) for form in branches)
    if isinstance(condition, bool):
        return first if condition else second
    return first if first == second else None


def _comparison(decide: Callable[[Extent, Extent], bool | None]) -> Row:
    """A comparison by the range of the difference of its sides."""

    def compared(node: Node, operands: Sequence[Form]) -> Form:
        left, right = _both(node, operands)
        return decide(*left.plus(right, -1).range(node.shape)) if left and right else None

    return compared


def _is_below(low: Extent, high: Extent) -> bool | None:
    if proves_at_most(high, -1):
        return True
    return False if proves_at_most(0, low) else None


def _is_at_most(low: Extent, high: Extent) -> bool | None:
    if proves_at_most(high, 0):
        return True
    return False if proves_at_most(1, low) else None


def _is_zero(low: Extent, high: Extent) -> bool | None:
    if proves_at_most(1, low) or proves_at_most(high, -1):
        return False
    return True if low == high == 0 else None


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _and(_: Node, operands: Sequence[Form]) -> Form:
    if any(form is False for form in operands):
        return False
    return True if all(form is True for form in operands) else None


def _or(_: Node, operands: Sequence[Form]) -> Form:
    if any(form is True for form in operands):
        return True
    return False if all(form is False for form in operands) else None


def _logical_not(_: Node, operands: Sequence[Form]) -> Form:
    (form,) = operands
    return not form if isinstance(form, bool) else None


_ROWS: dict[str, Row] = {
    "scalar": _scalar,
    "extent": lambda node, _: _alike(node.attr("extent"), node),
    "iota": _iota,
    "cast": _cast,
    "reshape": _reshape,
    "expand": _expand,
    "permute": _permute,
    "slice": _slice,
    "pad": _pad,
    "concat": _concat,
    "take": _take,
    "gather": lambda node, operands: _take(node, operands) if _are_alike(operands[0]) else None,
    "sum": _sum,
    "scan": lambda node, operands: _sum(node, operands) if node.attr("kind") == "sum" else None,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "neg": _neg,
    "where": _where,
    "lt": _comparison(_is_below),
    "le": _comparison(_is_at_most),
    "gt": _comparison(lambda low, high: _is_below(-high, -low)),
    "ge": _comparison(lambda low, high: _is_at_most(-high, -low)),
    "eq": _comparison(_is_zero),
    "ne": _comparison(lambda low, high: _not(_is_zero(low, high))),
    "logical_and": _and,
    "logical_or": _or,
    "logical_not": _logical_not,
}
