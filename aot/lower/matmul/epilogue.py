"""What a product's kernel on a GPU computes of its tile of sums and stores."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aotc.aot.errors import InternalError
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node, walk
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file
from aotc.aot.lower.emit import INDENT, Body, Line, Moment, Value
from aotc.aot.lower.kernel_file import WAIT, moments_of
from aotc.aot.lower.matmul.choice import Choice
from aotc.aot.lower.matmul.operands import Product
from aotc.aot.schedule.group import Part

# Values that are computed of each element of a tile, from which on it is done in parts: Triton
# computes each value of a whole tile before the next, and registers hold few such tiles.
VALUES_IN_PARTS, PARTS = 6, 4
SMALL_TILE = 8192  # elements of a tile that registers hold beside its sums
_WORD = re.compile(r"\w+")
# A load of a tile: its name, the load, of which parameter, and the widening.
_TILE_LOAD = re.compile(
    r"(\w+) = (tl\.load\(in(\d+) \+ [^,.]*(?:, mask=[^,]*)?(?:, other=0\.0)?\))"
    r"(\.to\(tl\.float32\))?$"
)


class Lines:
    """A part of a kernel: its lines, and the emitter that writes them."""

    def __init__(self, product: Product, choice: Choice, names: str = "") -> None:
        self.product, self.choice, self.walk = product, choice, product.walk
        self.body, self.masks = Body(names=names), dict[Symbol, str]()
        self.emitter = kernel_file.emitter_of(
            product.group, self.body, self.masks, self._stop, True
        )
        self.emitter.moment_of = moments_of(product.group)

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        raise NotImplementedError


def epilogue(product: Product, choice: Choice, is_ahead: bool) -> tuple[list[str], list[str]]:
    """Lines before the loop and behind it that turn `acc` into the roots and store them."""
    if choice.style.has_more_axes:  # whose loads have x and y along other axes
        product = product.renamed("x2", "y2")
    elif not is_ahead and _has_many_values(product):
        return [], _in_parts(product, choice)
    # Beside names of the loads; and within a branch, one from before it would keep its type.
    is_apart = is_ahead or not choice.style.has_more_axes
    return _Epilogue(product, choice, is_ahead, "acc", "e" if is_apart else "").parts()


def _has_many_values(product: Product) -> bool:
    """Whether much is computed of each element of the product's tiles, which have many columns."""
    meet = product.share is not None or product.group.distance
    if meet or typical(product.columns.extent) < 32:
        return False
    root_op, full = product.root_op, typical(product.root_op.type.numel)
    nodes = walk(tuple(root.node for root in product.roots), {root_op, *product.group.reads})
    values = [
        node
        for node in nodes
        if node.kind == "pointwise" and node.op != "cast" and typical(node.type.numel) == full
    ]
    return len(values) >= VALUES_IN_PARTS


def _in_parts(product: Product, choice: Choice) -> list[str]:
    """The lines for one part of the tile's columns after the other."""
    lines, parts, width = [], ["acc"], "BN"
    while len(parts) < PARTS:
        halves = [f"{part}_{half}" for part in parts for half in range(2)]
        for number, part in enumerate(parts):
            low, high = halves[2 * number : 2 * number + 2]
            both = f"tl.reshape({part}, (BM, 2, {width} // 2))"
            lines.append(f"{low}, {high} = tl.split(tl.permute({both}, (0, 2, 1)))")
        parts, width = halves, f"{width} // 2"
    rows, columns = product.rows.name, product.columns.name
    for number, part in enumerate(parts):
        own = f"{columns}{number}"
        first = f"{number} * (BN // {PARTS}) + " if number else ""
        lines.append(f"{own} = ys + {first}tl.arange(0, BN // {PARTS})[None, :]")
        named = product.renamed(rows, own)
        lines += _Epilogue(named, choice, False, part, f"part{number}_").parts()[1]
    return lines


