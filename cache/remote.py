"""A cache on a server, in the layout of Bazel's HTTP caches, below one's own folder.

    ac/<address>    the record of an entry: its key, and name, size and sha256 of each file
    cas/<sha256>    the bytes of a file

A record's first line authenticates the rest by HMAC-SHA256 with a key that readers and writers
share, and its address is an HMAC of the entry's digest, so that two keys on one server are two
caches. Files are checked against size and sha256 before anybody sees them; nothing is returned of
an entry of which a part is missing or wrong.

Without a token nothing is sent. Whatever goes wrong is one warning and a miss: after a few failures
the server is not asked again, so that a build never waits for a broken one for long.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aotc.cache.errors import CacheWarning, RemoteCacheKeyMissing, RemoteCacheSecretInvalid
from aotc.cache.keys import Key, canonical
from aotc.cache.reading import FILE_NAME, RECORD, RECORD_LIMIT_BYTES, Damage, file_row
from aotc.cache.transport import Address, Refused, Transport, TransportFault

FORMAT = "aotc.remote/1"
CONNECTIONS = 8
FAILURES = 3  # after so many the server is not asked again
FILES_LIMIT = 256  # of one entry
ENTRY_LIMIT_BYTES = 1 << 30
KEY_BYTES = 32
SECRET_LIMIT_BYTES = 1 << 16
SHA256 = re.compile(r"[0-9a-f]{64}")

Files = Mapping[str, bytes]
Required = tuple[frozenset[str], ...]
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file of an entry, as a record names it."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(slots=True)
class Traffic:
    """What went over the network since the layer was opened."""

    entries_read: int = 0
    entries_written: int = 0
    failures: int = 0


class RemoteLayer:
    """A cache on a server. Safe for any number of threads; a fork needs one of its own."""

    is_copied = True

    def __init__(
        self,
        url: str,
        key: bytes | None,
        token: str = "",
        is_writable: bool = True,
        total_s: float = 20.0,
    ) -> None:
        """`key`: at least 32 bytes, or None to accept and write records of nobody in particular.

        `token` is sent with each request; only with one is anything written. total_s: seconds that
        a request may take, besides one for each MiB. Nothing is asked of the server yet. Raises
        RemoteCacheAddressInvalid and RemoteCacheSecretInvalid.
        """
        if key is not None and len(key) < KEY_BYTES:
            raise RemoteCacheSecretInvalid(what="key", found=f"{len(key)} bytes")
        self.url = url
        self.traffic = Traffic()
        self._key = key
        self._is_writable = is_writable and bool(token)
        self._transport = Transport(Address.of(url), token, total_s)
        self._absent: set[str] = set()  # addresses of which the server had nothing of use
        self._unsound: set[str] = set()  # digests under which it had other bytes, or none
        self._is_warned = False
        self._is_down = False
        self._guard = threading.Lock()

    @property
    def is_writable(self) -> bool:
        """Whether entries are sent: with a token, and as long as the server takes them."""
        return self._is_writable and not self._is_down

    @property
    def is_authenticated(self) -> bool:
        """Whether records of others are refused."""
        return self._key is not None

    def get(self, key: Key, required: Required = ()) -> Files | None:
        """The files of the key's entry, digests checked; None where the server has it not, or not
        whole, or cannot be asked. Never raises."""
        if self._is_down:
            return None
        try:
            return self._entry(key, required)
        except (TransportFault, Damage) as fault:
            self._absent.add(self._address(key))  # to be written anew
            self._fail(str(fault), is_final=isinstance(fault, Refused))
            return None

    def get_many(self, keys: Iterable[Key], required: Required = ()) -> Iterator[tuple[Key, Files]]:
        """The entries that the server has, several at a time, in the order of `keys`."""

        def one(key: Key) -> tuple[Key, Files | None]:
            return key, self.get(key, required)

        for key, files in self._parallel(one, keys):
            if files is not None:
                yield key, files

    def put_many(self, entries: Iterable[tuple[Key, Files]]) -> int:
        """Send entries, several at a time, files before records; how many arrived. Never raises."""

        def one(entry: tuple[Key, Files]) -> bool:
            return self._put(*entry)

        return sum(self._parallel(one, entries)) if self.is_writable else 0

    def folder_of(self, key: Key) -> Path | None:
        """Never one: what is fetched stands in one's own folder."""
        return None

    def _entry(self, key: Key, required: Required) -> Files | None:
        address = self._address(key)
        if address in self._absent:
            return None
        text = self._transport.get(f"/ac/{address}", RECORD_LIMIT_BYTES)
        rows = None if text is None else self._rows(text, key)
        if rows is None:
            self._absent.add(address)
            return None
        names = {row.name for row in rows}
        if required and not any(wanted <= names for wanted in required):
            raise Damage("a record lacks files that it should have")
        files = {}
        for row in rows:
            data = self._file(row)
            if data is None:  # the server drops files one by one: an ordinary miss
                self._absent.add(address)
                return None
            files[row.name] = data
        with self._guard:
            self.traffic.entries_read += 1
        return files

    def _file(self, row: FileRow) -> bytes | None:
        self._unsound.add(row.sha256)
        data = self._transport.get(f"/cas/{row.sha256}", row.size_bytes, row.size_bytes)
        if data is not None and hashlib.sha256(data).hexdigest() != row.sha256:
            raise Damage("a file has other bytes than its digest says")
        self._unsound.discard(row.sha256)
        return data

    def _put(self, key: Key, files: Files) -> bool:
        """Send one entry; the record last, so that what it names is there."""
        rows = [file_row(name, data) for name, data in sorted(files.items())]
        record = canonical({"files": rows, "format": FORMAT, "key": key.record()})
        text = f"{FORMAT} {self._code('record', record)}\n".encode() + record
        if not self.is_writable or len(text) > RECORD_LIMIT_BYTES or len(rows) > FILES_LIMIT:
            return False
        if sum(map(len, files.values())) > ENTRY_LIMIT_BYTES:
            return False
        address = self._address(key)
        try:
            if address not in self._absent and self._transport.has(f"/ac/{address}"):
                return False
            for row, (_, data) in zip(rows, sorted(files.items()), strict=True):
                path = f"/cas/{row['sha256']}"
                if row["sha256"] in self._unsound or not self._transport.has(path, len(data)):
                    self._transport.put(path, data)
            self._transport.put(f"/ac/{address}", text)
        except Refused as fault:
            self._is_writable = False
            self._warn_once(f"{fault}; nothing is written there")
            return False
        except TransportFault as fault:
            self._fail(str(fault))
            return False
        self._absent.discard(address)
        with self._guard:
            self.traffic.entries_written += 1
        return True

    def _address(self, key: Key) -> str:
        return self._code("address", key.digest.encode())

    def _code(self, purpose: str, data: bytes) -> str:
        """64 digits that only who has the key can make; without a key a plain digest."""
        authenticated = f"{FORMAT} {purpose}\n".encode() + data
        if self._key is None:
            return hashlib.sha256(authenticated).hexdigest()
        return hmac.new(self._key, authenticated, hashlib.sha256).hexdigest()

    def _rows(self, text: bytes, key: Key) -> list[FileRow]:
        """The files that a record names, after it has proved whose it is; raises Damage."""
        head, _, record = text.partition(b"\n")
        wanted = f"{FORMAT} {self._code('record', record)}".encode()
        if not hmac.compare_digest(head, wanted):
            raise Damage("a record is not authenticated by our key")
        return read_rows(record, key)

    def _parallel(
        self, call: Callable[[_Given], _Made], items: Iterable[_Given]
    ) -> Iterator[_Made]:
        """Results in order; no more than a few are in memory before they are taken."""
        pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="aotc-remote")
        waiting: deque[Future[_Made]] = deque()
        try:
            for item in items:
                waiting.append(_begin(pool, call, item))
                if len(waiting) >= 2 * CONNECTIONS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            self._transport.is_stopped = True  # nobody waits for an answer any more
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            self._transport.is_stopped = False

    def _fail(self, what: str, is_final: bool = False) -> None:
        with self._guard:
            self.traffic.failures += 1
            self._is_down |= is_final or self.traffic.failures >= FAILURES
        self._warn_once(f"{what}; going on without what it has")

    def _warn_once(self, what: str) -> None:
        with self._guard:
            is_first, self._is_warned = not self._is_warned, True
        if is_first:
            warnings.warn(f"remote cache {self.url}: {what}", CacheWarning, stacklevel=2)


