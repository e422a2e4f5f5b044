"""Entries that are not what they should be: kinds of file, names, owners, modes, records."""

import json
import os
import random
import stat
import warnings
from pathlib import Path

import pytest

from aotc.cache import Key, Store
from aotc.cache.collect import explain, last_misses, rows
from aotc.cache.errors import CacheUnsafe
from aotc.cache.store import CacheWarning

KEY = Key.of("binaries", kernel="k", isa="x86-64-v4", config="XBLOCK=4")
FILES = {"k.o": b"\x7fELF code", "meta.json": b"{}"}
NEEDED = (frozenset({"k.o", "meta.json"}), frozenset({"too-large.json"}))


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "cache")
    assert store.put(KEY, FILES)
    return store


def record_of(store):
    return json.loads((store.path(KEY) / "entry.json").read_text())


def write_record(store, text):
    path = store.path(KEY) / "entry.json"
    path.unlink()
    path.write_bytes(text if isinstance(text, bytes) else json.dumps(text).encode())
    path.chmod(0o400)


def is_missed_and_healed(store):
    with pytest.warns(CacheWarning, match="is damaged"):
        assert store.get(KEY, NEEDED) is None
    assert store.put(KEY, FILES)
    assert dict(store.get(KEY, NEEDED).files) == FILES


KINDS = {
    "fifo": os.mkfifo,
    "folder": os.mkdir,
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "link to nothing": lambda path: path.symlink_to("/nothing"),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["k.o", "entry.json"])
def test_what_is_no_plain_file_is_damage(store, name, kind):
    path = store.path(KEY) / name
    path.unlink()
    KINDS[kind](path)
    assert list(rows(store))  # neither does listing them block
    explain(store, Key.of("binaries", kernel="other"))
    is_missed_and_healed(store)


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_what_is_no_folder_in_an_entrys_place_makes_room(store, kind):
    folder = store.path(KEY)
    folder.rename(folder.with_name("elsewhere"))
    KINDS[kind](folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        assert store.get(KEY) is None
        assert store.put(KEY, FILES)
    assert dict(store.get(KEY).files) == FILES


def test_an_entry_behind_a_link_is_damage(store):
    folder = store.path(KEY)
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))
    is_missed_and_healed(store)


@pytest.mark.parametrize("kind", ["fifo", "link"])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_level_that_is_no_folder_is_refused(store, depth, kind):
    level = store.path(KEY).parents[2 - depth]
    level.rename(level.with_name("moved"))
    if kind == "fifo":
        os.mkfifo(level)
    else:
        level.symlink_to(level.with_name("moved"))
    for use in (store.get, lambda key: store.put(key, FILES)):
        with pytest.raises(CacheUnsafe, match="a link or a file"):
            use(KEY)


@pytest.mark.parametrize(
    "name", ["a\0b", "", ".", "..", "../k.o", "/etc/passwd", "a" * 4096, ".hidden", "ä", "a\nb", 7]
)
def test_names_are_from_a_fixed_alphabet(store, name):
    record = record_of(store)
    record["files"][0]["name"] = name
    write_record(store, record)
    is_missed_and_healed(store)
    if isinstance(name, str) and "/" not in name and name not in ("", ".", ".."):
        with pytest.raises(ValueError, match="file name"):
            store.put(Key.of("binaries", kernel="other"), {name: b""})


