"""Canonical MessagePack: one encoding for each value, and a strict reader and writer of it.

Grammar (a subset of MessagePack that any of its readers understands):

    value  = nil | bool | int | text | bytes | array | map
    int    = the shortest form, unsigned from 0 up, signed below 0; 64 bits at most
    text   = UTF-8 with the shortest header
    bytes, array, map = each with the shortest header
    map    = keys are text, strictly ascending by code point

No floats (so no NaN), no extension types, no timestamps, no duplicate keys. What a header claims is
counted against the limits before anything is made of it. The package `msgpack` costs as much to
import as all of the runtime, and reads forms that are refused here.
"""

from __future__ import annotations

from _operator import lt
from itertools import pairwise

from ..errors import BundleLimit, BundleMalformed, BundleTruncated
from ..record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# Tag → bytes of the number behind it, and the least number that no shorter form holds.
UNSIGNED = {0xCC: (1, 1 << 7), 0xCD: (2, 1 << 8), 0xCE: (4, 1 << 16), 0xCF: (8, 1 << 32)}
SIGNED = {0xD0: (1, 1 << 5), 0xD1: (2, 1 << 7), 0xD2: (4, 1 << 15), 0xD3: (8, 1 << 31)}  # below 0
TEXTS = {0xD9: (1, 1 << 5), 0xDA: (2, 1 << 8), 0xDB: (4, 1 << 16)}
BYTES = {0xC4: (1, 0), 0xC5: (2, 1 << 8), 0xC6: (4, 1 << 16)}
ARRAYS = {0xDC: (2, 1 << 4), 0xDD: (4, 1 << 16)}
MAPS = {0xDE: (2, 1 << 4), 0xDF: (4, 1 << 16)}
SINGLES = {0xC0: None, 0xC2: False, 0xC3: True}
OF_TAG = {tag: rows for rows in (UNSIGNED, SIGNED, TEXTS, BYTES, ARRAYS, MAPS) for tag in rows}


class Limits(Record):
    """Bounds of one file, checked while reading; sizes in bytes."""

    file_bytes: int
    values: int  # every nil, number, text, array and map, keys included
    depth: int
    text_bytes: int


def encode(value: Any) -> bytes:
    """The canonical bytes of a tree of None, bool, int, str, bytes, list, tuple and dict.

    Raises `TypeError` for anything else and `ValueError` for an integer beyond 64 bits.
    """
    parts: list[bytes] = []
    _write(value, parts.append)
    return b"".join(parts)


def _write(value: Any, add: Any) -> None:
    kind = type(value)
    if kind is int:
        add(_number(value))
    elif kind is str or kind is bytes:
        data = value.encode() if kind is str else value
        add(_header(len(data), *((0xA0, TEXTS) if kind is str else (0, BYTES))))
        add(data)
    elif kind is list or kind is tuple:
        add(_header(len(value), 0x90, ARRAYS))
        for item in value:
            _write(item, add)
    elif kind is dict:
        add(_header(len(value), 0x80, MAPS))
        for key in value:
            if type(key) is not str:
                raise TypeError(f"map key {key!r} is not text")
        for key in sorted(value):
            _write(key, add)
            _write(value[key], add)
    elif value is None or kind is bool:
        add(b"\xc0" if value is None else b"\xc3" if value else b"\xc2")
    else:
        raise TypeError(f"{kind.__name__} has no canonical encoding")


def _number(value: int) -> bytes:
    if -32 <= value < 128:
        return bytes((value & 0xFF,))
    for tag, (width, _) in (UNSIGNED if value > 0 else SIGNED).items():
        try:
            return bytes((tag,)) + value.to_bytes(width, "big", signed=value < 0)
        except OverflowError:
            pass
    raise ValueError("an integer of the tree does not fit 64 bits")


def _header(length: int, short: int, rows: dict[int, tuple[int, int]]) -> bytes:
    """short: the tag of length 0 of the form that has its length inside, 0 where there is none."""
    if short and length < min(least for _, least in rows.values()):
        return bytes((short + length,))
    for tag, (width, _) in rows.items():
        if length < 1 << 8 * width:
            return bytes((tag,)) + length.to_bytes(width, "big")
    raise ValueError(f"a length of {length} does not fit 32 bits")


def decode(data: bytes, limits: Limits, path: str, ends: dict[str, int] | None = None) -> Any:
    """The one value that `data` encodes; maps are dicts, arrays lists.

    ends: takes the offset at which the value of each key of the outermost map ends.

    Raises `BundleTruncated`, `BundleLimit` or `BundleMalformed` naming `path` and the byte offset.
    """
    if len(data) > limits.file_bytes:
        raise BundleLimit(path=path, what="size in bytes", found=len(data), limit=limits.file_bytes)
    if not data:
        raise BundleTruncated(path=path, found=0, expected="one value")
    reader = _Reader(data, limits, path, ends)
    try:
        (value,) = reader.items(1, 0)
    except IndexError:
        raise BundleTruncated(path=path, found=len(data), expected="more") from None
    except UnicodeDecodeError:
        reader.refuse("text that is not UTF-8", "UTF-8")
    if reader.position != len(data):
        reader.refuse(f"{len(data) - reader.position} bytes too many", "the end of the file")
    return value


