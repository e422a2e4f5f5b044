"""Matmul groups → a filled template: prologue in the operand loads, epilogue on the accumulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node, walk
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.infer import PACK_N, WORDS_RANK
from aotc.aot.ir.size import Extent, bounds, fixed, highest, kernel_text, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file
from aotc.aot.lower.convolution.source import lower_convolution
from aotc.aot.lower.emit import Body, Value, as_tensor, computed, triton_type
from aotc.aot.lower.kernel_file import fill
from aotc.aot.lower.matmul.choice import precision_of
from aotc.aot.lower.matmul.gpu_source import lower_matmul_gpu
from aotc.aot.lower.matmul.operands import (
    Product,
    Walk,
    behind_zeros,
    kept_of,
    product_of,
    walk_of,
)
from aotc.aot.lower.matmul.wide_rows import WideRows, wide_rows_of
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.lower.tiles import (
    COPIED,
    IN_PLACE,
    LEAST_INNER,
    LEAST_INNER_OF_ELEMENTS,
    PACKED,
    SPREAD,
    TILED,
    TILED_COPY,
    Reading,
    is_by_columns,
    is_shifted,
    matmul_candidates,
)
from aotc.aot.schedule.domain import (
    batch_index,
    contiguous_run,
    first_column,
    operand_accesses,
    panel_index,
)
from aotc.aot.schedule.group import Group, Root
from aotc.aot.schedule.trace import Access
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import TEMPLATES

# Up to which rounding an element of codes takes longer than its products in f32 do.
FEW_ROWS = 8


def lower_matmul(group: Group, traits: TargetTraits) -> KernelSpec:
    """The matmul of the group with everything that was fused into it."""
    if traits.is_gpu:
        return lower_product(group, traits)
    root_op = group.root_op
    assert root_op is not None
    is_packed = root_op.kind == "matmul_packed"
    domain = group.domain
    assert domain.reduced is not None
    reads = set(group.reads)
    run = contiguous_run(root_op, domain, lambda node: node in reads)
    walk = walk_of(domain.reduced.extent, run, kept_of(group, run))
    shape = (domain.outer.extent, domain.rows.extent, domain.lanes.extent, domain.reduced.extent)
    run_block = fixed(walk.block) if walk.is_split else 0
    inner_block = run_block & -run_block
    wide = wide_rows_of(group, walk, depth_of_left(walk), traits)
    if wide is None:
        reading = _reading(group, is_packed, traits)
        is_by_elements = root_op.inputs[0].dtype in ("f32", "f64")
        least = LEAST_INNER_OF_ELEMENTS if is_by_elements else LEAST_INNER
        candidates = matmul_candidates(shape, reading, traits, inner_block, least)
        reads_rows, by_columns = reading in (TILED, TILED_COPY), is_by_columns(shape, reading)
        if not reads_rows and not product_of(group).left.is_along_depth:
            reads_rows, candidates = True, _within(domain.rows.extent, candidates)
    else:
        candidates = wide.candidates(shape, traits, inner_block)
        reads_rows, by_columns = True, wide.is_by_columns
    batch_axis = 2
    if is_packed and domain.outer.extent != 1 and fixed(domain.lanes.extent) <= PACK_N:
        candidates = tuple(_batch_first(each, by_columns) for each in candidates)
        batch_axis, by_columns = 0, True
    panels_axis = 0 if by_columns else 1
    writer = _MatmulWriter(
        group,
        root_op,
        candidates,
        walk,
        wide,
        reads_rows=reads_rows,
        panels_axis=panels_axis,
        is_rounded=reads_rows or not _has_few_rows_of_codes(group),
    )
    holes = {
        "tile_rows": writer.tile_rows(),
        "load_a": writer.load_a,
        "load_b": writer.load_b,
        "store": writer.store,
    }
    if is_packed and domain.outer.extent != 1:
        holes["tile_rows"] = [f"z = tl.program_id({batch_axis})", *holes["tile_rows"]]
    if writer.panel.extent == 1:
        holes["panel"] = ["panel = 0"]  # how many of its columns there are is known then
    lines = fill(
        TEMPLATES["matmul_packed" if is_packed else "matmul"],
        holes,
        writer.constants(),
        writer.before_loop,
    )
    return kernel_file.kernel_of(group, [kernel_file.Draft("", lines)], candidates)


def _within(rows: Extent, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Those whose tiles are no taller than all rows, if there are any."""
    least = bounds(rows)[0]
    return tuple(each for each in candidates if dict(each.config)["BM"] <= least) or candidates


