"""Entry points: the ways to call a program, each with inputs, outputs and sizes of its own.

    program["decode"](token, position)     session.decode(token, position)

A spec declares an `EntryPoint` (`aot/entry_points.py`); the manifest has an `Entry` of it, of which
a program and its sessions make a `LoadedEntry`. What a user calls is an `EntryFunction`: the entry
point of one program or of one session.
"""

from __future__ import annotations

from ..bundle.manifest import find_entry
from ..bundle.structure import giver
from .arguments import Arguments, places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from ..arrays.port import Port
    from ..bundle.manifest import Entry, TensorSpec
    from ..bundle.signature import Dim, Signature

    Ports = tuple[tuple[Port, ...], tuple[Port, ...]]


class LoadedEntry:
    """An entry point of a bundle as a program and its sessions know it.

    number: its place in the bundle; ports: those of fixed shapes; arity: how many arguments a call
    has where none is nested, else -1; arrange: the arrays of a call's arguments in order; give:
    makes a call's result of its outputs in order; shapes: those of the inputs where no size of a
    call is dynamic, else None.
    """

    __slots__ = ("arity", "arrange", "dims", "give", "inputs", "name", "number", "outputs", "ports",
                 "shapes", "signature", "structure")  # fmt: skip

    def __init__(self, number: int, row: Entry, ports: Ports) -> None:
        self.number = number
        self.name: str = row.name
        self.inputs: tuple[TensorSpec, ...] = row.inputs
        self.outputs: tuple[TensorSpec, ...] = row.outputs
        self.dims: tuple[Dim, ...] = row.dims
        self.structure = row.structure
        self.signature: Signature = row.signature
        self.ports = ports
        self.arity = -1 if row.structure.inputs else len(row.inputs)
        self.arrange = Arguments(row.structure.inputs, row.inputs).arrange
        is_fixed = all(spec.is_fixed for spec in row.inputs)
        self.shapes = tuple([spec.shape for spec in row.inputs]) if is_fixed else None
        nested = row.structure.outputs
        self.give: Callable[[Sequence[Any]], Any] = _plain if nested is None else giver(nested)


def _plain(values: Sequence[Any]) -> Any:
    """The result of a plain signature: one array, or a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


class EntryFunction:
    """An entry point of a program or of a session; called like a program of its own.

    name, inputs, outputs, dims, signature: as of `Program`. Raises what a call of a program raises.
    """

    __slots__ = ("_entry", "_owner")

    def __init__(self, owner: Any, entry: LoadedEntry) -> None:
        """Made by programs and sessions only."""
        self._owner = owner
        self._entry = entry

    @property
    def name(self) -> str:
        """Its name in the bundle."""
        return self._entry.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each input."""
        return self._entry.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each output."""
        return self._entry.outputs

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The sizes that its calls show, with their ranges."""
        return tuple(dim for dim in self._entry.dims if dim.input is not None)

    @property
    def signature(self) -> Signature:
        """Inputs and outputs with what their sizes obey."""
        return self._entry.signature

    def __call__(self, *arrays: Any, out: Any = None, **arguments: Any) -> Any:
        """Run once; see `Program`."""
        return self._owner._call(self._entry, arrays, out, arguments)

    def bind(self, *arrays: Any, out: Any = None, **arguments: Any) -> Any:
        """Fix the memory of inputs and outputs; see `Program.bind`."""
        return self._owner._bind(self._entry, arrays, out, arguments)

    def flatten(self, result: Any) -> tuple[Any, ...]:
        """The arrays of a call's result in the order of `outputs`; raises `OutputStructure`."""
        return tuple(places(self._entry.structure.outputs, self._entry.outputs, result))

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.inputs)
        outputs = ", ".join(f"{spec.name}: {spec}" for spec in self.outputs)
        return f"<aotc entry point {self.name} ({inputs}) -> ({outputs})>"


class EntryFunctions:
    """The entry points of a program or of a session, by name and in the bundle's order."""

    __slots__ = ("_entries", "_owner")

    def __init__(self, owner: Any, entries: Sequence[LoadedEntry]) -> None:
        self._owner = owner
        self._entries = entries

    def __getitem__(self, name: str) -> EntryFunction:
        """Raises `EntryUnknown`."""
        return EntryFunction(self._owner, find_entry(self._entries, name))

    def __iter__(self) -> Iterator[str]:
        return (entry.name for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return any(entry.name == name for entry in self._entries)

    def keys(self) -> list[str]:
        """The names."""
        return list(self)

    def values(self) -> list[EntryFunction]:
        """The entry points."""
        return [EntryFunction(self._owner, entry) for entry in self._entries]

    def items(self) -> list[tuple[str, EntryFunction]]:
        """Names and entry points."""
        return list(zip(self, self.values(), strict=True))

    def __repr__(self) -> str:
        return f"<aotc entry points {', '.join(self)}>"
