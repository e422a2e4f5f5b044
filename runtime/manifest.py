"""The manifest: what a bundle takes and gives, for which machines, and the digest of every file.

Grammar of `manifest.msgpack`; `extras.msgpack` has the same frame with another magic:

    file     = magic[8] major:u16 minor:u16 length:u32 payload[length] sha256[32]
    magic    = "\\x89AOTC\\r\\n\\x1a" for the manifest, "\\x89AOTX\\r\\n\\x1a" for the extras
    sha256   = digest of all bytes before it; the manifest's is the bundle's **identity**
    payload  = canonical MessagePack (see `canonical.py`); numbers of the header are big-endian

    manifest = {"features": [text], "files": [file], "inputs": [tensor], "outputs": [tensor],
                "structure"?: structure, "targets": [target], "weights": weights | nil}
    tensor   = {"dtype", "name", "shape": [int]}
    target   = {"abi": int, "device", "library": file name, "name", "needs": [text],
                "plan": file name}
    weights  = {"chunk_bytes": int, "chunks": [sha256], "name": file name, "nbytes": int}
    file     = {"name", "nbytes": int, "sha256": bytes[32]}
    extras   = {"files": [file]}

`targets` are listed best first. `features` are critical: a runtime that does not know one refuses
the bundle by its name. Every file but the weights stands in `files`; the weights have a digest for
each chunk. What does not count to the identity (golden, sources, provenance, debug) stands in
extras.msgpack, which may be deleted together with what it lists. `structure`, whose grammar is in
`structure.py`, is there where the feature of that name is.

Version history: 1.0, the first; 1.1, `structure`.
"""

from __future__ import annotations

import hashlib
import struct

from .canonical import Limits, decode, encode
from .dtypes import DTYPES
from .errors import (
    BundleAltered,
    BundleMalformed,
    BundleSizeMismatch,
    BundleTruncated,
    FormatTooNew,
    FormatTooOld,
    NotABundle,
)
from .record import Record
from .schema import (
    Choice,
    Digest,
    Fields,
    FileName,
    Integer,
    List,
    Name,
    Optional,
    Schema,
    Text,
    keep_known,
)
from .structure import FEATURE, PLAIN, STRUCTURE_SCHEMA, Structure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = (1, 1)
MANIFEST_NAME = "manifest.msgpack"
EXTRAS_NAME = "extras.msgpack"
WEIGHTS_NAME = "weights.safetensors"
GOLDEN_NAME = "golden.safetensors"
MANIFEST_MAGIC = b"\x89AOTC\r\n\x1a"
EXTRAS_MAGIC = b"\x89AOTX\r\n\x1a"
HEADER = struct.Struct(">8sHHI")
TRAILER_BYTES = 32
CHUNK_BYTES = 4 << 20
LIMITS = Limits(file_bytes=16 << 20, values=1 << 17, depth=16, text_bytes=1 << 16)
FILE_LIMIT_BYTES = 1 << 44
FEATURES = frozenset({FEATURE})  # critical features that this runtime knows


