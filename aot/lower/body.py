"""The body of a kernel as it is written: named values, one loop deep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aotc.aot.ir.index import Symbol

INDENT = "    "


@dataclass(frozen=True, slots=True)
class Value:
    """Text of a value and the loop symbols that it varies with."""

    text: str
    symbols: frozenset[Symbol] = frozenset()
    is_literal: bool = False


@dataclass(slots=True)
class Body:
    """Lines of a function body. Within a loop, what does not vary with it goes before it."""

    lines: list[str] = field(default_factory=list)
    loop: list[str] | None = None
    loop_symbols: frozenset[Symbol] = frozenset()
    count: int = 0

    def bind(self, expression: str, symbols: Iterable[Symbol], prefix: str = "v") -> Value:
        """Name an expression: `v7 = expression`."""
        name = f"{prefix}{self.count}"
        self.count += 1
        found = frozenset(symbols)
        self.write(f"{name} = {expression}", found)
        return Value(name, found)

    def write(self, line: str, symbols: frozenset[Symbol] = frozenset()) -> None:
        """Add a line, inside the open loop if it varies with the loop's symbols."""
        if self.loop is not None and symbols & self.loop_symbols:
            self.loop.append(line)
        else:
            self.lines.append(line)

    def name(self, name: str, text: str, symbols: frozenset[Symbol]) -> None:
        """Give a value a name of its own: that of the last line, if that line is the value."""
        lines = self.loop or self.lines
        if lines and lines[-1].startswith(f"{text} = "):
            lines[-1] = f"{name}{lines[-1].removeprefix(text)}"
        else:
            self.write(f"{name} = {text}", symbols)

    def open_loop(self, symbols: Iterable[Symbol]) -> None:
        """Lines that vary with the symbols are kept apart until the loop is closed."""
        self.loop, self.loop_symbols = [], frozenset(symbols)

    def close_loop(self) -> list[str]:
        """The lines of the loop's body."""
        assert self.loop is not None
        found, self.loop, self.loop_symbols = self.loop, None, frozenset()
        return found
