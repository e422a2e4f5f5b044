"""Row groups → kernels that reduce rows: on a CPU in one form, on a GPU in all that fit.

Every form reads a row once from memory where the machine can: a held row stays in the registers of
its program; a streamed one is read again out of the cache if elements of it are stored; a shared
one is held in pieces by programs that wait for each other's partial values.

The body of a kernel has three parts that are chosen apart.

- The layout of a tile: several rows, several columns, or one row as vectors.
- The loop: a program holds all that it reads of its rows in registers (WHOLE), or reads chunks once
  for each level of reductions and once more to store elements. It joins each chunk to one partial
  value a row (JOINED), or keeps partial values of each lane, joined behind the loop (LANES).
- The exchange between programs that share rows, through scratch memory: none (ALONE), the last one
  to arrive joins what all have stored (LAST_JOINS), or each waits for the others of its row
  (ALL_WAIT).

Waiting programs must all be running: they are numbered in the order in which they begin, so those
waited for have begun or are the next to begin, and a row has fewer programs than any device of the
kind can run at once. One thread of each program waits, on a counter: on an H200 words that say by
themselves that they are there, polled by all threads, were slower, for polls and stores meet in one
slice of the cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import content, highest, kernel_text, proves_at_most, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file
from aotc.aot.lower.emit import INDENT, Body, Value, as_tensor, triton_type
from aotc.aot.lower.kernel_file import blocks_of
from aotc.aot.lower.row.beside import Beside, beside
from aotc.aot.lower.row.gpu_candidates import RowShape, RowTiles, row_tiles
from aotc.aot.lower.row.statistics import (
    Partial,
    Search,
    Statistic,
    Tile,
    accumulated,
    finished,
    identity,
    prepared,
    singles,
    statistics,
)
from aotc.aot.lower.spec import Candidate, KernelSpec, Scratch
from aotc.aot.lower.tiles import (
    VECTOR_BYTES,
    column_candidates,
    columns_once,
    is_mostly_along,
    row_candidates,
)
from aotc.aot.schedule.domain import kept_index
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import (
    Access,
    Tracer,
    is_unrolled,
    reduction_index,
    window_terms,
)
from aotc.aot.traits import TargetTraits

Levels = Sequence[Sequence[Statistic]]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the elements of rows lie in a tile, as text."""

    block: str  # of the kept elements; empty: one of them
    kept: str  # their dim
    reduced: str  # positions in a tile
    tile: str  # its shape
    row: str  # shape of a value for each row
    lanes: str  # shape of one for each lane
    along: str  # of a reduction of the tile
    joined: str  # of a reduction of what lanes or programs have
    counts: str  # shape of a count for each lane


ROWS = Layout(
    block="XBLOCK",
    kept="[:, None]",
    reduced="tl.arange(0, RBLOCK)[None, :]",
    tile="XBLOCK, RBLOCK",
    row="XBLOCK, 1",
    lanes="XBLOCK, RBLOCK",
    along="axis=1, keep_dims=True",
    joined="axis=1, keep_dims=True",
    counts="XBLOCK, RBLOCK",
)
COLUMNS = Layout(
    block="YBLOCK",
    kept="[None, :]",
    reduced="tl.arange(0, RBLOCK)[:, None]",
    tile="RBLOCK, YBLOCK",
    row="1, YBLOCK",
    lanes="RBLOCK, YBLOCK",
    along="axis=0, keep_dims=True",
    joined="axis=0, keep_dims=True",
    counts="RBLOCK, 1",
)
# One row: a thread has whole vectors, and what is known of the row is a number.
VECTORS = Layout(
    block="",
    kept="",
    reduced="tl.arange(0, RBLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]",
    tile="RBLOCK // VECTOR, VECTOR",
    row="",
    lanes="RBLOCK // VECTOR,",
    along="axis=None",
    joined="axis=0",
    counts="RBLOCK // VECTOR,",
)


@dataclass(frozen=True, slots=True)
class Loop:
    """How a program goes along its rows."""

    is_chunked: bool = False
    is_by_lane: bool = False


