"""The launch plan: which kernel runs when, on which grid, with which addresses.

Grammar of `plan.msgpack` (canonical MessagePack, see `canonical.py`):

    plan     = {"abi": 2, "arena_bytes", "buffers": [buffer], "kernels": [kernel],
                "launches": [launch], "scratch_bytes", "zeroed_bytes"}
    buffer   = {"name", "nbytes", "offset"}       part of the arena; parts share bytes over time
    kernel   = {"image", "name", "symbol"}        name: for people; symbol: in the library or image
    image    = nil                                on the CPU, where the library is one shared object
             | {"nbytes", "offset", "scratch_bytes", "shared_bytes", "threads"}
                                                  a cubin inside the library, and how to launch it
    launch   = {"args": [argument], "grid": [x, y, z], "kernel": index}
    argument = [space, value]
    space    = "arena"   value: byte offset, inside one of `buffers`
             | "weight"  value: name of a tensor in weights.safetensors
             | "input"   value: index of a program input
             | "output"  value: index of a program output
             | "int"     value: signed 64-bit number, passed as it is

The first `zeroed_bytes` of the arena are zero when a session opens; every launch leaves them so.

Version history: abi 1, the first; abi 2, images of kernels and zeroed bytes.

The compiler builds `LaunchPlan` objects and the runtime reads them: one schema for both. Every
index and offset is checked in `validate` before a number reaches native code.
"""

from __future__ import annotations

from .canonical import Limits, decode, encode
from .errors import BundleMalformed
from .record import Record
from .schema import Fields, Integer, List, Optional, Schema, Symbol, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

PLAN_ABI = 2
ALIGNMENT_BYTES = 64
ARENA_LIMIT_BYTES = 1 << 40
SCRATCH_LIMIT_BYTES = 1 << 30
IMAGE_LIMIT_BYTES = 1 << 28
PROGRAMS_LIMIT = (1 << 31) - 1  # programs of one launch, x · y · z
LIMITS = Limits(file_bytes=16 << 20, values=1 << 19, depth=16, text_bytes=4096)

SPACES = ("arena", "weight", "input", "output", "int")
Argument = tuple[str, "int | str"]  # (space, value)


class Buffer(Record):
    """A part of the arena that holds one intermediate tensor; offset and size in bytes."""

    __slots__ = ("name", "nbytes", "offset")
    name: str
    offset: int
    nbytes: int

    def __init__(self, name: str, offset: int, nbytes: int) -> None:
        self._set(name=name, offset=offset, nbytes=nbytes)


class Image(Record):
    """A cubin inside the library: where it lies and what a launch of its kernel takes.

    threads: of one program; shared_bytes: dynamic shared memory of one program; scratch_bytes:
    global memory that each program needs for itself.
    """

    __slots__ = ("nbytes", "offset", "scratch_bytes", "shared_bytes", "threads")
    offset: int
    nbytes: int
    threads: int
    shared_bytes: int
    scratch_bytes: int

    def __init__(
        self, offset: int, nbytes: int, threads: int, shared_bytes: int, scratch_bytes: int
    ) -> None:
        self._set(
            offset=offset,
            nbytes=nbytes,
            threads=threads,
            shared_bytes=shared_bytes,
            scratch_bytes=scratch_bytes,
        )

    def to_map(self) -> dict[str, int]:
        """The image as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


class Kernel(Record):
    """A function of the target's library; `image` on devices that load each kernel by itself."""

    __slots__ = ("image", "name", "symbol")
    symbol: str
    name: str
    image: Image | None

    def __init__(self, symbol: str, name: str, image: Image | None = None) -> None:
        self._set(symbol=symbol, name=name, image=image)


class Launch(Record):
    """One launch: index of the kernel, grid (x, y, z) in programs, arguments in their order."""

    __slots__ = ("args", "grid", "kernel")
    kernel: int
    grid: tuple[int, int, int]
    args: tuple[Argument, ...]

    def __init__(self, kernel: int, grid: tuple[int, int, int], args: tuple[Argument, ...]) -> None:
        self._set(kernel=kernel, grid=tuple(grid), args=tuple((a[0], a[1]) for a in args))


