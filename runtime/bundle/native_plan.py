"""Steps of a plan that call functions in a library of the user's.

Tensors stand in the order of the function's signature. On the CPU the executor calls the function
for each tile, and a workspace of `workspace_bytes` lies in its thread's scratch. On a device there
is one tile, and `workspace` is where in the arena that memory lies. Where `workspace_bytes` is nil,
the function is asked when the shapes of a call are first met, and gets memory of its own. The
manifest lists the back ends with version and digest.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES, bytes_of
from ..record import Record, field
from .extent import Number
from .plan_parts import MEMORY
from .schema import (
    DIGEST,
    FILE_NAME,
    FLOAT,
    IDENTIFIER,
    Choice,
    Flag,
    Integer,
    List,
    Optional,
    Tagged,
    Text,
)
from .torch_calls import SHAPE, WRITTEN_SPACES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .plan_parts import Spans
    from .schema import Broken

    Scalar = tuple[str, "int | str"]  # (kind, value)

SYMBOL = "aotc_native"  # the executor's function that calls a native one
WORKSPACE_LIMIT_BYTES = 1 << 30
TILES_LIMIT = 1 << 16
SCALAR = Tagged(
    "[whole, a 64-bit number] or [real, a float in hexadecimal]",
    {"whole": (Integer(-(1 << 63), (1 << 63) - 1),), "real": (FLOAT,)},
)


class NativeTensor(Record):
    """A contiguous tensor of a native step and (space, value) of its memory, which may be left out
    where only the function's needs are asked for; is_written: it is an output."""

    dtype: str = field(Choice(*DTYPES))
    is_written: bool = field(Flag())
    shape: tuple[int, ...] = field(SHAPE)
    memory: tuple[str, int | str] = field(MEMORY, default=("arena", 0))

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return bytes_of(self.dtype, self.shape)


class NativeLaunch(Record):
    """A call of a native function with its tensors and scalars; see the module docstring."""

    kind = "native"
    backend: str = field(IDENTIFIER)
    function: str = field(IDENTIFIER)
    tensors: tuple[NativeTensor, ...] = field(List(NativeTensor, limit=64))
    scalars: tuple[Scalar, ...] = field(List(SCALAR, limit=64))
    workspace_bytes: int | None = field(Optional(Number(0, WORKSPACE_LIMIT_BYTES)), default=0)
    tiles: int = field(Number(1, TILES_LIMIT), default=1)
    workspace: tuple[str, int | str] | None = field(Optional(MEMORY), default=None)

    @property
    def memory(self) -> tuple[tuple[str, int | str], ...]:
        """(space, value) of each tensor, then of the workspace where it has a place."""
        rows = tuple(tensor.memory for tensor in self.tensors)
        return rows if self.workspace is None else (*rows, self.workspace)


class BackendEntry(Record):
    """A back end that a bundle calls: its library in the bundle, or None for one that is found on
    the machine; name, version and SHA-256 (32 bytes) of the library."""

    name: str = field(IDENTIFIER)
    version: str = field(Text(128))
    sha256: bytes = field(DIGEST)
    file: str | None = field(Optional(FILE_NAME), default=None)


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


def broken_workspace(native: NativeLaunch, field: str, is_device: bool) -> Broken:
    """On a device a workspace has a place in the arena, and there are no tiles."""
    has_workspace = native.workspace is not None
    if has_workspace != (is_device and bool(native.workspace_bytes)):
        expected = "a place in the arena" if is_device else "nil, since it lies in scratch"
        yield f"{field}.workspace", native.workspace, expected
    if is_device and native.tiles != 1:
        yield f"{field}.tiles", native.tiles, "1 on a device"


def broken_backends(rows: Iterable[BackendEntry], digests: Mapping[str, bytes]) -> Broken:
    """One row a name; libraries in the bundle are files that its manifest lists, with the digest
    that the back end has. digests: of those files by name."""
    seen: set[str] = set()
    for index, row in enumerate(rows):
        if row.name in seen:
            yield f"backends[{index}].name", repr(row.name), "a name of its own"
        seen.add(row.name)
        if row.file is not None and digests.get(row.file) != row.sha256:
            expected = "a file of this digest that `files` lists"
            yield f"backends[{index}].file", repr(row.file), expected
