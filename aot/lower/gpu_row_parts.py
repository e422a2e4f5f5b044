"""Rows that several programs work on: each stores the partial values of its part in scratch memory.

Where only values of whole rows are wanted, the program that comes last joins them (`parts`). Where
elements are stored too, every program keeps its part in registers and waits for the others of its
row (`shared`). Waiting programs must all be running: programs are numbered in the order in which
they begin, so the ones waited for have begun or are the next to begin, and a row has far fewer
programs than the device can run at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.body import INDENT
from aotc.aot.lower.gpu_row import StreamedWriter, VectorWriter
from aotc.aot.lower.spec import Candidate, Scratch
from aotc.aot.lower.statistics import Partial, Statistic, Tile

_HEAD = 2  # counters before those of the rows: programs that began, rows that are done
_ITEM_BYTES = {f"*{row.triton}": row.itemsize_bytes for row in DTYPES.values()}


class _Exchange(VectorWriter):
    """What both forms share: scratch pointers, storing partial values and joining them."""

    counters_head = 0

    def scratch_types(self) -> list[tuple[str, str]]:
        """One pointer for each partial value, and the counters."""
        partials = [
            partial for level in self.statistics for row in level for partial in row.partials()
        ]
        types = [f"*{DTYPES[partial.dtype].triton}" for partial in partials]
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
            Scratch(name, kind, counters * 4, is_zeroed=True),
        )

    def _put(self, at: int, values: Sequence[str]) -> None:
        """Store the partial values of this program, the first one to `part{at}`."""
        here = "row * PARTS + part"
        where = f"({here}) * YBLOCK + {self._columns()}"
        if self.is_vector:
            where = here
        for number, value in enumerate(values):
            self.body.write(f"tl.store(part{at + number} + {where}, {value})")

    def _get(self, at: int, partials: Sequence[Partial]) -> list[str]:
        """Load the partial values of all programs of the row; not from a cache of this program."""
        where = "row * PARTS + others"
        if not self.is_vector:
            where = f"({where}) * YBLOCK + {self._columns()}"
        return [
            self._named(
                f"tl.load(part{at + number} + {where}, mask=others < PARTS,"
                f" other={partial.identity}, volatile=True)"
            )
            for number, partial in enumerate(partials)
        ]

    def _columns(self) -> str:
        return "tl.arange(0, YBLOCK)[None, :]"

    def _write_others(self) -> None:
        dim = "" if self.is_vector else "[:, None]"
        self.body.write(f"others = tl.arange(0, QBLOCK){dim}")

    def _join(self, level: Sequence[Statistic], at: int) -> None:
        """Make the joined partial values of a level known, those from `part{at}` on."""
        found = []
        programs = Tile("", "axis=0" if self.is_vector else "axis=0, keep_dims=True")
        for statistic in level:
            partials = statistic.partials()
            found.append(statistic.join(self._get(at, partials), programs, self._named))
            at += len(partials)
        self._know(level, found)


class PartedWriter(_Exchange, StreamedWriter):
    """Several programs read a block of rows chunk by chunk; the one that comes last joins."""

    program = "row"
    first, stride = "part * RBLOCK", "PARTS * RBLOCK"

    def _write_kept(self, candidates: tuple[Candidate, ...]) -> None:
        self.body.write("row = tl.program_id(0) // PARTS")
        self.body.write("part = tl.program_id(0) % PARTS")
        super()._write_kept(candidates)

    def lines(self) -> list[str]:
        """One pass, the exchange, and what the last program stores."""
        (level,) = self.statistics
        values = self._joined(level, self._stream(level))
        self._put(0, [name for names in values for name in names])
        self.body.write("tl.debug_barrier()")
        self.body.write("if tl.atomic_add(arrived + row, 1) == PARTS - 1:")
        before, self.body.lines = self.body.lines, []
        self._write_others()
        self._join(level, 0)
        self._store(False)
        self.body.write("tl.store(arrived + row, 0)")
        self.body.lines = before + [INDENT + line for line in self.body.lines]
        return self.body.lines


class SharedWriter(_Exchange):
    """Each program holds a piece of a row and waits for what the others find in theirs."""

    program = "row"
    counters_head = _HEAD

    def _write_kept(self, candidates: tuple[Candidate, ...]) -> None:
        self.body.write("begun = tl.atomic_add(arrived, 1)")
        self.body.write("row = begun // PARTS")
        self.body.write("part = begun % PARTS")
        super()._write_kept(candidates)

    def lines(self) -> list[str]:
        """The piece, an exchange for each level, the stores, and the counters back to zero."""
        self._write_reduced("part * RBLOCK + ")
        self._write_others()
        at = 0
        for number, level in enumerate(self.statistics, 1):
            values = [self._piece(statistic) for statistic in level]
            self._put(at, [name for names in values for name in names])
            self._wait(number)
            self._join(level, at)
            at += sum(map(len, values))
        self._store(True)
        self._store_once()
        self._leave()
        return self.body.lines

    def _piece(self, statistic: Statistic) -> list[str]:
        """Partial values of this program's piece."""
        operand = self._operand(statistic.nodes[0])
        if self.has_overhang:
            count = f"tl.minimum(RBLOCK, {self.reduced.extent} - part * RBLOCK).to(tl.float32)"
        else:
            count = "tl.full((), RBLOCK, tl.float32)"
        return statistic.of_tile(self._tile(operand.text, count), self._named)

    def _wait(self, level: int) -> None:
        """Until all programs of the row have stored the partial values of a level."""
        self.body.write("tl.debug_barrier()")
        self.body.write(f"seen = tl.atomic_add(arrived + {_HEAD} + row, 1) + 1")
        self.body.write(f"while seen < PARTS * {level}:")
        self.body.write(f"{INDENT}seen = tl.atomic_add(arrived + {_HEAD} + row, 0)")

    def _store_once(self) -> None:
        """What is stored for a whole row, by the program of its first piece."""
        before, self.body.lines = self.body.lines, []
        self._store(False)
        if self.body.lines:
            before.append("if part == 0:")
        self.body.lines = before + [INDENT + line for line in self.body.lines]

    def _leave(self) -> None:
        """The last program of a row clears its counter; that of the last row clears the head."""
        rows = self.kept_symbol.extent
        last = f"PARTS * {len(self.statistics) + 1} - 1"
        self.body.lines += [
            f"if tl.atomic_add(arrived + {_HEAD} + row, 1) == {last}:",
            f"{INDENT}tl.store(arrived + {_HEAD} + row, 0)",
            f"{INDENT}if tl.atomic_add(arrived + 1, 1) == {rows - 1}:",
            f"{INDENT * 2}tl.store(arrived, 0)",
            f"{INDENT * 2}tl.store(arrived + 1, 0)",
        ]