RECORDS = {
    "no files": lambda record: {**record, "files": []},
    "a file left out": lambda record: {**record, "files": record["files"][:1]},
    "a file twice": lambda record: {**record, "files": record["files"] * 2},
    "files are a map": lambda record: {**record, "files": {"k.o": 1}},
    "files are a text": lambda record: {**record, "files": "k.o"},
    "a list": lambda record: [record],
    "deep": lambda _: b'{"key": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep maps": lambda _: b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a long number": lambda _: b'{"key": ' + b"9" * 100_000 + b"}",
    "no text": lambda _: b"\xff\xfe" * 10,
    "size is a text": lambda record: _first(record, size_bytes="9"),
    "size is negative": lambda record: _first(record, size_bytes=-1),
    "size is huge": lambda record: _first(record, size_bytes=1 << 80),
    "another field": lambda record: _first(record, mode=0o777),
    "digest is nil": lambda record: _first(record, sha256=None),
    "two megabytes": lambda record: json.dumps(record).encode() + b" " * (2 << 20),
}


def _first(record, **fields):
    first, *rest = record["files"]
    return {**record, "files": [{**first, **fields}, *rest]}


@pytest.mark.parametrize("name", RECORDS)
def test_a_wrong_record_is_damage(store, name):
    write_record(store, RECORDS[name](record_of(store)))
    explain(store, Key.of("binaries", kernel="other"))
    is_missed_and_healed(store)


def test_mutated_records_never_raise(store):
    text = (store.path(KEY) / "entry.json").read_bytes()
    chance = random.Random(1)
    pieces = [
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b",",
        b":",
        b"\0",
        b"\\u0000",
        b"1e999",
        b"null",
        b"\xff",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        for _ in range(400):
            data = bytearray(text)
            for _ in range(chance.randint(1, 3)):
                at = chance.randrange(len(data))
                data[at : at + chance.randint(0, 8)] = chance.choice(pieces)
            write_record(store, bytes(data))
            entry = store.get(KEY, NEEDED)
            assert entry is None or dict(entry.files) == FILES
            store.put(KEY, FILES)


def test_a_size_is_held_against_the_file_before_it_is_read(store):
    path = store.path(KEY) / "k.o"
    path.chmod(0o600)
    os.truncate(path, 40 << 30)  # sparse
    path.chmod(0o400)
    record = record_of(store)
    for row in record["files"]:
        if row["name"] == "k.o":
            row["size_bytes"] = 40 << 30
    write_record(store, record)
    is_missed_and_healed(store)


def test_large_files_come_whole(tmp_path):
    store = Store(tmp_path / "cache")
    files = {"large": os.urandom(1 << 20) * 33}
    assert store.put(KEY, files)
    assert store.get(KEY).files == files
    path = store.path(KEY) / "large"
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(20 << 20)
        file.write(b"another")
    path.chmod(0o400)
    with pytest.warns(CacheWarning, match="other bytes"):
        assert store.get(KEY) is None


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o077])
def test_folders_are_private_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        store = Store(tmp_path / "new" / "cache")
        store.put(KEY, FILES)
        with store.lock(KEY):
            pass
        store._quarantine(store.path(KEY))
        store.put(KEY, FILES)
    finally:
        os.umask(before)
    for folder, _, _ in os.walk(tmp_path / "new"):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700, folder
    assert dict(store.get(KEY).files) == FILES


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_level_that_others_can_write_is_refused(store, depth, mode):
    level = store.path(KEY).parents[2 - depth]
    level.chmod(mode)
    with pytest.raises(CacheUnsafe, match=f"of mode {mode:o}") as raised:
        store.get(KEY)
    assert str(level) in str(raised.value)
    with pytest.raises(CacheUnsafe):
        store.put(Key.of("binaries", kernel="k", isa="x86-64-v4", config="XBLOCK=4"), FILES)


@pytest.mark.parametrize("folder", ["staging", "locks"])
def test_a_folder_for_writers_that_others_can_write_is_refused(store, folder):
    (store.root / folder).mkdir(exist_ok=True)
    (store.root / folder).chmod(0o777)
    with pytest.raises(CacheUnsafe), store.lock(KEY):
        store.put(Key.of("binaries", kernel="other"), FILES)


@pytest.mark.parametrize("name", ["", "k.o", "entry.json"])
def test_an_entry_that_others_can_write_is_damage(store, name):
    (store.path(KEY) / name).chmod(0o777)
    is_missed_and_healed(store)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["", "k.o", "entry.json"])
def test_an_entry_of_another_user_is_damage(store, name):
    os.chown(store.path(KEY) / name, 12345, -1)
    is_missed_and_healed(store)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("depth", [1, 2])
def test_a_level_of_another_user_is_refused(store, depth):
    os.chown(store.path(KEY).parents[2 - depth], 12345, -1)
    with pytest.raises(CacheUnsafe, match="owned by user 12345"):
        store.get(KEY)


def test_a_fault_of_the_machine_is_a_miss_that_sets_nothing_aside(store, monkeypatch):
    from aotc.cache import reading

    def no_more(*_, **__):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(reading.os, "open", no_more)
        with pytest.warns(CacheWarning, match="cannot be read"):
            assert store.get(KEY) is None
    assert dict(store.get(KEY).files) == FILES


def test_a_note_of_misses_that_is_no_file_is_none(store):
    os.mkfifo(store.root / "misses.json")
    assert last_misses(store) == (float("inf"), ())
    (store.root / "misses.json").unlink()
    (store.root / "misses.json").write_bytes(b"[" * 100_000)
    assert last_misses(store) == (float("inf"), ())
