"""Rows that several programs work on: each stores the partial values of its part in scratch memory.

Where only values of whole rows are wanted, the program that comes last joins them (`parts`). Where
elements are stored too, every program keeps its part, in registers (`shared`) or in the cache
(`shared_streamed`), and waits for the others of its row. Waiting programs must all be running:
programs are numbered in the order in which they begin, so the ones waited for have begun or are the
next to begin, and a row has fewer programs than any device of the kind can run at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.ir.size import highest, kernel_text
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.body import INDENT
from aotc.aot.lower.row.gpu_source import StreamedWriter, VectorWriter
from aotc.aot.lower.row.statistics import Partial, Statistic, Tile
from aotc.aot.lower.spec import Candidate, Scratch

_HEAD = 2  # counters before those of the rows: programs that began, rows that are done
_ITEM_BYTES = {f"*{row.triton}": row.itemsize_bytes for row in DTYPES.values()}


class _Exchange(VectorWriter):
    """What all forms share: scratch pointers, one for each partial value, and the counters."""

    counters_head = 0
    program = "row"

    def partials(self) -> list[Partial]:
        """The partial values of all levels, in the order of their pointers."""
        return [partial for level in self.statistics for row in level for partial in row.partials()]

    def scratch_types(self) -> list[tuple[str, str]]:
        """One pointer for each partial value, and the counters."""
        types = [f"*{DTYPES[partial.dtype].triton}" for partial in self.partials()]
        named = [(f"part{at}", kind) for at, kind in enumerate(types)]
        return [*named, ("arrived", "*i32")]

    def scratch(self, candidate: Candidate) -> tuple[Scratch, ...]:
        """Partial values of all programs; a counter for each row."""
        config = dict(candidate.config)
        programs = candidate.grid[0]
        width = 1 if self.is_vector else config["YBLOCK"]
        *partials, (name, kind) = self.scratch_types()
        counters = self.counters_head + programs // config["PARTS"]
        return (
            *(Scratch(at, row, programs * width * _ITEM_BYTES[row]) for at, row in partials),
            Scratch(name, kind, highest(counters * 4), is_zeroed=True),
        )

    def _write_others(self) -> None:
        dim = "" if self.is_vector else "[:, None]"
        self.body.write(f"others = tl.arange(0, QBLOCK){dim}")

    def _put(self, at: int, values: Sequence[Sequence[str]]) -> None:
        """Store the partial values of this program, the first one to `part{at}`."""
        where = self._where("part")
        for number, value in enumerate(name for row in values for name in row):
            self.body.write(f"tl.store(part{at + number} + {where}, {value})")
        self.body.write("tl.debug_barrier()")

    def _join(self, level: Sequence[Statistic], at: int) -> None:
        """Make the joined values of a level known, those from `part{at}` on."""
        found = []
        programs = Tile("", "axis=0" if self.is_vector else "axis=0, keep_dims=True")
        for statistic in level:
            partials = statistic.partials()
            found.append(statistic.join(self._get(at, partials), programs, self._named))
            at += len(partials)
        self._know(level, found)

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

    def _where(self, part: str) -> str:
        if self.is_vector:
            return f"row * PARTS + {part}"
        return f"(row * PARTS + {part}) * YBLOCK + tl.arange(0, YBLOCK)[None, :]"


class PartedWriter(_Exchange, StreamedWriter):
    """Several programs read a block of rows chunk by chunk; the one that comes last joins."""

    first, stride = "part * RBLOCK", "PARTS * RBLOCK"

    def _write_kept(self, candidates: tuple[Candidate, ...]) -> None:
        self.body.write("row = tl.program_id(0) // PARTS")
        self.body.write("part = tl.program_id(0) % PARTS")
        super()._write_kept(candidates)

    def lines(self) -> list[str]:
        """One pass, the exchange, and what the last program stores."""
        (level,) = self.statistics
        self._put(0, self._joined(level, self._stream(level)))
        self.body.write("if tl.atomic_add(arrived + row, 1) == PARTS - 1:")
        before, self.body.lines = self.body.lines, []
        self._write_others()
        self._join(level, 0)
        self._store(False)
        self.body.write("tl.store(arrived + row, 0)")
        self.body.lines = before + [INDENT + line for line in self.body.lines]
        return self.body.lines


class _Waiting(_Exchange):
    """Programs of a row wait for each other's partial values, one thread of each program.

    On an H200 words that say by themselves that they are there, polled by all threads, were slower
    than this counter: polls and stores meet in one slice of the cache.
    """

    counters_head = _HEAD

    def _write_kept(self, candidates: tuple[Candidate, ...]) -> None:
        self.body.write("begun = tl.atomic_add(arrived, 1)")
        self.body.write("row = begun // PARTS")
        self.body.write("part = begun % PARTS")
        super()._write_kept(candidates)

    def _exchange(self, number: int, values: Sequence[Sequence[str]]) -> None:
        """Publish this program's partial values of a level, wait for the others', join all."""
        before = [row for level in self.statistics[:number] for row in level]
        at = sum(len(row.partials()) for row in before)
        self._put(at, values)
        counter = f"arrived + {_HEAD} + row"
        self.body.lines += [
            f"seen = tl.atomic_add({counter}, 1) + 1",
            f"while seen < PARTS * {number + 1}:",
            f"{INDENT}seen = tl.atomic_add({counter}, 0)",
        ]
        self._join(self.statistics[number], at)

    def _store_once(self) -> None:
        """What is stored for a whole row, by the program of its first piece."""
        before, self.body.lines = self.body.lines, []
        self._store(False)
        if self.body.lines:
            before.append("if part == 0:")
        self.body.lines = before + [INDENT + line for line in self.body.lines]

    def _leave(self) -> None:
        """The last program of a row clears its counter, that of the last row the head."""
        last = f"PARTS * {len(self.statistics) + 1} - 1"
        last_row = kernel_text(self.kept_symbol.extent - 1)
        self.body.lines += [
            f"if tl.atomic_add(arrived + {_HEAD} + row, 1) == {last}:",
            f"{INDENT}tl.store(arrived + {_HEAD} + row, 0)",
            f"{INDENT}if tl.atomic_add(arrived + 1, 1) == {last_row}:",
            f"{INDENT * 2}tl.store(arrived, 0)",
            f"{INDENT * 2}tl.store(arrived + 1, 0)",
        ]


class SharedWriter(_Waiting):
    """Each program holds a piece of a row in registers."""

    def lines(self) -> list[str]:
        """The piece, an exchange for each level, the stores, and the counters back to zero."""
        self._write_reduced("part * RBLOCK + ")
        self._write_others()
        for number, level in enumerate(self.statistics):
            self._exchange(number, [self._piece(statistic) for statistic in level])
        self._store(True)
        self._store_once()
        self._leave()
        return self.body.lines

    def _piece(self, statistic: Statistic) -> list[str]:
        """Partial values of this program's piece."""
        operand = self._operand(statistic.nodes[0])
        if self.has_tail:
            length = kernel_text(self.reduced.extent)
            count = f"tl.minimum(RBLOCK, {length} - part * RBLOCK).to(tl.float32)"
        else:
            count = "tl.full((), RBLOCK, tl.float32)"
        return statistic.of_tile(self._tile(operand.text, count), self._named)


class SharedStreamWriter(_Waiting, StreamedWriter):
    """Each program reads chunks of a row, all of its row's programs side by side, twice."""

    first, stride = "part * RBLOCK", "PARTS * RBLOCK"

    def lines(self) -> list[str]:
        """A loop and an exchange for each level, the stores, and the counters back to zero."""
        self._write_others()
        for number, level in enumerate(self.statistics):
            self._exchange(number, self._joined(level, self._stream(level)))
        self._store_elements()
        self._store_once()
        self._leave()
        return self.body.lines