class LaunchPlan(Record):
    """All launches of one call, in order, for one target.

    arena_bytes: size of the block that holds every intermediate tensor; scratch_bytes: size of the
    block that each thread lends to the kernel it runs; zeroed_bytes: the arena's first bytes, zero
    when a session opens and left zero by every launch.
    """

    __slots__ = (
        "abi",
        "arena_bytes",
        "buffers",
        "kernels",
        "launches",
        "scratch_bytes",
        "zeroed_bytes",
    )
    abi: int
    arena_bytes: int
    scratch_bytes: int
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    zeroed_bytes: int

    def __init__(
        self,
        abi: int,
        arena_bytes: int,
        scratch_bytes: int,
        buffers: tuple[Buffer, ...],
        kernels: tuple[Kernel, ...],
        launches: tuple[Launch, ...],
        zeroed_bytes: int = 0,
    ) -> None:
        self._set(
            abi=abi,
            arena_bytes=arena_bytes,
            scratch_bytes=scratch_bytes,
            buffers=tuple(buffers),
            kernels=tuple(kernels),
            launches=tuple(launches),
            zeroed_bytes=zeroed_bytes,
        )

    def to_map(self) -> dict[str, Any]:
        """The plan as plain values, as `aotc inspect --json` shows it."""
        return {
            "abi": self.abi,
            "arena_bytes": self.arena_bytes,
            "scratch_bytes": self.scratch_bytes,
            "zeroed_bytes": self.zeroed_bytes,
            "buffers": [
                {"name": each.name, "offset": each.offset, "nbytes": each.nbytes}
                for each in self.buffers
            ],
            "kernels": [
                {
                    "symbol": each.symbol,
                    "name": each.name,
                    "image": None if each.image is None else each.image.to_map(),
                }
                for each in self.kernels
            ],
            "launches": [
                {
                    "kernel": each.kernel,
                    "grid": list(each.grid),
                    "args": [list(argument) for argument in each.args],
                }
                for each in self.launches
            ],
        }

    def to_msgpack(self) -> bytes:
        """The canonical bytes; raises `BundleMalformed` where the plan breaks its own schema."""
        tree = self.to_map()
        _check(tree, "plan")
        return encode(tree)

    @classmethod
    def from_msgpack(cls, data: bytes, path: str = "plan.msgpack") -> LaunchPlan:
        """Read and check everything that needs no other file; raises `BundleError`s."""
        tree = decode(data, LIMITS, path)
        _check(tree, path)
        return cls(
            tree["abi"],
            tree["arena_bytes"],
            tree["scratch_bytes"],
            tuple(Buffer(row["name"], row["offset"], row["nbytes"]) for row in tree["buffers"]),
            tuple(
                Kernel(row["symbol"], row["name"], row["image"] and Image(**row["image"]))
                for row in tree["kernels"]
            ),
            tuple(
                Launch(row["kernel"], tuple(row["grid"]), tuple(map(tuple, row["args"])))
                for row in tree["launches"]
            ),
            tree["zeroed_bytes"],
        )

    def validate(self, inputs: int, outputs: int, weights: Collection[str], path: str) -> None:
        """Check every argument against the number of inputs and outputs and the weights' names.

        Raises `BundleMalformed`.
        """
        for index, launch in enumerate(self.launches):
            for position, (space, value) in enumerate(launch.args):
                expected = ""
                if space == "input" and not (type(value) is int and value < inputs):
                    expected = f"an input from 0 to {inputs - 1}"
                elif space == "output" and not (type(value) is int and value < outputs):
                    expected = f"an output from 0 to {outputs - 1}"
                elif space == "weight" and value not in weights:
                    expected = "the name of a tensor in the weights"
                if expected:
                    field = f"launches[{index}].args[{position}]"
                    raise BundleMalformed(
                        path=path, field=field, found=f"{space} {value!r}", expected=expected
                    )