WHOLE, JOINED, LANES = Loop(), Loop(is_chunked=True), Loop(is_chunked=True, is_by_lane=True)


@dataclass(frozen=True, slots=True)
class Exchange:
    """How programs that share rows learn each other's partial values."""

    begins: tuple[str, ...] = ()  # lines that say which row and part of it is the program's
    head: int = 0  # counters before those of the rows: programs that began, rows that are done
    waits: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether several programs have a row."""
        return bool(self.begins)

    @property
    def program(self) -> str:
        """Number of a program, or of all that share its rows."""
        return "row" if self.is_shared else "tl.program_id(0)"

    @property
    def counter(self) -> str:
        """Address of the counter of a row."""
        return f"arrived + {self.head} + row" if self.head else "arrived + row"


ALONE = Exchange()
LAST_JOINS = Exchange(("row = tl.program_id(0) // PARTS", "part = tl.program_id(0) % PARTS"))
ALL_WAIT = Exchange(
    ("begun = tl.atomic_add(arrived, 1)", "row = begun // PARTS", "part = begun % PARTS"), 2, True
)


@dataclass(frozen=True, slots=True)
class RowForm:
    """One form of a row kernel."""

    loop: Loop
    exchange: Exchange = ALONE
    is_of_gpu: bool = True  # programs in one row of the grid; 16-bit values approximated

    @property
    def is_held(self) -> bool:
        """Whether whole rows are in registers: a reduction is written where it is read."""
        return not (self.loop.is_chunked or self.exchange.is_shared)

    def layout(self, is_lanes: bool) -> Layout:
        """Of tiles whose reduced elements lie along the lanes, or whose kept ones do."""
        if not is_lanes:
            return COLUMNS
        return VECTORS if self.loop.is_by_lane or self.exchange.is_shared else ROWS


class RowWriter:
    """Writes the body of a row kernel in one form; `levels` are the passes over a row."""

    def __init__(
        self,
        group: Group,
        form: RowForm,
        levels: Levels,
        candidates: Sequence[Candidate],
        between: Beside | None = None,
    ) -> None:
        domain = group.domain
        assert domain.reduced is not None
        self.group, self.form, self.levels, self.reduced = group, form, levels, domain.reduced
        self.layout = form.layout(domain.is_reduced_in_lanes)
        self.kept_symbol = domain.rows if domain.is_reduced_in_lanes else domain.lanes
        self.kept: Index = kept_index(domain)
        self.position, self.column = (self.kept, ix.of(self.reduced)), self.kept_symbol
        self.between = between if form.loop.is_by_lane else None
        if self.between:
            self.reduced, self.position = self.between.reduced, self.between.position(domain)
            self.column, _ = self.between.columns(self.kept_symbol)
            tile = f"RBLOCK, YBLOCK * {self.between.padded}"
            self.layout = replace(self.layout, tile=tile, lanes=tile)
        found = {self.kept_symbol, domain.outer}
        self.kept_symbols = frozenset(symbol for symbol in found if symbol.extent != 1)
        self.body, self.masks = Body(), dict[Symbol, str]()
        self.emitter = kernel_file.emitter_of(
            group, self.body, self.masks, self._stop, form.is_of_gpu
        )
        if form.loop.is_by_lane and any(map(self._varies, range(len(group.roots)))):
            self.row_policy = "evict_last"  # the last pass reads the row again
            self.emitter.policy = self._policy
        self.has_tail = kernel_file.has_tail(self.reduced, blocks_of(candidates, "RBLOCK"))
        self._write_kept(candidates)

    def lines(self) -> list[str]:
        """Partial values of each level and their exchange, then what is stored."""
        exchange = self.form.exchange
        if not self.form.loop.is_chunked:
            self._write_reduced("part * RBLOCK + " if exchange.is_shared else "")
        if exchange.waits:
            self._write_others()
        for number, level in enumerate(() if self.form.is_held else self.levels):
            partials = self._partials(level)
            if not exchange.is_shared:
                self._know(level, partials)
                continue
            self._put(number, partials)
            if exchange.waits:
                self._wait(number)
                self._join(number)
        if exchange.is_shared and not exchange.waits:
            self._write_if(f"tl.atomic_add({exchange.counter}, 1) == PARTS - 1", self._end_as_last)
            return self.body.lines
        self._store_elements()
        if exchange.waits:
            self._write_if("part == 0", lambda: self._store(False))
            self._leave()
        else:
            self._store(False)
        return self.body.lines

    # -- positions ---------------------------------------------------------------------------------

    def _write_kept(self, candidates: Sequence[Candidate]) -> None:
        """Which rows or columns are the program's."""
        for line in self.form.exchange.begins:
            self.body.write(line)
        symbol, block, program = self.kept_symbol, self.layout.block, self.form.exchange.program
        if self.group.domain.outer.extent != 1:
            if self.form.is_of_gpu or self.form.exchange.is_shared:
                blocks = f"tl.cdiv({kernel_text(symbol.extent)}, {block})"
                self.body.write(f"z = {program} // {blocks}")
                program = f"{program} % {blocks}"
            else:
                self.body.write("z = tl.program_id(1)")
        if symbol.extent == 1:
            return
        if not block:
            self.body.write(f"{symbol.name} = {program}")
            return
        lanes, sizes = f"tl.arange(0, {block}){self.layout.kept}", blocks_of(candidates, block)
        is_only = not self.form.is_of_gpu and proves_at_most(symbol.extent, min(sizes))
        start = "" if is_only else f"{program} * {block} + "
        self.body.write(f"{symbol.name} = {start}{lanes}")
        has_tail = kernel_file.has_tail(symbol, sizes)
        if has_tail:
            kernel_file.write_mask(self.body, symbol, self.masks)
        if self.between:
            self._write_columns(self.between, program, has_tail)

    def _write_columns(self, between: Beside, program: str, has_tail: bool) -> None:
        """Which columns of its tiles are the program's, and those of them that are read."""
        for name, text in between.lines(self.kept_symbol, program, self.layout.block):
            self.body.write(f"{name} = {text}")
        column, place = between.columns(self.kept_symbol)
        if has_tail:
            kernel_file.write_mask(self.body, column, self.masks)
        if place is not None:
            kernel_file.write_mask(self.body, place, self.masks)

    def _write_reduced(self, start: str) -> None:
        self.body.write(f"r = {start}{self.layout.reduced}", frozenset({self.reduced}))
        if self.has_tail:
            kernel_file.write_mask(self.body, self.reduced, self.masks)

    def _write_others(self) -> None:
        dim = "[:, None]" if self.layout.block else ""
        self.body.write(f"others = tl.arange(0, QBLOCK){dim}")

    # -- passes over the rows ----------------------------------------------------------------------

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
        end = kernel_text(self.reduced.extent)
        if not self.form.loop.is_by_lane:
            return f"range(0, {end}, RBLOCK)"
        if not self.form.exchange.is_shared:
            return f"tl.range(0, {end}, RBLOCK, num_stages=STAGES)"
        return f"tl.range(part * RBLOCK, {end}, PARTS * RBLOCK, num_stages=STAGES)"

    def _partials(self, level: Sequence[Statistic]) -> list[list[str]]:
        """Names of a level's partial values of what the program reads."""
        if not self.form.loop.is_chunked:
            return [self._of_piece(statistic) for statistic in level]
        known = [[self._accumulator(partial) for partial in row.partials()] for row in level]
        self._write_pass(lambda: self._update(level, known))
        if not self.form.loop.is_by_lane:
            return known
        tile = Tile("", self.layout.joined)
        found = [
            row.join(names, tile, self._named) for row, names in zip(level, known, strict=True)
        ]
        if self.between is None:
            return found
        pairs = zip(level, found, strict=True)
        return [self._by_kept(self.between, row, names) for row, names in pairs]

    def _by_kept(self, between: Beside, row: Statistic, columns: Sequence[str]) -> list[str]:
        """Partial values of the kept elements, from those of the tile's columns."""
        block, parts = self.layout.block, []
        for partial, name in zip(row.partials(), columns, strict=True):
            wide = f"(1, {block} * {between.padded})"
            text = f"tl.broadcast_to({name}, {wide})" if partial.is_count else name
            parts.append(self._named(between.by_kept(text, partial.identity, block)))
        found = row.join(parts, Tile("", "axis=1, keep_dims=True"), self._named)
        return [self._named(f"tl.reshape({name}, (1, {block}))") for name in found]

    def _of_piece(self, statistic: Statistic) -> list[str]:
        count = "tl.full((), RBLOCK, tl.float32)"
        if self.has_tail:
            length = kernel_text(self.reduced.extent)
            count = f"tl.minimum(RBLOCK, {length} - part * RBLOCK).to(tl.float32)"
        tile = self._tile(self._operand(statistic.nodes[0]).text, count)
        if not self.form.is_of_gpu:
            tile = replace(tile, start="part * RBLOCK")
        return statistic.of_tile(tile, self._named)

    def _accumulator(self, partial: Partial) -> str:
        shape = self.layout.lanes if self.form.loop.is_by_lane else self.layout.row
        if partial.is_count and self.form.loop.is_by_lane:
            shape = self.layout.counts
        text = f"tl.full(({shape}), {partial.identity}, {triton_type(partial.dtype)})"
        return self.body.bind(text, (), "lane" if self.form.loop.is_by_lane else "v").text

    def _update(self, level: Sequence[Statistic], known: Sequence[Sequence[str]]) -> None:
        """A chunk taken into the partial values."""
        inside = frozenset({self.reduced})

        def bind(text: str) -> str:
            return self.body.bind(text, inside).text

        for statistic, names in zip(level, known, strict=True):
            tile = self._tile(self._operand(statistic.nodes[0]).text)
            if self.form.loop.is_by_lane:
                tile = replace(tile, is_vector=self.layout is VECTORS)
            else:
                # Along the lanes a comparison is twice as fast, across them slower (on a CPU).
                start = "start" if self.layout is COLUMNS else ""
                joined = statistic.of_tile(replace(tile, start=start), bind)
                tile = Tile(joined[0], tile.along, positions=joined[-1])
            texts = statistic.update(names, tile, bind)
            fresh = texts if len(texts) == 1 else [bind(text) for text in texts]
            for name, text in zip(names, fresh, strict=True):
                self.body.write(f"{name} = {text}", inside)

    def _tile(self, text: str, count: str = "") -> Tile:
        mask = self.masks[self.reduced] if self.has_tail else ""
        return Tile(text, self.layout.along, mask, "r", count)

    def _operand(self, node: Node) -> Value:
        """The tile of a reduction, elements beyond the row replaced by its identity."""
        index = reduction_index(node, *self.position)
        value = self.emitter.operand(node, Access(node.inputs[0], index))
        symbols = value.symbols | {self.reduced}
        text = prepared(node, value.text)
        if self.has_tail:
            text = f"tl.where({self.masks[self.reduced]}, {text}, {identity(node)})"
        elif self.reduced not in value.symbols or self.column not in value.symbols:
            text = f"tl.broadcast_to({as_tensor(text, accumulated(node))}, {self.layout.tile})"
        return Value(text, symbols) if text == value.text else self.body.bind(text, symbols)

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        """A reduction inside one tile."""
        if node.kind != "reduce" or not self.form.is_held:
            return None
        tile = self._operand(node)
        text = finished(node, tile.text, self.layout.along)
        return self.body.bind(text, tile.symbols - {self.reduced})

    def _named(self, expression: str) -> str:
        """Name a value of whole rows."""
        return self.body.bind(expression, self.kept_symbols).text

    def _know(self, level: Sequence[Statistic], partials: Sequence[Sequence[str]]) -> None:
        """Tell the emitter the values of the reductions, from the joined partial values."""
        reduced = self.group.domain.reduced
        assert reduced is not None
        for statistic, names in zip(level, partials, strict=True):
            values = statistic.values(names, reduced.extent)
            for node, text in zip(statistic.nodes, values, strict=True):
                index = reduction_index(node, self.kept, ix.of(reduced))
                axes = node.attr("axes")
                row = tuple(ix.ZERO if at in axes else part for at, part in enumerate(index))
                name = text if text.isidentifier() else self._named(text)
                self.emitter.known[node, row, ()] = Value(name, self.kept_symbols)

    # -- stores ------------------------------------------------------------------------------------

    def _varies(self, place: int) -> bool:
        """Whether a root is stored for each element, not only for each row."""
        return any(self.reduced in part.symbols() for part in self.group.roots[place].index)

    def _store(self, varying: bool) -> None:
        """Store the roots that vary with the reduced elements, or those that do not."""
        for place, root in enumerate(self.group.roots):
            if self._varies(place) == varying:
                kernel_file.write_store(self.emitter, root, place)

    def _store_elements(self) -> None:
        if not self.form.loop.is_chunked:
            self._store(True)
            return
        self.row_policy = "evict_first"  # nothing reads the row again
        self._write_pass(lambda: self._store(True))

    def _policy(self, symbols: frozenset[Symbol]) -> str:
        """How caches treat a load: what all rows share is read again by each program."""
        if self.reduced not in symbols or not self.kept_symbols:
            return ""
        return self.row_policy if symbols & self.kept_symbols else "evict_last"

    def _write_if(self, condition: str, write: Callable[[], object]) -> None:
        """What only those programs do for which the condition holds."""
        before, self.body.lines = self.body.lines, []
        write()
        inner, self.body.lines = self.body.lines, before
        if inner:
            self.body.lines += [f"if {condition}:", *(INDENT + line for line in inner)]

    # -- exchange ----------------------------------------------------------------------------------

    def scratch(self, candidate: Candidate) -> tuple[Scratch, ...]:
        """Scratch memory of a candidate: partial values of all programs, a counter for each row."""
        if not self.form.exchange.is_shared:
            return ()
        config, programs = dict(candidate.config), candidate.grid[0]
        count = programs * (config[self.layout.block] if self.layout.block else 1)
        partials = [each for level in self.levels for row in level for each in row.partials()]
        rows = [DTYPES[each.dtype] for each in partials]
        counters = self.form.exchange.head + programs // config["PARTS"]
        return (
            *(
                Scratch(f"part{at}", f"*{row.triton}", count * row.itemsize_bytes)
                for at, row in enumerate(rows)
            ),
            Scratch("arrived", "*i32", highest(counters * 4), is_zeroed=True),
        )

    def _place(self, number: int) -> int:
        """The first pointer of a level's partial values."""
        return sum(len(row.partials()) for level in self.levels[:number] for row in level)

    def _where(self, part: str) -> str:
        if not self.layout.block:
            return f"row * PARTS + {part}"
        return f"(row * PARTS + {part}) * YBLOCK + tl.arange(0, YBLOCK)[None, :]"

    def _put(self, number: int, partials: Sequence[Sequence[str]]) -> None:
        """Store the program's partial values of a level."""
        where = self._where("part")
        names = (name for row in partials for name in row)
        for at, name in enumerate(names, self._place(number)):
            self.body.write(f"tl.store(part{at} + {where}, {name})")
        self.body.write("tl.debug_barrier()")

    def _wait(self, number: int) -> None:
        """Until all programs of the row have stored theirs."""
        counter = self.form.exchange.counter
        self.body.lines += [
            f"seen = tl.atomic_add({counter}, 1) + 1",
            f"while seen < PARTS * {number + 1}:",
            f"{INDENT}seen = tl.atomic_add({counter}, 0)",
        ]

    def _join(self, number: int) -> None:
        """Make the values of a level known, from all programs of the row."""
        programs = Tile("", "axis=0, keep_dims=True" if self.layout.block else "axis=0")
        at, found = self._place(number), []
        for statistic in self.levels[number]:
            partials = statistic.partials()
            found.append(statistic.join(self._get(at, partials), programs, self._named))
            at += len(partials)
        self._know(self.levels[number], found)

    def _get(self, at: int, partials: Sequence[Partial]) -> list[str]:
        """Load the partial values of all programs of the row; not from a cache of this program."""
        where = self._where("others")
        return [
            self._named(
                f"tl.load(part{at + number} + {where}, mask=others < PARTS,"
                f" other={partial.identity}, volatile=True)"
            )
            for number, partial in enumerate(partials)
        ]

    def _end_as_last(self) -> None:
        """What the last program of a row does, which clears its counter."""
        self._write_others()
        self._join(0)
        self._store(False)
        self.body.write(f"tl.store({self.form.exchange.counter}, 0)")

    def _leave(self) -> None:
        """The last program of a row clears its counter, that of the last row the head."""
        counter, last = self.form.exchange.counter, f"PARTS * {len(self.levels) + 1} - 1"
        last_row = kernel_text(self.kept_symbol.extent - 1)
        self.body.lines += [
            f"if tl.atomic_add({counter}, 1) == {last}:",
            f"{INDENT}tl.store({counter}, 0)",
            f"{INDENT}if tl.atomic_add(arrived + 1, 1) == {last_row}:",
            f"{INDENT * 2}tl.store(arrived, 0)",
            f"{INDENT * 2}tl.store(arrived + 1, 0)",
        ]


