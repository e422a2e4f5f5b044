"""What a row kernel learns of a row in one pass, as partial values that can be joined.

A statistic turns a tile into partial values, takes a further tile into them lane by lane, and joins
the partial values of many lanes or of many programs. Two of them replace two passes by one: the
maximum with the sum of exponentials, and the mean with the sum of squared distances from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aotc.aot.ir.graph import Node
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.size import Extent, fixed, kernel_text
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.emit import bare, computed, literal, triton_type
from aotc.aot.schedule.pairs import one_pass

Bind = Callable[[str], str]  # names an expression
LOWEST = -3.4028234663852886e38  # below every finite f32: its distance to an infinity is no NaN
_FARTHEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Partial:
    """One partial value: its element type and its value before the first element, as text.

    is_count: it counts elements, as many in each column of a tile.
    """

    dtype: str
    identity: str
    is_count: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """Elements of a row in a kernel: their name, mask and positions."""

    text: str
    along: str  # axis of the lanes: `axis=1, keep_dims=True`, or `axis=0` for one number
    mask: str = ""  # empty: all of them are elements
    positions: str = "r"
    count: str = ""  # of the valid ones, as f32
    # Whether a lane has a vector of elements, along axis 1: no other thread has any of them.
    is_vector: bool = False
    start: str = ""  # position of the first, if a reduction finds places faster than a comparison

    def sum(self, text: str) -> str:
        """Sum over the lanes."""
        return f"tl.sum({text}, {self.along})"

    def max(self, text: str) -> str:
        """Largest over the lanes."""
        return f"tl.max({text}, {self.along})"

    def min(self, text: str) -> str:
        """Smallest over the lanes."""
        return f"tl.min({text}, {self.along})"

    def kept(self, text: str, otherwise: str) -> str:
        """The text where the mask holds."""
        return f"tl.where({self.mask}, {text}, {otherwise})" if self.mask else text

    def inner(self, function: str, text: str) -> str:
        """Reduction of each lane's own elements: `tl.sum(text, axis=1)`."""
        return f"tl.{function}({text}, axis=1)" if self.is_vector else text

    def spread(self, text: str) -> str:
        """A value of each lane beside the elements of the lane."""
        return f"{text}[:, None]" if self.is_vector else text


def accumulated(node: Node) -> str:
    """Element type in which a reduction's elements are reduced."""
    return REDUCTIONS[node.op].accumulator or node.inputs[0].dtype


def prepared(node: Node, element: str) -> str:
    """An element of a reduction's operand in that type."""
    accumulator = REDUCTIONS[node.op].accumulator
    return f"{element}.to({triton_type(accumulator)})" if accumulator else element


def identity(node: Node) -> str:
    """What changes no result of a reduction, as text."""
    dtype = accumulated(node)
    return literal(REDUCTIONS[node.op].identity(dtype), dtype)


def finished(node: Node, tile: str, along: str) -> str:
    """The result of a reduction of one tile that holds all elements."""
    row = REDUCTIONS[node.op]
    text = row.of_tile.format(tile, along=along)
    return row.finish.format(text if row.is_search else kept_short(text, accumulated(node)))


def kept_short(text: str, dtype: str) -> str:
    """A reduction's result in its own type: Triton reduces integers shorter than i32 as i32."""
    kind = DTYPES[dtype]
    is_short = kind.kind != "float" and kind.itemsize_bytes < 4
    return f"{text}.to({triton_type(dtype)})" if is_short else text


def _first(node: Node) -> Partial:
    """The partial value that is the reduction's own, or the value that a search looks for."""
    dtype = accumulated(node)
    text = literal(REDUCTIONS[node.op].identity(dtype), "f32" if dtype == "f64" else dtype)
    return Partial(computed(dtype), text)


