"""What a launch plan is made of: buffers, kernels with images, launches with tensor maps, states.

The grammar of each stands in `plan.py`.
"""

from __future__ import annotations

from _bisect import bisect_right

from ..record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

Argument = tuple[str, "int | str"]  # (space, value)


class Buffer(Record):
    """A part of the arena that holds one intermediate tensor; offset and size in bytes."""

    __slots__ = ("name", "nbytes", "offset")
    name: str
    offset: int
    nbytes: int

    def __init__(self, name: str, offset: int, nbytes: int) -> None:
        self._set(name=name, offset=offset, nbytes=nbytes)

    def to_map(self) -> dict[str, Any]:
        """The buffer as plain values."""
        return {"name": self.name, "offset": self.offset, "nbytes": self.nbytes}


class Image(Record):
    """A cubin inside the library: where it lies and what a launch of its kernel takes.

    threads: of one program; shared_bytes: dynamic shared memory of one program; scratch_bytes:
    global memory that each program needs for itself; is_programmatic: it may be launched before the
    kernels before it have ended, since every thread waits for that by itself.
    """

    __slots__ = ("is_programmatic", "nbytes", "offset", "scratch_bytes", "shared_bytes", "threads")
    offset: int
    nbytes: int
    threads: int
    shared_bytes: int
    scratch_bytes: int
    is_programmatic: bool

    def __init__(
        self,
        offset: int,
        nbytes: int,
        threads: int,
        shared_bytes: int,
        scratch_bytes: int,
        is_programmatic: bool = False,
    ) -> None:
        self._set(
            offset=offset,
            nbytes=nbytes,
            threads=threads,
            shared_bytes=shared_bytes,
            scratch_bytes=scratch_bytes,
            is_programmatic=is_programmatic,
        )

    def to_map(self) -> dict[str, int]:
        """The image as plain values."""
        return {name: int(getattr(self, name)) for name in self.__slots__}


class Kernel(Record):
    """A function of the target's library; `image` on devices that load each kernel by itself."""

    __slots__ = ("image", "name", "symbol")
    symbol: str
    name: str
    image: Image | None

    def __init__(self, symbol: str, name: str, image: Image | None = None) -> None:
        self._set(symbol=symbol, name=name, image=image)

    def to_map(self) -> dict[str, Any]:
        """The kernel as plain values."""
        image = None if self.image is None else self.image.to_map()
        return {"symbol": self.symbol, "name": self.name, "image": image}


class Map(Record):
    """A tensor map that a launch makes of the memory behind argument number `argument`.

    It names the elements of `dtype` from element `start` on: `shape` of them at `strides` (in
    elements, the last is 1). Loads take `box` of them, and lay their rows into shared memory in a
    pattern that repeats every `swizzle_bytes` (0: as they come).
    """

    __slots__ = ("argument", "box", "dtype", "shape", "start", "strides", "swizzle_bytes")
    argument: int
    dtype: str
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int

    def __init__(
        self,
        argument: int,
        dtype: str,
        start: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        box: tuple[int, ...],
        swizzle_bytes: int,
    ) -> None:
        self._set(
            argument=argument,
            dtype=dtype,
            start=start,
            shape=tuple(shape),
            strides=tuple(strides),
            box=tuple(box),
            swizzle_bytes=swizzle_bytes,
        )

    def to_map(self) -> dict[str, Any]:
        """The map as plain values."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: list(v) if type(v) is tuple else v for name, v in found.items()}


class Launch(Record):
    """One launch: index of the kernel, grid (x, y, z) in programs, arguments in their order, then
    the tensor maps that come after them."""

    __slots__ = ("args", "grid", "kernel", "maps")
    kernel: int
    grid: tuple[int, int, int]
    args: tuple[Argument, ...]
    maps: tuple[Map, ...]

    def __init__(
        self,
        kernel: int,
        grid: tuple[int, int, int],
        args: tuple[Argument, ...],
        maps: tuple[Map, ...] = (),
    ) -> None:
        pairs = tuple((a[0], a[1]) for a in args)
        self._set(kernel=kernel, grid=tuple(grid), args=pairs, maps=tuple(maps))

    def to_map(self) -> dict[str, Any]:
        """The launch as a step of a plan."""
        return {
            "kind": "kernel",
            "kernel": self.kernel,
            "grid": list(self.grid),
            "args": [list(argument) for argument in self.args],
            "maps": [row.to_map() for row in self.maps],
        }


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
    """A tensor of `nbytes` bytes that a session keeps from call to call.

    initial: the weight that a session starts with; None for zeros.
    """

    __slots__ = ("initial", "nbytes")
    nbytes: int
    initial: str | None

    def __init__(self, nbytes: int, initial: str | None = None) -> None:
        self._set(nbytes=nbytes, initial=initial)

    def to_map(self) -> dict[str, Any]:
        """The state as plain values."""
        return {"initial": self.initial, "nbytes": self.nbytes}


class Check(Record):
    """What a call's data must be: one word of the session, which a kernel marks.

    kind: "index", whose elements lie from `low` to `high`, or "divisor" or "assertion", none of
    which is 0; operation: the op of the model, of an assertion its message; place: the user's line,
    empty where it is not known.
    """

    __slots__ = ("high", "kind", "low", "operation", "place")
    kind: str
    operation: str
    place: str
    low: int
    high: int

    def __init__(self, kind: str, operation: str, place: str, low: int, high: int) -> None:
        self._set(kind=kind, operation=operation, place=place, low=low, high=high)

    def to_map(self) -> dict[str, Any]:
        """The check as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}