FORMS = {
    "": RowForm(WHOLE),
    "streamed": RowForm(LANES),
    "parts": RowForm(LANES, LAST_JOINS),
    "shared": RowForm(WHOLE, ALL_WAIT),
    "shared_streamed": RowForm(LANES, ALL_WAIT),
}


def lower_row(group: Group, traits: TargetTraits) -> KernelSpec:
    """All reductions of the group over one set of rows, and what surrounds them.

    The first candidate is the cost model's choice.
    """
    drafts: list[kernel_file.Draft] = []
    candidates: list[Candidate] = []
    between = _between(group) if traits.is_gpu else None
    for form, levels, tiles in _forms(group, traits, between):
        writer = RowWriter(group, form, levels, tiles.candidates, between)
        drafts.append(kernel_file.Draft(tiles.form, writer.lines()))
        candidates += [
            Candidate(row.config, row.grid, tiles.form, writer.scratch(row))
            for row in tiles.candidates
        ]
    return kernel_file.kernel_of(group, drafts, candidates)


def _between(group: Group) -> Beside | None:
    """Reduced elements between the columns, where one pass over these gives values of columns."""
    levels = statistics(levels_of(group), group.rounded)
    if group.domain.is_reduced_in_lanes or len(levels) != 1 or _stores_elements(group):
        return None
    if any(isinstance(statistic, Search) for statistic in levels[0]):  # first by its position
        return None
    return beside(group, [node for statistic in levels[0] for node in statistic.nodes])


