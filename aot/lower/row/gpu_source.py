"""Row groups on a GPU: rows held in registers, streamed in chunks, or shared by several programs.

Every form reads a row once from memory where the machine can: a held row stays in the registers of
its program; a streamed one is reduced lane by lane in one pass, and read again out of the cache if
elements of it are stored; a shared one is held in pieces by programs that wait for each other's
partial values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aotc.aot.ir import index as ix
from aotc.aot.ir.size import kernel_text
from aotc.aot.lower import kernel_file
from aotc.aot.lower.body import Value
from aotc.aot.lower.literal import triton_type
from aotc.aot.lower.row.gpu_candidates import RowTiles
from aotc.aot.lower.row.source import RowWriter
from aotc.aot.lower.row.statistics import Partial, Statistic, Tile
from aotc.aot.lower.spec import Candidate, Scratch
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import reduction_index

Levels = list[list[Statistic]]


class HeldWriter(RowWriter):
    """Whole rows in one tile, several rows a program where they are short."""

    program = "tl.program_id(0)"  # number of a program among those that have rows of their own
    is_vector = False

    def __init__(self, group: Group, tiles: RowTiles, levels: Levels) -> None:
        self.statistics = levels
        super().__init__(group, tiles.candidates)
        self.emitter.approximates = True

    def scratch_types(self) -> list[tuple[str, str]]:
        """Name and element type of each scratch pointer."""
        return []

    def scratch(self, candidate: Candidate) -> tuple[Scratch, ...]:
        """The scratch memory of a candidate."""
        return ()

    def _write_kept(self, candidates: tuple[Candidate, ...]) -> None:
        """Row blocks, or lane blocks and the outer rows, on one grid axis."""
        symbol, outer = self.kept_symbol, self.domain.outer
        block, dim = ("XBLOCK", "[:, None]") if self.is_lanes else ("YBLOCK", "[None, :]")
        program = self.program
        if not self.is_lanes and outer.extent != 1:
            blocks = f"tl.cdiv({kernel_text(symbol.extent)}, {block})"
            self.body.write(f"z = {program} // {blocks}")
            program = f"{program} % {blocks}"
        if symbol.extent != 1:
            self.body.write(f"{symbol.name} = {program} * {block} + tl.arange(0, {block}){dim}")
            if kernel_file.has_tail(symbol, kernel_file.blocks_of(candidates, block)):
                kernel_file.write_mask(self.body, symbol, self.masks)

    def _named(self, expression: str) -> str:
        """Name a value of whole rows."""
        return self.body.bind(expression, self._kept_symbols()).text

    def _kept_symbols(self) -> frozenset[ix.Symbol]:
        found = {self.kept_symbol, self.domain.outer}
        return frozenset(symbol for symbol in found if symbol.extent != 1)

    def _know(self, level: Sequence[Statistic], partials: Sequence[Sequence[str]]) -> None:
        """Tell the emitter the values of the reductions, from the joined partial values."""
        for statistic, names in zip(level, partials, strict=True):
            values = statistic.values(names, self.reduced.extent)
            for node, text in zip(statistic.nodes, values, strict=True):
                index = reduction_index(node, self.kept, ix.of(self.reduced))
                axes = node.attr("axes")
                row = tuple(ix.ZERO if at in axes else part for at, part in enumerate(index))
                name = text if text.isidentifier() else self._named(text)
                self.emitter.known[node, row, ()] = Value(name, self._kept_symbols())

    def _tile(self, text: str, count: str = "") -> Tile:
        mask = self.masks[self.reduced] if self.has_tail else ""
        along = f"axis={self.axis}, keep_dims=True"
        return Tile(text, "axis=None" if self.is_vector else along, mask, "r", count)


class VectorWriter(HeldWriter):
    """One row a program, its elements in a tile of vectors: a thread has whole vectors.

    What is known of the row is a number and fits every tile. Where kept elements lie along the
    lanes, tiles are those of held rows.
    """

    def __init__(self, group: Group, tiles: RowTiles, levels: Levels) -> None:
        self.is_vector = group.domain.is_reduced_in_lanes
        super().__init__(group, tiles, levels)
        self.is_chunked = True  # reductions are those of the whole row, never of the tile

    def _write_kept(self, candidates: tuple[Candidate, ...]) -> None:
        if not self.is_vector:
            super()._write_kept(candidates)
        elif self.kept_symbol.extent != 1:
            self.body.write(f"{self.kept_symbol.name} = {self.program}")

    def _write_reduced(self, start: str) -> None:
        if not self.is_vector:
            super()._write_reduced(start)
            return
        lanes = "tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR"
        line = f"r = {start}{lanes} + tl.arange(0, VECTOR)[None, :]"
        self.body.write(line, frozenset({self.reduced}))
        if self.has_tail:
            kernel_file.write_mask(self.body, self.reduced, self.masks)

    def _tile_shape(self) -> str:
        return "RBLOCK // VECTOR, VECTOR" if self.is_vector else super()._tile_shape()


class StreamedWriter(VectorWriter):
    """Rows read chunk by chunk; each pass keeps one set of partial values for each lane."""

    first, stride = "0", "RBLOCK"

    def __init__(self, group: Group, tiles: RowTiles, levels: Levels) -> None:
        super().__init__(group, tiles, levels)
        roots = (part for root in group.roots for part in root.index)
        if any(self.reduced in part.symbols() for part in roots):
            self.row_policy = "evict_last"  # the last pass reads the row again
            self.emitter.policy = self._policy

    def _policy(self, symbols: frozenset[ix.Symbol]) -> str:
        """How caches treat a load: what all rows share is read again by each program."""
        if self.reduced not in symbols or not self._kept_symbols():
            return ""
        return self.row_policy if symbols & self._kept_symbols() else "evict_last"

    def lines(self) -> list[str]:
        """A loop for each pass, and one that stores what varies along the rows."""
        for level in self.statistics:
            self._know(level, self._joined(level, self._stream(level)))
        self._store_elements()
        self._store(False)
        return self.body.lines

    def _store_elements(self) -> None:
        """The pass that reads the row again: the last one that does."""
        self.row_policy = "evict_first"
        self._write_pass(lambda: self._store(True))

    def _steps(self) -> str:
        end = kernel_text(self.reduced.extent)
        return f"tl.range({self.first}, {end}, {self.stride}, num_stages=STAGES)"

    def _stream(self, level: Sequence[Statistic]) -> list[list[str]]:
        """One pass: names of the partial values of each lane, for each statistic."""
        lanes = [[self._lane(partial) for partial in row.partials()] for row in level]

        def write() -> None:
            inside = frozenset({self.reduced})
            for statistic, names in zip(level, lanes, strict=True):
                operand = self._operand(statistic.nodes[0])
                tile = replace(self._tile(operand.text), is_vector=self.is_vector)

                def bind(text: str) -> str:
                    return self.body.bind(text, inside).text

                texts = statistic.update(names, tile, bind)
                fresh = texts if len(texts) == 1 else [bind(text) for text in texts]
                for name, text in zip(names, fresh, strict=True):
                    self.body.write(f"{name} = {text}", inside)

        self._write_pass(write)
        return lanes

    def _lane(self, partial: Partial) -> str:
        shape = "RBLOCK // VECTOR," if self.is_vector else self._tile_shape()
        text = f"tl.full(({shape}), {partial.identity}, {triton_type(partial.dtype)})"
        return self.body.bind(text, (), "lane").text

    def _joined(
        self, level: Sequence[Statistic], lanes: Sequence[Sequence[str]]
    ) -> list[list[str]]:
        """Partial values of whole rows, from those of lanes or programs."""
        tile = Tile("", "axis=0" if self.is_vector else f"axis={self.axis}, keep_dims=True")
        return [row.join(names, tile, self._named) for row, names in zip(level, lanes, strict=True)]
