"""A session's mutable state, as its owner reads and sets it.

session.state["cache"]            a copy with its shape, which numpy.asarray takes: a memoryview;
                                  of 16-bit floats `Halves`, which DLPack takes too
session.state["cache"] = array    from host memory, as an input of the program would be given
session.state.read("cache", out)  into an array that is there
session.state.view("cache")       the memory itself, by DLPack: no copy, and calls are seen in it
session.reset()                   back to the values that the bundle holds
"""

from __future__ import annotations

from ..arrays.buffers import copy_strided
from ..arrays.exchange import BUFFER, kind_of
from ..arrays.halves import HALVES, Halves
from ..arrays.port import Port
from ..arrays.strided import copier
from ..errors import StateUnknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..arrays.view import View
    from ..bundle.manifest import TensorSpec


class States:
    """The states of one session by name.

    Each question waits for a call of the session that runs in another thread; on a device also for
    the work of its last call.
    """

    __slots__ = ("_driver_states", "_turn", "specs")

    def __init__(
        self, specs: tuple[TensorSpec, ...], driver_states: Callable[[], Any], turn: Any
    ) -> None:
        """Made by `Session.state` only. specs: name, dtype and shape of each; driver_states: gives
        the driver's states, or raises `ProgramClosed`; turn: the lock that calls hold."""
        self.specs = specs
        self._driver_states = driver_states
        self._turn = turn

    def __iter__(self) -> Iterator[str]:
        return (spec.name for spec in self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def __contains__(self, name: object) -> bool:
        return any(spec.name == name for spec in self.specs)

    def keys(self) -> list[str]:
        """The names, in the order of `specs`."""
        return list(self)

    def __getitem__(self, name: str) -> memoryview | Halves:
        """A copy of a state in host memory, of the dtype and shape of its spec: a memoryview, for
        f16 and bf16 a buffer of halves that numpy and torch take. Raises `StateUnknown`."""
        port, index = self._find(name)
        value: Any
        if port.dtype in HALVES:
            value = Halves(port.dtype, port.shape)
            address = value.address
        else:
            value, address = BUFFER.make(port)
        with self._turn:
            self._driver_states().read(index, address)
        return value  # type: ignore[no-any-return]  # of one of the two kinds

    def read(self, name: str, out: Any) -> Any:
        """Copy a state into `out`, a contiguous array in host memory of the same dtype and shape,
        and return it; raises `StateUnknown` and `InputError`s."""
        port, index = self._find(name)
        address = kind_of(port, out).output(port, out)
        with self._turn:
            self._driver_states().read(index, address)
        return out

    def view(self, name: str) -> View:
        """A state's own memory, which any DLPack consumer takes without a copy.

        What calls write is seen in it, and what is written to it they read; it stays where it is
        until the session is closed. The memory lives as long as the view and what was made of it.
        Raises `StateUnknown`.
        """
        port, index = self._find(name)
        with self._turn:
            found: View = self._driver_states().view(index, port.dtype, port.shape)
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a state from an array in host memory of the same dtype and shape, strided as it may
        be; raises `StateUnknown` and `InputError`s."""
        port, index = self._find(name)
        hold: list[Any] = []  # a contiguous copy, alive until it is read
        address = kind_of(port, value).address(port, value, hold)
        with self._turn:
            self._driver_states().write(index, address)

    def _find(self, name: str) -> tuple[Port, int]:
        for index, spec in enumerate(self.specs):
            if spec.name == name:
                return Port(spec, "state", index, copier(copy_strided)), index
        raise StateUnknown(name=name, expected=", ".join(f"`{each}`" for each in self) or "none")

    def __repr__(self) -> str:
        return f"<aotc states {', '.join(f'{spec.name}: {spec}' for spec in self.specs)}>"
