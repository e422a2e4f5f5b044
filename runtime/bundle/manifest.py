"""The manifest: what a bundle takes and gives, for which machines, and the digest of every file.

The frame of `manifest.msgpack`:

    file     = magic[8] major:u16 minor:u16 length:u32 payload[length] sha256[32]
    magic    = "\\x89AOTC\\r\\n\\x1a"
    sha256   = digest of all bytes before it: the **bundle digest**
    payload  = canonical MessagePack (see `canonical.py`); numbers of the header are big-endian

`targets` are listed best first. `features` are critical: a runtime that does not know one refuses
the bundle by its name. `files` are those that `load` needs, but for the weights, which have a
digest for each chunk. All others (golden, sources, provenance, debug) are listed by
`extras.msgpack`, whose own digest is in `extras`: so the bundle digest covers every file. They may
be deleted.
"""

from __future__ import annotations

from ..errors import EntryNotNamed, EntryUnknown
from ..record import Record, field
from .canonical import decode, encode
from .extent import DIMS_LIMIT, ROWS, ROWS_LIMIT, Apart, Numbered
from .frame import FORMAT as FORMAT
from .frame import LIMITS as LIMITS
from .frame import MANIFEST_MAGIC as MANIFEST_MAGIC
from .frame import TRAILER_BYTES, frame, unframe
from .native_plan import BackendEntry, broken_backends
from .plan_parts import ENTRIES_LIMIT, RANKS_LIMIT
from .schema import (
    DIGEST,
    FILE_NAME,
    IDENTIFIER,
    NAME,
    Choice,
    Fields,
    Integer,
    List,
    Optional,
    Text,
    read,
    refuse,
    twins,
)
from .signature import Dim, Guard, SessionDim, SessionSizes, Signature
from .signature import TensorSpec as TensorSpec
from .structure import PLAIN, Structure
from .torch_calls import OP_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, TypeVar

    from .extent import Row
    from .schema import Broken

    Named = TypeVar("Named", bound=Any)  # a class with a field `name`

MANIFEST_NAME = "manifest.msgpack"
EXTRAS_NAME = "extras.msgpack"
WEIGHTS_NAME = "weights.safetensors"
GOLDEN_NAME = "golden.safetensors"
REFIT_FOLDER = "refit/"  # of the weights program and the list of parameters
# Where the weights are outside of the bundle: the head of the file that they make, and the tensors
# that do not depend on the model's parameters, in their order there.
HEAD_NAME, TABLES_NAME = f"{REFIT_FOLDER}head.bin", f"{REFIT_FOLDER}tables.bin"
CHUNK_BYTES = 4 << 20
FILE_LIMIT_BYTES = 1 << 44
TORCH = "torch"  # ops that torch runs at each call, by name
NATIVE = "native-back-ends"  # libraries of the user's that the plans call
STATE = "state"  # tensors of mutable state
PARALLEL = "tensor-parallel"  # devices that a program is split over
SESSION = "session-sizes"  # of states, which a session fixes
ORDER = "memory-order"  # of inputs and outputs that are not contiguous


class FileEntry(Record):
    """A file of the bundle: name relative to it, size in bytes, SHA-256 (32 bytes)."""

    name: str = field(FILE_NAME)
    nbytes: int = field(Integer(0, FILE_LIMIT_BYTES))
    sha256: bytes = field(DIGEST)


class Target(Record):
    """Code for one kind of machine: device family, instruction sets needed, plan and library."""

    name: str = field(NAME)
    device: str = field(NAME)
    abi: int = field(Integer(0, 1 << 16))
    needs: tuple[str, ...] = field(List(NAME, limit=256))
    plan: str = field(FILE_NAME)
    library: str = field(FILE_NAME)


class WeightsEntry(Record):
    """The weights file: name, size, and the SHA-256 of each chunk of `chunk_bytes`."""

    name: str = field(Choice(WEIGHTS_NAME))
    nbytes: int = field(Integer(8, FILE_LIMIT_BYTES))
    chunk_bytes: int = field(Integer(1 << 12, 1 << 30))
    chunks: tuple[bytes, ...] = field(List(DIGEST, limit=1 << 17))


# The sizes of states are numbered by themselves; `SessionSizes.broken` looks at them.
STATES = Apart(List(TensorSpec, limit=4096, least=1), DIMS_LIMIT + ROWS_LIMIT)


