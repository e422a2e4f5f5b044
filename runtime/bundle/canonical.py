"""Canonical MessagePack: one encoding for each value, and a strict reader over `msgpack`.

Grammar (a subset of MessagePack that any of its readers understands):

    value  = nil | bool | int | text | bytes | array | map
    int    = the shortest form, unsigned from 0 up, signed below 0; 64 bits at most
    text   = UTF-8 with the shortest header
    bytes, array, map = each with the shortest header
    map    = keys are text, strictly ascending by code point

No floats (so no NaN), no extension types, no timestamps, no duplicate keys. Arrays and maps are
read header by header and not with `msgpack.unpackb`, which reserves memory for what a header claims
before it has seen it: 1,000 nested headers cost it gigabytes, whatever the limits of one array.
"""

from __future__ import annotations

import msgpack

from ..errors import BundleLimit, BundleMalformed, BundleTruncated
from ..record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# First bytes of what has a header that the `Unpacker` can read alone.
ARRAYS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
LEAVES = frozenset((type(None), bool, int, str, bytes))


class Limits(Record):
    """Bounds of one file, checked while reading; sizes in bytes."""

    __slots__ = ("depth", "file_bytes", "text_bytes", "values")
    file_bytes: int
    values: int  # every nil, number, text, array and map, keys included
    depth: int
    text_bytes: int

    def __init__(self, file_bytes: int, values: int, depth: int, text_bytes: int) -> None:
        self._set(file_bytes=file_bytes, values=values, depth=depth, text_bytes=text_bytes)


def encode(value: Any) -> bytes:
    """The canonical bytes of a tree of None, bool, int, str, bytes, list, tuple and dict.

    Raises `TypeError` for anything else and `ValueError` for an integer beyond 64 bits.
    """
    try:
        return _pack(_ordered(value))
    except OverflowError:
        raise ValueError("an integer of the tree does not fit 64 bits") from None


def _pack(tree: Any) -> bytes:
    data: bytes = msgpack.packb(tree)
    return data


def _ordered(value: Any) -> Any:
    """The tree with its maps in the order of their keys; msgpack keeps that order."""
    kind = type(value)
    if kind in LEAVES:
        return value
    if kind in (list, tuple):
        return [_ordered(item) for item in value]
    if kind is not dict:
        raise TypeError(f"{kind.__name__} has no canonical encoding")
    for key in value:
        if type(key) is not str:
            raise TypeError(f"map key {key!r} is not text")
    return {key: _ordered(value[key]) for key in sorted(value)}


def decode(data: bytes, limits: Limits, path: str) -> Any:
    """The one value that `data` encodes; maps are dicts, arrays lists.

    Raises `BundleTruncated`, `BundleLimit` or `BundleMalformed` naming `path` and the byte offset.
    """
    if len(data) > limits.file_bytes:
        raise BundleLimit(path=path, what="size in bytes", found=len(data), limit=limits.file_bytes)
    if not data:
        raise BundleTruncated(path=path, found=0, expected="one value")
    reader = _Reader(data, limits, path)
    try:
        value = reader.value(0)
    except (IndexError, msgpack.OutOfData):
        raise BundleTruncated(path=path, found=len(data), expected="more") from None
    except ValueError as error:  # a tag that is never used, text that is not UTF-8, a false length
        reader.refuse(f"refused by msgpack ({error})", "a value of MessagePack")
    end = reader.position()
    if end != len(data):
        reader.refuse(f"{len(data) - end} bytes too many", "the end of the file")
    if _pack(value) != data:
        raise BundleMalformed(
            path=path,
            field="the file",
            found="not canonical",
            expected="the shortest encoding of every value",
        )
    return value


class _Reader:
    """Reads one value; counts before it makes room, so that no header can ask for more."""

    __slots__ = ("count", "data", "limits", "path", "position", "unpacker")

    def __init__(self, data: bytes, limits: Limits, path: str) -> None:
        self.data = data
        self.limits = limits
        self.path = path
        self.count = 1
        self.unpacker = msgpack.Unpacker(max_buffer_size=len(data))  # bounds every length, too
        self.unpacker.feed(data)
        self.position = self.unpacker.tell

    def refuse(self, found: str, expected: str) -> NoReturn:
        field = f"byte {self.position()}"
        raise BundleMalformed(path=self.path, field=field, found=found, expected=expected)

    def limit(self, what: str, found: int, limit: int) -> None:
        if found > limit:
            raise BundleLimit(path=self.path, what=what, found=found, limit=limit)

    def value(self, depth: int) -> Any:
        tag = self.data[self.position()]
        if tag in ARRAYS:
            length = self.unpacker.read_array_header()
            self.open(length, depth)
            return [self.value(depth + 1) for _ in range(length)]
        if tag in MAPS:
            return self.map(depth)
        value = self.unpacker.unpack()
        kind = type(value)
        if kind not in LEAVES:
            self.refuse(f"a {kind.__name__}", "nil, bool, int, text, bytes, array or map")
        if kind is str or kind is bytes:
            size_bytes = len(value if kind is bytes else value.encode())
            self.limit("length in bytes", size_bytes, self.limits.text_bytes)
        return value

    def map(self, depth: int) -> dict[str, Any]:
        length = self.unpacker.read_map_header()
        self.open(2 * length, depth)
        result: dict[str, Any] = {}
        previous = None
        for _ in range(length):
            key = self.value(depth + 1)
            if type(key) is not str:
                self.refuse(f"a map key of type {type(key).__name__}", "a text key")
            if previous is not None and key <= previous:
                problem = "twice" if key == previous else "out of order"
                self.refuse(f"map key {key!r} {problem}", "ascending keys")
            result[key] = self.value(depth + 1)
            previous = key
        return result

    def open(self, values: int, depth: int) -> None:
        """Count the values that an array or a map claims to hold."""
        self.count += values
        self.limit("nesting", depth + 1, self.limits.depth)
        self.limit("number of values", self.count, self.limits.values)
