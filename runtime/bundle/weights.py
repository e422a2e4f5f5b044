"""Reader of `weights.safetensors`: strict header, mapped file, digests by chunk.

A safetensors file is `length:u64 little-endian`, a JSON header of that length and the tensors'
bytes. Accepted is a strict subset, so that one file has one meaning:

- header of at most 16 MiB: JSON without spaces, escapes or duplicate keys, then spaces; at most
  1,000,000 tensors; no `__metadata__`;
- each tensor has exactly `dtype`, `shape` and `data_offsets`, in this order, and its size is that
  of its shape;
- tensors lie back to back in the order of their offsets, from 0 to the end of the file: no holes,
  no overlap (padding is a tensor of its own, named `_pad.N`, of dtype U8).

The writer starts the data, and every tensor that a kernel reads, at a multiple of 64 bytes.
"""

from __future__ import annotations

import _thread
import ctypes
import hashlib
import mmap
import os

from ..arrays.buffers import buffer_address
from ..arrays.dtypes import BY_SAFETENSORS
from ..errors import BundleAltered, BundleLimit, BundleMalformed, BundleTruncated, MemoryFull
from ..record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .manifest import WeightsEntry

HEADER_LIMIT_BYTES = 16 << 20
TENSOR_LIMIT = 1_000_000
PADDING_PREFIX = "_pad."
ALIGNMENT_BYTES = 64


class Tensor(Record):
    """A tensor of the file: name, dtype name, shape; offset from the file's start and size."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def read_header(data: Any, path: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file in memory, by name, padding left out.

    `data` is anything with length and slices (bytes, mmap). Raises `BundleError`s.
    """
    if len(data) < 8:
        raise BundleTruncated(path=path, found=len(data), expected=8)
    header_bytes = int.from_bytes(data[:8], "little")
    if header_bytes > HEADER_LIMIT_BYTES:
        raise BundleLimit(
            path=path, what="header in bytes", found=header_bytes, limit=HEADER_LIMIT_BYTES
        )
    start = 8 + header_bytes
    if len(data) < start:
        raise BundleTruncated(path=path, found=len(data), expected=start)
    rows = _parse_header(bytes(data[8:start]), path)
    tensors = sorted(
        (_read_row(name, row, path) for name, row in rows.items()),
        key=lambda tensor: (tensor.offset, tensor.nbytes),
    )
    end = 0
    for tensor in tensors:
        if tensor.offset != end:
            raise _malformed(path, tensor.name, f"data at {tensor.offset}", f"data at {end}")
        end += tensor.nbytes
    if start + end > len(data):
        raise BundleTruncated(path=path, found=len(data), expected=start + end)
    if start + end != len(data):
        raise _malformed(path, "the end", f"{len(data)} bytes", f"{start + end} bytes")
    return {
        each.name: Tensor(each.name, each.dtype, each.shape, start + each.offset, each.nbytes)
        for each in tensors
        if not each.name.startswith(PADDING_PREFIX)
    }


def _parse_header(text: bytes, path: str) -> dict[str, tuple[str, list[int], list[int]]]:
    """Name → dtype, shape, offsets, from JSON in the one form that the writer uses."""
    try:
        cursor = _Cursor(text.decode("utf-8"), path)
    except UnicodeDecodeError:
        raise _malformed(path, "header", "text that is not utf-8", "utf-8") from None
    rows: dict[str, tuple[str, list[int], list[int]]] = {}
    cursor.expect("{")
    while not cursor.skip("}"):
        if rows:
            cursor.expect(",")
        name = cursor.text()
        if name in rows:
            raise _malformed(path, name, "a key twice", "each key once")
        if len(rows) == TENSOR_LIMIT:
            raise BundleLimit(
                path=path, what="number of tensors", found=TENSOR_LIMIT + 1, limit=TENSOR_LIMIT
            )
        cursor.expect(':{"dtype":')
        dtype = cursor.text()
        cursor.expect(',"shape":')
        shape = cursor.numbers()
        cursor.expect(',"data_offsets":')
        rows[name] = (dtype, shape, cursor.numbers())
        cursor.expect("}")
    if cursor.rest().strip(" "):
        raise _malformed(path, "header", "text after the object", "spaces only")
    return rows