def _forms(
    group: Group, traits: TargetTraits, between: Beside | None
) -> Iterator[tuple[RowForm, Levels, RowTiles]]:
    if not traits.is_gpu:
        yield _form_cpu(group, traits)
        return
    levels = statistics(levels_of(group), group.rounded)
    for tiles in row_tiles(row_shape(group, levels, between), traits):
        yield FORMS[tiles.form], levels, tiles


def _stores_elements(group: Group) -> bool:
    """Whether something is stored for each reduced element."""
    reduced = group.domain.reduced
    return any(reduced in part.symbols() for root in group.roots for part in root.index)


def _form_cpu(group: Group, traits: TargetTraits) -> tuple[RowForm, Levels, RowTiles]:
    domain = group.domain
    assert domain.reduced is not None
    reduced, levels = domain.reduced.extent, singles(levels_of(group))
    if domain.is_reduced_in_lanes:
        kept = domain.rows.extent
        element_bytes = group.bytes / max(1, typical(kept * reduced))
        candidates = row_candidates(kept, reduced, element_bytes, traits)
    elif len(levels) > 1 or _stores_elements(group):
        candidates = column_candidates(domain.outer.extent, reduced, domain.lanes.extent)
    else:
        extents = (domain.outer.extent, reduced, domain.lanes.extent)
        candidates, is_shared = columns_once(extents, group.bytes, traits)
        if is_shared:
            return RowForm(WHOLE, LAST_JOINS, is_of_gpu=False), levels, RowTiles("", candidates)
    block = blocks_of(candidates, "RBLOCK")[0]
    form = RowForm(WHOLE if proves_at_most(reduced, block) else JOINED, is_of_gpu=False)
    return form, levels, RowTiles("", candidates)


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


