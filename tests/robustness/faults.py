"""Each system call of readers and writers fails once, or from then on: typed, nothing half-made.

The functions of `os`, and files that are written through Python's own, are replaced while an
operation runs; how often each is called is counted first. A case is an operation, a call of it and
an error. Afterwards what the operation works on is as it was, or as it was to become; and one run
without faults leaves nothing beside it.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import null_driver  # noqa: F401  # puts itself in the table of drivers
import small_bundle

from aotc.aot.distribution.exchange import pull_bundle, push_bundle
from aotc.aot.pack import staging
from aotc.cache import Key, Store
from aotc.cache.archive import export_to, import_from
from aotc.cache.checking import check
from aotc.cache.collect import collect_all
from aotc.cache.errors import CacheError
from aotc.runtime.errors import AotcError
from aotc.runtime.extras import read_golden
from aotc.runtime.loading import load
from aotc.runtime.trust.trust import Policy
from aotc.runtime.verify import verify

from .spread import Found

WRITE = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
CHANGE = (*WRITE, errno.EROFS, errno.EACCES)
READ = (errno.EIO, errno.ESTALE)
LOOK = (errno.EIO, errno.EACCES, errno.ESTALE)
# Function of `os` → what it is made to fail with.
ERRORS: dict[str, tuple[int, ...]] = {
    "open": (*LOOK, errno.EMFILE, errno.ENFILE),
    "mkdir": CHANGE, "rename": CHANGE, "replace": CHANGE, "link": CHANGE, "symlink": CHANGE,
    "unlink": CHANGE[1:], "rmdir": CHANGE[1:], "utime": CHANGE[1:], "chmod": CHANGE[1:],
    "fchmod": CHANGE[1:], "truncate": WRITE, "ftruncate": WRITE, "posix_fallocate": WRITE,
    "write": WRITE, "pwrite": WRITE, "writev": WRITE, "pwritev": WRITE, "fsync": WRITE,
    "read": READ, "readv": READ, "pread": READ, "preadv": READ, "sendfile": READ,
    "copy_file_range": WRITE,
    "listdir": (*LOOK, errno.EMFILE), "scandir": (*LOOK, errno.EMFILE),
    "stat": LOOK, "lstat": LOOK, "fstat": READ, "statvfs": LOOK, "lseek": READ,
    "access": LOOK, "readlink": LOOK,
}  # fmt: skip
OTHERS: dict[str, tuple[int, ...]] = {
    "open to write": (*CHANGE, errno.EMFILE, errno.ENFILE),
    "file open": (*CHANGE, errno.EMFILE),
    "file write": WRITE,
    "file read": READ,
    "renameat2": CHANGE,
    "flock": (errno.ENOLCK, errno.EIO),
}


class Injector:
    """Counts the calls while it is entered; number `at` of them fails with `code`, and with
    `is_lasting` all later ones of the same function too."""

    def __init__(self, at: int = -1, code: int = 0, is_lasting: bool = False) -> None:
        self._at, self._code, self._is_lasting = at, code, is_lasting
        self._broken = ""
        self.calls: list[str] = []

    def meet(self, name: str) -> None:
        """A call of a function is about to be made."""
        number = len(self.calls)
        self.calls.append(name)
        if number == self._at:
            self._broken = name
        if number == self._at or (self._is_lasting and name == self._broken):
            raise OSError(self._code, os.strerror(self._code))

    def __enter__(self) -> Self:
        self._saved: list[tuple[Any, str, Any]] = []
        for name in ERRORS:
            if hasattr(os, name):
                self._replace(os, name, name)
        self._replace(fcntl, "flock", "flock")
        self._replace(staging, "_rename", "renameat2")
        for module, name in ((builtins, "open"), (io, "open"), (os, "fdopen")):
            self._replace(module, name, "" if name == "fdopen" else "file open", _File)
        return self

    def __exit__(self, *_: object) -> None:
        for module, name, function in self._saved:
            setattr(module, name, function)

    def _replace(self, module: Any, name: str, said: str, wrap: Any = None) -> None:
        function = getattr(module, name)
        self._saved.append((module, name, function))

        def counted(*args: Any, **named: Any) -> Any:
            if said and not (wrap and isinstance(args[0], int)):  # `os.fdopen` by another name
                self.meet(_kind(said, args))
            made = function(*args, **named)
            return made if wrap is None else wrap(made, self)

        setattr(module, name, counted)


def _kind(name: str, args: tuple[Any, ...]) -> str:
    """`open` that writes or makes a file is another call than one that reads."""
    if name != "open" or not args[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        return name
    return "open to write"


class _File:
    """An open file whose reads and writes are counted."""

    def __init__(self, file: Any, injector: Injector) -> None:
        self._file, self._injector = file, injector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def write(self, data: Any) -> Any:
        self._injector.meet("file write")
        return self._file.write(data)

    def read(self, *args: Any) -> Any:
        self._injector.meet("file read")
        return self._file.read(*args)


@dataclass(frozen=True)
class Operation:
    """prepare: makes what it works on in a folder. act: what is tried. sound: what is wrong with
    what is there afterwards, or nothing. again: what ends with nothing beside the result."""

    prepare: Callable[[Path], None]
    act: Callable[[Path], Any]
    sound: Callable[[Path], str]
    allowed: tuple[type[BaseException], ...] = (AotcError, CacheError)


KEY, OTHER = Key.of("binaries", kernel="one"), Key.of("binaries", kernel="two")
FILES = {"a.o": b"a" * 3000, "b.o": b"b" * 3000, "meta.json": b"{}"}
ROOT = str(Path(__file__).parents[2])
FILES_OPEN = Path("/proc/self/fd")
NOBODY = Policy((), None)


def _bundle(folder: Path) -> None:
    small_bundle.write(folder / "bundle")


def _cache(folder: Path) -> None:
    assert Store(folder / "cache").put(KEY, FILES)


def _damaged(folder: Path) -> None:
    _cache(folder)
    path = Store(folder / "cache").path(KEY) / "a.o"
    path.chmod(0o600)
    path.write_bytes(b"x" * 3000)


def _archive(folder: Path) -> None:
    _cache(folder)
    export_to(Store(folder / "cache"), folder / "archive")
    shutil.rmtree(folder / "cache")


def _layout(folder: Path) -> None:
    _bundle(folder)
    push_bundle(folder / "bundle", f"oci-layout:{folder}/layout:v1")
    shutil.rmtree(folder / "bundle")


def _pulled(folder: Path) -> None:
    _layout(folder)
    small_bundle.write(folder / "bundle", value=2.0)


def _put(folder: Path) -> None:
    Store(folder / "cache").put(OTHER, FILES)


def _get(folder: Path) -> None:
    entry = Store(folder / "cache").get(KEY)
    assert entry is None or entry.files == FILES


def _pull(folder: Path) -> None:
    pull_bundle(f"oci-layout:{folder}/layout:v1", folder / "bundle", NOBODY, force=True, jobs=1)


def _sound_cache(folder: Path) -> str:
    if not (folder / "cache").exists():
        return ""
    store = Store(folder / "cache")
    for key in (KEY, OTHER):
        entry = store.get(key)
        if entry is not None and entry.files != FILES:
            return "an entry has other bytes"
    collect_all(store, None)
    left = [row for row in check(store) if row.state != "sound"]
    beside = [each for name in ("staging", "locks", "quarantine")
              for each in (store.root / name).glob("*")]  # fmt: skip
    strays = [path for path in folder.iterdir() if path.name not in ("cache", "archive")]
    return f"left: {[*left, *beside, *strays]}" if left or beside or strays else ""


def _sound_bundle(folder: Path) -> str:
    """Old, new or none, whole; the next writer leaves nothing else."""
    wrong = _whole(folder / "bundle")
    small_bundle.write(folder / "bundle", value=3.0, force=True)
    return wrong or _beside(folder)


def _sound_pull(folder: Path) -> str:
    """The same, by the next pull."""
    wrong = _whole(folder / "bundle")
    _pull(folder)
    return wrong or _beside(folder)


def _whole(bundle: Path) -> str:
    failed = [row for row in verify(bundle) if row.status != "ok"] if bundle.exists() else []
    return str(failed[0]) if failed else ""


def _beside(folder: Path) -> str:
    names = [name for name in small_bundle.names(folder) if name not in ("bundle", "layout")]
    return f"left: {names}" if names else ""


def _sound_layout(folder: Path) -> str:
    """The next push leaves nothing else, and the layout is read."""
    load(folder / "bundle").close()
    push_bundle(folder / "bundle", f"oci-layout:{folder}/layout:v1")
    load(f"oci-layout:{folder}/layout:v1").close()
    names = [str(path) for path in (folder / "layout").rglob(".*")]
    return f"left: {names}" if names else ""


OPERATIONS: dict[str, Operation] = {
    "cache: put": Operation(_cache, _put, _sound_cache),
    "cache: get": Operation(_cache, _get, _sound_cache),
    "cache: get what is damaged": Operation(_damaged, _get, _sound_cache),
    "cache: gc": Operation(
        _damaged, lambda folder: collect_all(Store(folder / "cache"), 0), _sound_cache
    ),
    "cache: verify": Operation(
        _cache, lambda folder: list(check(Store(folder / "cache"))), _sound_cache
    ),
    "cache: export": Operation(
        _cache,
        lambda folder: export_to(Store(folder / "cache"), folder / "archive"),
        _sound_cache,
        (AotcError, CacheError, OSError),
    ),
    "cache: import": Operation(
        _archive,
        lambda folder: import_from(Store(folder / "cache"), folder / "archive"),
        _sound_cache,
        (AotcError, CacheError, OSError),
    ),
    "pack: new": Operation(
        lambda _: None, lambda folder: small_bundle.write(folder / "bundle"), _sound_bundle
    ),
    "pack: in the place of another": Operation(
        _bundle,
        lambda folder: small_bundle.write(folder / "bundle", value=2.0, force=True),
        _sound_bundle,
    ),
    "push into a layout": Operation(
        _bundle,
        lambda folder: push_bundle(folder / "bundle", f"oci-layout:{folder}/layout:v1"),
        _sound_layout,
    ),
    "pull: new": Operation(_layout, _pull, _sound_pull),
    "pull: in the place of another": Operation(_pulled, _pull, _sound_pull),
    "load": Operation(
        _bundle, lambda folder: load(folder / "bundle").close(), lambda _: ""
    ),
    "verify": Operation(_bundle, lambda folder: verify(folder / "bundle"), lambda _: ""),
    "golden numbers": Operation(
        _bundle, lambda folder: read_golden(folder / "bundle"), lambda _: ""
    ),
}  # fmt: skip
Case = tuple[str, int, str, int, bool]


def cases(folder: Path) -> list[Case]:
    """Operation, number of the call, its function, error, whether it lasts: of every call."""
    found: list[Case] = []
    for name, operation in OPERATIONS.items():
        _once(operation, folder, Injector())  # imports what it needs
        injector = Injector()
        error = _once(operation, folder, injector)
        assert error is None, f"{name}: {error}"
        for number, function in enumerate(injector.calls):
            for code in (ERRORS | OTHERS)[function]:
                found.append((name, number, function, code, False))
                if code == errno.ENOSPC:
                    found.append((name, number, function, code, True))
    return found


def _once(
    operation: Operation, scratch: Path, trouble: AbstractContextManager[Any]
) -> BaseException | str | None:
    """Prepare, act with faults, and judge: what is wrong, else the error or None."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        operation.prepare(folder)
        before = len(list(FILES_OPEN.iterdir()))
        raised = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with trouble:
                    operation.act(folder)
            except Exception as error:
                if not isinstance(error, operation.allowed):
                    return f"{type(error).__name__}: {error} at {_place(error)}"
                raised = error.with_traceback(None)
                raised.__cause__ = raised.__context__ = None
            if len(list(FILES_OPEN.iterdir())) > before:
                return "a descriptor is left open"
            return operation.sound(folder) or raised


def _place(error: BaseException) -> str:
    """Where in aotc's own files an error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "/tests/" not in each.filename and ROOT in each.filename]
    return " ".join(f"{Path(each.filename).name}:{each.lineno}" for each in ours[-3:])


def fail_calls(listed: list[Case], folder: Path) -> Callable[[Iterator[int], Found], None]:
    """The work of one process: cases by their numbers."""

    def work(numbers: Iterator[int], found: Found) -> None:
        for number in numbers:
            name, at, function, code, is_lasting = listed[number]
            what = f"{name}: call {at}, {function}: {errno.errorcode[code]}"
            what += " and later" if is_lasting else ""
            judge(name, what, folder, Injector(at, code, is_lasting), found)

    return work


def judge(
    name: str, what: str, folder: Path, trouble: AbstractContextManager[Any], found: Found
) -> None:
    """One operation in a folder, in trouble while it acts; `what` is what is said of it."""
    try:
        outcome = _once(OPERATIONS[name], folder, trouble)
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
    if isinstance(outcome, str):
        found.say(f"{what}: {outcome}"[:400])
    else:
        found.counts["no error" if outcome is None else "typed error"] += 1
