"""The launch plan of a call: all steps in order, at given sizes; and a variant of a plan, whose
numbers may be formulas."""

from __future__ import annotations

from ..record import Record, field
from .control_steps import ControlStep
from .extent import Extent
from .native_plan import NativeLaunch
from .plan_parts import (
    ARENA_LIMIT_BYTES,
    BYTES,
    CHECKS_LIMIT,
    ENTRIES_LIMIT,
    GRID,
    MAPS,
    MEMORY,
    RANGES,
    STEPS_LIMIT,
    Buffer,
    Check,
    Launch,
)
from .schema import Fields, Integer, List, Union
from .torch_calls import TorchCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, Protocol

    from .plan_parts import Argument, Kernel, Map, Parameter, StateSlot
    from .schema import Numbering
    from .signature import TensorSpec

    class Outlined(Protocol):
        """What a launch plan knows of an `OutlinedPlan` of `outline.py`."""

        outline: Any
        table: list[int]

        @property
        def values(self) -> list[int]: ...
        def parts(self) -> tuple[Any, ...]: ...
        def reaches(
            self,
            plan: Any,
            signature: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
            weights: Mapping[str, int],
        ) -> bool: ...

    Step = Launch | TorchCall | NativeLaunch | ControlStep

STEP = Union(Launch, TorchCall, NativeLaunch, ControlStep)


class Variant(Record):
    """What an entry runs for a range of each dim, both ends included; numbers may be formulas."""

    arena_bytes: int = field(BYTES)
    buffers: tuple[Buffer, ...] = field(List(Buffer, limit=1 << 16))
    checks: tuple[Check, ...] = field(List(Check, limit=CHECKS_LIMIT))
    ranges: tuple[tuple[int, int], ...] = field(RANGES)
    steps: tuple[Step, ...] = field(List(STEP, limit=STEPS_LIMIT))
    zeroed_bytes: int = field(Integer(0, ARENA_LIMIT_BYTES))
    entry: int = field(Integer(0, ENTRIES_LIMIT - 1), default=0)  # which of the bundle's


VARIANT = Fields(Variant)
LATER = ("buffers", "steps", "parameters")  # in the order of `Outlined.parts`
FIXED = (int, str)  # types of values that are the same at all sizes


class LaunchPlan(Record):
    """All steps of one call at given sizes, in order, for one target.

    arena_bytes: size of the block that holds every intermediate tensor; scratch_bytes: size of the
    block that each thread gives to the kernel it runs; zeroed_bytes: the arena's first bytes, zero
    when a session opens and left zero by every launch; states: mutable state; checks: of the data
    of a call, one word of the session each; parameters: for each launch those of its use, where
    they are known.

    outlined: of a plan that an `Outline` has made, what it keeps of it. `buffers`, `steps` and
    `parameters` of such a plan are made when somebody asks for them.
    """

    arena_bytes: int
    scratch_bytes: int
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    zeroed_bytes: int = 0
    states: tuple[StateSlot, ...] = ()
    checks: tuple[Check, ...] = ()
    parameters: tuple[tuple[Parameter, ...], ...] = ()
    _outlined: Outlined | None = None

    @classmethod
    def outlined_by(
        cls,
        outlined: Outlined,
        arena_bytes: int,
        scratch_bytes: int,
        kernels: Sequence[Kernel],
        zeroed_bytes: int,
        states: tuple[StateSlot, ...],
        checks: tuple[Check, ...],
    ) -> LaunchPlan:
        """A plan whose other parts `outlined` makes when they are needed."""
        found = cls.__new__(cls)
        found._put("_outlined", outlined)
        found._put("arena_bytes", arena_bytes)
        found._put("scratch_bytes", scratch_bytes)
        found._put("kernels", kernels)
        found._put("zeroed_bytes", zeroed_bytes)
        found._put("states", states)
        found._put("checks", checks)
        return found

    if not TYPE_CHECKING:  # so that names which are not there stay errors

        def __getattr__(self, name: str) -> Any:
            """A part that was not made yet."""
            if name == "_outlined":
                return None
            if name not in LATER or self._outlined is None:
                raise AttributeError(f"a launch plan has no `{name}`")
            for part, value in zip(LATER, self._outlined.parts(), strict=True):
                self._put(part, value)
            return getattr(self, name)

    @property
    def outlined(self) -> Outlined | None:
        """See the class."""
        return self._outlined

    @property
    def step_count(self) -> int:
        """How many steps there are."""
        outlined = self._outlined
        return len(self.steps if outlined is None else outlined.outline.launches)

    @property
    def is_of_launches(self) -> bool:
        """Whether all steps are kernels of the target's library."""
        return self._outlined is not None or len(self.launches) == len(self.steps)

    @property
    def spaces(self) -> set[str]:
        """The spaces of the memory that launches name."""
        outlined = self._outlined
        if outlined is not None:
            found: set[str] = outlined.outline.spaces
            return found
        return {space for launch in self.launches for space, _ in launch.args}

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The steps that are kernels of the target's library."""
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def calls(self) -> tuple[TorchCall, ...]:
        """The steps that torch runs."""
        return tuple(step for step in self.steps if isinstance(step, TorchCall))

    @property
    def has_blocks(self) -> bool:
        """Whether there are branches or loops."""
        return self._outlined is None and any(isinstance(step, ControlStep) for step in self.steps)

    @property
    def natives(self) -> tuple[NativeLaunch, ...]:
        """The steps that call native functions."""
        return tuple(step for step in self.steps if isinstance(step, NativeLaunch))

    def arguments(self) -> Iterator[tuple[str, int | str]]:
        """(space, value) of all that the steps name, in order, then the weights that states start
        with."""
        return named_memory(self.steps, self.states)