class _ArgumentSchema(Schema):
    """`[space, value]`, the value's type by its space."""

    __slots__ = ()
    expected = "[space, value] with a space of " + ", ".join(SPACES)

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) != 2:
            self.refuse(value, field, path)
        if type(value[0]) is not str or value[0] not in VALUES:
            self.refuse(value[0], f"{field}[0]", path)
        VALUES[value[0]].check(value[1], f"{field}[1]", path)


VALUES: dict[str, Schema] = {
    "arena": Integer(0, ARENA_LIMIT_BYTES),
    "weight": Text(256),
    "input": Integer(0, 4095),
    "output": Integer(0, 4095),
    "int": Integer(-(1 << 63), (1 << 63) - 1),
}
IMAGE_SCHEMA = Fields(
    {
        "offset": Integer(0, ARENA_LIMIT_BYTES),
        "nbytes": Integer(1, IMAGE_LIMIT_BYTES),
        "threads": Integer(1, 1024),
        "shared_bytes": Integer(0, 1 << 20),
        "scratch_bytes": Integer(0, 1 << 20),
    }
)
PLAN_SCHEMA = Fields(
    {
        "abi": Integer(PLAN_ABI, PLAN_ABI),
        "arena_bytes": Integer(0, ARENA_LIMIT_BYTES),
        "scratch_bytes": Integer(0, SCRATCH_LIMIT_BYTES),
        "zeroed_bytes": Integer(0, ARENA_LIMIT_BYTES),
        "buffers": List(
            Fields(
                {
                    "name": Text(256),
                    "offset": Integer(0, ARENA_LIMIT_BYTES),
                    "nbytes": Integer(0, ARENA_LIMIT_BYTES),
                }
            ),
            limit=1 << 16,
        ),
        "kernels": List(
            Fields({"symbol": Symbol(), "name": Text(256), "image": Optional(IMAGE_SCHEMA)}),
            limit=1 << 16,
        ),
        "launches": List(
            Fields(
                {
                    "kernel": Integer(0, (1 << 16) - 1),
                    "grid": List(Integer(1, PROGRAMS_LIMIT), limit=3, least=3),
                    "args": List(_ArgumentSchema(), limit=256),
                }
            ),
            limit=1 << 16,
        ),
    }
)


def _check(tree: Any, path: str) -> None:
    """Schema first, then the relations between fields that lie in the plan itself."""
    PLAN_SCHEMA.check(tree, "", path)
    for field, found, expected in _broken_relations(tree):
        raise BundleMalformed(path=path, field=field, found=found, expected=expected)


def _broken_relations(tree: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Field, found and expected of every relation that does not hold."""
    arena_bytes, buffers = tree["arena_bytes"], tree["buffers"]
    for index, row in enumerate(buffers):
        if row["offset"] % ALIGNMENT_BYTES or row["offset"] + row["nbytes"] > arena_bytes:
            found = f"{row['nbytes']} bytes at {row['offset']}"
            expected = f"a multiple of {ALIGNMENT_BYTES} that ends within {arena_bytes} bytes"
            yield f"buffers[{index}]", found, expected
    starts = {row["offset"] for row in buffers}
    for index, row in enumerate(tree["launches"]):
        field = f"launches[{index}]"
        if row["kernel"] >= len(tree["kernels"]):
            yield f"{field}.kernel", row["kernel"], f"less than {len(tree['kernels'])}"
        x, y, z = row["grid"]
        if x * y * z > PROGRAMS_LIMIT:
            yield f"{field}.grid", f"{x * y * z} programs", f"at most {PROGRAMS_LIMIT}"
        for position, (space, value) in enumerate(row["args"]):
            if space == "arena" and value not in starts and not _inside(value, buffers):
                where = f"{field}.args[{position}]"
                yield where, f"arena offset {value}", "an offset inside a buffer"


def _inside(offset: int, buffers: list[dict[str, Any]]) -> bool:
    return any(row["offset"] <= offset < row["offset"] + row["nbytes"] for row in buffers)
