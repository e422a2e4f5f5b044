"""Convolution groups of a GPU → a filled template: windows of the input as rows of a product.

The address of an element of A is a part that varies with the row, a part that varies with the
kernel offset and the channel; whether a kernel offset lies inside the image is one bit for each row
and axis of the window. The first parts are written before the loop, so that a step costs an
addition and a shift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.ir.size import (
    UndecidedSize,
    fixed,
    kernel_text,
    proves_at_most,
    proves_below,
)
from aotc.aot.lower import kernel_file
from aotc.aot.lower.convolution.candidates import Shape, convolution_candidates, pack_of
from aotc.aot.lower.emit import Body, Value, computed, triton_type
from aotc.aot.lower.grids import axes_of, folded
from aotc.aot.lower.kernel_file import fill
from aotc.aot.lower.matmul.choice import precision_of
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.schedule.cost import function_operations
from aotc.aot.schedule.domain import batch_index, breaks, contiguous_run, operand_accesses
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import Access, accesses
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import TEMPLATES

SMALLEST_RUN = 8  # elements of a kernel offset that are worth a step of their own
MOST_OFFSETS = 31  # bits of an i32 that stay positive
_MOVES = frozenset({"view", "pad", "window"})
_BLOCKS = ("BM", "BN", "BK")
_TEMPLATES = {  # by form
    "windows": "convolution",
    "windows_packed": "convolution_packed",
    "windows_split": "convolution_split",
}


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
    if len(values) > MOST_OFFSETS:
        return None
    low, high = (None if end is None else fixed(end) for end in (condition.low, condition.high))
    return Border(digit, index - steps, tuple(values), low, high)


def _varies(atom: ix.Atom, symbol: Symbol) -> bool:
    return symbol in ix.of(atom).symbols()


def lower_convolution(group: Group, traits: TargetTraits) -> KernelSpec | None:
    """The convolution of the group with its epilogue; None where its operands are no plain loads,
    and for a result of a single row or column.

    A pointwise convolution counts as one of a single kernel offset.
    """
    try:
        windows = windows_of(group)
    except UndecidedSize:  # kernel offsets and borders are tables of numbers
        return None
    domain, root_op = group.domain, group.root_op
    if windows is None or root_op is None or 1 in (domain.rows.extent, domain.lanes.extent):
        return None  # not stored to a single row or column: matmul/gpu_source.py sums those up
    depth = windows.kernel_size * windows.run
    precision = precision_of(root_op, domain.lanes.extent, depth, traits)
    shape = Shape(
        domain.outer.extent,
        domain.rows.extent,
        domain.lanes.extent,
        windows.kernel_size,
        windows.run,
        windows.data.dtype,
        group.bytes,
        pack_of(windows.kernel_size, windows.run, windows.data.dtype, precision),
        precision,
        function_operations(group, approximates=False),
    )
    candidates = convolution_candidates(shape, traits)
    writer = _Writer(group, windows, candidates, shape.pack)
    constants = {
        "M": kernel_text(domain.rows.extent),
        "N": kernel_text(domain.lanes.extent),
        "KERNEL_SIZE": str(windows.kernel_size),
        "RUN": str(windows.run),
        "PACK": str(shape.pack),
        "ACCUMULATOR": triton_type(writer.accumulator),
        "PRECISION": f'"{precision}"',
    }
    drafts = []
    axes = {}
    for name in dict.fromkeys(candidate.form for candidate in candidates):
        template = TEMPLATES[_TEMPLATES[name]]
        lines = fill(template, writer.holes, constants, writer.before_loop)
        drafts.append(kernel_file.Draft(name, lines))
        axes[name] = axes_of(template, {**constants, "BATCH": kernel_text(domain.outer.extent)})
    return kernel_file.kernel_of(group, *folded(drafts, candidates, axes))


class _Writer:
    """Writes the parts of one kernel: `before_loop` and what fills the `holes`."""

    def __init__(
        self, group: Group, windows: Windows, candidates: tuple[Candidate, ...], pack: int
    ) -> None:
        self.group, self.windows, self.pack = group, windows, pack
        assert group.root_op is not None
        self.root_op = group.root_op
        self.accumulator = computed(group.root_op.dtype)
        self.names = kernel_file.buffer_names(group)
        blocks = {name: kernel_file.blocks_of(candidates, name) for name in _BLOCKS}
        self.has_short_steps = any(windows.run % (pack or block) for block in blocks["BK"])
        self.has_last_step = any(windows.kernel_size * pack % block for block in blocks["BK"])
        self.before_loop: list[str] = []
        masks: dict[Symbol, str] = {}
        body = Body()
        for symbol, block in ((group.domain.rows, "BM"), (group.domain.lanes, "BN")):
            if kernel_file.has_tail(symbol, blocks[block]):
                kernel_file.write_mask(body, symbol, masks)
        self.has_column_mask = group.domain.lanes in masks
        self.before_loop += body.lines
        self.holes = {"load_a": self._load_a(), "load_b": self._load_b()}
        self.holes["store"] = self._store(masks)

    def _load_a(self) -> list[str]:
        """Lines of a step; what a row needs goes before the loop."""
        windows, rows = self.windows, self.group.domain.rows
        inner = Symbol("xa", rows.extent)
        self.before_loop.append(f"xa = tl.minimum(x, {kernel_text(rows.extent - 1)})")
        position = {rows: ix.of(inner)}
        start = windows.rows.substitute(position)
        self.before_loop.append(f"rows = {self.names[windows.data]} + ({start})")
        kernel_offset = self._kernel_offset("a")
        tests = [
            self._border(
                place,
                replace(
                    border,
                    index=border.index.substitute(position),
                    digit=border.digit.substitute(kernel_offset),
                ),
            )
            for place, border in enumerate(windows.borders)
        ]
        conditions = [f"({' & '.join([*tests, '1'])} != 0)"] if tests else []
        conditions += self._inside("a")
        offset = windows.steps.substitute(kernel_offset) + ix.of(Symbol("ca", windows.run))
        load = f"a = tl.load(rows + ({offset}){_masked(conditions)})"
        return [*self._step("a", "[None, :]"), load]

    def _kernel_offset(self, side: str) -> dict[Symbol, Index]:
        """The name of the kernel offset: one for a whole step, or one for each column of it."""
        kernel_offset = self.windows.kernel_offset
        return (
            {kernel_offset: ix.of(Symbol(f"kernel_offset_{side}", kernel_offset.length))}
            if self.pack
            else {}
        )

    def _step(self, side: str, dim: str) -> list[str]:
        """The channels of a step, and its kernel offsets where it has several."""
        if not self.pack:
            return [f"c{side} = step % steps * BK + tl.arange(0, BK){dim}"]
        return [
            f"kernel_offset_{side} = k{side} // {self.pack}",
            f"c{side} = k{side} % {self.pack}",
        ]

    def _inside(self, side: str) -> list[str]:
        """Conditions that the columns of a step are some of the run and of the kernel offsets."""
        found = [f"(c{side} < {self.windows.run})"] if self.has_short_steps else []
        return (
            [*found, f"(kernel_offset_{side} < {self.windows.kernel_size})"]
            if self.has_last_step
            else found
        )

    def _border(self, place: int, border: Border) -> str:
        """Write the bits of a border, one a digit of the offset; the text that shifts them."""
        edge, bits = f"edge{place}", f"inside{place}"
        self.before_loop.append(f"{edge} = {border.index}")
        terms, always = [], 0
        for digit in range(len(border.values)):
            text = border.condition(digit, edge)
            if text:
                text = text if "&" in text else text[1:-1]
                terms.append(f"(({text}).to(tl.int32) << {digit})")
            else:
                always |= 1 << digit
        terms += [str(always)] if always else []
        self.before_loop.append(f"{bits} = {' | '.join(terms)}")
        return bits if border.digit == ix.ZERO else f"({bits} >> ({border.digit}))"

    def _load_b(self) -> list[str]:
        windows, lanes = self.windows, self.group.domain.lanes
        conditions = self._inside("b")
        conditions += [f"{lanes.name}_mask"] if self.has_column_mask else []
        channel = {Symbol("c", windows.run): ix.of(Symbol("cb", windows.run))}
        offset = windows.columns.substitute(channel | self._kernel_offset("b"))
        load = f"b = tl.load({self.names[windows.weights]} + {offset}{_masked(conditions)})"
        return [*self._step("b", "[:, None]"), load]

    def _store(self, masks: dict[Symbol, str]) -> list[str]:
        """The epilogue; what does not vary with the rows is loaded before the loop."""
        body = Body()
        body.open_loop({self.group.domain.rows})
        emitter = kernel_file.emitter_of(
            self.group, body, masks, self._stop, is_of_gpu=True, approximates=False
        )
        kernel_file.write_stores(emitter, self.group.roots)
        lines = body.close_loop()
        self.before_loop += body.lines
        return lines

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        if node is not self.root_op:
            return None
        domain = self.group.domain
        return Value("acc", frozenset({domain.rows, domain.lanes, domain.outer}))


def _masked(conditions: list[str]) -> str:
    """The arguments of a load that fills with zeros what does not meet the conditions."""
    text = " & ".join(conditions)
    if len(conditions) == 1 and text.startswith("("):
        text = text[1:-1]
    return f", mask={text}, other=0.0" if text else ""
