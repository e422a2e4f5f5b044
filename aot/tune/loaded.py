"""What a bench measures: a candidate in a device's memory, ready to run."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self


class Loaded:
    """A context manager that frees what the candidate took.

    `bench` has the operands' addresses by the number of the launch.
    """

    purpose: str  # of the memory that it takes

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self._device = bench.device
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._load()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _memory(self, nbytes: int) -> int:
        address: int = self._device.allocate(nbytes, self.purpose)
        self._stack.callback(self._device.free, address)
        return address

    def _load(self) -> None:
        """Bring it to the device."""
        raise NotImplementedError

    def launch(self, stream: int) -> None:
        """One launch on the first copies of the operands."""
        raise NotImplementedError

    def graph(self) -> Any:
        """What runs all launches of the bench by `launch(stream)`."""
        raise NotImplementedError
