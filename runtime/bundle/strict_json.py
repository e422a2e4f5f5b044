"""Strict JSON for what strangers write: one meaning for each text, bounded in depth and numbers.

The standard library's reader takes the last of two equal keys, floats, NaN and any depth; two
readers could then see two things in one file. The caller bounds the size of the data.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEPTH_LIMIT = 16
INTEGER_LIMIT = 1 << 53  # beyond it other readers round
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class NotStrict(ValueError):
    """The data is not JSON, or JSON that can be read in two ways; says what was found."""


def parse(data: bytes, has_floats: bool = False) -> Any:
    """The value of a JSON text: dicts, lists, text, bool, None and integers below 2**53; numbers
    with a point where it `has_floats`.

    Raises `NotStrict`.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotStrict("text that is not utf-8") from None
    if _depth(text) > DEPTH_LIMIT:
        raise NotStrict(f"nested deeper than {DEPTH_LIMIT}")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=float if has_floats else _no_float,
            parse_constant=_no_float,
        )
        _check_text(value)
    except NotStrict:
        raise
    except (ValueError, RecursionError):
        raise NotStrict("no json") from None
    return value


def _depth(text: str) -> int:
    """How deep brackets nest outside of strings."""
    depth = deepest = 0
    for letter in re.findall(r"[\[\]{}]", STRING.sub("", text)):
        depth += 1 if letter in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise NotStrict(f"the key {name[:40]!r} twice")
            seen.add(name)
    return found


def _integer(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) >= INTEGER_LIMIT:
        raise NotStrict(f"the number {digits[:20]}")
    return int(digits)


def _no_float(text: str) -> Any:
    raise NotStrict(f"the number {text[:20]}")


def _check_text(value: Any) -> None:
    """Refuse halves of surrogate pairs, which no utf-8 has."""
    if isinstance(value, str):
        value.encode("utf-8")  # UnicodeEncodeError is a ValueError
    elif isinstance(value, dict):
        for name, each in value.items():
            name.encode("utf-8")
            _check_text(each)
    elif isinstance(value, list):
        for each in value:
            _check_text(each)
