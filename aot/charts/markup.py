"""Elements of HTML and SVG. Text becomes markup in one place, `escaped`: so nothing that a bundle
says can become an element, an attribute or a script, and what it says over and over has a limit."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from aotc.aot.printable import printable

VOID = frozenset({"br", "col", "input", "meta"})  # elements of HTML without content
Attribute = str | int | float | bool | None


class TooLong(ValueError):
    """More text than the limit was to become markup."""


@dataclass(slots=True)
class _Left:
    letters: int


_LEFT: ContextVar[_Left | None] = ContextVar("left", default=None)


class Markup(str):
    """Text that is markup already; only `tag`, `joined` and `trusted` make it."""

    __slots__ = ()


def tag(name: str, /, *children: str | int | Markup, **attributes: Attribute) -> Markup:
    """An element. `class_="a"` is `class="a"`, `stroke_width=2` is `stroke-width="2"`; None and
    False leave an attribute out, True gives it without a value."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        words.append(attribute if value is True else f'{attribute}="{escaped(number(value))}"')
    opened = " ".join(words)
    if name in VOID:
        return Markup(f"<{opened}>")
    return Markup(f"<{opened}>{joined(children)}</{name}>")


def joined(children: Iterable[str | int | Markup], between: str = "") -> Markup:
    """Several pieces one after the other; those that are not markup are escaped."""
    return Markup(escaped(between).join(_piece(child) for child in children))


def trusted(text: str) -> Markup:
    """Markup that stands in our own files, never anything that was read."""
    return Markup(text)


@contextmanager
def limited(letters: int) -> Iterator[None]:
    """Inside, so many letters of text become markup; `TooLong` for more. A small file can name a
    long text many times."""
    token = _LEFT.set(_Left(letters))
    try:
        yield
    finally:
        _LEFT.reset(token)


def escaped(text: object) -> str:
    """Text as it stands in an element or an attribute, what is not printable as `\\x1b`."""
    whole = str(text)
    left = _LEFT.get()
    if left is not None:
        left.letters -= len(whole)
        if left.letters < 0:
            raise TooLong
    return html.escape(printable(whole), quote=True)


def number(value: Attribute) -> str:
    """A number with two decimals at most, as coordinates need no more; text as it is."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
    return str(value)


def _piece(child: str | int | Markup) -> str:
    return child if isinstance(child, Markup) else escaped(child)
