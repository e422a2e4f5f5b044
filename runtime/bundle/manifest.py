"""The manifest: what a bundle takes and gives, for which machines, and the digest of every file.

Grammar of `manifest.msgpack`; `extras.msgpack` has the same frame with another magic:

    file     = magic[8] major:u16 minor:u16 length:u32 payload[length] sha256[32]
    magic    = "\\x89AOTC\\r\\n\\x1a" for the manifest, "\\x89AOTX\\r\\n\\x1a" for the extras
    sha256   = digest of all bytes before it; the manifest's is the bundle's **identity**
    payload  = canonical MessagePack (see `canonical.py`); numbers of the header are big-endian

    manifest = {"features": [text], "files": [file], "inputs": [tensor], "outputs": [tensor],
                "structure"?: structure, "targets": [target], "weights": weights | nil}
             | and, with the feature "dynamic-shapes", {"dims": [dim], "guards": [guard],
                "sizes": [row]}
             | and, with the feature "native-back-ends", {"backends": [backend]}    `native_plan.py`
             | and, with the feature "torch", {"torch": [name of an op]}    see `torch_calls.py`
             | and, with the feature "state", {"states": [tensor]}
    tensor   = {"dtype", "name", "shape": [extent]}
    extent   = int | [number of a value, its formula]     values and rows: see `extent.py`
    dim      = {"axis", "high", "input", "low", "name", "offset", "scale"}     see `signature.py`
    guard    = {"high", "index", "low", "text"}
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

Version history: 1.0, the first; 1.1, `structure`, and shapes that depend on the call.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES
from ..errors import BundleMalformed
from ..record import Record
from .entries import FileEntry as FileEntry
from .entries import Target as Target
from .entries import WeightsEntry as WeightsEntry
from .extent import Extent, ExtentSchema
from .frame import FORMAT as FORMAT
from .frame import LIMITS as LIMITS
from .frame import TRAILER_BYTES, frame, unframe
from .native_plan import BACKENDS_SCHEMA, BackendEntry, broken_backends
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
)
from .signature import SIZES_SCHEMA, Condition, Signature, Size, broken_sizes
from .signature import TensorSpec as TensorSpec
from .structure import FEATURE, PLAIN, STRUCTURE_SCHEMA, Structure
from .torch_calls import OpName

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .extent import Row

MANIFEST_NAME = "manifest.msgpack"
EXTRAS_NAME = "extras.msgpack"
WEIGHTS_NAME = "weights.safetensors"
GOLDEN_NAME = "golden.safetensors"
MANIFEST_MAGIC = b"\x89AOTC\r\n\x1a"
EXTRAS_MAGIC = b"\x89AOTX\r\n\x1a"
CHUNK_BYTES = 4 << 20
FILE_LIMIT_BYTES = 1 << 44
DYNAMIC = "dynamic-shapes"
TORCH = "torch"  # ops that torch runs at each call, by name
NATIVE = "native-back-ends"  # libraries of the user's that the plans call
STATE = "state"  # tensors that a session keeps from call to call
FEATURES = frozenset({FEATURE, DYNAMIC, TORCH, NATIVE, STATE})  # what this runtime knows


class Manifest(Record):
    """A manifest's contents.

    dims, sizes, guards: of shapes that depend on the call, see `signature.py`; else empty. torch:
    ops that torch runs at each call. backends: native libraries that the plans call. states: what a
    session keeps from call to call.
    """

    __slots__ = (
        "backends",
        "dims",
        "features",
        "files",
        "guards",
        "inputs",
        "outputs",
        "sizes",
        "states",
        "structure",
        "targets",
        "torch",
        "weights",
    )
    features: tuple[str, ...]
    targets: tuple[Target, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: WeightsEntry | None
    files: tuple[FileEntry, ...]
    structure: Structure
    dims: tuple[Size, ...]
    sizes: tuple[Row, ...]
    guards: tuple[Condition, ...]
    torch: tuple[str, ...]
    backends: tuple[BackendEntry, ...]
    states: tuple[TensorSpec, ...]

    def __init__(
        self,
        features: tuple[str, ...],
        targets: tuple[Target, ...],
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        weights: WeightsEntry | None,
        files: tuple[FileEntry, ...],
        structure: Structure = PLAIN,
        dims: tuple[Size, ...] = (),
        sizes: tuple[Row, ...] = (),
        guards: tuple[Condition, ...] = (),
        torch: tuple[str, ...] = (),
        backends: tuple[BackendEntry, ...] = (),
        states: tuple[TensorSpec, ...] = (),
    ) -> None:
        self._set(
            structure=structure,
            features=tuple(features),
            targets=tuple(targets),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            weights=weights,
            files=tuple(files),
            dims=tuple(dims),
            sizes=tuple(sizes),
            guards=tuple(guards),
            torch=tuple(torch),
            backends=tuple(backends),
            states=tuple(states),
        )

    @property
    def signature(self) -> Signature:
        """Inputs and outputs with what their sizes obey."""
        return Signature(self.inputs, self.outputs, self.dims, self.sizes, self.guards)

    def file(self, name: str) -> FileEntry:
        """The entry of a file that the manifest lists."""
        return next(entry for entry in self.files if entry.name == name)

    def to_map(self) -> dict[str, Any]:
        """The manifest as the plain values that are encoded."""
        tree: dict[str, Any] = _as_map(self)
        tree.pop("structure")
        if not self.dims:
            for name in SIZES_SCHEMA:
                del tree[name]
        tree = {name: rows for name, rows in tree.items() if rows or name not in LISTS}
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
            tuple(Size(**row) for row in tree.get("dims", ())),
            tuple((row[0], row[1], row[2]) for row in tree.get("sizes", ())),
            tuple(Condition(**row) for row in tree.get("guards", ())),
            tuple(tree.get("torch", ())),
            tuple(BackendEntry(**row) for row in tree.get("backends", ())),
            tuple(TensorSpec(**row) for row in tree.get("states", ())),
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


def _as_map(value: Any) -> Any:
    if isinstance(value, Extent):
        return [value.index, value.text]
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
        "shape": List(ExtentSchema(0, 1 << 40, is_named=True), limit=64),
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
        **SIZES_SCHEMA,
        "torch": List(OpName(), limit=1 << 12, least=1),
        "backends": BACKENDS_SCHEMA,
        "states": List(TENSOR_SCHEMA, limit=4096, least=1),
    },
    absent=("structure", "torch", "backends", "states", *SIZES_SCHEMA),
)


# Fields that are there where a feature is, and only there.
LISTS = ("torch", "backends", "states")
PRESENCES = (("structure", FEATURE), ("torch", TORCH), ("backends", NATIVE), ("states", STATE))


def _check(tree: Any, path: str) -> None:
    """Schema first, then the relations between fields."""
    MANIFEST_SCHEMA.check(tree, "", path)
    names = [row["name"] for row in tree["files"]]
    _refuse_twins([*names, WEIGHTS_NAME, MANIFEST_NAME, EXTRAS_NAME], "files", path)
    _refuse_twins([row["name"] for row in tree["targets"]], "targets", path)
    for kind in ("inputs", "outputs", "states"):
        rows = tree.get(kind, [])
        _refuse_twins([row["name"] for row in rows], kind, path)
        for index, row in enumerate(rows):
            spec = TensorSpec(**row)
            nbytes = spec.nbytes if spec.is_fixed else 0
            if nbytes > FILE_LIMIT_BYTES or (kind == "states" and not spec.is_fixed):
                raise BundleMalformed(
                    path=path,
                    field=f"{kind}[{index}].shape",
                    found=f"{nbytes} bytes" if spec.is_fixed else f"{row['shape']}",
                    expected=f"at most {FILE_LIMIT_BYTES} bytes, and numbers for a state",
                )
    for field, feature in PRESENCES:
        if (field in tree) != (feature in tree["features"]):
            raise BundleMalformed(
                path=path,
                field=field,
                found="there" if field in tree else "missing",
                expected=f"this field where `features` has `{feature}`, and only there",
            )
    _refuse_twins(tree.get("torch", []), "torch", path)
    _check_relations(tree, path)
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


def _check_relations(tree: Any, path: str) -> None:
    """Sizes, native libraries and files hang together; the feature says whether sizes vary."""
    whole = {**{name: [] for name in SIZES_SCHEMA}, **tree}
    for field, found, expected in (*broken_sizes(whole), *broken_backends(tree)):
        raise BundleMalformed(path=path, field=field, found=str(found), expected=expected)
    if bool(whole["dims"]) != (DYNAMIC in tree["features"]):
        expected = f"`{DYNAMIC}` where there are dims, and only there"
        raise BundleMalformed(
            path=path, field="features", found=str(tree["features"]), expected=expected
        )


def _refuse_twins(names: list[str], field: str, path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BundleMalformed(
                path=path, field=field, found=f"`{name}` twice", expected="each name once"
            )
        seen.add(name)
