"""What a plan is made of: kernels with images, states, and for each range of sizes buffers, checks
and steps."""

from __future__ import annotations

from _bisect import bisect_right

from ..record import Record, field
from .extent import DIMS_LIMIT, WORD, Number
from .schema import IDENTIFIER, Choice, Flag, Integer, List, Optional, Row, Tagged, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ALIGNMENT_BYTES = 64
ARENA_LIMIT_BYTES = 1 << 40
SCRATCH_LIMIT_BYTES = 1 << 30
PROGRAMS_LIMIT = (1 << 31) - 1  # programs of one launch, x · y · z
STATES_LIMIT = 4096
CHECKS_LIMIT = 1 << 16
CHECK_BYTES = 8  # of the word that a check marks
ELEMENTS_LIMIT = (1 << 31) - 1
STEPS_LIMIT = 1 << 16
ENTRIES_LIMIT = 64  # ways to call a bundle

# Limits of every device whose library is a row of images; one that has less shared memory than a
# kernel needs says so when it is loaded.
IMAGE_LIMIT_BYTES = 1 << 28
WARP_THREADS = 32
BLOCK_THREADS_LIMIT = 1024
SHARED_LIMIT_BYTES = 227 << 10
MAP_ITEMSIZES = {"f16": 2, "f32": 4, "bf16": 2}  # of tensor maps, bytes
MAP_RANK_LIMIT, MAP_BOX_LIMIT = 5, 256

Argument = tuple[str, "int | str"]  # (space, value)
Parameter = tuple[str, int]  # (kind, number)
SPACES = ("arena", "weight", "input", "output", "state", "check", "int", "peer")
RANKS_LIMIT = 64  # GPUs that a program is split over
RANK_MARK = "@rank"  # in the name of a weight of which each rank has another part
BYTES = Number(0, ARENA_LIMIT_BYTES)
PROGRAMS = Number(1, PROGRAMS_LIMIT)
MAP_EXTENT, MAP_STRIDE = Number(1, (1 << 32) - 1), Number(1, ARENA_LIMIT_BYTES)
MEMORY = Tagged(
    "[space, value] with a space of " + ", ".join(SPACES),
    {
        "arena": (BYTES,),
        "weight": (Text(256),),
        "input": (Integer(0, 4095),),
        "output": (Integer(0, 4095),),
        "state": (Integer(0, STATES_LIMIT - 1),),
        "check": (Integer(0, CHECKS_LIMIT - 1),),
        "int": (WORD,),
        # How far the arena of the program on this GPU lies from a rank's own, in units of 16 bytes.
        "peer": (Integer(0, RANKS_LIMIT - 1),),
    },
)


def name_of_rank(name: str, rank: int) -> str:
    """What the weights file calls the part of a weight that a rank has, the first one's by the name
    that the plan has for all of them."""
    return f"{name}{RANK_MARK}{rank}" if rank else name


class Buffer(Record):
    """A part of the arena that holds one intermediate tensor; offset and size in bytes."""

    name: str = field(Text(256))
    offset: int = field(BYTES)
    nbytes: int = field(BYTES)


class Image(Record):
    """A cubin inside the library: where it lies and what a launch of its kernel takes.

    threads: of one program; shared_bytes: dynamic shared memory of one program; scratch_bytes:
    global memory that each program needs for itself; is_programmatic: it may be launched before the
    kernels before it have ended, since every thread waits for that by itself.
    """

    offset: int = field(Integer(0, ARENA_LIMIT_BYTES))
    nbytes: int = field(Integer(1, IMAGE_LIMIT_BYTES))
    threads: int = field(Integer(WARP_THREADS, BLOCK_THREADS_LIMIT, step=WARP_THREADS))
    shared_bytes: int = field(Integer(0, SHARED_LIMIT_BYTES))
    scratch_bytes: int = field(Integer(0, 1 << 20))
    is_programmatic: bool = field(Flag(), default=False)


class Map(Record):
    """A tensor map that a launch makes of the memory behind argument number `argument`.

    It names the elements of `dtype` from element `start` on: `shape` of them at `strides` (in
    elements, the last is 1). Loads take `box` of them, and lay their rows into shared memory in a
    pattern that repeats every `swizzle_bytes` (0: as they come).
    """

    argument: int = field(Integer(0, 255))
    dtype: str = field(Choice(*MAP_ITEMSIZES))
    start: int = field(BYTES)
    shape: tuple[int, ...] = field(List(MAP_EXTENT, limit=MAP_RANK_LIMIT, least=1))
    strides: tuple[int, ...] = field(List(MAP_STRIDE, limit=MAP_RANK_LIMIT, least=1))
    box: tuple[int, ...] = field(List(Integer(1, MAP_BOX_LIMIT), limit=MAP_RANK_LIMIT, least=1))
    swizzle_bytes: int = field(Integer(0, 128))


