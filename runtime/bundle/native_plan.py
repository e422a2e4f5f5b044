"""Steps of a plan that call functions in a library of the user's.

Grammar, beside that of `plan.py`:

    step   = {"backend", "function", "kind": "native", "scalars": [scalar], "tensors": [tensor],
              "tiles": number, "workspace": [space, value] | nil, "workspace_bytes": number | nil}
    tensor = {"dtype", "is_written": 0 | 1, "memory": [space, value], "shape": [number]}  contiguous
    scalar = ["whole", signed 64-bit number] | ["real", hexadecimal text]

Beside that of `manifest.py`, with the feature "native-back-ends":

    backend = {"file": file name | nil, "name", "sha256": bytes[32], "version": text}
                                            nil: the library is found on the machine

Tensors stand in the order of the function's signature. On the CPU the executor calls the function
for each tile, and a workspace of `workspace_bytes` lies in its thread's scratch. On a device there
is one tile, and `workspace` is where in the arena that memory lies. Where `workspace_bytes` is nil,
the function is asked when the shapes of a call are first met, and gets memory of its own. The
manifest lists the back ends with version and digest.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES
from ..record import Record
from .extent import ExtentSchema, placed
from .schema import (
    Choice,
    Digest,
    Fields,
    FileName,
    Integer,
    List,
    Optional,
    Schema,
    Symbol,
    Text,
)
from .torch_calls import WRITTEN_SPACES, as_it_is

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from .plan_parts import Spans

    Broken = Iterator[tuple[str, object, str]]  # field, found, expected
    Number = Callable[[Any], Any]
    Scalar = tuple[str, "int | str"]  # (kind, value)

SYMBOL = "aotc_native"  # the executor's function that calls a native one
WORKSPACE_LIMIT_BYTES = 1 << 30
TILES_LIMIT = 1 << 16


class _ScalarSchema(Schema):
    """`["whole", number]` or `["real", hexadecimal text]`."""

    __slots__ = ()
    expected = "[whole, a 64-bit number] or [real, a float in hexadecimal]"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) != 2 or value[0] not in ("whole", "real"):
            self.refuse(value, field, path)
        kind, what = value
        if kind == "whole":
            Integer(-(1 << 63), (1 << 63) - 1).check(what, f"{field}[1]", path)
        elif type(what) is not str or not _is_float(what):
            self.refuse(value, field, path)


def _is_float(text: str) -> bool:
    try:
        return float.fromhex(text).hex() == text
    except (ValueError, OverflowError):
        return False


def native_schema(memory: Schema) -> Fields:
    """The schema of a step; `memory` is that of `[space, value]`."""
    tensor = Fields(
        {
            "dtype": Choice(*DTYPES),
            "is_written": Integer(0, 1),
            "memory": memory,
            "shape": List(ExtentSchema(0, 1 << 40), limit=64),
        }
    )
    return Fields(
        {
            "backend": Symbol(),
            "function": Symbol(),
            "scalars": List(_ScalarSchema(), limit=64),
            "tensors": List(tensor, limit=64),
            "tiles": ExtentSchema(1, TILES_LIMIT),
            "workspace": Optional(memory),
            "workspace_bytes": Optional(ExtentSchema(0, WORKSPACE_LIMIT_BYTES)),
        }
    )


BACKENDS_SCHEMA = List(
    Fields(
        {
            "file": Optional(FileName()),
            "name": Symbol(),
            "sha256": Digest(),
            "version": Text(128),
        }
    ),
    limit=256,
    least=1,
)


class NativeTensor(Record):
    """A contiguous tensor of a native step and (space, value) of its memory; is_written: it is an
    output."""

    __slots__ = ("dtype", "is_written", "memory", "shape")
    dtype: str
    is_written: bool
    memory: tuple[str, int | str]
    shape: tuple[int, ...]

    def __init__(
        self,
        dtype: str,
        is_written: bool | int,
        shape: Sequence[int],
        memory: Sequence[int | str] = ("arena", 0),
    ) -> None:
        """The memory may be left out where only the function's needs are asked for."""
        self._set(
            dtype=dtype, is_written=bool(is_written), memory=tuple(memory), shape=tuple(shape)
        )

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        nbytes = DTYPES[self.dtype].itemsize_bytes
        for extent in self.shape:
            nbytes *= extent
        return nbytes

    def to_map(self, number: Number = as_it_is) -> dict[str, Any]:
        """The tensor as plain values; `number` gives what stands for a number."""
        memory, shape = [self.memory[0], number(self.memory[1])], list(map(number, self.shape))
        written = int(self.is_written)
        return {"dtype": self.dtype, "is_written": written, "memory": memory, "shape": shape}


