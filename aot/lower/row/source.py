"""Row groups → kernels that hold whole rows in a tile, or read longer ones in chunks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import kernel_text, proves_at_most, typical
from aotc.aot.lower import kernel_file
from aotc.aot.lower.body import INDENT, Body, Value
from aotc.aot.lower.emit import Emitter
from aotc.aot.lower.literal import as_tensor, triton_type
from aotc.aot.lower.row.statistics import (
    Partial,
    Statistic,
    Tile,
    accumulated,
    finished,
    identity,
    prepared,
    singles,
)
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.lower.tiles import column_candidates, row_candidates
from aotc.aot.schedule.domain import kept_index
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import Access, is_unrolled, reduction_index
from aotc.aot.traits import TargetTraits


def lower_row(group: Group, traits: TargetTraits) -> KernelSpec:
    """All reductions of the group over one set of rows, and what surrounds them."""
    domain = group.domain
    assert domain.reduced is not None
    reduced = domain.reduced.extent
    if domain.is_reduced_in_lanes:
        kept = domain.rows.extent
        element_bytes = group.bytes / max(1, typical(kept * reduced))
        candidates = row_candidates(kept, reduced, element_bytes, traits)
        names: tuple[str, str] = ("XBLOCK", "RBLOCK")
    else:
        candidates = column_candidates(domain.outer.extent, reduced, domain.lanes.extent)
        names = ("YBLOCK", "RBLOCK")
    writer = RowWriter(group, candidates)
    return kernel_file.kernel(group, names, writer.lines(), candidates)


def levels_of(group: Group) -> list[list[Node]]:
    """Reductions of a row group by the number of reductions that each one waits for."""
    depth: dict[Node, int] = {}
    levels: dict[int, list[Node]] = {}
    for node in group.nodes:
        below = max((depth.get(operand, 0) for operand in node.inputs), default=0)
        is_stop = node.kind == "reduce" and not is_unrolled(node)
        depth[node] = below + is_stop
        if is_stop:
            levels.setdefault(depth[node], []).append(node)
    return [levels[level] for level in sorted(levels)]


class RowWriter:
    """Writes the body of one row kernel."""

    def __init__(self, group: Group, candidates: tuple[Candidate, ...]) -> None:
        domain = group.domain
        assert domain.reduced is not None
        self.group, self.domain, self.reduced = group, domain, domain.reduced
        self.is_lanes = domain.is_reduced_in_lanes
        self.axis = 1 if self.is_lanes else 0
        self.kept_symbol = domain.rows if self.is_lanes else domain.lanes
        self.kept: Index = kept_index(domain)
        self.body, self.masks = Body(), dict[Symbol, str]()
        self.emitter = Emitter(
            self.body,
            kernel_file.buffer_names(group),
            self.masks,
            self._stop,
            rounded=group.rounded,
            starts=dict(group.starts),
        )
        self.has_tail = kernel_file.has_tail(
            self.reduced, kernel_file.blocks_of(candidates, "RBLOCK")
        )
        block = kernel_file.blocks_of(candidates, "RBLOCK")[0]
        self.is_chunked = not proves_at_most(self.reduced.extent, block)
        self._write_kept(candidates)

    def lines(self) -> list[str]:
        """The body: one tile with the whole rows, or a loop over chunks for each pass."""
        if self.is_chunked:
            for level in singles(levels_of(self.group)):
                self._write_pass(partial(self._accumulate_all, level))
            self._write_pass(partial(self._store, True))
        else:
            self._write_reduced("")
            self._store(True)
        self._store(False)
        return self.body.lines

    def _write_kept(self, candidates: tuple[Candidate, ...]) -> None:
        if self.domain.outer.extent != 1:
            self.body.write("z = tl.program_id(1)")
        block, dim = ("XBLOCK", "[:, None]") if self.is_lanes else ("YBLOCK", "[None, :]")
        if self.kept_symbol.extent != 1:
            self.body.write(kernel_file.tile_line(self.kept_symbol, 0, block, dim))
            if kernel_file.has_tail(self.kept_symbol, kernel_file.blocks_of(candidates, block)):
                kernel_file.write_mask(self.body, self.kept_symbol, self.masks)

    def _write_reduced(self, start: str) -> None:
        dim = "[None, :]" if self.is_lanes else "[:, None]"
        self.body.write(f"r = {start}tl.arange(0, RBLOCK){dim}", frozenset({self.reduced}))
        if self.has_tail:
            kernel_file.write_mask(self.body, self.reduced, self.masks)

    def _write_pass(self, write: Callable[[], object]) -> None:
        self.body.open_loop({self.reduced})
        self._write_reduced("start + ")
        write()
        inner = self.body.close_loop()
        self.emitter.forget(frozenset({self.reduced}))
        if len(inner) > 1 + self.has_tail:
            self.body.write(f"for start in {self._steps()}:")
            self.body.lines += [INDENT + line for line in inner]

    def _steps(self) -> str:
        """Where the chunks of a pass begin."""
        return f"range(0, {kernel_text(self.reduced.extent)}, RBLOCK)"

    def _store(self, varying: bool) -> None:
        """Store the roots that vary with the reduced elements, or those that do not."""
        for place, root in enumerate(self.group.roots):
            varies = any(self.reduced in part.symbols() for part in root.index)
            if varies == varying:
                kernel_file.write_store(self.emitter, root, place)

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        """A reduction inside one tile."""
        if node.kind != "reduce" or self.is_chunked:
            return None
        tile = self._operand(node)
        return self._bind(finished(node, tile.text, f"axis={self.axis}, keep_dims=True"), tile)

    def _bind(self, text: str, tile: Value) -> Value:
        return self.body.bind(text, tile.symbols - {self.reduced})

    def _operand(self, node: Node) -> Value:
        """The tile of a reduction, elements beyond the row replaced by its identity."""
        operand = node.inputs[0]
        index = reduction_index(node, self.kept, ix.of(self.reduced))
        value = self.emitter.operand(node, Access(operand, index))
        symbols = value.symbols | {self.reduced}
        text = prepared(node, value.text)
        if self.has_tail:
            text = f"tl.where({self.masks[self.reduced]}, {text}, {identity(node)})"
        elif self.reduced not in value.symbols or self.kept_symbol not in value.symbols:
            text = f"tl.broadcast_to({as_tensor(text, accumulated(node))}, {self._tile_shape()})"
        if text == value.text:
            return Value(text, symbols)
        return self.body.bind(text, symbols)

    def _tile_shape(self) -> str:
        return "XBLOCK, RBLOCK" if self.is_lanes else "RBLOCK, YBLOCK"

    def _accumulate_all(self, level: list[Statistic]) -> None:
        """Partial values before the loop, into which each chunk's are joined."""
        for statistic in level:
            known = [self._accumulator(partial) for partial in statistic.partials()]
            operand = self._operand(statistic.nodes[0])
            inside = operand.symbols

            def bind(text: str, inside: frozenset[Symbol] = inside) -> str:
                return self.body.bind(text, inside).text

            tile = Tile(operand.text, f"axis={self.axis}, keep_dims=True")
            joined = statistic.of_tile(tile, bind)
            chunk = Tile(joined[0], tile.along, positions=joined[-1])
            texts = statistic.update(known, chunk, bind)
            fresh = texts if len(texts) == 1 else [bind(text) for text in texts]
            for name, text in zip(known, fresh, strict=True):
                self.body.write(f"{name} = {text}", inside)
            values = statistic.values(known, self.reduced.extent)
            for node, text in zip(statistic.nodes, values, strict=True):
                self._remember(node, text, operand)

    def _accumulator(self, partial: Partial) -> str:
        shape = "(XBLOCK, 1)" if self.is_lanes else "(1, YBLOCK)"
        text = f"tl.full({shape}, {partial.identity}, {triton_type(partial.dtype)})"
        return self.body.bind(text, ()).text

    def _remember(self, node: Node, text: str, tile: Value) -> None:
        index = reduction_index(node, self.kept, ix.of(self.reduced))
        axes = node.attr("axes")
        row = tuple(ix.ZERO if at in axes else part for at, part in enumerate(index))
        symbols = frozenset(tile.symbols - {self.reduced})
        self.emitter.known[node, row, ()] = Value(
            text if text.isidentifier() else f"({text})", symbols
        )
