"""What a native function takes: read from the library's table, checked, and printed."""

from __future__ import annotations

import ctypes

from ..arrays.dtypes import DTYPES
from ..record import Record
from . import abi
from .errors import BackendMalformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALIGNMENT_LIMIT_BYTES = 4096
NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class TensorSlot(Record):
    """One tensor of a function.

    role: "input" or "output"; dtypes: those it may have; rank: None for any; is_strided: it may
    have gaps; alignment_bytes: of its first element, 0 for the element's own size.
    """

    name: str
    role: str
    dtypes: tuple[str, ...]
    rank: int | None
    is_strided: bool
    alignment_bytes: int

    def alignment_of(self, dtype: str) -> int:
        """Bytes of which the first element's address is a multiple."""
        return self.alignment_bytes or DTYPES[dtype].itemsize_bytes

    def __str__(self) -> str:
        rank = "…" if self.rank is None else ", ".join("·" * self.rank)
        return f"{self.name}: {'|'.join(self.dtypes)}[{rank}]"


class ScalarSlot(Record):
    """One number of a function; kind: "whole" (64 bits, signed) or "real" (a double)."""

    name: str
    kind: str

    def __str__(self) -> str:
        return f"{self.name}: {'int' if self.kind == 'whole' else 'float'}"


class Signature(Record):
    """A function of a back end: its arguments in the order in which the kernel gets them."""

    name: str
    devices: tuple[str, ...]
    tensors: tuple[TensorSlot, ...]
    scalars: tuple[ScalarSlot, ...]
    is_concurrent: bool
    is_tiled: bool
    has_workspace: bool

    @property
    def inputs(self) -> tuple[TensorSlot, ...]:
        """The tensors that are read, in order."""
        return tuple(slot for slot in self.tensors if slot.role == "input")

    @property
    def outputs(self) -> tuple[TensorSlot, ...]:
        """The tensors that are written, in order."""
        return tuple(slot for slot in self.tensors if slot.role == "output")

    def __str__(self) -> str:
        taken = ", ".join(map(str, (*self.inputs, *self.scalars)))
        return f"{self.name}({taken}) -> ({', '.join(map(str, self.outputs))})"

    def __repr__(self) -> str:
        return f"<{self}>"

    def to_map(self) -> dict[str, Any]:
        """The signature as plain data, for `--json`."""
        parts = {"tensors": self.tensors, "scalars": self.scalars}
        rows = {name: [row.as_map() for row in part] for name, part in parts.items()}
        return {"text": str(self), **self.as_map(), **rows}


class Reader:
    """Reads parts of a library's table and refuses what breaks the header's rules."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def refuse(self, field: str, found: object, expected: str) -> BackendMalformed:
        """The error for a field of the table."""
        return BackendMalformed(path=self.path, field=field, found=found, expected=expected)

    def name(self, raw: bytes | None, field: str) -> str:
        """Text of letters, digits and `_`."""
        text = (raw or b"").decode("utf-8", "backslashreplace")
        if not text or len(text) > 128 or not NAME_LETTERS.issuperset(text):
            raise self.refuse(field, f"`{text}`", "1 to 128 letters, digits and `_`")
        return text

    def bits(self, found: int, table: dict[str, int], field: str) -> tuple[str, ...]:
        """The names of a mask's bits; at least one, and none that is unknown."""
        known = 0
        for bit in table.values():
            known |= bit
        if not found or found & ~known:
            raise self.refuse(field, hex(found), f"a mask of {', '.join(table)}")
        return tuple(name for name, bit in table.items() if found & bit)

    def choice(self, found: int, table: tuple[str, ...], field: str) -> str:
        """The word of an enumeration."""
        if found >= len(table):
            raise self.refuse(field, found, " or ".join(f"{i} ({w})" for i, w in enumerate(table)))
        return table[found]

    def function(self, address: int, wanted: str) -> tuple[Signature, int, int]:
        """(signature, address of the kernel, address of its workspace function or 0)."""
        table: Any = abi.FunctionTable.from_address(address)
        field = f"function `{wanted}`"
        if table.struct_bytes < ctypes.sizeof(abi.FunctionTable):
            expected = f"at least {ctypes.sizeof(abi.FunctionTable)}"
            raise self.refuse(f"struct_bytes of {field}", table.struct_bytes, expected)
        name = self.name(table.name, f"the name of {field}")
        if name != wanted:
            raise self.refuse(f"the name of {field}", f"`{name}`", "the name it is listed under")
        for kind in ("tensor", "scalar"):
            count, at = getattr(table, f"{kind}_count"), getattr(table, f"{kind}s")
            if count > abi.ARGUMENT_LIMIT:
                raise self.refuse(f"{kind}_count of {field}", count, f"≤ {abi.ARGUMENT_LIMIT}")
            if count and not at:
                raise self.refuse(f"{kind}s of {field}", "NULL", f"{count} rows")
        if not table.kernel:
            raise self.refuse(f"kernel of {field}", "NULL", "a function")
        tensors = self._tensors(table, field)
        scalars = self._scalars(table, field)
        names = [slot.name for slot in tensors] + [slot.name for slot in scalars]
        for each in names:
            if names.count(each) > 1:
                raise self.refuse(f"arguments of {field}", f"two of `{each}`", "one of each name")
        signature = Signature(
            name,
            self.bits(table.devices, abi.DEVICE_BITS, f"devices of {field}"),
            tensors,
            scalars,
            bool(table.flags & (abi.CONCURRENT | abi.TILED)),
            bool(table.flags & abi.TILED),
            bool(table.workspace_bytes),
        )
        return signature, table.kernel, table.workspace_bytes or 0

    def _tensors(self, table: Any, field: str) -> tuple[TensorSlot, ...]:
        found = []
        rows: Any = (abi.TensorSpecTable * table.tensor_count).from_address(table.tensors or 0)
        for place, row in enumerate(rows if table.tensor_count else ()):
            where = f"tensor {place} of {field}"
            if not abi.ANY_RANK <= row.rank <= abi.RANK_LIMIT:
                raise self.refuse(f"rank of {where}", row.rank, f"−1 to {abi.RANK_LIMIT}")
            alignment = row.alignment_bytes
            if alignment & (alignment - 1) or alignment > ALIGNMENT_LIMIT_BYTES:
                expected = f"a power of two up to {ALIGNMENT_LIMIT_BYTES}"
                raise self.refuse(f"alignment_bytes of {where}", alignment, expected)
            found.append(
                TensorSlot(
                    self.name(row.name, f"the name of {where}"),
                    self.choice(row.role, abi.ROLES, f"role of {where}"),
                    self.bits(row.dtypes, abi.DTYPE_BITS, f"dtypes of {where}"),
                    None if row.rank == abi.ANY_RANK else row.rank,
                    bool(row.flags & abi.STRIDED),
                    alignment,
                )
            )
        return tuple(found)

    def _scalars(self, table: Any, field: str) -> tuple[ScalarSlot, ...]:
        rows: Any = (abi.ScalarSpecTable * table.scalar_count).from_address(table.scalars or 0)
        return tuple(
            ScalarSlot(
                self.name(row.name, f"the name of scalar {place} of {field}"),
                self.choice(row.kind, abi.SCALAR_KINDS, f"kind of scalar {place} of {field}"),
            )
            for place, row in enumerate(rows if table.scalar_count else ())
        )