class _Reader:
    """Reads values; counts before it makes room, so that no header can ask for more."""

    __slots__ = ("count", "data", "ends", "limits", "path", "position")

    def __init__(self, data: bytes, limits: Limits, path: str, ends: dict[str, int] | None) -> None:
        self.data = data
        self.ends = ends
        self.limits = limits
        self.path = path
        self.count = 1
        self.position = 0

    def refuse(self, found: str, expected: str) -> NoReturn:
        field = f"byte {self.position}"
        raise BundleMalformed(path=self.path, field=field, found=found, expected=expected)

    def limit(self, what: str, found: int, limit: int) -> None:
        if found > limit:
            raise BundleLimit(path=self.path, what=what, found=found, limit=limit)

    def items(self, length: int, depth: int) -> list[Any]:
        """So many values, one behind the other. Raises IndexError where the data ends."""
        found: list[Any] = []
        data, text_bytes = self.data, self.limits.text_bytes
        add, at, end = found.append, self.position, len(self.data)
        for _ in range(length):
            tag = data[at]
            at += 1
            if tag < 0x80:
                add(tag)
                continue
            if 0xA0 <= tag < 0xC0:
                begin, at = at, at + tag - 0xA0
                if at > end or at - begin > text_bytes:
                    self.position = begin
                    self.bytes(at - begin)  # which refuses it
                add(data[begin:at].decode())
                continue
            if tag == 0xCD and at + 1 < end and data[at]:  # most numbers of a plan
                add(data[at] << 8 | data[at + 1])
                at += 2
                continue
            self.position = at
            if tag >= 0xE0:
                add(tag - 0x100)
            elif tag < 0x90:
                add(self.map(tag - 0x80, depth))
            elif tag < 0xA0:
                self.open(tag - 0x90, depth)
                if tag == 0x91 and at < end and data[at] < 0x80:  # as most lists of a plan
                    add([data[at]])
                    self.position = at + 1
                elif tag == 0x91 and at + 2 < end and data[at] == 0xCD and data[at + 1]:
                    add([data[at + 1] << 8 | data[at + 2]])
                    self.position = at + 3
                else:
                    add(self.items(tag - 0x90, depth + 1))
            elif tag in SINGLES:
                add(SINGLES[tag])
            else:
                add(self.long(tag, depth))
            at = self.position
        self.position = at
        return found

    def long(self, tag: int, depth: int) -> Any:
        """A value whose number or length stands behind its tag."""
        rows = OF_TAG.get(tag)
        if rows is None:
            self.position -= 1
            self.refuse(f"tag 0x{tag:02x}", "nil, bool, int, text, bytes, array or map")
        width, least = rows[tag]
        end = self.position + width
        number = int.from_bytes(self.data[self.position : end], "big", signed=rows is SIGNED)
        if end > len(self.data):
            raise IndexError
        if number >= -least if rows is SIGNED else number < least:
            self.refuse(f"{number} in {width} bytes", "the shortest encoding of every value")
        self.position = end
        if rows is UNSIGNED or rows is SIGNED:
            return number
        if rows is ARRAYS:
            self.open(number, depth)
            return self.items(number, depth + 1)
        if rows is MAPS:
            return self.map(number, depth)
        content = self.bytes(number)
        return content if rows is BYTES else content.decode()

    def bytes(self, length: int) -> bytes:
        if length > self.limits.text_bytes:
            self.limit("length in bytes", length, self.limits.text_bytes)
        begin = self.position
        self.position = end = begin + length
        if end > len(self.data):
            raise IndexError
        return self.data[begin:end]

    def map(self, length: int, depth: int) -> dict[str, Any]:
        self.open(2 * length, depth)
        if depth or self.ends is None:
            found = self.items(2 * length, depth + 1)
        else:
            found = []
            for _ in range(length):
                found += self.items(2, 1)
                self.ends[str(found[-2])] = self.position
        keys = found[::2]
        for key in keys:
            if type(key) is not str:
                self.refuse(f"a map key of type {type(key).__name__}", "a text key")
        if not all(map(lt, keys, keys[1:])):
            previous, key = next(pair for pair in pairwise(keys) if not lt(*pair))
            problem = "twice" if key == previous else "out of order"
            self.refuse(f"map key {key!r} {problem}", "ascending keys")
        return dict(zip(keys, found[1::2], strict=True))

    def open(self, values: int, depth: int) -> None:
        """Count the values that an array or a map claims to hold."""
        self.count += values
        if depth >= self.limits.depth or self.count > self.limits.values:
            self.limit("nesting", depth + 1, self.limits.depth)
            self.limit("number of values", self.count, self.limits.values)
