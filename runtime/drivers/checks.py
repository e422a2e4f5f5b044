"""Reads what kernels report about the data of a call: one word for each check of the plan.

A word is 0 until a kernel finds an element that is not as the check says. Then it holds that
element v, as v + 1 where v is 0 or more; which one of several is not said.
"""

from __future__ import annotations

import ctypes

from ..errors import AssertionFailed, DivisionByZero, IndexOutOfRange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..bundle.plan import Check
    from ..errors import AotcError

WORD_BYTES = 8
LARGEST = (1 << 63) - 1


class Checks:
    """The words of one session, in host memory at `address`, one for each row.

    view: their bytes; clean: what these are where nothing is wrong.
    """

    __slots__ = ("_rows", "_words", "address", "clean", "view")

    def __init__(self, rows: tuple[Check, ...], address: int) -> None:
        """Clears the words."""
        self.address = address
        self._rows = rows
        self._words = (ctypes.c_int64 * len(rows)).from_address(address)
        self.view = memoryview(self._words).cast("B")
        self.clean = bytes(WORD_BYTES * len(rows))
        self.view[:] = self.clean

    def verify(self) -> None:
        """Raise the error of the first word that is marked, and clear them all."""
        error = self.found()
        if error is not None:
            raise error

    def found(self) -> AotcError | None:
        """The error of the first word that is marked; all are cleared."""
        if self.view == self.clean:
            return None
        words = self._words[:]
        self.view[:] = self.clean
        number = next(at for at, word in enumerate(words) if word)
        word = words[number]
        # The largest integer is marked as the one before it.
        return _error(self._rows[number], word - 1 if 0 < word < LARGEST else word)

    def after(self, run: Callable[[], None]) -> Callable[[], None]:
        """A run that ends with `verify`; a closure, for its speed. What another error ends, or
        Ctrl-C, leaves no word for the next run."""
        view, clean, verify = self.view, self.clean, self.verify

        def checked() -> None:
            try:
                run()
            except BaseException:
                view[:] = clean
                raise
            if view != clean:
                verify()

        return checked


def check_addresses(rows: tuple[Check, ...], address: int) -> list[int]:
    """The address of each word, where they begin at `address`."""
    return [address + WORD_BYTES * number for number in range(len(rows))]


def _error(row: Check, found: int) -> AotcError:
    where = f" at {row.place}" if row.place else ""
    if row.kind == "divisor":
        return DivisionByZero(operation=row.operation, where=where)
    if row.kind == "exchange":
        from .cuda.errors import RankSilent

        return RankSilent(rank=found - 1)
    if row.kind == "assertion":
        return AssertionFailed(asserted=row.operation, where=where)
    ends = {"low": row.low, "high": row.high}
    return IndexOutOfRange(operation=row.operation, where=where, found=found, **ends)