@dataclass(frozen=True, slots=True)
class Plain:
    """One reduction by itself."""

    node: Node

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node,)

    def partials(self) -> tuple[Partial, ...]:
        return (_first(self.node),)

    def of_tile(self, tile: Tile, bind: Bind) -> list[str]:
        return self.join([tile.text], tile, bind)

    def update(self, known: Sequence[str], tile: Tile, bind: Bind) -> list[str]:
        row = REDUCTIONS[self.node.op]
        text = self._reduced(tile.text, "axis=1") if tile.is_vector else tile.text
        return [(row.joined or bare(OPS[row.combine].triton)).format(known[0], text)]

    def join(self, lanes: Sequence[str], tile: Tile, bind: Bind) -> list[str]:
        return [bind(self._reduced(lanes[0], tile.along))]

    def _reduced(self, text: str, along: str) -> str:
        reduced = REDUCTIONS[self.node.op].of_tile.format(text, along=along)
        return kept_short(reduced, accumulated(self.node))

    def values(self, known: Sequence[str], extent: Extent) -> list[str]:
        return [REDUCTIONS[self.node.op].finish.format(known[0])]


@dataclass(frozen=True, slots=True)
class Search:
    """The position of an extreme value: the first one, if there are several."""

    node: Node

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node,)

    def partials(self) -> tuple[Partial, ...]:
        return (_first(self.node), Partial("i32", str(_FARTHEST)))

    def of_tile(self, tile: Tile, bind: Bind) -> list[str]:
        if not tile.start:
            return self.join([tile.text, tile.positions], tile, bind)
        place = f"({tile.start} + {finished(self.node, tile.text, tile.along)}).to(tl.int32)"
        return [bind(self._best(tile.text, tile.along)), bind(place)]

    def update(self, known: Sequence[str], tile: Tile, bind: Bind) -> list[str]:
        best, place = tile.text, tile.positions
        if tile.is_vector:
            best = bind(self._best(tile.text, "axis=1"))
            same = f"{tile.text} == {tile.spread(best)}"
            place = bind(tile.inner("min", f"tl.where({same}, {place}, {_FARTHEST})"))
        is_better = f"{best} {REDUCTIONS[self.node.op].combine} {known[0]}"
        better = bind(f"({is_better}) | ({known[1]} == {_FARTHEST})")
        return [
            f"tl.where({better}, {best}, {known[0]})",
            f"tl.where({better}, {place}, {known[1]})",
        ]

    def join(self, lanes: Sequence[str], tile: Tile, bind: Bind) -> list[str]:
        best = bind(self._best(lanes[0], tile.along))
        return [best, bind(tile.min(f"tl.where({lanes[0]} == {best}, {lanes[1]}, {_FARTHEST})"))]

    def _best(self, text: str, along: str) -> str:
        found = REDUCTIONS[REDUCTIONS[self.node.op].index_of]
        return kept_short(found.of_tile.format(text, along=along), accumulated(self.node))

    def values(self, known: Sequence[str], extent: Extent) -> list[str]:
        return [f"tl.minimum({known[1]}, {kernel_text(extent - 1)}).to(tl.int64)"]


@dataclass(frozen=True, slots=True)
class Exponentials:
    """The maximum and the sum of e^(x - maximum): softmax and log-softmax."""

    largest: Node
    total: Node

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.largest, self.total)

    def partials(self) -> tuple[Partial, ...]:
        return (Partial("f32", repr(LOWEST)), Partial("f32", "0.0"))

    def of_tile(self, tile: Tile, bind: Bind) -> list[str]:
        largest = bind(f"tl.maximum({tile.max(tile.text)}, {LOWEST!r})")
        return [largest, bind(tile.sum(f"tl.exp({tile.text} - {largest})"))]

    def update(self, known: Sequence[str], tile: Tile, bind: Bind) -> list[str]:
        """One exponential for each element, and one for each lane that has several."""
        largest, total = known
        if tile.is_vector:
            top = bind(f"tl.maximum({largest}, {tile.inner('max', tile.text)})")
            powers = tile.inner("sum", f"tl.exp({tile.text} - {tile.spread(top)})")
            return [top, f"{total} * tl.exp({largest} - {top}) + {powers}"]
        # Of the distance, whichever of the two is larger.
        apart = bind(f"{tile.text} - {largest}")
        power = bind(f"tl.exp(-tl.abs({apart}))")
        return [
            f"tl.maximum({largest}, {tile.text})",
            f"tl.where({apart} > 0, {total} * {power} + 1.0, {total} + {power})",
        ]

    def join(self, lanes: Sequence[str], tile: Tile, bind: Bind) -> list[str]:
        largest = bind(tile.max(lanes[0]))
        return [largest, bind(tile.sum(f"{lanes[1]} * tl.exp({lanes[0]} - {largest})"))]

    def values(self, known: Sequence[str], extent: Extent) -> list[str]:
        return [f'tl.where({known[1]} == 0, float("-inf"), {known[0]})', known[1]]