def _batch_first(candidate: Candidate, by_columns: bool) -> Candidate:
    """A candidate whose neighbouring programs have the same rows of products beside each other, all
    columns of each: groups of a convolution read other channels of the same pixels."""
    first, second, batch = candidate.grid
    return replace(candidate, grid=(batch, second if by_columns else first, 1))


def depth_of_left(walk: Walk) -> Symbol:
    """k along a tile of the left operand: of one run, or of all."""
    return Symbol("ca" if walk.is_split else "ka", walk.kept)


def _reading(group: Group, is_packed: bool, traits: TargetTraits) -> Reading:
    """What the kernel does with its operands before it multiplies them."""
    root_op = group.root_op
    assert root_op is not None
    if is_packed and traits.has_tiles and root_op.inputs[1].type.rank == WORDS_RANK:
        return TILED if product_of(group).left.strides is not None else TILED_COPY
    if is_packed:
        return PACKED
    product = product_of(group)
    is_plain = product.left.strides is not None and product.left.is_along_depth
    dtype = product.root_op.inputs[0].dtype
    is_wide = computed(dtype) == dtype == product.root_op.dtype
    if product.walk.is_split and _has_windows_of_positions(product, group):
        return SPREAD
    return IN_PLACE if is_plain and is_wide else COPIED


def _has_few_rows_of_codes(group: Group) -> bool:
    """Whether few rows are multiplied by 16-bit numbers that are computed of codes: to round each
    of them takes longer than all else. As on GPUs, they are multiplied in f32 as they are."""
    root_op, reads = group.root_op, set(group.reads)
    assert root_op is not None
    weight = root_op.inputs[1]
    if root_op.kind != "matmul_packed" or highest(group.domain.rows.extent) > FEW_ROWS:
        return False
    if weight in reads or weight.op != "cast" or weight.inputs[0].dtype != computed(weight.dtype):
        return False
    leaves = {each for node in walk((weight,), reads) for each in node.inputs} & reads
    is_wide = computed(weight.dtype) != weight.dtype
    return is_wide and any(DTYPES[leaf.dtype].itemsize_bytes == 1 for leaf in leaves)


def _has_windows_of_positions(product: Product, group: Group) -> bool:
    """Whether the left operand is memory in another order, and the right one windows."""
    node = product.left.need.node
    while node not in group.reads and node.op in ("reshape", "permute"):
        node = node.inputs[0]
    return node in group.reads and any(each.op == "window" for each in group.nodes)


@dataclass(slots=True)
class _Side:
    """One operand: its access, the symbol of k along its tile, and the tile's blocks."""

    need: Access
    inner: Symbol
    outer: Symbol
    shape: str


