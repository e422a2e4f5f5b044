"""Text that others wrote, as it may be shown: nothing in it steers a terminal or turns a page."""

from __future__ import annotations

import re

ASCII = re.compile(r"[ -~\n\t]*")
UNUSUAL = re.compile(r"[^ -~]")


def printable(text: object, kept: str = "\n\t") -> str:
    """The text, in which what is not printable (control characters, marks that turn the direction
    of text) stands as `\\x1b`, but for the characters of `kept`."""
    whole = str(text)
    if whole.isprintable() or (kept == "\n\t" and ASCII.fullmatch(whole)):
        return whole
    return UNUSUAL.sub(lambda match: _shown(match[0], kept), whole)


def _shown(letter: str, kept: str) -> str:
    return letter if letter.isprintable() or letter in kept else ascii(letter)[1:-1]