class _Epilogue(Lines):
    """Turns a tile of sums, or columns of it, into the roots and stores them."""

    def __init__(
        self, product: Product, choice: Choice, is_ahead: bool, tile: str, names: str
    ) -> None:
        super().__init__(product, choice, names)
        self.is_ahead, self.tile = is_ahead, tile

    def parts(self) -> tuple[list[str], list[str]]:
        """Lines before the loop, with the wait for other kernels, and behind it."""
        self._write()
        lines = self.body.written
        if not self.is_ahead:
            return self._around_loop(lines)
        if self.choice.style.is_walk:
            asked = _asked_for([line for line in lines if line.moment <= Moment.MEMORY])
            rest = [line.text for line in lines if line not in asked]
            return [line.text for line in asked], rest
        asked = _asked_for([line for line in lines if line.moment == Moment.MEMORY])
        rest = [line.text for line in lines if line.moment >= Moment.MEMORY and line not in asked]
        before = [*until(Moment.CONSTANTS, lines), WAIT, *(line.text for line in asked)]
        return before, rest

    def _around_loop(self, lines: list[Line]) -> tuple[list[str], list[str]]:
        """Lines before the loop, which load what is the same for all rows or all columns of a tile
        and, where the tile is small, all else; and the lines behind it."""
        if self.choice.style.has_more_axes or self.tile != "acc":
            return [], [line.text for line in lines]
        axes = {symbol for _, symbol in self._tile_symbols() if symbol.extent != 1}
        known = [line for line in lines if line.moment <= Moment.MEMORY]
        vectors = _asked_for([line for line in known if not axes <= line.symbols])
        tiles = [line for line in known if axes <= line.symbols and self._may_hold(line)]
        if len(axes) < 2 or self.choice.style.template == "split":
            tiles = []  # each part of a split tile would load it
        places = [line for line in known if line.moment == Moment.START and line not in vectors]
        places = [line for line in _asked_for([*places, *tiles]) if line not in tiles]
        tiles = _known_by([*places, *vectors], known, tiles)
        early, texts = ([line.text for line in part] for part in (vectors, tiles))
        # What a flattened walk has from one tile on is carried through its loop.
        walk = ["FLATTEN == 0"] if self.choice.style.template == "persistent" else []
        before, behind = _where(walk, early, [], early)
        loads = [_TILE_LOAD.sub(r"\1_held = \2", text) for text in texts]
        holds = [_TILE_LOAD.sub(r"\1 = held(\1_held)\4", text) for text in texts]
        more = _where([*walk, f"BM * BN <= {SMALL_TILE}"], loads, holds, texts)
        moved = {id(line) for line in (*places, *vectors, *tiles)}
        before = [*(line.text for line in places), *before, *more[0]]
        return before, [*behind, *more[1], *(line.text for line in lines if id(line) not in moved)]

    def _may_hold(self, line: Line) -> bool:
        """Whether a line loads a tile of what `held` takes."""
        found = _TILE_LOAD.match(line.text)
        reads = self.product.group.reads
        return found is not None and DTYPES[reads[int(found[3])].dtype].itemsize_bytes in (2, 4)

    def _write(self) -> None:
        shape = ["BM", "BN"]
        for axis, (letter, symbol) in enumerate(self._tile_symbols()):
            if letter in self.choice.tails and symbol.extent == 1:
                # The result has no such axis: the tile's first row or column is all of it.
                only = f"tl.where({symbol.name} == 0, {self.tile}, 0.0)"
                self.tile, shape[axis] = f"single{axis}", "1"
                with self.body.at(Moment.SUMS):
                    self.body.write(f"{self.tile} = tl.sum({only}, axis={axis}, keep_dims=True)")
        if self.product.share is not None:
            self._write_shares(*shape)
        if self.product.group.distance:
            with self.body.at(Moment.SUMS):
                self._write_others(*shape)
        for letter, symbol in self._tile_symbols():
            if letter in self.choice.tails and symbol.extent != 1:
                kernel_file.write_mask(self.body, symbol, self.masks)
        for part in self._parts():
            self._write_part(part)
        with self.body.at(Moment.SUMS):
            kernel_file.write_stores(self.emitter, self.product.roots)

    @property
    def _lanes(self) -> Symbol:
        """The symbol of the matmul's columns, which are the tile's rows where it is swapped."""
        return self.product.rows if self.product.is_swapped else self.product.columns

    def _parts(self) -> tuple[Part, ...]:
        """The parts of the columns that roots have elements for."""
        parts = (root.part for root in self.product.roots)
        return tuple(dict.fromkeys(part for part in parts if part is not None))

    def _write_part(self, part: Part) -> None:
        """Name the element that each column of a part stands for, and whether there is one."""
        self.body.write(f"{part.symbol.name} = {part.element}")
        inside = [str(each) for each in part.conditions]
        inside += [self.masks[self._lanes]] if self._lanes in self.masks else []
        if inside:
            self.masks[part.symbol] = f"{part.symbol.name}_mask"
            self.body.write(f"{self.masks[part.symbol]} = {' & '.join(inside)}")

    def _write_others(self, rows: str, columns: str) -> None:
        """Name the tile of the other columns of all pairs, which lie side by side."""
        if self.product.is_swapped:
            pairs, turn = f"({rows} // 2, 2, {columns})", "tl.permute({}, (0, 2, 1))"
        else:
            pairs, turn = f"({rows}, {columns} // 2, 2)", "{}"
        apart, joined = turn.format(f"tl.reshape({self.tile}, {pairs})"), "tl.join(odd, even)"
        self.body.write(f"even, odd = tl.split({apart})")
        others = f"tl.reshape({turn.format(joined)}, ({rows}, {columns}))"
        if self.choice.style.is_fragments:
            others = f"gl.convert_layout({others}, STORED)"
        self.body.write(f"others = {others}")

    def _tile_symbols(self) -> tuple[tuple[str, Symbol], tuple[str, Symbol]]:
        """Tail letter and symbol of both axes of the stored tile."""
        product = self.product
        rows, columns = product.rows, product.columns
        if product.share is not None:
            rows = product.share if product.is_swapped else rows
            columns = columns if product.is_swapped else product.share
        return ("m", rows), ("n", columns)

    def _write_shares(self, rows: str, columns: str) -> None:
        """Columns of the tile that meet in one element of the result apart: every second one, or
        every fourth, by halves of halves."""
        group, is_swapped = self.product.column_group, self.product.is_swapped
        if is_swapped:
            place = f"xs // {group} + tl.arange(0, BM // {group})[:, None]"
            whole, order = [f"{rows} // {group}"], "(0, 2, 1)" if group == 2 else "(0, 3, 1, 2)"
            tile = (
                f"tl.reshape({self.tile}, ({', '.join([*whole, *['2'] * (group // 2), columns])}))"
            )
            tile = f"tl.permute({tile}, {order})"
        else:
            place = f"ys // {group} + tl.arange(0, BN // {group})[None, :]"
            parts = [rows, f"{columns} // {group}", *["2"] * (group // 2)]
            tile = f"tl.reshape({self.tile}, ({', '.join(parts)}))"
        lines = [f"column0, column1 = tl.split({tile})"]
        if group == 4:  # the last digit of a column's number is split off first
            lines = [f"even, odd = tl.split({tile})", "column0, column2 = tl.split(even)",
                     "column1, column3 = tl.split(odd)"]  # fmt: skip
        self.body.write(f"share = {place}")
        with self.body.at(Moment.SUMS):
            for line in lines:
                self.body.write(line)

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        if node is not self.product.root_op:
            return None
        if self.product.share is None:
            return self._of_column(index[-1])
        tile = [symbol for _, symbol in self._tile_symbols()]
        symbols = frozenset(item for item in (self.product.batch, *tile) if item.extent != 1)
        share, group = self.product.share, self.product.column_group
        for number in range(group):
            if index[-1] == ix.of(share) * group + number:
                return Value(f"column{number}", symbols)
        raise InternalError(stage="lower", detail=f"`{node!r}` is read at column {index[-1]}")

    def _of_column(self, column: Index) -> Value:
        """The sums at a column: of the tile's own, or of the one that it meets."""
        parts = (part for part in self._parts() if part.symbol in column.symbols())
        part, product = next(parts, None), self.product
        lanes = self._lanes if part is None else part.symbol
        own = ix.of(lanes) if part is None else part.column
        rows = product.columns if product.is_swapped else product.rows
        symbols = frozenset(each for each in (product.batch, rows, lanes) if each.extent != 1)
        distance = product.group.distance
        if not distance or column == own:
            return Value(self.tile, symbols)
        if column in (own + distance, own - distance):
            return Value("others", symbols)
        text = f"tl.where(({column}) == ({own}), {self.tile}, others)"
        return self.body.bind(text, symbols)


def _known_by(early: Sequence[Line], lines: Sequence[Line], tiles: Sequence[Line]) -> list[Line]:
    """Those of the tiles' loads that need nothing which other lines than the early ones compute."""
    late = {line.text.partition(" = ")[0] for line in lines if line not in early}
    return [line for line in tiles if late.isdisjoint(_WORD.findall(line.text)[1:])]


def _where(
    conditions: Sequence[str], before: Sequence[str], behind: Sequence[str], else_: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Lines before and behind a loop: the first two where all conditions hold; and where one does
    not, none before it and others behind it."""
    if not conditions or not before:
        return list(before), list(behind)
    text, (own, held, late) = (
        " and ".join(conditions),
        ([f"{INDENT}{line}" for line in part] for part in (before, behind, else_)),
    )
    behind = [f"if {text}:", *held] if held else []
    return [f"if {text}:", *own], [*behind, f"if not ({text}):", *late]


def _asked_for(lines: Sequence[Line]) -> list[Line]:
    """The loads among lines, and what they need. All else that can be computed before the loop
    comes behind it: sines branch, and nothing behind a branch is loaded before it is decided."""
    found, words = list[Line](), set[str]()
    for line in reversed(lines):
        name = line.text.partition(" = ")[0]
        if name in words or "tl.load(" in line.text:
            found.append(line)
            words.update(_WORD.findall(line.text))
    return found[::-1]


def until(moment: Moment, lines: Sequence[Line]) -> list[str]:
    """The texts of lines that can run at the moment."""
    return [line.text for line in lines if line.moment <= moment]


def since(moment: Moment, lines: Sequence[Line]) -> list[str]:
    """The texts of lines that can run from the moment on, or later."""
    return [line.text for line in lines if line.moment >= moment]
