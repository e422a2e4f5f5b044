"""What a row of the table sees while it draws its arguments: the values there are, and chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuzz import values
from fuzz.program import ANY, FLOATS, Extent, Input, Ref

SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 11, 13, 16, 17, 29, 31, 32, 33, 64)
LARGE_SIZES = (61, 100, 127, 128, 129, 255, 257, 300, 512, 1000, 1031, 2049)
SMALL_NUMEL, LARGE_NUMEL = 3000, 40_000


class NoDraw(Exception):
    """No legal arguments were found; another row is tried."""


@dataclass(slots=True)
class Known:
    """A value of the program so far, with its shape in each environment."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    level: str  # `bits`, `values` or ``: how eager's value is to be met
    uses: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """In the first environment."""
        return self.shapes[0]

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.shapes[0])

    @property
    def ref(self) -> Ref:
        """As an argument."""
        return Ref(self.name)

    def varies(self, axis: int) -> bool:
        """Whether the extent differs between environments."""
        return len({shape[axis] for shape in self.shapes}) > 1

    @property
    def is_fixed(self) -> bool:
        """Whether it has one shape in all environments."""
        return len(set(self.shapes)) == 1

    def has_elements(self) -> bool:
        """Whether no extent is 0 in any environment."""
        return all(0 not in shape for shape in self.shapes)


Where = Callable[[Known], bool]


@dataclass(slots=True)
class Profile:
    """What a program is drawn of: weights of families, element types, kinds of values, sizes."""

    family: str
    dtypes: Mapping[str, float]
    kinds: Mapping[str, float]
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    is_large: bool = False
    zero_share: float = 0.01