class _MatmulWriter:
    """Writes the parts of one matmul kernel that fill the template."""

    def __init__(
        self,
        group: Group,
        root_op: Node,
        candidates: tuple[Candidate, ...],
        walk: Walk,
        wide: WideRows | None,
        *,
        reads_rows: bool,
        panels_axis: int,
        is_rounded: bool,
    ) -> None:
        self.is_rounded = is_rounded  # whether B's elements are, to the type of the product
        self.group, self.root_op, self.domain, self.walk = group, root_op, group.domain, walk
        self.wide = wide
        self.panels_axis = panels_axis
        self.body, self.masks = Body(), dict[Symbol, str]()
        self.accumulator = computed(root_op.dtype)
        self.emitter = kernel_file.emitter_of(group, self.body, self.masks, self._stop)
        self.has_tail = {
            symbol.name: kernel_file.has_tail(symbol, kernel_file.blocks_of(candidates, block))
            for symbol, block in self._blocks()
        }
        self.is_shifted = is_shifted(self.domain.rows.extent, candidates, reads_rows=reads_rows)
        if self.is_shifted or wide is not None:
            self.has_tail[self.domain.rows.name] = False
        self.columns_block = kernel_file.blocks_of(candidates, "BN")[0]
        self.panel, self.column = self._column_symbols()
        self._write_loop()

    def _column_symbols(self) -> tuple[Symbol, Symbol]:
        """Column y = panel*BN + n; as two symbols, so that heads of BN columns need no division."""
        columns, block = self.domain.lanes.extent, self.columns_block
        panels = -(-columns // block)
        # Masked lanes are never used, so n may claim the real extent; but a tile dim it must be.
        return Symbol("panel", panels), Symbol("n", min(block, max(2, highest(columns))))

    def _in_columns(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        position = ix.of(self.panel) * self.columns_block + ix.of(self.column)
        return tuple(part.substitute({self.domain.lanes: position}) for part in index)

    def _in_tile(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        """An index of the result by the program's own symbols."""
        found = self._in_columns(index)
        if self.wide is None:
            return found
        values = {self.domain.rows: self.wide.index}
        return tuple(part.substitute(values) for part in found)

    def constants(self) -> dict[str, str]:
        """Sizes and the accumulator's type, as literals of the template."""
        assert self.domain.reduced is not None
        return {
            "M": kernel_text(self.domain.rows.extent),
            "N": kernel_text(self.domain.lanes.extent),
            "K": kernel_text(self.walk.kernel_size * self.walk.block),
            "ACCUMULATOR": triton_type(self.accumulator),
            "APART": "1" if self.root_op.op == "matmul_in_order" else "0",
            "PANELS": str(self.panels_axis),
        }

    def tile_rows(self) -> list[str]:
        """The rows of a tile; the last tile may move back to end with the rows."""
        if self.wide is not None:
            return self.wide.lines(1 - self.panels_axis, "BM")
        first = f"tl.program_id({1 - self.panels_axis}) * BM"
        if self.is_shifted:
            first = f"tl.minimum({first}, {kernel_text(self.domain.rows.extent)} - BM)"
        return [f"x = {first} + tl.arange(0, BM)[:, None]"]

    def _blocks(self) -> list[tuple[Symbol, str]]:
        assert self.domain.reduced is not None
        return [(self.domain.rows, "BM"), (self.domain.lanes, "BN"), (self.domain.reduced, "BK")]

    def _write_loop(self) -> None:
        """Prologue lines, then epilogue lines; what does not vary with k goes before the loop."""
        for symbol, tile in (
            (self.domain.rows, self.domain.rows),
            (self.domain.lanes, self.column),
        ):
            if self.has_tail[symbol.name]:
                kernel_file.write_mask(self.body, symbol, self.masks)
                self.masks[tile] = self.masks.pop(symbol)
        left, right = self._left(), self._right()
        inside = frozenset({left.inner, right.inner, self.walk.kernel_offset})
        self.body.open_loop(inside)
        self._write_side(left, "[None, :]", "a")
        count = len(self.body.loop or ())
        self._write_side(right, "[:, None]", "b")
        lines = self.body.close_loop()
        self.load_a, self.load_b = lines[:count], lines[count:]
        self.emitter.forget(inside)
        self.before_loop, self.body.lines = self.body.lines, []
        if self.wide is not None:
            self.masks |= self.wide.masks
        roots = [Root(root.node, self._in_tile(root.index)) for root in self.group.roots]
        kernel_file.write_stores(self.emitter, roots)
        self.store = self.body.lines

    def _left(self) -> _Side:
        """A: rows clamped instead of masked, k along the lanes."""
        rows, depth = self.domain.rows, self.domain.reduced
        assert depth is not None
        inner = depth_of_left(self.walk)
        if self.wide is not None:
            return _Side(self.wide.left, inner, self.wide.row, "BM, BK")
        if self.has_tail[rows.name]:
            last = rows.extent - 1
            rows = Symbol("xa", rows.extent)
            self.body.write(f"xa = tl.minimum(x, {kernel_text(last)})")
        domain = replace(self.domain, rows=rows)
        need, _ = operand_accesses(self.root_op, domain, batch_index(self.root_op, domain))
        index = tuple(part.substitute({depth: self.walk.position(inner)}) for part in need.index)
        found = Access(need.node, index)
        if self.walk.kept != self.walk.run:
            found = behind_zeros(found, frozenset(self.group.reads))
        return _Side(found, inner, rows, "BM, BK")

    def _right(self) -> _Side:
        """B: k along the rows of its tile; a packed panel is read front to back."""
        depth = self.domain.reduced
        assert depth is not None
        walk = self.walk
        inner = Symbol("cb", walk.kept) if walk.is_padded else Symbol("kb", walk.depth)
        operand = self.root_op.inputs[1]
        if self.root_op.kind == "matmul_packed":
            # The panel is padded with zeros: all of its columns may be read.
            column = Symbol("n", self.columns_block)
            position = ix.of(self.panel) * self.columns_block + ix.of(column)
            position += first_column(self.root_op, batch_index(self.root_op, self.domain))
            place = walk.position(inner)
            panel = panel_index(operand, position // PACK_N, place, position % PACK_N)
            return _Side(Access(operand, panel), inner, column, "BK, BN")
        _, need = operand_accesses(
            self.root_op, self.domain, batch_index(self.root_op, self.domain)
        )
        values = {depth: self.walk.position(inner)}
        index = tuple(part.substitute(values) for part in self._in_columns(need.index))
        need = Access(need.node, index)
        return _Side(need, inner, self.column, "BK, BN")

    def _write_side(self, side: _Side, dim: str, name: str) -> None:
        inside = frozenset({side.inner})
        walk = self.walk
        walk.write_depth(self.body, side.inner, dim, has_offset=name == "a", is_of_gpu=False)
        needs_mask = walk.is_padded or (self.has_tail["k"] and not walk.is_split)
        if needs_mask:
            kernel_file.write_mask(self.body, side.inner, self.masks)
        # The panels of packed weights are padded with zeros: all of their columns may be read.
        is_panel = self.root_op.kind == "matmul_packed" and side.need.node in self.group.reads
        mask = self.masks.pop(self.column, None) if is_panel and name == "b" else None
        need, dtype = side.need, self.root_op.inputs[0].dtype
        if not self.is_rounded:
            need = replace(need, node=need.node.inputs[0]) if name == "b" else need
            dtype = computed(dtype)
        value, text = self.emitter.cut_off(need, side.inner)
        if mask is not None:
            self.masks[self.column] = mask
        text = as_tensor(text, dtype)
        if computed(dtype) != dtype:
            text = f"{text}.to({triton_type(dtype)})"
        wanted = {symbol for symbol in (side.inner, side.outer) if symbol.extent != 1}
        if not wanted & value.symbols or not wanted <= value.symbols:
            text = f"tl.broadcast_to({text}, {side.shape})"
        self.body.name(name, text, inside)

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        if node is not self.root_op:
            return None
        wide = self.wide
        rows = (self.domain.rows,) if wide is None else (wide.image, wide.high, wide.across)
        tile = frozenset({*rows, self.column, self.panel, self.domain.outer})
        return Value("acc", frozenset(symbol for symbol in tile if symbol.extent != 1))


# Sizes of the pointwise convolutions on which windows can win (benchmarks/gpu/convolution.py).
FEWEST_ROWS = 256
MOST_OPERATIONS = 2_000_000_000


def lower_product(group: Group, traits: TargetTraits) -> KernelSpec:
    """The matmul of the group on a GPU, in all forms that suit it.

    Windows are written by convolution/source.py where they are plain loads. So are small products
    of many rows, beside the forms of gpu_source.py: with little to compute, its shorter programs
    win at times (2 of the 13 such products of ResNet-50 and BERT in bf16, tuned on an H200), and
    with products of f32 in parts: T5 takes 1.10 ms for 1.19.
    """
    is_windowed = any(node.op == "window" for node in group.nodes)
    windows = lower_convolution(group, traits) if is_windowed or _is_small(group) else None
    if windows is not None and is_windowed:
        return windows
    plain = lower_matmul_gpu(group, traits)
    if windows is None:
        return plain
    return _merged(*((windows, plain) if _is_of_parts(group, traits) else (plain, windows)))


def _is_of_parts(group: Group, traits: TargetTraits) -> bool:
    """Whether each product of f32 is three of TF32."""
    domain, root_op = group.domain, group.root_op
    assert root_op is not None
    assert domain.reduced is not None
    return precision_of(root_op, domain.lanes.extent, domain.reduced.extent, traits) == "tf32x3"


def _is_small(group: Group) -> bool:
    """Whether the product has many rows and little work."""
    domain = group.domain
    is_flat = domain.outer.extent == 1 and typical(domain.rows.extent) >= FEWEST_ROWS
    return is_flat and group.operations <= MOST_OPERATIONS


def _merged(first: KernelSpec, second: KernelSpec) -> KernelSpec:
    """One spec with the candidates of both in turns; the first where they read other dims."""
    if first.sizes != second.sizes:
        return first
    pairs = zip_longest(first.candidates, second.candidates)
    candidates = tuple(each for each in chain.from_iterable(pairs) if each is not None)
    return replace(first, forms=(*first.forms, *second.forms), candidates=candidates)