class Entry(Record):
    """An entry point: one way to call a program, with a signature of its own.

    dims, sizes, guards: of shapes that depend on the call, see `signature.py`; else empty. All
    entries list the dims of all of them, in the order of the plans; a dim that is none of an
    entry's own is read from none of its inputs.
    """

    name: str = field(IDENTIFIER)
    inputs: tuple[TensorSpec, ...] = field(List(TensorSpec, limit=4096))
    outputs: tuple[TensorSpec, ...] = field(List(TensorSpec, limit=4096, least=1))
    structure: Structure = field(Structure, default=PLAIN)
    dims: tuple[Dim, ...] = field(List(Dim, limit=DIMS_LIMIT), default=())
    sizes: tuple[Row, ...] = field(ROWS, default=())
    guards: tuple[Guard, ...] = field(List(Guard, limit=256), default=())

    @property
    def signature(self) -> Signature:
        """Inputs and outputs with what their sizes obey."""
        return Signature(self.inputs, self.outputs, self.dims, self.sizes, self.guards)

    def broken(self) -> Broken:
        """Every relation between the fields that does not hold."""
        for kind in ("inputs", "outputs"):
            specs: tuple[TensorSpec, ...] = getattr(self, kind)
            yield from twins((spec.name for spec in specs), kind)
            yield from _too_large(kind, specs)
        yield from self.structure.broken(self.inputs, self.outputs)
        yield from self.signature.broken()


class MemoryOrder(Record):
    """An input or output whose dims lie in another order than its shape has them.

    entry, place: its numbers; axes: the dims as memory has them, outermost first, without gaps.
    """

    entry: int = field(Integer(0, ENTRIES_LIMIT - 1))
    role: str = field(Choice("input", "output"))
    place: int = field(Integer(0, 4095))
    axes: tuple[int, ...] = field(List(Integer(0, 63), limit=64, least=2))


ENTRY = Numbered(Entry)
MAIN = "forward"  # what a program of several entries is when it is called itself


def main_entry(entries: Sequence[Named]) -> Named | None:
    """Of entries the one that a call of the program itself runs; None where it must be named."""
    if len(entries) == 1:
        return entries[0]
    return next((entry for entry in entries if entry.name == MAIN), None)


def find_entry(entries: Sequence[Named], name: str | None) -> Named:
    """The entry of a name, for None the main one; raises `EntryUnknown` and `EntryNotNamed`."""
    names = ", ".join(f"`{entry.name}`" for entry in entries)
    if name is None:
        found = main_entry(entries)
        if found is None:
            raise EntryNotNamed(expected=names)
        return found
    for entry in entries:
        if entry.name == name:
            return entry
    raise EntryUnknown(name=str(name)[:128], expected=names)