@dataclass(frozen=True, slots=True)
class Moments:
    """The sum and the sum of squared distances from the mean, after Welford: LayerNorm.

    The distances may be `factor` times those of the elements that are summed.
    """

    total: Node
    squares: Node
    factor: float = 1.0

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.total, self.squares)

    def partials(self) -> tuple[Partial, ...]:
        return Partial("f32", "0.0", is_count=True), Partial("f32", "0.0"), Partial("f32", "0.0")

    def of_tile(self, tile: Tile, bind: Bind) -> list[str]:
        count = bind(tile.count)
        mean = bind(f"{tile.sum(tile.text)} / {count}")
        apart = bind(tile.kept(f"{tile.text} - {mean}", "0.0"))
        return [count, mean, bind(tile.sum(f"{apart} * {apart}"))]

    def update(self, known: Sequence[str], tile: Tile, bind: Bind) -> list[str]:
        count, mean, squares = known
        apart = bind(tile.kept(f"{tile.text} - {tile.spread(mean)}", "0.0"))
        one = "VECTOR" if tile.is_vector else "1.0"
        if tile.mask:
            one = tile.inner("sum", f"{tile.mask}.to(tl.float32)")
        counted = bind(f"{count} + {one}")
        step = f"{tile.inner('sum', apart)} / tl.maximum({counted}, 1.0)"
        if not tile.is_vector:  # one division for all columns
            share = bind(f"1.0 / tl.maximum({counted}, 1.0)")
            step = f"{apart} * {share}"
        moved = bind(f"{mean} + {step}")
        more = f"{apart} * ({tile.text} - {tile.spread(moved)})"
        return [counted, moved, f"{squares} + {tile.inner('sum', tile.kept(more, '0.0'))}"]

    def join(self, lanes: Sequence[str], tile: Tile, bind: Bind) -> list[str]:
        count = bind(tile.sum(lanes[0]))
        mean = bind(f"{tile.sum(f'{lanes[1]} * {lanes[0]}')} / {count}")
        apart = bind(f"{lanes[1]} - {mean}")
        squares = bind(tile.sum(f"{lanes[2]} + {lanes[0]} * {apart} * {apart}"))
        return [count, mean, squares]

    def values(self, known: Sequence[str], extent: Extent) -> list[str]:
        squares = known[2] if self.factor == 1 else f"{known[2]} * {self.factor**2!r}"
        return [f"{known[1]} * {float(fixed(extent))!r}", squares]


Statistic = Plain | Search | Exponentials | Moments


def statistics(
    levels: Sequence[Sequence[Node]], rounded: frozenset[Node] = frozenset()
) -> list[list[Statistic]]:
    """The reductions of a row kernel by passes, pairs that need one pass only as one statistic.

    `levels` lists the reductions that wait for no other, then those that wait for these, and so on.
    A pair computes in f32 what lies between its reductions: no node of `rounded`.
    """
    found: list[list[Statistic]] = []
    taken: set[Node] = set()
    for depth, nodes in enumerate(levels):
        level: list[Statistic] = []
        for node in nodes:
            if node in taken:
                continue
            later = levels[depth + 1] if depth + 1 < len(levels) else ()
            pair = next((pair for other in later if (pair := _pair(node, other, rounded))), None)
            level.append(pair or _single(node))
            taken.update(level[-1].nodes)
        if level:
            found.append(level)
    return found


def singles(levels: Sequence[Sequence[Node]]) -> list[list[Statistic]]:
    """The same, each reduction by itself."""
    return [list(map(_single, nodes)) for nodes in levels]


def _single(node: Node) -> Statistic:
    return Search(node) if REDUCTIONS[node.op].is_search else Plain(node)


def _pair(first: Node, second: Node, rounded: frozenset[Node]) -> Statistic | None:
    """The statistic that gives both reductions, if there is one."""
    found = one_pass(first, second, rounded)
    if found is None:
        return None
    if found.kind == "exponentials":
        return Exponentials(first, second)
    return Moments(first, second, found.factor)