GRID = List(PROGRAMS, limit=3, least=3)
MAPS = List(Map, limit=64)
END = Integer(1, ELEMENTS_LIMIT)
RANGES = List(Row(END, END), limit=DIMS_LIMIT)
KINDS = ("int", "peer", "read", "write", "zeroed")
NUMBERS = ("int", "peer")  # kinds and spaces of what is no memory
PARAMETER = Tagged(
    "[kind, number] with a kind of " + ", ".join(KINDS),
    {kind: (WORD if kind == "int" else BYTES,) for kind in KINDS},
)


class Use(Record):
    """How a kernel may be launched: on this grid, with these tensor maps and parameters, at sizes
    within `ranges`, one a dim. It is what the kernel's code was made for.

    A parameter is an `int` with its value, a `peer` with the number of a rank, or memory with the
    bytes that the kernel reaches from its pointer on: `read`, `write`, or `zeroed`, which lies
    where the arena is zero.
    """

    grid: tuple[int, int, int] = field(GRID)
    maps: tuple[Map, ...] = field(MAPS)
    parameters: tuple[Parameter, ...] = field(List(PARAMETER, limit=256))
    ranges: tuple[tuple[int, int], ...] = field(RANGES)


class Kernel(Record):
    """A function of the target's library; `image` on devices that load each kernel by itself."""

    symbol: str = field(IDENTIFIER)
    name: str = field(Text(256))
    image: Image | None = field(Optional(Image), default=None)
    uses: tuple[Use, ...] = field(List(Use, limit=STEPS_LIMIT), default=())


class Launch(Record):
    """One launch: index of the kernel, grid (x, y, z) in programs, arguments in their order, then
    the tensor maps that come after them; `use` is which of the kernel's uses it is."""

    kind = "kernel"
    kernel: int = field(Integer(0, (1 << 16) - 1))
    grid: tuple[int, int, int] = field(GRID)
    args: tuple[Argument, ...] = field(List(MEMORY, limit=256))
    maps: tuple[Map, ...] = field(MAPS, default=())
    use: int = field(Integer(0, STEPS_LIMIT - 1), default=0)

    @property
    def memory(self) -> tuple[Argument, ...]:
        """(space, value) of all that it names."""
        return self.args


class Spans:
    """Ranges of bytes that may overlap; whether one of them holds a given range, in log n."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, rows: Iterable[tuple[int, int]]) -> None:
        """rows: (start, end) of each."""
        self._starts: list[int] = []
        self._ends: list[int] = []  # of the range that reaches furthest, of those up to there
        furthest = 0
        for start, end in sorted(rows):
            furthest = max(furthest, end)
            self._starts.append(start)
            self._ends.append(furthest)

    def holds(self, start: int, nbytes: int) -> bool:
        """Whether `nbytes` bytes from `start` on lie in one range."""
        index = bisect_right(self._starts, start)
        return index > 0 and start + nbytes <= self._ends[index - 1]


class StateSlot(Record):
    """A tensor of `nbytes` bytes of mutable state, which may be a formula of the sizes.

    initial: the weight that a session starts with; None for zeros. initial_bytes: of that weight,
    where the state is it over and over; 0 where it is as large as the state.
    """

    nbytes: int = field(BYTES)
    initial: str | None = field(Optional(Text(256)), default=None)
    initial_bytes: int = field(Integer(0, 16), default=0)


class Check(Record):
    """What a call's data must be: one word of the session, which a kernel marks.

    kind: "index", whose elements lie from `low` to `high`, "divisor" or "assertion", none of which
    is 0, or "exchange", which holds 1 + the number of a rank that did not come; operation: the op
    of the model, of an assertion its message; place: the user's line, empty where it is not known.
    """

    kind: str = field(Choice("index", "divisor", "assertion", "exchange"))
    operation: str = field(Text(256))
    place: str = field(Text(256, least=0))
    low: int = field(WORD)
    high: int = field(WORD)