def row_shape(group: Group, levels: Levels, between: Beside | None = None) -> RowShape:
    """What decides the form and the tiles of a row kernel."""
    domain = group.domain
    assert domain.reduced is not None
    is_lanes = domain.is_reduced_in_lanes
    varies = _stores_elements(group)
    kept = domain.rows.extent if is_lanes else domain.lanes.extent
    partials = [partial for level in levels for row in level for partial in row.partials()]
    elements = max(1, typical(domain.outer.extent * kept * domain.reduced.extent))
    return RowShape(
        outer=1 if is_lanes else domain.outer.extent,
        kept=kept,
        reduced=domain.reduced.extent,
        element_bytes=group.bytes / elements,
        levels=len(levels),
        is_lanes=is_lanes,
        stores_elements=varies,
        vector=_vector(group, levels),
        can_share=varies and all(DTYPES[row.dtype].itemsize_bytes <= 4 for row in partials),
        item_bytes=_narrowest(group),
        operations=group.operations / elements,
        window_terms=window_terms(group.nodes) if is_lanes else 0,
        is_scattered=is_lanes and _is_scattered(group),
        beside=between.padded if between else 1,
        steps=between.steps if between else domain.reduced.extent,
    )


def _is_scattered(group: Group) -> bool:
    """Whether something is stored whose neighbours are those of the kept elements, not of a row."""
    domain = group.domain
    assert domain.reduced is not None
    offsets = [ix.linear(root.index, root.node.shape) for root in group.roots]
    return any(
        domain.reduced in offset.symbols()
        and offset.stride(domain.reduced) != 1
        and is_mostly_along(offset, domain.rows)
        for offset in offsets
    )


