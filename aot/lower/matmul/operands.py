"""The product of a matmul group: how its loop walks k, its operands and its epilogue's roots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.ir.size import Extent, content, proves_at_most
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.emit import Body
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.domain import batch_index, contiguous_run, operand_accesses, run_along
from aotc.aot.schedule.group import Group, Root, WrittenRows
from aotc.aot.schedule.grow import COLUMN_GROUPS
from aotc.aot.schedule.trace import Access, Tracer, accesses
from aotc.aot.traits import DESCRIPTOR_BYTES

SMALLEST_BLOCK = 16  # BK below which the loop costs more than the multiplications
ROW_MULTIPLE = 16  # elements


@dataclass(frozen=True, slots=True)
class Walk:
    """How the loop walks k: straight through, or run by run, one a kernel offset of a window.

    Each run takes `block` steps of the loop: its own length, or the next power of two if no power
    of two that is worth a block divides it. Behind its first `kept` elements the left operand has
    zeros alone.
    """

    depth: Extent
    run: Extent
    block: Extent
    kept: Extent

    @property
    def is_split(self) -> bool:
        """Whether there are several runs."""
        return self.run != self.depth

    @property
    def kernel_size(self) -> Extent:
        """Number of runs."""
        return self.depth // self.run

    @property
    def is_padded(self) -> bool:
        """Whether a run takes more steps than elements of it are multiplied."""
        return self.block != self.kept

    @property
    def kernel_offset(self) -> Symbol:
        """Which run it is."""
        return Symbol("kernel_offset", self.kernel_size)

    def position(self, inner: Symbol) -> Index:
        """Position k of an element `inner` of the current run, or of all elements."""
        if inner.extent == self.depth:
            return ix.of(inner)
        return ix.of(self.kernel_offset) * self.run + ix.of(inner)

    def write_depth(
        self, body: Body, inner: Symbol, dim: str, has_offset: bool, is_of_gpu: bool
    ) -> None:
        """Write an operand's own k along its tile, and if it is that of one run, with `has_offset`
        also which run it is.

        On a GPU without `%`: of its result Triton does not know that a step divides it, and would
        load element by element, one after the other.
        """
        start, inside = "start", frozenset({inner})
        if inner.extent != self.depth:
            start = f"start % {self.block}"
            if is_of_gpu:
                start = f"start - start // {self.block} * {self.block}"
            if has_offset:
                body.write(f"kernel_offset = start // {self.block}", inside)
        body.write(f"{inner.name} = {start} + tl.arange(0, BK){dim}", inside)


def walk_of(depth: Extent, run: Extent, kept: Extent = 0) -> Walk:
    """The walk over `depth` elements in contiguous runs; a run of 0 is none worth a split. `kept`:
    elements of a run that are not surely zeros, if fewer."""
    if run in (0, depth) or not isinstance(run, int):
        return Walk(depth, depth, depth, depth)
    block = run if (run & -run) >= SMALLEST_BLOCK else power_above(run)
    return Walk(depth, run, block, kept or run)


def behind_zeros(need: Access, reads: frozenset[Node]) -> Access:
    """What an operand with zeros behind its runs reads elsewhere: the windows' own elements."""
    while need.node.kind in ("view", "pad") and need.node not in reads:
        (need,) = accesses(need.node, need.index)
    return Access(need.node, need.index)