def _begin(
    pool: ThreadPoolExecutor, call: Callable[[_Given], _Made], item: _Given
) -> Future[_Made]:
    """A call by the pool, or here where the system starts no more threads."""
    try:
        return pool.submit(call, item)
    except RuntimeError:
        made: Future[_Made] = Future()
        try:
            made.set_result(call(item))
        except Exception as error:
            made.set_exception(error)
        return made


def read_rows(record: bytes, key: Key) -> list[FileRow]:
    """The files that a record names for `key`; raises Damage for anything but such a record."""
    try:
        tree = json.loads(record)
    except (ValueError, RecursionError):
        raise Damage("a record does not parse") from None
    if not isinstance(tree, dict) or tree.keys() != {"files", "format", "key"}:
        raise Damage("a record has other fields than it should")
    if tree["format"] != FORMAT or tree["key"] != key.record():
        raise Damage("a record belongs to another key")
    listed = tree["files"]
    if not isinstance(listed, list) or not 0 < len(listed) <= FILES_LIMIT:
        raise Damage("a record lists no files, or too many")
    rows = [_file(row) for row in listed]
    if len({row.name for row in rows}) != len(rows):
        raise Damage("a record lists a file twice")
    if sum(row.size_bytes for row in rows) > ENTRY_LIMIT_BYTES:
        raise Damage("a record lists too many bytes")
    return rows


