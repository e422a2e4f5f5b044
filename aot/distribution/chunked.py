"""A file that arrives in chunks which have digests, over several connections at once.

    few processors    a thread of each connection receives into a buffer, digests and writes it
    many              it receives into the file's pages, mapped; other threads digest chunks

A file that is written by calls lets one thread in at a time, so that many of them wait; pages are
made by all threads at once, but cost more of each. Pages are made before bytes are received into
them, so that a full disk is an error of that call. Files that cannot be mapped are written.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from aotc.aot.distribution.errors import ImageAltered
from aotc.aot.distribution.image import read_parts
from aotc.aot.distribution.sources import BUFFER_BYTES, Source
from aotc.aot.distribution.transfers import Transfers, submit
from aotc.runtime.bundle.image import Descriptor
from aotc.runtime.bundle.manifest import WeightsEntry
from aotc.runtime.errors import environment_fault

PIECE_BYTES = 64 << 20
LEAST_PIECE_BYTES = 16 << 20
ROUNDS = 4  # of pieces for each connection, so that all end at about the same time
ATTEMPTS = 3  # to get the bytes of one digest
MANY_PROCESSORS = 8
WAITING = 2  # chunks that wait for a digest, for each thread that computes digests
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14
NO_POPULATE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class ChunkedFile:
    """A file of the length and the chunks of an entry; a context manager."""

    def __init__(
        self, descriptor: int, entry: WeightsEntry, where: str, source: Source, transfers: Transfers
    ) -> None:
        """descriptor: of the file, to read and write; where: its path, for messages.

        What the file has already is digested in `tasks`. Raises `OSError`.
        """
        self._entry, self._where = entry, where
        self._source, self._transfers = source, transfers
        self._found_bytes = os.fstat(descriptor).st_size
        os.ftruncate(descriptor, entry.nbytes)
        self._memory = _memory(descriptor, entry.nbytes, where)
        count = _processors()
        self._pool = ThreadPoolExecutor(count, "aotc-digest")
        self._places = WAITING * count
        self._free = threading.Semaphore(self._places)
        self._lock = threading.Lock()
        self._wrong: dict[int, str] = {}  # chunk → the digest that it has
        self._failures: Counter[int] = Counter()
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._memory.close()

    def tasks(self, layer: Descriptor, jobs: int) -> list[Callable[[], None]]:
        """What fetches the chunks that the file lacks: runs of them, of at most PIECE_BYTES, and of
        fewer where that gives each of the jobs several."""
        missing: Sequence[int] = range(len(self._entry.chunks))
        if self._found_bytes:
            for index in missing:
                self._submit(index)
            self._wait()
            missing = sorted(self._wrong)
            self._wrong.clear()
            self._failures.clear()
        share_bytes = max(LEAST_PIECE_BYTES, self._entry.nbytes // (ROUNDS * jobs))
        most = max(1, min(PIECE_BYTES, share_bytes) // self._entry.chunk_bytes)
        return [lambda run=run: self._fetch(layer, *run) for run in runs(missing, most)]  # type: ignore[misc]

    def finish(self, layer: Descriptor) -> None:
        """Wait for all digests, and fetch again what came wrong. Raises `ImageAltered`."""
        self._wait()
        self._repair(layer, 0, len(self._entry.chunks))

    def _fetch(self, layer: Descriptor, first: int, last: int) -> None:
        """Fetch the chunks `first` to `last`, without the latter."""
        size = self._entry.chunk_bytes
        end = min(last * size, self._entry.nbytes)
        self._source.stream(layer, first * size, end, _Run(self, first * size, self._submit))
        self._repair(layer, first, last)

    def _repair(self, layer: Descriptor, first: int, last: int) -> None:
        """Fetch again, one by one, the chunks from `first` to `last` of which it is known that
        they came wrong."""
        while True:
            with self._lock:
                known = sorted(index for index in self._wrong if first <= index < last)
                for index in known:
                    found = self._wrong.pop(index)
                    if self._failures[index] >= ATTEMPTS:
                        raise ImageAltered(
                            path=self._source.name,
                            where=f"chunk {index} of `{self._entry.name}`",
                            found=found,
                            expected=self._entry.chunks[index].hex(),
                        )
            if not known:
                return
            for index in known:
                begin, end = self._span(index)
                self._source.stream(layer, begin, end, _Run(self, begin, self._check))

    def _span(self, index: int) -> tuple[int, int]:
        begin = index * self._entry.chunk_bytes
        return begin, min(begin + self._entry.chunk_bytes, self._entry.nbytes)

    def room(self, place: int) -> memoryview:
        """Memory for the bytes from a place on, in one chunk. Raises `EnvironmentFault`."""
        end = min(place + BUFFER_BYTES, self._span(place // self._entry.chunk_bytes)[1])
        try:
            return self._memory.room(place, end)
        except OSError as error:
            raise environment_fault("write", self._where, error) from error

    def took(self, place: int, room: memoryview, digest: Any, check: Callable[[int], None]) -> bool:
        """Bytes at a place have arrived; whether a chunk is complete with them.

        Where the file is mapped, `check` is called with such a chunk; where it is written, `digest`
        is of the chunk so far.
        """
        self._transfers.count(len(room))
        if self._error is not None:
            raise self._error
        index, end = place // self._entry.chunk_bytes, place + len(room)
        is_complete = end == self._span(index)[1]
        if isinstance(self._memory, _Mapped):
            if is_complete:
                check(index)
            return is_complete
        digest.update(room)
        try:
            self._memory.write(place, room)
        except OSError as error:
            raise environment_fault("write", self._where, error) from error
        if is_complete:
            self._judge(index, digest.digest())
        return is_complete

    def _submit(self, index: int) -> None:
        """Have a chunk digested by another thread, once one of the places is free."""
        self._free.acquire()
        try:
            submit(self._pool, self._check_and_free, index)
        except BaseException:
            self._free.release()
            raise

    def _check_and_free(self, index: int) -> None:
        try:
            self._check(index)
        except BaseException as error:
            self._error = error
        finally:
            self._free.release()

    def _check(self, index: int) -> None:
        """Digest a chunk of the file."""
        self._judge(index, self._memory.digest(*self._span(index)))

    def _judge(self, index: int, found: bytes) -> None:
        """Note a chunk whose digest is wrong."""
        if found != self._entry.chunks[index]:
            with self._lock:
                self._failures[index] += 1
                self._wrong[index] = found.hex()

    def _wait(self) -> None:
        """Return when no chunk waits for its digest; raises what ended a digest."""
        for _ in range(self._places):
            self._free.acquire()
        self._free.release(self._places)
        if self._error is not None:
            raise self._error


class _Run:
    """Where the bytes of a stream go: into the file, from the beginning of a chunk on."""

    def __init__(self, file: ChunkedFile, place: int, check: Callable[[int], None]) -> None:
        self._file, self._place, self._check = file, place, check
        self._room, self._digest = memoryview(b""), hashlib.sha256()

    def room(self) -> memoryview:
        self._room = self._file.room(self._place)
        return self._room

    def take(self, count: int) -> None:
        is_complete = self._file.took(self._place, self._room[:count], self._digest, self._check)
        self._place += count
        if is_complete:
            self._digest = hashlib.sha256()


class _Mapped:
    """The file's own pages."""

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self._descriptor, self._can_populate = descriptor, True
        self._map = mmap.mmap(descriptor, nbytes)

    def room(self, place: int, end: int) -> memoryview:
        """The bytes `place` to `end` of the file. Raises `OSError` where it cannot have them."""
        self._populate(place - place % mmap.PAGESIZE, end)
        return memoryview(self._map)[place:end]

    def digest(self, begin: int, end: int) -> bytes:
        """SHA-256 of a range, whose pages then go out of this process."""
        with memoryview(self._map) as view, view[begin:end] as chunk:
            found = hashlib.sha256(chunk).digest()
        first = begin - begin % mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, first, end - first)
        return found

    def close(self) -> None:
        with contextlib.suppress(BufferError):  # a traceback has a view; it goes with that
            self._map.close()

    def _populate(self, begin: int, end: int) -> None:
        """Make pages for a range, and have the file system promise room for them."""
        if self._can_populate:
            try:
                return self._map.madvise(POPULATE_WRITE, begin, end - begin)
            except OSError as error:
                if error.errno == errno.EFAULT:  # where writing would raise SIGBUS
                    self._fail(begin, end)
                if error.errno not in NO_POPULATE:
                    raise
                self._can_populate = False
        os.posix_fallocate(self._descriptor, begin, end - begin)
        return None

    def _fail(self, begin: int, end: int) -> None:
        """Raise why a range cannot be written: nearly always the disk is full."""
        os.posix_fallocate(self._descriptor, begin, end - begin)
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class _Written:
    """A buffer of each thread's, which is written into the file."""

    def __init__(self, descriptor: int, where: str) -> None:
        self._descriptor, self._where, self._local = descriptor, where, threading.local()

    def room(self, place: int, end: int) -> memoryview:
        """As much memory."""
        buffer: memoryview | None = getattr(self._local, "buffer", None)
        if buffer is None:
            buffer = self._local.buffer = memoryview(bytearray(BUFFER_BYTES))
        return buffer[: end - place]

    def write(self, place: int, room: memoryview) -> None:
        """Write what has arrived."""
        while room:
            count = os.pwrite(self._descriptor, room, place)
            place, room = place + count, room[count:]

    def digest(self, begin: int, end: int) -> bytes:
        """SHA-256 of a range of the file."""
        found = hashlib.sha256()
        for data in read_parts(self._descriptor, begin, end, self._where):
            found.update(data)
        return found.digest()

    def close(self) -> None:
        """Nothing is open."""


def _memory(descriptor: int, nbytes: int, where: str) -> _Mapped | _Written:
    if _processors() >= MANY_PROCESSORS:
        with contextlib.suppress(OSError):  # no maps here, or too little address space
            return _Mapped(descriptor, nbytes)
    return _Written(descriptor, where)


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def runs(numbers: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Ascending numbers as runs, (first, last + 1), of at most so many."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number and number - found[-1][0] < most:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found