class NativeLaunch(Record):
    """A call of a native function with its tensors and scalars; see the module docstring."""

    __slots__ = (
        "backend",
        "function",
        "scalars",
        "tensors",
        "tiles",
        "workspace",
        "workspace_bytes",
    )
    backend: str
    function: str
    tensors: tuple[NativeTensor, ...]
    scalars: tuple[Scalar, ...]
    tiles: int
    workspace: tuple[str, int | str] | None
    workspace_bytes: int | None

    def __init__(
        self,
        backend: str,
        function: str,
        tensors: Sequence[NativeTensor],
        scalars: Sequence[Sequence[Any]],
        workspace_bytes: int | None = 0,
        tiles: int = 1,
        workspace: Sequence[int | str] | None = None,
    ) -> None:
        self._set(
            backend=backend,
            function=function,
            tensors=tuple(tensors),
            scalars=tuple((row[0], row[1]) for row in scalars),
            tiles=tiles,
            workspace=None if workspace is None else tuple(workspace),
            workspace_bytes=workspace_bytes,
        )

    @property
    def memory(self) -> tuple[tuple[str, int | str], ...]:
        """(space, value) of each tensor, then of the workspace where it has a place."""
        rows = tuple(tensor.memory for tensor in self.tensors)
        return rows if self.workspace is None else (*rows, self.workspace)

    def to_map(self, number: Number = as_it_is) -> dict[str, Any]:
        """The call as a step of a plan; `number` gives what stands for a number."""
        workspace = self.workspace and [self.workspace[0], number(self.workspace[1])]
        return {
            "kind": "native",
            "backend": self.backend,
            "function": self.function,
            "scalars": [list(row) for row in self.scalars],
            "tensors": [tensor.to_map(number) for tensor in self.tensors],
            "tiles": number(self.tiles),
            "workspace": workspace,
            "workspace_bytes": number(self.workspace_bytes),
        }

    @classmethod
    def from_map(cls, tree: Mapping[str, Any], at: Number = as_it_is) -> NativeLaunch:
        """The call of a step that was checked; `at` gives the values of its numbers."""
        tensors = [
            NativeTensor(
                row["dtype"],
                row["is_written"],
                list(map(at, row["shape"])),
                placed(row["memory"], at),
            )
            for row in tree["tensors"]
        ]
        workspace = tree["workspace"]
        return cls(
            tree["backend"],
            tree["function"],
            tensors,
            tree["scalars"],
            at(tree["workspace_bytes"]),
            at(tree["tiles"]),
            workspace and placed(workspace, at),
        )


class BackendEntry(Record):
    """A back end that a bundle calls: its library in the bundle, or None for one that is found on
    the machine; name, version and SHA-256 (32 bytes) of the library."""

    __slots__ = ("file", "name", "sha256", "version")
    name: str
    version: str
    sha256: bytes
    file: str | None

    def __init__(self, name: str, version: str, sha256: bytes, file: str | None = None) -> None:
        self._set(name=name, version=version, sha256=sha256, file=file)


def native_numbers(row: Mapping[str, Any]) -> Iterator[Any]:
    """Each number of a step that may be a formula."""
    yield row["tiles"]
    yield row["workspace_bytes"]
    if row["workspace"] is not None:
        yield row["workspace"][1]
    for tensor in row["tensors"]:
        yield tensor["memory"][1]
        yield from tensor["shape"]


def broken_native(native: NativeLaunch, field: str, buffers: Spans) -> Broken:
    """Every relation inside a native step that does not hold."""
    for tensor in native.tensors:
        space, value = tensor.memory
        if space in ("int", "check") or (tensor.is_written and space not in WRITTEN_SPACES):
            expected = "memory; of outputs, `arena`, `output` or `state`"
            yield f"{field}.tensors", f"`{space}`", expected
        if space == "arena" and not buffers.holds(int(value), tensor.nbytes):
            found = f"{tensor.nbytes} bytes at {value}"
            yield f"{field}.tensors", found, "bytes inside one buffer of the arena"
    if native.workspace is not None:
        space, value = native.workspace
        nbytes = native.workspace_bytes
        if space != "arena" or nbytes is None or not buffers.holds(int(value), nbytes):
            expected = f"{nbytes} bytes inside one buffer of the arena"
            yield f"{field}.workspace", f"workspace at {[space, value]}", expected


def broken_place(native: NativeLaunch, field: str, is_device: bool) -> Broken:
    """On a device a workspace has a place in the arena, and there are no tiles."""
    has_place = native.workspace is not None
    if has_place != (is_device and bool(native.workspace_bytes)):
        expected = "a place in the arena" if is_device else "nil, since it lies in scratch"
        yield f"{field}.workspace", native.workspace, expected
    if is_device and native.tiles != 1:
        yield f"{field}.tiles", native.tiles, "1 on a device"


def broken_backends(tree: dict[str, Any]) -> Broken:
    """One row a name; libraries in the bundle are files that its manifest lists, with the digest
    that the back end has."""
    digests = {row["name"]: row["sha256"] for row in tree["files"]}
    rows = tree.get("backends", ())
    names = [row["name"] for row in rows]
    for index, row in enumerate(rows):
        if row["name"] in names[:index]:
            yield f"backends[{index}].name", repr(row["name"]), "a name of its own"
        if row["file"] is not None and digests.get(row["file"]) != row["sha256"]:
            expected = "a file of this digest that `files` lists"
            yield f"backends[{index}].file", repr(row["file"]), expected