def _vector(group: Group, levels: Levels) -> int:
    """Elements that a thread loads at once: those of 16 bytes, or as many as divide the rows and
    where they begin. Others are loaded one by one, which neighbouring threads do faster where they
    have neighbouring elements."""
    domain = group.domain
    assert domain.reduced is not None
    kept, found = kept_index(domain), [VECTOR_BYTES // _narrowest(group)]
    tracer = Tracer(frozenset(group.reads).__contains__)
    for statistic in itertools.chain(*levels):
        for node in statistic.nodes:
            index = reduction_index(node, kept, ix.of(domain.reduced))
            tracer.visit(node.inputs[0], index)
    for need in tracer.accesses:
        offset = ix.linear(need.index, need.node.shape)
        if offset.stride(domain.reduced) == 1:
            start = offset.substitute({domain.reduced: ix.ZERO})
            found += (content(each) for each in (start.constant, *(row[1] for row in start.terms)))
    return max(1, gcd(content(domain.reduced.extent), *found))


def _narrowest(group: Group) -> int:
    """Bytes of the smallest element that the group loads or stores."""
    nodes = [*group.reads, *(root.node for root in group.roots)]
    large = max(typical(node.type.numel) for node in nodes)
    # Only tensors of full size decide: the vectors of the others come from a cache.
    sizes = (node for node in nodes if typical(node.type.numel) * 2 > large)
    return min(DTYPES[node.dtype].itemsize_bytes for node in sizes)