class TensorSpec(Record):
    """One input or output: name, element type (a key of DTYPES) and static shape."""

    __slots__ = ("dtype", "name", "shape")
    name: str
    dtype: str
    shape: tuple[int, ...]

    def __init__(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self._set(name=name, dtype=dtype, shape=tuple(shape))

    @property
    def nbytes(self) -> int:
        """Size of the contiguous array in bytes."""
        size = DTYPES[self.dtype].itemsize_bytes
        for extent in self.shape:
            size *= extent
        return size

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class FileEntry(Record):
    """A file of the bundle: name relative to it, size in bytes, SHA-256 (32 bytes)."""

    __slots__ = ("name", "nbytes", "sha256")
    name: str
    nbytes: int
    sha256: bytes

    def __init__(self, name: str, nbytes: int, sha256: bytes) -> None:
        self._set(name=name, nbytes=nbytes, sha256=sha256)


class Target(Record):
    """Code for one kind of machine: device family, instruction sets needed, plan and library."""

    __slots__ = ("abi", "device", "library", "name", "needs", "plan")
    name: str
    device: str
    abi: int
    needs: tuple[str, ...]
    plan: str
    library: str

    def __init__(
        self, name: str, device: str, abi: int, needs: tuple[str, ...], plan: str, library: str
    ) -> None:
        self._set(name=name, device=device, abi=abi, needs=tuple(needs), plan=plan, library=library)


class WeightsEntry(Record):
    """The weights file: name, size, and the SHA-256 of each chunk of `chunk_bytes`."""

    __slots__ = ("chunk_bytes", "chunks", "name", "nbytes")
    name: str
    nbytes: int
    chunk_bytes: int
    chunks: tuple[bytes, ...]

    def __init__(self, name: str, nbytes: int, chunk_bytes: int, chunks: tuple[bytes, ...]) -> None:
        self._set(name=name, nbytes=nbytes, chunk_bytes=chunk_bytes, chunks=tuple(chunks))


class Manifest(Record):
    """A manifest's contents; `identity` is the hex SHA-256 that its file ends with."""

    __slots__ = ("features", "files", "inputs", "outputs", "structure", "targets", "weights")
    features: tuple[str, ...]
    targets: tuple[Target, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: WeightsEntry | None
    files: tuple[FileEntry, ...]
    structure: Structure

    def __init__(
        self,
        features: tuple[str, ...],
        targets: tuple[Target, ...],
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        weights: WeightsEntry | None,
        files: tuple[FileEntry, ...],
        structure: Structure = PLAIN,
    ) -> None:
        self._set(
            structure=structure,
            features=tuple(features),
            targets=tuple(targets),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            weights=weights,
            files=tuple(files),
        )

    def file(self, name: str) -> FileEntry:
        """The entry of a file that the manifest lists."""
        return next(entry for entry in self.files if entry.name == name)

    def to_map(self) -> dict[str, Any]:
        """The manifest as the plain values that are encoded."""
        tree: dict[str, Any] = _as_map(self)
        tree.pop("structure")
        return tree if self.structure == PLAIN else {**tree, "structure": self.structure.to_map()}

    def to_bytes(self) -> bytes:
        """The whole file; raises `BundleMalformed` where the manifest breaks its own schema."""
        tree = self.to_map()
        _check(tree, MANIFEST_NAME)
        return frame(MANIFEST_MAGIC, tree)

    @classmethod
    def from_bytes(cls, data: bytes, path: str = MANIFEST_NAME) -> Manifest:
        """Read and check a manifest; raises `BundleError`s and `IncompatibleError`s."""
        tree = unframe(MANIFEST_MAGIC, data, path, MANIFEST_SCHEMA)
        _check(tree, path)
        weights, structure = tree["weights"], PLAIN
        if "structure" in tree:
            counts = len(tree["inputs"]), len(tree["outputs"])
            structure = Structure.from_map(tree["structure"], counts, path)
        return cls(
            tuple(tree["features"]),
            tuple(Target(**row) for row in tree["targets"]),
            tuple(TensorSpec(**row) for row in tree["inputs"]),
            tuple(TensorSpec(**row) for row in tree["outputs"]),
            None if weights is None else WeightsEntry(**weights),
            tuple(FileEntry(**row) for row in tree["files"]),
            structure,
        )


class Extras(Record):
    """What lies in a bundle beside its identity, with digests."""

    __slots__ = ("files",)
    files: tuple[FileEntry, ...]

    def __init__(self, files: tuple[FileEntry, ...]) -> None:
        self._set(files=tuple(files))

    def to_bytes(self) -> bytes:
        """The whole file `extras.msgpack`."""
        tree = _as_map(self)
        EXTRAS_SCHEMA.check(tree, "", EXTRAS_NAME)
        return frame(EXTRAS_MAGIC, tree)

    @classmethod
    def from_bytes(cls, data: bytes, path: str = EXTRAS_NAME) -> Extras:
        """Read and check `extras.msgpack`."""
        tree = unframe(EXTRAS_MAGIC, data, path, EXTRAS_SCHEMA)
        EXTRAS_SCHEMA.check(tree, "", path)
        _refuse_twins([row["name"] for row in tree["files"]], "files", path)
        return cls(tuple(FileEntry(**row) for row in tree["files"]))


def identity_of(data: bytes) -> str:
    """The identity of a manifest's bytes: the hex SHA-256 that they end with."""
    return data[-TRAILER_BYTES:].hex()


def frame(magic: bytes, tree: Any) -> bytes:
    """Header, canonical payload and digest around a tree of plain values."""
    payload = encode(tree)
    data = HEADER.pack(magic, *FORMAT, len(payload)) + payload
    return data + hashlib.sha256(data).digest()


def unframe(magic: bytes, data: bytes, path: str, schema: Schema) -> Any:
    """The tree inside a framed file.

    A newer minor version may have fields that `schema` lacks; they are left out, since whatever
    must not be ignored is a feature. A newer major version is refused.

    The order of the checks tells apart what is no bundle, what is too new, what is cut off and
    what was altered. Raises `NotABundle`, `FormatTooNew`, `FormatTooOld`, `BundleTruncated`,
    `BundleSizeMismatch`, `BundleAltered`, and what `decode` raises.
    """
    if not data or data[: len(magic)] != magic[: len(data)]:
        raise NotABundle(path=path, detail=f"it starts with {data[:8]!r}, expected {magic!r}")
    least_bytes = HEADER.size + TRAILER_BYTES
    if len(data) < HEADER.size:
        raise BundleTruncated(path=path, found=len(data), expected=least_bytes)
    _, major, minor, length = HEADER.unpack_from(data)
    if major != FORMAT[0]:
        kind = FormatTooNew if major > FORMAT[0] else FormatTooOld
        raise kind(path=path, found=f"{major}.{minor}", expected=f"{FORMAT[0]}.x")
    total_bytes = least_bytes + length
    if len(data) < total_bytes:
        raise BundleTruncated(path=path, found=len(data), expected=total_bytes)
    if len(data) > total_bytes:
        raise BundleSizeMismatch(path=path, found=len(data), expected=total_bytes)
    found = hashlib.sha256(memoryview(data)[:-TRAILER_BYTES]).digest()
    if found != data[-TRAILER_BYTES:]:
        raise BundleAltered(
            path=path, where="the file", found=found.hex(), expected=data[-TRAILER_BYTES:].hex()
        )
    tree = decode(data[HEADER.size : -TRAILER_BYTES], LIMITS, path)
    return keep_known(tree, schema) if minor > FORMAT[1] else tree


def _as_map(value: Any) -> Any:
    if isinstance(value, Record):
        return {name: _as_map(getattr(value, name)) for name in type(value).__slots__}
    if isinstance(value, tuple):
        return [_as_map(item) for item in value]
    return value


FILE_SCHEMA = Fields(
    {"name": FileName(), "nbytes": Integer(0, FILE_LIMIT_BYTES), "sha256": Digest()}
)
EXTRAS_SCHEMA = Fields({"files": List(FILE_SCHEMA, limit=8192)})
TENSOR_SCHEMA = Fields(
    {
        "name": Text(),
        "dtype": Choice(*DTYPES),
        "shape": List(Integer(0, 1 << 40), limit=64),
    }
)
MANIFEST_SCHEMA: Schema = Fields(
    {
        "features": List(Name(), limit=256),
        "targets": List(
            Fields(
                {
                    "name": Name(),
                    "device": Name(),
                    "abi": Integer(0, 1 << 16),
                    "needs": List(Name(), limit=256),
                    "plan": FileName(),
                    "library": FileName(),
                }
            ),
            limit=64,
            least=1,
        ),
        "inputs": List(TENSOR_SCHEMA, limit=4096),
        "outputs": List(TENSOR_SCHEMA, limit=4096, least=1),
        "weights": Optional(
            Fields(
                {
                    "name": Choice(WEIGHTS_NAME),
                    "nbytes": Integer(8, FILE_LIMIT_BYTES),
                    "chunk_bytes": Integer(1 << 12, 1 << 30),
                    "chunks": List(Digest(), limit=1 << 17),
                }
            )
        ),
        "files": List(FILE_SCHEMA, limit=4096),
        "structure": STRUCTURE_SCHEMA,
    },
    absent=("structure",),
)


def _check(tree: Any, path: str) -> None:
    """Schema first, then the relations between fields."""
    MANIFEST_SCHEMA.check(tree, "", path)
    names = [row["name"] for row in tree["files"]]
    _refuse_twins([*names, WEIGHTS_NAME, MANIFEST_NAME, EXTRAS_NAME], "files", path)
    _refuse_twins([row["name"] for row in tree["targets"]], "targets", path)
    for kind in ("inputs", "outputs"):
        _refuse_twins([row["name"] for row in tree[kind]], kind, path)
        for index, row in enumerate(tree[kind]):
            nbytes = TensorSpec(**row).nbytes
            if nbytes > FILE_LIMIT_BYTES:
                raise BundleMalformed(
                    path=path,
                    field=f"{kind}[{index}].shape",
                    found=f"{nbytes} bytes",
                    expected=f"at most {FILE_LIMIT_BYTES} bytes",
                )
    if ("structure" in tree) != (FEATURE in tree["features"]):
        raise BundleMalformed(
            path=path,
            field="structure",
            found="there" if "structure" in tree else "missing",
            expected=f"a structure where `features` has `{FEATURE}`, and only there",
        )
    for index, row in enumerate(tree["targets"]):
        for field in ("plan", "library"):
            if row[field] not in names:
                raise BundleMalformed(
                    path=path,
                    field=f"targets[{index}].{field}",
                    found=repr(row[field]),
                    expected="a name that `files` lists",
                )
    weights = tree["weights"]
    if weights is not None:
        expected = -(-weights["nbytes"] // weights["chunk_bytes"])
        if len(weights["chunks"]) != expected:
            raise BundleMalformed(
                path=path,
                field="weights.chunks",
                found=f"{len(weights['chunks'])} digests",
                expected=f"{expected}, one for each {weights['chunk_bytes']} bytes",
            )


def _refuse_twins(names: list[str], field: str, path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BundleMalformed(
                path=path, field=field, found=f"`{name}` twice", expected="each name once"
            )
        seen.add(name)
