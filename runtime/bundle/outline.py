"""A plan's variant as precomputed checks, so that a plan at new sizes needs no look at each launch.

Models repeat layers: hundreds of launches have only a few different grids, addresses and access
sizes. An `Outline` gives every number of a variant a place in one table, the values of the plan
first and constants behind them, and keeps each distinct check of `plan_rules.py` once, as places in
that table. At given sizes the table is filled, and the checks are made on it.

What an outline accepts, the rules of `plan_rules.py` accept. It may reject a plan that they accept,
and gives no reason: then the plan is made in full and checked by the rules themselves.
"""

from __future__ import annotations

from .extent import WORD, reader
from .launch_plan import LaunchPlan, at_sizes
from .plan_parts import (
    ALIGNMENT_BYTES,
    BYTES,
    CHECK_BYTES,
    MAP_EXTENT,
    MAP_ITEMSIZES,
    MAP_STRIDE,
    NUMBERS,
    PROGRAMS,
    Launch,
    Spans,
)
from .plan_rules import GRID_LIMITS, MAP_ALIGNMENT_BYTES, broken_layout, broken_map_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from .extent import Number
    from .launch_plan import Step, Variant
    from .plan_parts import Buffer, Kernel, Map, Parameter, StateSlot, Use
    from .signature import TensorSpec

    Places = tuple[int, ...]


class Table:
    """Numbers places in a list: a value of the plan has its own number, constants and other keys
    come behind the values. keys: these, in the order of their places."""

    __slots__ = ("_count", "keys")

    def __init__(self, count: int) -> None:
        """count: how many values there are."""
        self._count = count
        self.keys: dict[Any, int] = {}

    def place(self, number: Any) -> int:
        """The place of a constant or a formula."""
        return self.key(number) if type(number) is int else number.index

    def key(self, key: Any) -> int:
        """The place of a key, a new one at its first use."""
        found = self.keys.get(key)
        if found is None:
            found = self.keys[key] = self._count + len(self.keys)
        return found

    def places(self, numbers: Sequence[Any]) -> Places:
        """The places of several numbers."""
        return tuple([self.place(each) for each in numbers])


class Outline:
    """A variant whose steps are all kernels; see the module.

    count: of the plan's values; launches: of the variant; spaces: those that the launches address;
    scratch: for each grid of a kernel that needs scratch, the grid's places and the scratch bytes
    of one program.
    """

    __slots__ = ("_aligned", "_arena", "_bounds", "_buffers", "_checks", "_constants", "_grids",
                 "_kernels", "_reached", "_reached_arena", "_variant", "count", "launches",
                 "scratch", "spaces")  # fmt: skip

    def __init__(self, kernels: Sequence[Kernel], variant: Variant, count: int) -> None:
        """count: how many values the plan has. Use `outline_of`, which says whether it may be."""
        self._kernels, self._variant, self.count = kernels, variant, count
        self.launches: tuple[Launch, ...] = variant.steps  # type: ignore[assignment]
        table = Table(count)
        self._bounds: dict[tuple[int, int], set[int]] = {}
        self._aligned: set[tuple[int, int]] = set()  # place, bytes of an element
        self._grids: set[Places] = set()
        self.scratch: set[tuple[Places, int]] = set()
        self._arena = table.place(variant.arena_bytes)
        buffers = {table.places((row.offset, row.nbytes)) for row in variant.buffers}
        self._buffers: Any = tuple(buffers)
        for place in (self._arena, *(place for row in buffers for place in row)):
            self._bind(place, BYTES)
        self._checks = [
            (row, table.place(row.low), table.place(row.high)) for row in variant.checks
        ]
        for _, low, high in self._checks:
            self._bind(low, WORD)
            self._bind(high, WORD)
        uses: dict[tuple[int, int], tuple[Parameter, ...]] = {}
        reached: dict[Any, None] = {}  # of each space: which memory, how, how many bytes of it
        for launch in self.launches:
            key = launch.kernel, launch.use
            if key not in uses:
                kernel = kernels[launch.kernel]
                uses[key] = kernel.uses[launch.use].parameters
                self._add_use(table, kernel, kernel.uses[launch.use])
            for (space, value), (kind, nbytes) in zip(launch.args, uses[key], strict=True):
                if kind not in NUMBERS:
                    memory = table.place(value) if space == "arena" else value
                    reached[space, memory, kind, table.place(nbytes)] = None
        self._reached: dict[str, list[tuple[Any, int]]] = {}
        self._reached_arena: list[tuple[int, int, bool]] = []
        for space, memory, kind, nbytes in reached:
            if space == "arena":
                self._bind(memory, BYTES)
                self._reached_arena.append((memory, nbytes, kind == "zeroed"))
            else:
                self._reached.setdefault(space, []).append((memory, nbytes))
        self.spaces = {space for launch in self.launches for space, _ in launch.args}
        self._constants = list(table.keys)

    def _bind(self, place: int, number: Number, high: int | None = None) -> None:
        """Hold a formula against the ends of such a number, and against a lower end of the range;
        what is written out was held against the former when it was read."""
        if place < self.count or high is not None:
            ends = number.low, number.high if high is None else min(high, number.high)
            self._bounds.setdefault(ends, set()).add(place)

    def _add_use(self, table: Table, kernel: Kernel, use: Use) -> None:
        """What the rules ask of the numbers of one use of a kernel."""
        grid = table.places(use.grid)
        self._grids.add(grid)
        for place, limit in zip(grid, GRID_LIMITS, strict=True):
            self._bind(place, PROGRAMS, None if kernel.image is None else limit)
        if kernel.image is not None and kernel.image.scratch_bytes:
            self.scratch.add((grid, kernel.image.scratch_bytes))
        for row in use.maps:
            strides, itemsize = table.places(row.strides), MAP_ITEMSIZES[row.dtype]
            for place in table.places(row.shape):
                self._bind(place, MAP_EXTENT)
            for place in strides:
                self._bind(place, MAP_STRIDE)
            self._aligned.update([(place, itemsize) for place in strides[:-1]])

    def at(
        self, values: list[int], states: tuple[StateSlot, ...], scratch_bytes: int
    ) -> LaunchPlan | None:
        """The plan where formulas have these values; None where the rules have to say more."""
        table = [*values, *self._constants]
        spans = self._spans(table)
        if spans is None or not self._holds(table, spans):
            return None
        made = OutlinedPlan(self, table, spans)
        checks = tuple([row.replace(low=table[low], high=table[high])
                        for row, low, high in self._checks])  # fmt: skip
        head = (table[self._arena], scratch_bytes, self._kernels, self._variant.zeroed_bytes,
                states, checks)  # fmt: skip
        return LaunchPlan.outlined_by(made, *head)

    def _spans(self, table: list[int]) -> Spans | None:
        """The buffers' ranges of bytes, where these lie in the arena."""
        arena_bytes = table[self._arena]
        rows = [(table[offset], table[offset] + table[nbytes]) for offset, nbytes in self._buffers]
        for start, end in rows:
            if start % ALIGNMENT_BYTES or end > arena_bytes:
                return None
        return Spans(rows) if self._variant.zeroed_bytes <= arena_bytes else None

    def _holds(self, table: list[int], spans: Spans) -> bool:
        """Whether limits and relations of the numbers hold, all but what memory outside of the
        arena is reached."""
        for (low, high), places in self._bounds.items():
            for place in places:
                if not low <= table[place] <= high:
                    return False
        for x, y, z in self._grids:
            if table[x] * table[y] * table[z] > PROGRAMS.high:
                return False
        for place, itemsize in self._aligned:
            if table[place] * itemsize % MAP_ALIGNMENT_BYTES:
                return False
        zeroed_bytes = self._variant.zeroed_bytes
        for place, reach, is_zeroed in self._reached_arena:
            at, nbytes = table[place], table[reach]
            if is_zeroed and at + nbytes > zeroed_bytes:
                return False
            if not is_zeroed and at < zeroed_bytes and nbytes:
                return False
            if not spans.holds(at, max(nbytes, 1)):  # it begins inside of a buffer in any case
                return False
        return True

    def reaches(self, table: list[int], sizes: Mapping[str, Any]) -> bool:
        """Whether no kernel reaches beyond memory outside of the arena; sizes: for each space the
        bytes of what lies there."""
        try:
            for space, rows in self._reached.items():
                own = sizes[space]
                for memory, nbytes in rows:
                    if table[nbytes] > own[memory]:
                        return False
        except LookupError:
            return False
        return True

    def parts(
        self, table: list[int]
    ) -> tuple[tuple[Buffer, ...], tuple[Step, ...], tuple[tuple[Parameter, ...], ...]]:
        """Buffers, steps and parameters of a plan that holds."""
        variant, parameters = at_sizes(self._kernels, self._variant, reader(table))
        return variant.buffers, variant.steps, parameters


