"""Canonical MessagePack: one encoding for each value, and a reader that accepts no other.

Grammar (a subset of MessagePack that any of its readers understands):

    value  = nil | bool | int | text | bytes | array | map
    int    = the shortest of fixint, uint8/16/32/64 (from 0 up), int8/16/32/64 (below 0)
    text   = UTF-8 with the shortest header (fixstr, str8/16/32)
    bytes  = the shortest of bin8/16/32
    array  = the shortest of fixarray, array16/32
    map    = the shortest of fixmap, map16/32; keys are text, strictly ascending by code point

No floats (so no NaN), no extension types, no timestamps, no duplicate keys. The reader is ours and
not msgpack's because it must count before it allocates: 50 MB of nested empty arrays cost
msgpack's C reader 3.5 GB and 14 s, and it takes duplicate keys and timestamps in silence.
"""

from __future__ import annotations

from .errors import BundleLimit, BundleMalformed, BundleTruncated
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

INTEGER_RANGE = (-(2**63), 2**64 - 1)


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
    out = bytearray()
    _encode(value, out)
    return bytes(out)


def _encode(value: Any, out: bytearray) -> None:
    if value is None or value is True or value is False:
        out.append({None: 0xC0, False: 0xC2, True: 0xC3}[value])
    elif type(value) is int:
        _encode_integer(value, out)
    elif type(value) is str:
        data = value.encode("utf-8")
        _encode_length(len(data), (0xA0, 32), (0xD9, 0xDA, 0xDB), out)
        out += data
    elif type(value) is bytes:
        _encode_length(len(value), (0, 0), (0xC4, 0xC5, 0xC6), out)
        out += value
    elif type(value) in (list, tuple):
        _encode_length(len(value), (0x90, 16), (0, 0xDC, 0xDD), out)
        for item in value:
            _encode(item, out)
    elif type(value) is dict:
        _encode_length(len(value), (0x80, 16), (0, 0xDE, 0xDF), out)
        for key in sorted(value):
            if type(key) is not str:
                raise TypeError(f"map key {key!r} is not text")
            _encode(key, out)
            _encode(value[key], out)
    else:
        raise TypeError(f"{type(value).__name__} has no canonical encoding")


def _encode_integer(value: int, out: bytearray) -> None:
    if -32 <= value < 128:
        out.append(value & 0xFF)
        return
    low, high = INTEGER_RANGE
    if not low <= value <= high:
        raise ValueError(f"{value} does not fit 64 bits")
    for index, size_bytes in enumerate((1, 2, 4, 8)):
        bits = 8 * size_bytes
        fits = value < 1 << bits if value >= 0 else value >= -(1 << (bits - 1))
        if fits:
            out.append((0xCC if value >= 0 else 0xD0) + index)
            out += value.to_bytes(size_bytes, "big", signed=value < 0)
            return


def _encode_length(
    length: int, fixed: tuple[int, int], tags: tuple[int, int, int], out: bytearray
) -> None:
    base, fixed_limit = fixed
    if length < fixed_limit:
        out.append(base + length)
        return
    for tag, size_bytes in zip(tags, (1, 2, 4), strict=True):
        if tag and length < 1 << (8 * size_bytes):
            out.append(tag)
            out += length.to_bytes(size_bytes, "big")
            return
    raise ValueError(f"length {length} does not fit 32 bits")


def decode(data: bytes, limits: Limits, path: str) -> Any:
    """The one value that `data` encodes; maps are dicts, arrays lists.

    Raises `BundleTruncated`, `BundleLimit` or `BundleMalformed` naming `path` and the byte offset.
    """
    if len(data) > limits.file_bytes:
        raise BundleLimit(path=path, what="size in bytes", found=len(data), limit=limits.file_bytes)
    reader = _Reader(data, limits, path)
    value = reader.value(0)
    if reader.position != len(data):
        reader.refuse(f"{len(data) - reader.position} bytes too many", "the end of the file")
    return value


