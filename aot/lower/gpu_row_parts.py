"""Rows that several programs work on: each stores the partial values of its part in scratch memory.

Where only values of whole rows are wanted, the program that comes last joins them (`parts`). Where
elements are stored too, every program keeps its part, in registers (`shared`) or in the cache
(`shared_streamed`), and waits for the others of its row. Waiting programs must all be running:
programs are numbered in the order in which they begin, so the ones waited for have begun or are the
next to begin, and a row has fewer programs than any device of the kind can run at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.body import INDENT
from aotc.aot.lower.gpu_row import StreamedWriter, VectorWriter
from aotc.aot.lower.literal import spelled
from aotc.aot.lower.spec import Candidate, Scratch
from aotc.aot.lower.statistics import Partial, Statistic, Tile

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
            *(
                Scratch(at, row, programs * width * _ITEM_BYTES[row], self.counters_head > 0)
                for at, row in partials
            ),
            Scratch(name, kind, counters * 4, is_zeroed=True),
        )

    def _write_others(self) -> None:
        dim = "" if self.is_vector else "[:, None]"
        self.body.write(f"others = tl.arange(0, QBLOCK){dim}")

    def _join(self, level: Sequence[Statistic], known: Sequence[str]) -> None:
        """Make the joined values of a level known, from those of all programs."""
        found, at = [], 0
        programs = Tile("", "axis=0" if self.is_vector else "axis=0, keep_dims=True")
        for statistic in level:
            count = len(statistic.partials())
            found.append(statistic.join(known[at : at + count], programs, self._named))
            at += count
        self._know(level, found)


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
        for at, names in enumerate(self._joined(level, self._stream(level))):
            self._put(sum(len(row.partials()) for row in level[:at]), names)
        self.body.write("tl.debug_barrier()")
        self.body.write("if tl.atomic_add(arrived + row, 1) == PARTS - 1:")
        before, self.body.lines = self.body.lines, []
        self._write_others()
        self._join(level, self._get())
        self._store(False)
        self.body.write("tl.store(arrived + row, 0)")
        self.body.lines = before + [INDENT + line for line in self.body.lines]
        return self.body.lines

    def _put(self, at: int, values: Sequence[str]) -> None:
        """Store partial values of this program, the first one to `part{at}`."""
        where = self._where("part")
        for number, value in enumerate(values):
            self.body.write(f"tl.store(part{at + number} + {where}, {value})")

    def _get(self) -> list[str]:
        """Load the partial values of all programs of the row; not from a cache of this program."""
        where = self._where("others")
        return [
            self._named(
                f"tl.load(part{at} + {where}, mask=others < PARTS,"
                f" other={partial.identity}, volatile=True)"
            )
            for at, partial in enumerate(self.partials())
        ]

    def _where(self, part: str) -> str:
        if self.is_vector:
            return f"row * PARTS + {part}"
        return f"(row * PARTS + {part}) * YBLOCK + tl.arange(0, YBLOCK)[None, :]"


class _Waiting(_Exchange):
    """Programs of a row wait for each other's partial values.

    These are odd words of 64 bits, twice the 32 bits of a value and one: a word that is zero is not
    there yet, and no fence is needed between words. The last program of a row clears them.
    """

    counters_head = _HEAD

    def scratch_types(self) -> list[tuple[str, str]]:
        """Words for the partial values, and the counters."""
        named = [(f"part{at}", "*i64") for at in range(len(self.partials()))]
        return [*named, ("arrived", "*i32")]

    def _write_kept(self, candidates: tuple[Candidate, ...]) -> None:
        self.body.write("begun = tl.atomic_add(arrived, 1)")
        self.body.write("row = begun // PARTS")
        self.body.write("part = begun % PARTS")
        super()._write_kept(candidates)

    def _exchange(self, level: Sequence[Statistic], values: Sequence[Sequence[str]]) -> None:
        """Publish this program's partial values of a level, and join those of all."""
        partials = [partial for row in level for partial in row.partials()]
        earlier = self.statistics[: self.statistics.index(list(level))]
        at = sum(len(row.partials()) for rows in earlier for row in rows)
        names = [name for row in values for name in row]
        for number, (name, partial) in enumerate(zip(names, partials, strict=True), at):
            bits = f"{name}.to(tl.int32, bitcast=True)" if partial.dtype == "f32" else name
            word = f"{bits}.to(tl.int64) * 2 + 1"
            self.body.write(f"tl.store(part{number} + row * PARTS + part, {word})")
        words = [
            f"tl.load(part{number} + row * PARTS + others, mask=others < PARTS, other=1,"
            " volatile=True)"
            for number in range(at, at + len(names))
        ]
        self.body.write(f"is_there{at} = 0")
        self.body.write(f"while is_there{at} == 0:")
        self.body.write(f"{INDENT}word = {words[0]}")
        self.body.lines += [f"{INDENT}word &= {word}" for word in words[1:]]
        self.body.write(f"{INDENT}is_there{at} = tl.min((word & 1).to(tl.int32), axis=0)")
        self._join(level, [self._value(*row) for row in zip(words, partials, strict=True)])

    def _value(self, word: str, partial: Partial) -> str:
        """The partial values in the words of all programs."""
        bits = f"({self._named(word)} >> 1)"
        text = f"{bits}.to({spelled(partial.dtype)})"
        if partial.dtype == "f32":
            text = f"{bits}.to(tl.int32).to(tl.float32, bitcast=True)"
        return self._named(f"tl.where(others < PARTS, {text}, {partial.identity})")

    def _store_once(self) -> None:
        """What is stored for a whole row, by the program of its first piece."""
        before, self.body.lines = self.body.lines, []
        self._store(False)
        if self.body.lines:
            before.append("if part == 0:")
        self.body.lines = before + [INDENT + line for line in self.body.lines]

    def _leave(self) -> None:
        """The last program of a row clears its words and counter, that of the last row the head."""
        clear = [
            f"tl.store(part{at} + row * PARTS + others, tl.zeros((QBLOCK,), tl.int64),"
            " mask=others < PARTS)"
            for at in range(len(self.partials()))
        ]
        self.body.lines += [
            "tl.debug_barrier()",  # no thread still reads the words
            f"if tl.atomic_add(arrived + {_HEAD} + row, 1) == PARTS - 1:",
            *(INDENT + line for line in clear),
            f"{INDENT}tl.store(arrived + {_HEAD} + row, 0)",
            f"{INDENT}if tl.atomic_add(arrived + 1, 1) == {self.kept_symbol.extent - 1}:",
            f"{INDENT * 2}tl.store(arrived, 0)",
            f"{INDENT * 2}tl.store(arrived + 1, 0)",
        ]


class SharedWriter(_Waiting):
    """Each program holds a piece of a row in registers."""

    def lines(self) -> list[str]:
        """The piece, an exchange for each level, the stores, and the scratch back to zero."""
        self._write_reduced("part * RBLOCK + ")
        self._write_others()
        for level in self.statistics:
            self._exchange(level, [self._piece(statistic) for statistic in level])
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


class SharedStreamWriter(_Waiting, StreamedWriter):
    """Each program reads chunks of a row, all of its row's programs side by side, twice."""

    first, stride = "part * RBLOCK", "PARTS * RBLOCK"

    def lines(self) -> list[str]:
        """A loop and an exchange for each level, the stores, and the scratch back to zero."""
        self._write_others()
        for level in self.statistics:
            self._exchange(level, self._joined(level, self._stream(level)))
        self._store_elements()
        self._store_once()
        self._leave()
        return self.body.lines