def kept_of(group: Group, run: Extent) -> Extent:
    """Elements of each run of the depth that are not zeros, where the left operand are windows with
    zeros behind their rows, multiplied by a constant that has such zeros too; else 0."""
    root_op, domain = group.root_op, group.domain
    assert root_op is not None
    assert domain.reduced is not None
    need, _ = operand_accesses(root_op, domain, batch_index(root_op, domain))
    while need.node.kind == "view" and need.node not in group.reads:
        (need,) = accesses(need.node, need.index)
    padded = need.node
    if padded.op != "pad" or padded in group.reads or padded.inputs[0].op != "window":
        return 0
    is_constant = root_op.kind == "matmul_packed" and root_op.inputs[1].op == "constant"
    low, high = padded.attr("low"), padded.attr("high")
    is_behind = not any(low) and not any(high[:-1]) and padded.attr("value") == 0
    is_run = padded.shape[-1] == run and need.index[-1] == ix.of(domain.reduced) % run
    return padded.inputs[0].shape[-1] if is_constant and is_behind and is_run else 0


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix [outer, k]: what it accesses at its symbols, and its strides if it is plain memory.

    `strides` are those of (batch, outer, k) in elements of the stored node `memory`, which begins
    at `start`; None where loads compute something, or gather. `is_across`: whether what they read
    lies together along `outer`, in runs at least.
    """

    need: Access
    outer: Symbol
    memory: Node | None = None
    strides: tuple[Extent, Extent, Extent] | None = None
    start: Extent = 0
    is_across: bool = False

    @property
    def is_along_depth(self) -> bool:
        """Whether k is the contiguous axis."""
        return not self.is_across if self.strides is None else self.strides[2] == 1

    def has_descriptor(self, itemsize_bytes: int) -> bool:
        """Whether tensor descriptors can address it."""
        if self.strides is None:
            return False
        batch, outer, inner = self.strides
        long = outer if inner == 1 else inner
        parts = (batch, long, self.start)
        is_matrix = 1 in (outer, inner) and long != 0  # one row again and again is none
        return is_matrix and not any(
            content(part) * itemsize_bytes % DESCRIPTOR_BYTES for part in parts
        )

    def view(self, width: str, depth: Extent) -> View:
        """The operand as a descriptor has it; `width` is the text of its block along `outer`."""
        assert self.strides is not None
        _, outer, inner = self.strides
        if inner == 1:
            return View((self.outer.extent, depth), (outer, 1), (width, "BK"))
        return View((depth, self.outer.extent), (inner, 1), ("BK", width))


@dataclass(frozen=True, slots=True)
class View:
    """Shape and strides in elements, and texts of the block, of a descriptor's matrix."""

    shape: tuple[Extent, Extent]
    strides: tuple[Extent, Extent]
    block: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Product:
    """One matmul as a kernel sees it: [rows, k] · [k, columns], possibly the transposed one.

    `share`: where neighbouring columns of the matmul, 2 or 4, meet in one element of the result,
    the symbol that counts as many as one; the roots are indexed by it, and `columns` counts those
    of the matmul. Where every two columns meet that lie as far apart as the group's `distance`, a
    program's tile has such pairs side by side.
    """

    group: Group
    root_op: Node
    walk: Walk
    batch: Symbol
    rows: Symbol
    columns: Symbol
    left: Operand
    right: Operand
    roots: tuple[Root, ...]
    share: Symbol | None
    is_swapped: bool = False

    @property
    def column_group(self) -> int:
        """Columns of the matmul that meet in one element of the result."""
        share, columns = self.share, self.root_op.shape[-1]
        if self.group.distance:
            return 2
        return next((each for each in COLUMN_GROUPS if share and share.extent * each == columns), 1)

    @property
    def itemsize_bytes(self) -> int:
        """Bytes of an element of the operands."""
        return DTYPES[self.root_op.dtype].itemsize_bytes

    def paired(self, column: str) -> str:
        """The text of a column in the order of pairs, `column` // 2 of which come before."""
        distance = self.group.distance
        if distance < 2:  # neighbours
            return column
        block = f"{column} // {2 * distance} * {2 * distance}"
        return f"{block} + {column} % 2 * {distance} + {column} // 2 % {distance}"

    def swapped(self) -> Product:
        """The transposed product: B's columns as rows. Names x and y change places too."""
        rows, columns = Symbol("x", self.columns.extent), Symbol("y", self.rows.extent)
        values = {self.rows: ix.of(columns), self.columns: ix.of(rows)}

        def renamed(operand: Operand, outer: Symbol) -> Operand:
            index = tuple(part.substitute(values) for part in operand.need.index)
            return replace(operand, need=Access(operand.need.node, index), outer=outer)

        return replace(
            self,
            rows=rows,
            columns=columns,
            left=renamed(self.right, rows),
            right=renamed(self.left, columns),
            roots=_renamed(self.roots, values),
            is_swapped=True,
        )

    def renamed(self, rows: str, columns: str) -> Product:
        """The roots by other names of the rows and the columns."""
        own = Symbol(rows, self.rows.extent), Symbol(columns, self.columns.extent)
        values = {self.rows: ix.of(own[0]), self.columns: ix.of(own[1])}
        return replace(self, rows=own[0], columns=own[1], roots=_renamed(self.roots, values))