class _Reader:
    """Position in the bytes and the count of values so far."""

    __slots__ = ("count", "data", "limits", "path", "position")

    def __init__(self, data: bytes, limits: Limits, path: str) -> None:
        self.data = data
        self.limits = limits
        self.path = path
        self.position = 0
        self.count = 0

    def refuse(self, found: str, expected: str) -> NoReturn:
        field = f"byte {self.position}"
        raise BundleMalformed(path=self.path, field=field, found=found, expected=expected)

    def limit(self, what: str, found: int, limit: int) -> None:
        if found > limit:
            raise BundleLimit(path=self.path, what=what, found=found, limit=limit)

    def take(self, size_bytes: int) -> bytes:
        end = self.position + size_bytes
        if end > len(self.data):
            raise BundleTruncated(path=self.path, found=len(self.data), expected=end)
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def value(self, depth: int) -> Any:
        self.count += 1
        self.limit("number of values", self.count, self.limits.values)
        tag = self.take(1)[0]
        if tag < 0x80:
            return tag
        if tag < 0x90:
            return self.map(tag & 0x0F, depth)
        if tag < 0xA0:
            return self.array(tag & 0x0F, depth)
        if tag < 0xC0:
            return self.text(tag & 0x1F)
        if tag >= 0xE0:
            return tag - 256
        if tag in SINGLETONS:
            return SINGLETONS[tag]
        row = TAGS.get(tag)
        if row is None:
            self.position -= 1
            self.refuse(f"tag 0x{tag:02x}", "nil, bool, int, text, bytes, array or map")
        kind, size_bytes, shortest = row
        number = int.from_bytes(self.take(size_bytes), "big", signed=kind == "negative")
        canonical = number < shortest if kind == "negative" else number >= shortest
        if not canonical:
            self.refuse(f"{kind} {number} in {size_bytes} bytes", "its shortest encoding")
        return self.sized(kind, number, depth)

    def sized(self, kind: str, number: int, depth: int) -> Any:
        if kind == "text":
            return self.text(number)
        if kind == "bytes":
            self.limit("length in bytes", number, self.limits.text_bytes)
            return self.take(number)
        if kind == "array":
            return self.array(number, depth)
        if kind == "map":
            return self.map(number, depth)
        return number

    def text(self, size_bytes: int) -> str:
        self.limit("length in bytes", size_bytes, self.limits.text_bytes)
        data = self.take(size_bytes)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self.refuse("text that is not utf-8", "utf-8")

    def array(self, length: int, depth: int) -> list[Any]:
        self.limit("nesting", depth + 1, self.limits.depth)
        self.limit("number of values", self.count + length, self.limits.values)
        return [self.value(depth + 1) for _ in range(length)]

    def map(self, length: int, depth: int) -> dict[str, Any]:
        self.limit("nesting", depth + 1, self.limits.depth)
        self.limit("number of values", self.count + 2 * length, self.limits.values)
        result: dict[str, Any] = {}
        previous = ""
        for index in range(length):
            key = self.value(depth + 1)
            if type(key) is not str:
                self.refuse(f"a map key of type {type(key).__name__}", "a text key")
            if index and key <= previous:
                problem = "twice" if key == previous else "out of order"
                self.refuse(f"map key {key!r} {problem}", "ascending keys")
            result[key] = self.value(depth + 1)
            previous = key
        return result


SINGLETONS = {0xC0: None, 0xC2: False, 0xC3: True}
# tag → kind, bytes of the number that follows, smallest number (or, for negatives, exclusive upper
# bound) that has no shorter encoding.
TAGS: dict[int, tuple[str, int, int]] = {
    0xC4: ("bytes", 1, 0),
    0xC5: ("bytes", 2, 1 << 8),
    0xC6: ("bytes", 4, 1 << 16),
    0xCC: ("int", 1, 128),
    0xCD: ("int", 2, 1 << 8),
    0xCE: ("int", 4, 1 << 16),
    0xCF: ("int", 8, 1 << 32),
    0xD0: ("negative", 1, -32),
    0xD1: ("negative", 2, -(1 << 7)),
    0xD2: ("negative", 4, -(1 << 15)),
    0xD3: ("negative", 8, -(1 << 31)),
    0xD9: ("text", 1, 32),
    0xDA: ("text", 2, 1 << 8),
    0xDB: ("text", 4, 1 << 16),
    0xDC: ("array", 2, 16),
    0xDD: ("array", 4, 1 << 16),
    0xDE: ("map", 2, 16),
    0xDF: ("map", 4, 1 << 16),
}