def _file(row: object) -> FileRow:
    if not isinstance(row, dict) or row.keys() != {"name", "size_bytes", "sha256"}:
        raise Damage("a record lists a file with other fields than it should")
    name, size, digest = row["name"], row["size_bytes"], row["sha256"]
    if not isinstance(name, str) or not FILE_NAME.fullmatch(name) or name == RECORD:
        raise Damage("a record names a file outside the entry")
    if type(size) is not int or not 0 <= size <= ENTRY_LIMIT_BYTES:
        raise Damage("a record gives a size that cannot be")
    if not isinstance(digest, str) or not SHA256.fullmatch(digest):
        raise Damage("a record gives a digest that is none")
    return FileRow(name, size, digest)


def open_remote(
    url: str,
    *,
    key: str = "",
    key_file: str | None = None,
    token: str = "",
    token_file: str | None = None,
    is_authenticated: bool = True,
    is_writable: bool = True,
    total_s: float = 20.0,
) -> RemoteLayer:
    """The layer that the settings describe; a file comes before the text.

    Raises RemoteCacheKeyMissing, RemoteCacheSecretInvalid and RemoteCacheAddressInvalid.
    """
    shared = _secret("key", key_file) if key_file else key
    if not shared and is_authenticated:
        Address.of(url)  # the address first: it may be wrong, and is shown
        raise RemoteCacheKeyMissing(url=url)
    return RemoteLayer(
        url,
        shared.encode() if shared and is_authenticated else None,
        _secret("token", token_file) if token_file else token,
        is_writable,
        total_s,
    )


def _secret(what: str, path: str) -> str:
    """The text of a secret's file, less the line's end; raises RemoteCacheSecretInvalid."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(SECRET_LIMIT_BYTES + 1)
        found = text.decode("ascii").strip()
    except OSError as fault:
        reason = f"file `{path}`: {fault.strerror or 'cannot be read'}"
        raise RemoteCacheSecretInvalid(what=what, found=reason) from None
    except UnicodeDecodeError:
        found = ""
    if not found or len(text) > SECRET_LIMIT_BYTES:
        raise RemoteCacheSecretInvalid(what=what, found=f"file `{path}` holds no line of ASCII")
    return found