def product_of(group: Group) -> Product:
    """The matmul of a group and its operands."""
    root_op, domain = group.root_op, group.domain
    assert root_op is not None
    assert domain.reduced is not None
    reads = frozenset(group.reads)
    columns = Symbol(domain.lanes.name, root_op.shape[-1])
    inner = replace(domain, lanes=columns)
    run = contiguous_run(root_op, inner, lambda node: node in reads)
    left, right = operand_accesses(root_op, inner, batch_index(root_op, inner))
    walk = walk_of(domain.reduced.extent, run)
    share, roots = None, group.roots
    if domain.lanes.extent != columns.extent:
        share = Symbol("share", domain.lanes.extent)
        roots = _renamed(roots, {domain.lanes: ix.of(share)})
    symbols = (domain.outer, domain.reduced)
    return Product(
        group=group,
        root_op=root_op,
        walk=walk,
        batch=domain.outer,
        rows=domain.rows,
        columns=columns,
        left=_operand(left, domain.rows, symbols, reads),
        right=_operand(right, columns, symbols, reads),
        roots=roots,
        share=share,
    )


def _renamed(roots: tuple[Root, ...], values: Mapping[Symbol, Index]) -> tuple[Root, ...]:
    return tuple(_renamed_root(root, values) for root in roots)


def _renamed_root(root: Root, values: Mapping[Symbol, Index]) -> Root:
    def of_bounds(bounds: tuple[Bound, ...]) -> tuple[Bound, ...]:
        return tuple(replace(each, index=each.index.substitute(values)) for each in bounds)

    def of_access(need: Access) -> Access:
        index = tuple(part.substitute(values) for part in need.index)
        return Access(need.node, index, of_bounds(need.conditions))

    rows, part = root.rows, root.part
    if rows is not None:
        conditions = of_bounds(rows.conditions)
        rows = WrittenRows(of_access(rows.value), of_access(rows.place), rows.loaded, conditions)
    if part is not None:
        element, conditions = part.element.substitute(values), of_bounds(part.conditions)
        part = replace(part, element=element, conditions=conditions)
    return Root(root.node, tuple(each.substitute(values) for each in root.index), rows, part)


def _operand(
    need: Access, outer: Symbol, symbols: tuple[Symbol, Symbol], reads: frozenset[Node]
) -> Operand:
    behind = need
    gathered = Operand(need, outer, is_across=_is_across(need, outer, symbols[1], reads))
    while behind.node not in reads:
        if behind.node.kind != "view":
            return gathered
        (behind,) = accesses(behind.node, behind.index)
    offset = ix.linear(behind.index, behind.node.shape)
    batch, depth = symbols
    strides = tuple(offset.stride(symbol) for symbol in (batch, outer, depth))
    if any(stride is None or not proves_at_most(0, stride) for stride in strides):
        return gathered
    if set(offset.symbols()) - {batch, outer, depth}:
        return gathered
    of_batch, of_outer, of_depth = (stride or 0 for stride in strides)
    if outer.extent == 1 and of_depth == 1:
        of_outer = -(-depth.extent // ROW_MULTIPLE) * ROW_MULTIPLE  # never used, but legal
    return Operand(need, outer, behind.node, (of_batch, of_outer, of_depth), offset.constant)


def _is_across(need: Access, outer: Symbol, depth: Symbol, reads: frozenset[Node]) -> bool:
    """Whether loads of an operand read elements that lie together along `outer`."""
    tracer = Tracer(lambda node: node in reads)
    tracer.visit(need.node, need.index)
    offsets = [ix.linear(each.index, each.node.shape) for each in tracer.accesses]
    moving = [offset for offset in offsets if outer in offset.symbols()]
    run = run_along(moving, outer) if moving else 0
    if run == 0 or any(offset.stride(depth) == 1 for offset in moving):
        return False
    inner = Symbol("c", run)
    return all(each.substitute({outer: ix.of(inner)}).stride(inner) == 1 for each in moving)