class _Cursor:
    """Reads the header's JSON from left to right; anything else is refused.

    The standard library's parser costs 6 ms of import and accepts floats, escapes, duplicate keys
    and NaN, none of which a header may hold.
    """

    __slots__ = ("_path", "_position", "_source")

    def __init__(self, source: str, path: str) -> None:
        self._source = source
        self._path = path
        self._position = 0

    def skip(self, literal: str) -> bool:
        """Step over `literal` if it stands here."""
        found = self._source.startswith(literal, self._position)
        self._position += len(literal) if found else 0
        return found

    def expect(self, literal: str) -> None:
        if not self.skip(literal):
            raise self._refuse(f"`{literal}`")

    def rest(self) -> str:
        return self._source[self._position :]

    def text(self) -> str:
        """A string of up to 256 printable characters without quotes or escapes."""
        self.expect('"')
        end = self._source.find('"', self._position, self._position + 257)
        found = self._source[self._position : end]
        if end <= self._position or not found.isprintable() or "\\" in found:
            raise self._refuse("1 to 256 printable characters without escapes")
        self._position = end + 1
        return found

    def numbers(self) -> list[int]:
        """An array of up to 64 whole numbers below 2**48, without spaces or leading zeros."""
        self.expect("[")
        end = self._source.find("]", self._position, self._position + 1024)
        words = self._source[self._position : end].split(",") if end > self._position else []
        numbers = [int(word) if word.isascii() and word.isdigit() else -1 for word in words]
        exact = [str(number) for number in numbers] == words
        if end < 0 or not exact or len(words) > 64 or any(n >= 1 << 48 for n in numbers):
            raise self._refuse("up to 64 whole numbers")
        self._position = end + 1
        return numbers

    def _refuse(self, expected: str) -> BundleMalformed:
        found = repr(self._source[self._position : self._position + 24])
        return _malformed(self._path, f"header byte {self._position}", found, expected)


def _read_row(name: str, row: tuple[str, list[int], list[int]], path: str) -> Tensor:
    """One header entry as a `Tensor` whose offset counts from the start of the data."""
    dtype = BY_SAFETENSORS.get(row[0])
    if dtype is None:
        raise _malformed(path, f"{name}.dtype", f"`{row[0][:40]}`", ", ".join(BY_SAFETENSORS))
    if len(row[2]) != 2:
        raise _malformed(path, f"{name}.data_offsets", f"{len(row[2])} numbers", "begin and end")
    nbytes = dtype.itemsize_bytes
    for extent in row[1]:
        nbytes *= extent
    begin, end = row[2]
    if end - begin != nbytes:
        expected = f"{nbytes} bytes, as the shape says"
        raise _malformed(path, f"{name}.data_offsets", f"{end - begin} bytes", expected)
    return Tensor(name, dtype.name, tuple(row[1]), begin, nbytes)


def _malformed(path: str, field: str, found: str, expected: str) -> BundleMalformed:
    return BundleMalformed(path=path, field=field, found=found, expected=expected)