@dataclass(slots=True)
class Draw:
    """Chance, and the pool of values that rows pick operands from."""

    rng: random.Random
    profile: Profile
    pool: dict[str, Known] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    fresh: list[Input] = field(default_factory=list)  # made for the row that is being drawn
    bring_in: Callable[[Input], Known] | None = None

    # --- numbers

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self.rng.random() < share

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return self.rng.randint(low, high)

    def one_of(self, given: Sequence[Any]) -> Any:
        """One of them."""
        if not given:
            raise NoDraw
        return self.rng.choice(list(given))

    def some_of(self, given: Sequence[Any], least: int = 1, most: int | None = None) -> list[Any]:
        """A few distinct ones, in any order."""
        most = len(given) if most is None else min(most, len(given))
        if most < least:
            raise NoDraw
        return self.rng.sample(list(given), self.integer(least, most))

    def number(self, dtype: str = "f32") -> int | float:
        """A Python number that a value of this type can be combined with."""
        if dtype == "bool":
            return self.integer(0, 1)
        if dtype not in FLOATS:
            return self.integer(0 if dtype == "u8" else -5, 5)
        return self.one_of((0.5, -0.5, 1.5, 2.0, -1.0, 0.1, 3, -2, 0.25, 1e-3, 7.0))

    # --- operands

    def pick(
        self,
        dtypes: Sequence[str] = ANY,
        ranks: Sequence[int] = range(7),
        where: Where | None = None,
        may_be_empty: bool = True,
    ) -> Known:
        """A value that there is, those not used yet first; or now and then a new input."""

        def fits(known: Known) -> bool:
            return (
                known.dtype in dtypes
                and known.rank in ranks
                and (may_be_empty or known.has_elements())
                and (where is None or where(known))
            )

        found = [known for known in self.pool.values() if fits(known)]
        if not found or (len(self.inputs) < 2 and self.chance(0.15)):
            return self._fitting(dtypes, ranks, fits)
        weights = [8.0 if not known.uses else 1.0 for known in found]
        # What was made last is the likeliest, so that chains become long.
        weights = [weight * (1 + place) for place, weight in enumerate(weights)]
        return self.rng.choices(found, weights)[0]

    def _fitting(self, dtypes: Sequence[str], ranks: Sequence[int], fits: Where) -> Known:
        if len(self.inputs) > 4:
            raise NoDraw
        for _ in range(8):
            wanted = [rank for rank in ranks if rank <= 4]
            given = self._input(self.dtype(dtypes), self.shape(self.one_of(wanted or ranks)))
            known = self._known(given)
            if fits(known):
                return self.bring(given)
        raise NoDraw

    def matching(
        self, known: Known, dtypes: Sequence[str] = ANY, may_broadcast: bool = True
    ) -> Known:
        """A second operand: of the same shape, or one that can be broadcast with it."""
        found = [
            other
            for other in self.pool.values()
            if other.dtype in dtypes
            and (_broadcasts(other, known) if may_broadcast else other.shapes == known.shapes)
        ]
        if found and self.chance(0.7):
            return self.rng.choice(found)
        shape = self.shape_of(known)
        if shape is not None and len(self.inputs) < 5:
            extents = list(shape)
            if may_broadcast and self.chance(0.4):
                extents = [1 if self.chance(0.4) else extent for extent in extents]
                extents = extents[self.integer(0, len(extents)) :] if self.chance(0.3) else extents
            return self.bring(self._input(self.dtype(dtypes), tuple(extents)))
        if not found:
            raise NoDraw
        return self.rng.choice(found)

    def tensor(self, dtype: str, shape: Sequence[int | str], kind: str | None = None) -> Known:
        """A new input of this type and shape."""
        if len(self.inputs) > 6:
            raise NoDraw
        return self.bring(self._input(dtype, tuple(shape), kind))

    def bring(self, given: Input) -> Known:
        """Make an input a value of the program."""
        assert self.bring_in is not None
        self.inputs.append(given)
        self.fresh.append(given)
        known = self.bring_in(given)
        self.pool[known.name] = known
        return known

    def _input(self, dtype: str, shape: tuple[int | str, ...], kind: str | None = None) -> Input:
        kind = kind or self.kind(dtype)
        seed = self.rng.randrange(10_000)
        return Input(f"x{len(self.inputs)}", dtype, shape, values.text(dtype, kind), seed)

    def _known(self, given: Input) -> Known:
        count = max((len(sizes) for sizes in self.profile.dims.values()), default=1)
        shapes = tuple(
            tuple(
                self.profile.dims[each][place] if isinstance(each, str) else each
                for each in given.shape
            )
            for place in range(count)
        )
        return Known(given.name, given.dtype, shapes, "bits")

    # --- types, kinds, shapes

    def dtype(self, among: Sequence[str] = ANY) -> str:
        """An element type by the profile's weights."""
        rows = {name: self.profile.dtypes.get(name, 0.02) for name in among}
        return self.rng.choices(list(rows), list(rows.values()))[0]

    def kind(self, dtype: str) -> str:
        """A kind of values by the profile's weights."""
        rows = {k: w for k, w in self.profile.kinds.items() if dtype in values.KINDS[k].dtypes}
        return self.rng.choices(list(rows), list(rows.values()))[0]

    def shape(self, rank: int) -> tuple[int | str, ...]:
        """A shape of this rank whose elements are not too many."""
        limit = LARGE_NUMEL if self.profile.is_large else SMALL_NUMEL
        dims = self.profile.dims
        while True:
            shape: list[int | str] = [self.one_of(SIZES) for _ in range(rank)]
            if self.profile.is_large and rank:
                shape[self.integer(0, rank - 1)] = self.one_of(LARGE_SIZES)
            if rank > 1 and self.chance(0.2):  # equal extents
                shape[self.integer(0, rank - 1)] = shape[self.integer(0, rank - 1)]
            if rank and self.chance(self.profile.zero_share):
                shape[self.integer(0, rank - 1)] = 0
            for name in dims:
                if rank and self.chance(0.6):
                    shape[self.integer(0, rank - 1)] = name
            numel = 1
            for extent in shape:
                numel *= max(dims[extent]) if isinstance(extent, str) else extent
            if numel <= limit:
                return tuple(shape)
            limit += limit // 10

    def shape_of(self, known: Known) -> tuple[int | str, ...] | None:
        """A value's shape as an input's: in numbers and dims; None where it is neither."""
        found: list[int | str] = []
        for axis in range(known.rank):
            extents = tuple(shape[axis] for shape in known.shapes)
            if len(set(extents)) == 1:
                found.append(extents[0])
                continue
            name = next((n for n, sizes in self.profile.dims.items() if sizes == extents), None)
            if name is None:
                return None
            found.append(name)
        return tuple(found)

    def extent(self, known: Known, axis: int) -> int | Extent:
        """An extent as an argument: a number where it is one in all environments."""
        return Extent(known.name, axis) if known.varies(axis) else known.shape[axis]

    def axis(self, known: Known, least: int = 0, fixed: bool = False) -> int:
        """An axis, counted from either end; of at least `least` elements in all environments."""
        found = [
            axis
            for axis in range(known.rank)
            if all(shape[axis] >= least for shape in known.shapes)
            and not (fixed and known.varies(axis))
        ]
        axis = self.one_of(found)
        return axis - known.rank if self.chance(0.3) else axis

    def least(self, known: Known, axis: int) -> int:
        """The smallest extent along an axis over all environments."""
        return min(shape[axis] for shape in known.shapes)


def _broadcasts(left: Known, right: Known) -> bool:
    for ours, theirs in zip(left.shapes, right.shapes, strict=True):
        if len(ours) > len(theirs):
            return False
        for a, b in zip(reversed(ours), reversed(theirs), strict=False):
            if a != b and a != 1 and b != 1:
                return False
    return True