def named_memory(
    steps: Iterable[Step], states: Iterable[StateSlot]
) -> Iterator[tuple[str, int | str]]:
    """(space, value) of all that steps name, in order, then the weights that states start with."""
    for step in steps:
        yield from step.memory
    for state in states:
        if state.initial is not None:
            yield "weight", state.initial


def at_sizes(
    kernels: Sequence[Kernel], variant: Variant, number: Numbering, is_fixed: bool = False
) -> tuple[Variant, tuple[tuple[Parameter, ...], ...]]:
    """A variant at a call's sizes, and for each launch the parameters of its use; is_fixed: it has
    no formulas. Raises `Refused`."""
    at_sizes = LaunchesAtSizes(kernels, number)
    if not is_fixed:
        steps = at_sizes.steps(variant.steps)
        variant = VARIANT.at(variant.replace(steps=()), number).replace(steps=steps)
    launches = [row for row in variant.steps if isinstance(row, Launch)]
    return variant, tuple([at_sizes.use(row).parameters for row in launches])


class LaunchesAtSizes:
    """Makes the launches of a variant at a call's sizes, each distinct part once: models repeat
    layers, so most launches share the use of their kernel and the addresses of memory."""

    __slots__ = ("_kernels", "_number", "_places", "_uses")

    def __init__(self, kernels: Sequence[Kernel], number: Numbering) -> None:
        """number: from the numbers of a plan to their values at the call's sizes."""
        self._kernels, self._number = kernels, number
        self._places: dict[tuple[str, int], Argument] = {}
        self._uses: dict[tuple[int, int], _UseAtSizes] = {}

    def use(self, launch: Launch) -> _UseAtSizes:
        """What a launch has of its kernel's use; raises `Refused`."""
        key = launch.kernel, launch.use
        found = self._uses.get(key)
        if found is None:
            use, number = self._kernels[launch.kernel].uses[launch.use], self._number
            is_empty = 0 in map(number, use.grid)
            grid = use.grid if is_empty else GRID.at(use.grid, number)  # 0 would be refused
            maps = use.maps if is_empty else MAPS.at(use.maps, number)
            found = self._uses[key] = _UseAtSizes(
                grid,
                maps,
                tuple([(kind, number(value)) for kind, value in use.parameters]),
                is_empty,
                grid is use.grid and maps is use.maps,
            )
        return found

    def steps(self, steps: Iterable[Step]) -> list[Step]:
        """The steps, without the launches that fill a tensor without elements; raises
        `Refused`."""
        found: list[Step] = []
        place = self._place
        for step in steps:
            if not isinstance(step, Launch):
                found.append(STEP.at(step, self._number))
                continue
            use = self.use(step)
            if use.is_empty:
                continue
            args = tuple([each if type(each[1]) in FIXED else place(each) for each in step.args])
            is_same = use.is_same and args == step.args
            made = step if is_same else Launch(step.kernel, use.grid, args, use.maps, step.use)
            found.append(made)
        return found

    def _place(self, place: Argument) -> Argument:
        """A place of memory, or a number that is passed, whose formula is read for the sizes."""
        space, value = place
        assert isinstance(value, Extent)
        key = space, value.index
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = MEMORY.at(place, self._number)
        return found


class _UseAtSizes:
    """A use of a kernel at a call's sizes; is_empty: it has no programs; is_same: grid and maps
    are the same at all sizes."""

    __slots__ = ("grid", "is_empty", "is_same", "maps", "parameters")

    def __init__(
        self,
        grid: tuple[int, int, int],
        maps: tuple[Map, ...],
        parameters: tuple[Parameter, ...],
        is_empty: bool,
        is_same: bool,
    ) -> None:
        self.grid, self.maps, self.parameters = grid, maps, parameters
        self.is_empty, self.is_same = is_empty, is_same