class OutlinedPlan:
    """What a launch plan keeps of the outline by which it was made.

    outline: the same for all sizes of a variant; table: its numbers at these.
    """

    __slots__ = ("_spans", "outline", "table")

    @property
    def values(self) -> list[int]:
        """The plan's values."""
        return self.table[: self.outline.count]

    def __init__(self, outline: Outline, table: list[int], spans: Spans) -> None:
        self.outline, self.table, self._spans = outline, table, spans

    def parts(self) -> tuple[Any, ...]:
        """Those that a launch plan makes when it is asked for them."""
        return self.outline.parts(self.table)

    def reaches(
        self,
        plan: LaunchPlan,
        signature: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
        weights: Mapping[str, int],
    ) -> bool:
        """Whether no kernel reaches beyond memory outside of the arena."""
        inputs, outputs = ([spec.nbytes for spec in specs] for specs in signature)
        sizes: dict[str, Any] = {
            "input": inputs,
            "output": outputs,
            "state": [slot.nbytes for slot in plan.states],
            "check": [CHECK_BYTES] * len(plan.checks),
            "weight": weights,
        }
        return self.outline.reaches(self.table, sizes)


def outline_of(kernels: Sequence[Kernel], variant: Variant, count: int) -> Outline | None:
    """A variant's outline; None where it has steps that are no kernels, or breaks a rule that asks
    nothing of sizes."""
    known: set[tuple[int, int]] = set()
    for step in variant.steps:
        if not isinstance(step, Launch):
            return None
        if any(True for row in step.maps for _ in broken_map_argument("", row, step.args)):
            return None
        if (step.kernel, step.use) not in known:
            known.add((step.kernel, step.use))
            if not all(_lies_well(row) for row in kernels[step.kernel].uses[step.use].maps):
                return None
    return Outline(kernels, variant, count)


def _lies_well(row: Map) -> bool:
    """Whether a map's numbers fit each other, whatever its strides are, of which the last is 1."""
    if len(row.strides) != len(row.shape) or row.strides[-1] != 1:
        return False
    strides = (MAP_ALIGNMENT_BYTES,) * (len(row.strides) - 1) + (1,)
    return not any(True for _ in broken_layout("", row.replace(strides=strides)))
