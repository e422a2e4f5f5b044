"""Launches of native functions in a plan, abi 6: what a library of the user's is called with.

Grammar, beside that of `plan.py`:

    plan   = {…, "abi": 6, "natives": [native]}     in the order of their launches
    native = {"backend", "function", "launch": index, "scalars": [scalar],
              "tensors": [tensor], "workspace_bytes"}
    tensor = {"dtype", "is_written": 0 | 1, "shape": [n]}      contiguous; one an argument
    scalar = ["whole", signed 64-bit number] | ["real", hexadecimal text]

Beside that of `manifest.py`, with the feature "native-back-ends":

    backend = {"file": file name | nil, "name", "sha256": bytes[32], "version": text}
                                            nil: the library is found on the machine

The launch is one like others: its kernel is `aotc_native` of the target's library, its grid the
number of tiles along x, its arguments the tensors' memory in the order of the function's signature.
`workspace_bytes` are of one tile and lie in its thread's scratch; on a device, where there are no
tiles, they are a buffer of the arena, one argument more. The manifest lists the back ends with
version and digest.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES
from ..errors import BundleMalformed
from ..record import Record
from .schema import Choice, Digest, Fields, FileName, Integer, List, Optional, Schema, Symbol, Text
from .whole import check_whole, whole_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from .plan_parts import Launch
    from .signature import TensorSpec

    Broken = Iterator[tuple[str, object, str]]  # field, found, expected
    Scalar = tuple[str, "int | str"]  # (kind, value)

SYMBOL = "aotc_native"  # the executor's kernel that calls a native function
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


NATIVES_SCHEMA = List(
    Fields(
        {
            "backend": Symbol(),
            "function": Symbol(),
            "launch": Integer(0, (1 << 16) - 1),
            "scalars": List(_ScalarSchema(), limit=64),
            "tensors": List(
                Fields(
                    {
                        "dtype": Choice(*DTYPES),
                        "is_written": Integer(0, 1),
                        "shape": List(Integer(0, 1 << 40), limit=64),
                    }
                ),
                limit=64,
            ),
            "workspace_bytes": Integer(0, WORKSPACE_LIMIT_BYTES),
        }
    ),
    limit=1 << 16,
    least=1,
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
    """A contiguous tensor of a native launch; is_written: it is an output."""

    __slots__ = ("dtype", "is_written", "shape")
    dtype: str
    is_written: bool
    shape: tuple[int, ...]

    def __init__(self, dtype: str, is_written: bool | int, shape: Sequence[int]) -> None:
        self._set(dtype=dtype, is_written=bool(is_written), shape=tuple(shape))

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        nbytes = DTYPES[self.dtype].itemsize_bytes
        for extent in self.shape:
            nbytes *= extent
        return nbytes

    def to_map(self) -> dict[str, Any]:
        """The tensor as plain values."""
        shape = list(self.shape)
        return {"dtype": self.dtype, "is_written": int(self.is_written), "shape": shape}


class NativeLaunch(Record):
    """The function that a launch calls, with its tensors and scalars; see the module docstring."""

    __slots__ = ("backend", "function", "launch", "scalars", "tensors", "workspace_bytes")
    backend: str
    function: str
    launch: int
    tensors: tuple[NativeTensor, ...]
    scalars: tuple[Scalar, ...]
    workspace_bytes: int

    def __init__(
        self,
        backend: str,
        function: str,
        launch: int,
        tensors: Sequence[NativeTensor],
        scalars: Sequence[Sequence[Any]],
        workspace_bytes: int = 0,
    ) -> None:
        self._set(
            backend=backend,
            function=function,
            launch=launch,
            tensors=tuple(tensors),
            scalars=tuple((row[0], row[1]) for row in scalars),
            workspace_bytes=workspace_bytes,
        )

    def at(self, launch: int) -> NativeLaunch:
        """The same for another launch, as in a part of the plan."""
        rest = (self.tensors, self.scalars, self.workspace_bytes)
        return NativeLaunch(self.backend, self.function, launch, *rest)

    def to_map(self) -> dict[str, Any]:
        """The launch as plain values."""
        return {
            "backend": self.backend,
            "function": self.function,
            "launch": self.launch,
            "scalars": [list(row) for row in self.scalars],
            "tensors": [tensor.to_map() for tensor in self.tensors],
            "workspace_bytes": self.workspace_bytes,
        }

    @classmethod
    def from_map(cls, tree: Mapping[str, Any]) -> NativeLaunch:
        """The launch of a tree that was checked."""
        tensors = [NativeTensor(**row) for row in tree["tensors"]]
        return cls(**{**tree, "tensors": tensors})


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


def broken_natives(tree: dict[str, Any]) -> Broken:
    """Every relation inside a plan's native launches that does not hold."""
    launches, kernels = tree["launches"], tree["kernels"]
    natives = [NativeLaunch.from_map(row) for row in tree.get("natives", ())]
    numbers = [each.launch for each in natives]
    expected = [
        number
        for number, row in enumerate(launches)
        if row["kernel"] < len(kernels) and kernels[row["kernel"]]["symbol"] == SYMBOL
    ]
    if numbers != expected:
        yield "natives", f"launches {numbers}", f"{expected}, those of `{SYMBOL}`"
        return
    for index, native in enumerate(natives):
        field, launch = f"natives[{index}]", launches[native.launch]
        more = len(launch["args"]) - len(native.tensors)
        if more not in (0, 1) or launch["maps"]:
            yield f"{field}.tensors", len(native.tensors), f"{len(launch['args'])}, no tensor maps"
            continue
        if more and not _is_room(launch["args"][-1], native.workspace_bytes, tree["buffers"]):
            room = f"{native.workspace_bytes} bytes inside one buffer of the arena"
            yield f"{field}.launch", f"workspace at {launch['args'][-1]}", room
        if launch["grid"][1:] != [1, 1] or launch["grid"][0] > TILES_LIMIT:
            yield f"{field}.launch", f"grid {launch['grid']}", "tiles along x only"
        for tensor, (space, value) in zip(native.tensors, launch["args"], strict=False):
            if space == "int" or (tensor.is_written and space not in ("arena", "output")):
                yield f"{field}.tensors", f"`{space}`", "memory; of outputs, `arena` or `output`"
            if space == "arena" and not _fits(value, tensor.nbytes, tree["buffers"]):
                found = f"{tensor.nbytes} bytes at {value}"
                yield f"{field}.tensors", found, "bytes inside one buffer of the arena"


