"""Convolution groups of a GPU → a filled template: windows of the input as rows of a product.

The address of an element of A is a part that varies with the row, a part that varies with the
kernel offset and the channel; whether a kernel offset lies inside the image is one bit for each row
and axis of the window. The first parts are written before the loop, so that a step costs an
addition and a shift.
"""

from __future__ import annotations

from dataclasses import dataclass

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.ir.size import fixed, proves_at_most, proves_below
from aotc.aot.schedule.domain import batch_index, breaks, contiguous_run, operand_accesses
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import Access, accesses

SMALLEST_RUN = 8  # elements of a kernel offset that are worth a step of their own
MOST_TAPS = 31  # bits of an i32 that stay positive
_MOVES = frozenset({"view", "pad", "window"})


@dataclass(frozen=True, slots=True)
class Border:
    """A condition on one axis: at digit v of the offset, `index + values[v]` in [low, high)."""

    digit: Index
    index: Index
    values: tuple[int, ...]
    low: int | None
    high: int | None

    def condition(self, place: int, name: str) -> str:
        """Text of the condition at one digit, where `name` is the value of `index`; empty: true."""
        value = self.values[place]
        smallest, largest = (end + value for end in self.index.bounds())
        sides = []
        if self.low is not None and not proves_at_most(self.low, smallest):
            sides.append(f"({name} >= {self.low - value})")
        if self.high is not None and not proves_below(largest, self.high):
            sides.append(f"({name} < {self.high - value})")
        return " & ".join(sides)


@dataclass(frozen=True, slots=True)
class Windows:
    """Both operands of a convolution as plain loads.

    Element (row, kernel offset, c) of A is `data[rows + steps + c]` or zero outside the borders;
    element (kernel offset, c, column) of B is `weights[columns]`. `rows` is in terms of z and x,
    `steps` of kernel offset, `columns` of z, kernel offset, c and y.
    """

    data: Node
    weights: Node
    rows: Index
    steps: Index
    borders: tuple[Border, ...]
    columns: Index
    run: int
    kernel_size: int

    @property
    def kernel_offset(self) -> Symbol:
        return Symbol("kernel_offset", self.kernel_size)


def windows_of(group: Group) -> Windows | None:
    """The group's product as windows of one buffer by weights in another, where it is that."""
    root_op, domain = group.root_op, group.domain
    if root_op is None or root_op.kind != "matmul" or domain.reduced is None:
        return None
    if domain.lanes.extent != root_op.shape[-1]:
        return None  # columns that meet in pairs
    reads = frozenset(group.reads)
    left, right = operand_accesses(root_op, domain, batch_index(root_op, domain))
    whole = _traced(left, reads)
    if whole is None:
        return None
    depth = domain.reduced
    run = contiguous_run(root_op, domain, reads.__contains__)
    # What lies together in memory may still cross the border of the image.
    lengths = {run, *(length for row in whole.conditions for length in breaks(row.index, depth))}
    run = min(map(fixed, lengths))
    if run < SMALLEST_RUN or depth.length % run:
        return None
    kernel_offset, channel = Symbol("kernel_offset", depth.length // run), Symbol("c", run)
    inner = {depth: ix.of(kernel_offset) * run + ix.of(channel)}
    data, weights = _traced(_at(left, inner), reads), _traced(_at(right, inner), reads)
    if data is None or weights is None or weights.conditions:
        return None
    if {data.node.dtype, weights.node.dtype} != {root_op.dtype}:
        return None
    parts = _parts(ix.linear(data.index, data.node.shape), kernel_offset, channel)
    borders = [_border(condition, kernel_offset, channel) for condition in data.conditions]
    if parts is None or any(border is None for border in borders):
        return None
    return Windows(
        data.node,
        weights.node,
        *parts,
        tuple(border for border in borders if border is not None),
        ix.linear(weights.index, weights.node.shape),
        run,
        kernel_offset.length,
    )


def _at(need: Access, values: dict[Symbol, Index]) -> Access:
    return Access(need.node, tuple(part.substitute(values) for part in need.index))


def _traced(need: Access, reads: frozenset[Node]) -> Access | None:
    """The element of a buffer behind views, and all conditions on the way; None if computed."""
    conditions: tuple[Bound, ...] = ()
    while need.node not in reads:
        is_zero = need.node.op != "pad" or need.node.attr("value") == 0
        if need.node.kind not in _MOVES or not is_zero:
            return None
        (need,) = accesses(need.node, need.index)
        conditions += need.conditions
    return Access(need.node, need.index, conditions)


def _parts(offset: Index, kernel_offset: Symbol, channel: Symbol) -> tuple[Index, Index] | None:
    """(rows, steps) with offset = rows + steps + channel; None where it is no such sum."""
    rest = offset - ix.of(channel)
    if channel in rest.symbols():
        return None
    steps = Index(tuple(term for term in rest.terms if _varies(term[0], kernel_offset)), 0)
    if steps.symbols() - {kernel_offset}:
        return None
    return rest - steps, steps


def _border(condition: Bound, kernel_offset: Symbol, channel: Symbol) -> Border | None:
    """The condition with its part in kernel offset as a table; None where it is no such sum."""
    index = condition.index
    steps = Index(tuple(term for term in index.terms if _varies(term[0], kernel_offset)), 0)
    if channel in index.symbols() or steps.symbols() - {kernel_offset}:
        return None
    digit = ix.of(steps.terms[0][0]) if len(steps.terms) == 1 else ix.of(kernel_offset)
    if not steps.terms:
        digit, values = ix.ZERO, [0]
    elif len(steps.terms) == 1:
        values = [fixed(steps.terms[0][1] * value) for value in range(digit.bounds()[1] + 1)]
    else:
        at = ({kernel_offset: ix.constant(value)} for value in range(kernel_offset.length))
        values = [fixed(steps.substitute(value).constant) for value in at]
    if len(values) > MOST_TAPS:
        return None
    low, high = (None if end is None else fixed(end) for end in (condition.low, condition.high))
    return Border(digit, index - steps, tuple(values), low, high)


def _varies(atom: ix.Atom, symbol: Symbol) -> bool:
    return symbol in ix.of(atom).symbols()