class Manifest(Record):
    """A manifest's contents; to add a field, declare it here and fill it in `aot/pack/pack.py`.

    A field that comes with a feature is there where `features` has it, and only there; a runtime
    that does not know a feature raises an error that names it.

    entries: the ways to call it. torch: ops that torch runs at each call. backends: native
    libraries that the plans call. states: mutable state of all entries together; session_dims,
    session_sizes: of states whose sizes a session fixes; ranks: devices that each call runs on;
    orders: those of the entries' inputs and outputs that have one, which their specs have too.
    """

    features: tuple[str, ...] = field(List(NAME, limit=256))
    targets: tuple[Target, ...] = field(List(Target, limit=64, least=1))
    entries: tuple[Entry, ...] = field(List(ENTRY, limit=ENTRIES_LIMIT, least=1))
    weights: WeightsEntry | None = field(Optional(WeightsEntry))
    files: tuple[FileEntry, ...] = field(List(FileEntry, limit=4096))
    extras: FileEntry | None = field(Optional(FileEntry), default=None)
    torch: tuple[str, ...] = field(List(OP_NAME, limit=1 << 12, least=1), default=(), feature=TORCH)
    backends: tuple[BackendEntry, ...] = field(
        List(BackendEntry, limit=256, least=1), default=(), feature=NATIVE
    )
    states: tuple[TensorSpec, ...] = field(STATES, default=(), feature=STATE)
    session_dims: tuple[SessionDim, ...] = field(
        List(SessionDim, limit=DIMS_LIMIT, least=1), default=(), feature=SESSION
    )
    session_sizes: tuple[Row, ...] = field(ROWS, default=(), feature=SESSION)
    ranks: int = field(Integer(2, RANKS_LIMIT), default=1, feature=PARALLEL)
    orders: tuple[MemoryOrder, ...] = field(
        List(MemoryOrder, limit=1 << 16, least=1), default=(), feature=ORDER
    )
    producer: str = field(Text(64, least=0), default="")  # what wrote it: "aotc 0.1.0"

    @classmethod
    def made(cls, **fields: Any) -> Manifest:
        """A new manifest, with the orders of its entries' specs and the features that its fields
        come with."""
        fields["orders"] = tuple(_orders(fields["entries"]))
        given = (name for name in fields if fields[name] != cls._fields[name].default)
        found = filter(None, (cls._fields[name].feature for name in given))
        return cls(features=tuple(dict.fromkeys(found)), **fields)

    @property
    def session(self) -> SessionSizes:
        """The states with what their sizes obey."""
        return SessionSizes(self.session_dims, self.session_sizes, self.states)

    @property
    def is_without_weights(self) -> bool:
        """Whether the weights that `weights` tells of are outside of the bundle."""
        return any(entry.name == HEAD_NAME for entry in self.files)

    @property
    def weights_file(self) -> WeightsEntry | None:
        """The weights among the bundle's files, if it holds them."""
        return None if self.is_without_weights else self.weights

    def entry(self, name: str | None = None) -> Entry:
        """The entry of a name; None: the one that a call of the program itself runs.

        Raises `EntryUnknown` and `EntryNotNamed`.
        """
        return find_entry(self.entries, name)

    def file(self, name: str) -> FileEntry:
        """The entry of a file that the manifest lists."""
        return next(entry for entry in self.files if entry.name == name)

    def to_map(self) -> dict[str, Any]:
        """The manifest as the plain values that are encoded."""
        tree: dict[str, Any] = MANIFEST_SCHEMA.write(self)
        return tree

    def to_bytes(self) -> bytes:
        """The whole file; raises `BundleMalformed` where the manifest breaks its own schema."""
        tree = self.to_map()
        Manifest.from_map(tree)
        return frame(tree)

    @classmethod
    def from_bytes(cls, data: bytes, path: str = MANIFEST_NAME) -> Manifest:
        """Read and check a manifest; raises `BundleError`s and `IncompatibleError`s."""
        return cls.from_map(unframe(data, path, MANIFEST_SCHEMA), path)

    @classmethod
    def from_map(cls, tree: Any, path: str = MANIFEST_NAME) -> Manifest:
        """Read and check plain values; raises `BundleMalformed` and `BundleLimit`."""
        manifest: Manifest = read(MANIFEST_SCHEMA, tree, path)
        refuse(_broken(manifest), path)
        return manifest._ordered() if manifest.orders else manifest

    def _ordered(self) -> Manifest:
        """The same with the orders in the specs of its entries."""
        axes = {(row.entry, row.role, row.place): row.axes for row in self.orders}

        def ordered(number: int, role: str, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
            found = ((spec, axes.get((number, role, at), ())) for at, spec in enumerate(specs))
            return tuple([spec.replace(order=order) for spec, order in found])

        entries = [
            entry.replace(
                inputs=ordered(number, "input", entry.inputs),
                outputs=ordered(number, "output", entry.outputs),
            )
            for number, entry in enumerate(self.entries)
        ]
        return self.replace(entries=tuple(entries))


class Extras(Record):
    """The files of a bundle that may be deleted, with their digests."""

    files: tuple[FileEntry, ...] = field(List(FileEntry, limit=8192))

    def to_bytes(self) -> bytes:
        """The whole file `extras.msgpack`."""
        tree = EXTRAS_SCHEMA.write(self)
        read(EXTRAS_SCHEMA, tree, EXTRAS_NAME)
        return encode(tree)

    @classmethod
    def from_bytes(cls, data: bytes, path: str = EXTRAS_NAME) -> Extras:
        """Read and check `extras.msgpack`."""
        extras: Extras = read(EXTRAS_SCHEMA, decode(data, LIMITS, path), path)
        refuse(twins((entry.name for entry in extras.files), "files"), path)
        return extras


MANIFEST_SCHEMA, EXTRAS_SCHEMA = Fields(Manifest), Fields(Extras)
FEATURES = MANIFEST_SCHEMA.features  # what this runtime knows


def digest_of(data: bytes) -> str:
    """The bundle digest in a manifest's bytes: the hex SHA-256 that they end with."""
    return data[-TRAILER_BYTES:].hex()


def _broken(manifest: Manifest) -> Broken:
    """Every relation between the fields that does not hold."""
    names = [entry.name for entry in manifest.files]
    yield from twins([*names, WEIGHTS_NAME, MANIFEST_NAME, EXTRAS_NAME], "files")
    if manifest.extras is not None and manifest.extras.name != EXTRAS_NAME:
        yield "extras.name", repr(manifest.extras.name), f"`{EXTRAS_NAME}`"
    yield from twins((target.name for target in manifest.targets), "targets")
    yield from twins(manifest.torch, "torch")
    yield from twins((spec.name for spec in manifest.states), "states")
    yield from _too_large("states", manifest.states)
    yield from manifest.session.broken()
    yield from twins((dim.name for dim in manifest.session_dims), "session_dims")
    yield from _broken_entries(manifest)
    yield from _broken_orders(manifest)
    digests = {entry.name: entry.sha256 for entry in manifest.files}
    yield from broken_backends(manifest.backends, digests)
    for index, target in enumerate(manifest.targets):
        for part in ("plan", "library"):
            name = getattr(target, part)
            if name not in names:
                yield f"targets[{index}].{part}", repr(name), "a name that `files` lists"
    weights = manifest.weights
    if weights is not None:
        count = -(-weights.nbytes // weights.chunk_bytes)
        if len(weights.chunks) != count:
            expected = f"{count}, one for each {weights.chunk_bytes} bytes"
            yield "weights.chunks", f"{len(weights.chunks)} digests", expected


def _too_large(kind: str, specs: Sequence[TensorSpec]) -> Broken:
    for index, spec in enumerate(specs):
        nbytes = spec.nbytes if spec.is_fixed else 0
        if nbytes > FILE_LIMIT_BYTES:
            yield f"{kind}[{index}].shape", f"{nbytes} bytes", f"at most {FILE_LIMIT_BYTES}"


def _orders(entries: Sequence[Entry]) -> Iterator[MemoryOrder]:
    """The orders of memory in the specs of entries."""
    for number, entry in enumerate(entries):
        for role, specs in (("input", entry.inputs), ("output", entry.outputs)):
            for place, spec in enumerate(specs):
                if spec.order:
                    yield MemoryOrder(number, role, place, spec.order)


def _broken_orders(manifest: Manifest) -> Broken:
    """Orders of no input or output, or that are none of its dims."""
    seen = set()
    for index, row in enumerate(manifest.orders):
        entry = manifest.entries[row.entry] if row.entry < len(manifest.entries) else None
        specs = () if entry is None else entry.inputs if row.role == "input" else entry.outputs
        if row.place >= len(specs):
            found = f"{row.role} {row.place} of entry {row.entry}"
            yield f"orders[{index}].place", found, "one that is there"
            continue
        rank = len(specs[row.place].shape)
        if sorted(row.axes) != list(range(rank)) or list(row.axes) == sorted(row.axes):
            expected = f"another order of {rank} dims than their own"
            yield f"orders[{index}].axes", str(list(row.axes)), expected
        key = row.entry, row.role, row.place
        if key in seen:
            yield f"orders[{index}]", f"{row.role} {row.place} twice", "each once"
        seen.add(key)


def _broken_entries(manifest: Manifest) -> Broken:
    entries = manifest.entries
    yield from twins((entry.name for entry in entries), "entries")
    known = [(dim.name, dim.low, dim.high) for dim in entries[0].dims]
    shown = {dim.name for dim in manifest.session_dims}
    for number, entry in enumerate(entries):
        for where, found, expected in entry.broken():
            yield f"entries[{number}].{where}", found, expected
        if [(dim.name, dim.low, dim.high) for dim in entry.dims] != known:
            yield f"entries[{number}].dims", "other dims", "those of the first entry"
        shown |= {dim.name for dim in entry.dims if dim.input is not None}
    for index, (name, _, _) in enumerate(known):
        if name not in shown:
            expected = "an input, in some entry, or the name of a session's size"
            yield f"entries[0].dims[{index}].input", "nil", expected