class MappedFile:
    """A file mapped for reading; `address` is that of its first byte, `view` its bytes.

    Unmapped when the last reference goes; addresses into the mapping are invalid afterwards.
    """

    __slots__ = ("_descriptor", "_map", "address", "nbytes", "view")

    def __init__(self, descriptor: int, nbytes: int) -> None:
        """Map `nbytes` of an open file; the descriptor may be closed afterwards."""
        self._map = mmap.mmap(descriptor, nbytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        self.view = memoryview(self._map)
        self.address = buffer_address(self.view)
        self.nbytes = nbytes
        self._descriptor = os.dup(descriptor)

    def take(self, staged: StagedMemory) -> None:
        """Have other bytes at the same addresses, by one system call; the staged memory is then
        this object's. Raises OSError, with nothing changed."""
        libc = _libc()
        _require(libc.mprotect(staged.address, self.nbytes, mmap.PROT_READ) == 0)
        flags = MREMAP_MAYMOVE | MREMAP_FIXED
        moved = libc.mremap(staged.address, self.nbytes, self.nbytes, flags, self.address)
        _require(moved == self.address)
        staged.address = 0

    def restore(self) -> None:
        """Have the file's bytes at the same addresses again. Raises OSError."""
        flags = mmap.MAP_PRIVATE | MAP_FIXED
        to = (self.address, self.nbytes, mmap.PROT_READ, flags, self._descriptor, 0)
        _require(_libc().mmap(*to) == self.address)

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", -1)
        if descriptor >= 0:
            os.close(descriptor)


MAP_FIXED = 0x10
MREMAP_MAYMOVE, MREMAP_FIXED = 1, 2


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("mmap", "mremap"):
        getattr(libc, name).restype = ctypes.c_size_t
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (size, size, number, number, number, ctypes.c_int64)
    libc.mremap.argtypes = (size, size, size, number, size)
    libc.mprotect.argtypes = (size, size, number)
    libc.munmap.argtypes = (size, size)
    return libc


def _require(is_ok: bool) -> None:
    if not is_ok:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class StagedMemory:
    """Private memory as large as a weights file, to be filled and then taken by its mapping."""

    __slots__ = ("address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        """Raises `MemoryFull`."""
        self.address, self.nbytes = 0, nbytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        found = _libc().mmap(0, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if found == ctypes.c_size_t(-1).value:
            raise MemoryFull(purpose="new weights, beside the old ones", nbytes=nbytes)
        self.address = found

    def spans(self, spans: Mapping[str, tuple[int, int]], base: int) -> dict[str, tuple[int, int]]:
        """Where tensors lie here that lie in memory from `base` on: (address, bytes) by name."""
        apart = self.address - base
        return {name: (address + apart, nbytes) for name, (address, nbytes) in spans.items()}

    def close(self) -> None:
        """Free the memory, unless it was taken; idempotent."""
        address, self.address = self.address, 0
        if address:
            _libc().munmap(address, self.nbytes)


class Digests:
    """Background check of the digests of a file's chunks; `finish` raises what it found."""

    __slots__ = ("_bad", "_checked", "_entry", "_locks", "_next", "_path", "_view")

    def __init__(self, view: memoryview, entry: WeightsEntry, path: str, threads: int) -> None:
        """Start up to `threads` threads; hashlib releases the GIL on each chunk."""
        self._view = view
        self._entry = entry
        self._path = path
        self._next = iter(range(len(entry.chunks)))
        self._checked = bytearray(len(entry.chunks))
        self._bad: list[int] = []
        self._locks: list[Any] = []
        for _ in range(min(threads, len(entry.chunks)) - 1):
            lock = _thread.allocate_lock()
            lock.acquire()
            try:
                _thread.start_new_thread(self._work, (lock,))
            except RuntimeError:  # no more threads: `finish` does it all
                break
            self._locks.append(lock)

    def finish(self) -> None:
        """Take part in the rest, wait for the others, raise `BundleAltered` for a bad chunk."""
        for index in self._next:
            self._check(index)
        for lock in self._locks:
            lock.acquire()
        for index, checked in enumerate(self._checked):
            if not checked:  # a thread died on it
                self._check(index)
        if self._bad:
            self._refuse(min(self._bad))

    def _work(self, lock: Any) -> None:
        try:
            # The shared iterator hands out each index once: one step of it holds the GIL.
            for index in self._next:
                self._check(index)
        finally:
            lock.release()

    def _chunk(self, index: int) -> memoryview:
        size = self._entry.chunk_bytes
        return self._view[index * size : (index + 1) * size]

    def _check(self, index: int) -> None:
        if hashlib.sha256(self._chunk(index)).digest() != self._entry.chunks[index]:
            self._bad.append(index)
        self._checked[index] = 1

    def _refuse(self, index: int) -> None:
        begin = index * self._entry.chunk_bytes
        chunk = self._chunk(index)
        raise BundleAltered(
            path=self._path,
            where=f"chunk {index} (bytes {begin} to {begin + len(chunk)})",
            found=hashlib.sha256(chunk).hexdigest(),
            expected=self._entry.chunks[index].hex(),
        )


def hash_threads() -> int:
    """Threads worth using for digests: the CPUs this process may run on."""
    return len(os.sched_getaffinity(0))