def _is_room(argument: Sequence[Any], nbytes: int, buffers: Sequence[dict[str, Any]]) -> bool:
    return argument[0] == "arena" and _fits(argument[1], nbytes, buffers)


def broken_places(
    natives: Sequence[NativeLaunch], launches: Sequence[Launch], is_device: bool
) -> Broken:
    """Where workspaces lie: on a device in the arena, one argument more; there are no tiles."""
    for index, native in enumerate(natives):
        launch = launches[native.launch]
        count = len(native.tensors) + (is_device and native.workspace_bytes > 0)
        if len(launch.args) != count:
            yield f"natives[{index}].launch", f"{len(launch.args)} arguments", str(count)
        if is_device and launch.grid != (1, 1, 1):
            found = f"grid {list(launch.grid)}"
            yield f"natives[{index}].launch", found, "[1, 1, 1] on a device"


def _fits(start: int, nbytes: int, buffers: Sequence[dict[str, Any]]) -> bool:
    return any(
        row["offset"] <= start and start + nbytes <= row["offset"] + row["nbytes"]
        for row in buffers
    )


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


def check_natives(
    natives: Sequence[NativeLaunch],
    launches: Sequence[Launch],
    backends: Collection[str],
    signature: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    weights: Mapping[str, int],
    path: str,
) -> None:
    """Check native launches against their bundle: the back ends that its manifest lists, its
    inputs and outputs, and the bytes of each weight. Raises `BundleMalformed`."""
    sizes = whole_bytes(signature, weights)
    for index, native in enumerate(natives):
        field = f"natives[{index}]"
        if native.backend not in backends:
            expected = "a back end that the manifest lists"
            raise BundleMalformed(path=path, field=field, found=native.backend, expected=expected)
        for tensor, memory in zip(native.tensors, launches[native.launch].args, strict=False):
            check_whole(memory, tensor.nbytes, sizes, field, path)
