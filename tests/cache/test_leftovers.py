"""gc: what killed writers left goes, what a writer makes or a reader has open stays; clocks lie."""

import fcntl
import os
import signal
import socket
import time

import pytest

from aotc.cache import Key, Store
from aotc.cache.checking import check
from aotc.cache.collect import collect, collect_all, prune, rows, size_bytes
from aotc.cache.leftovers import hold

KEY = Key.of("binaries", kernel="k")
FILES = {"k.o": b"code" * 100}
HOST = socket.gethostname()


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "cache")
    store.put(KEY, FILES)
    return store


def dead_process():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def staged(store, name):
    folder = store.root / "staging" / name
    folder.mkdir(parents=True)
    (folder / "k.o").write_bytes(b"half")
    return folder


def age(path, seconds):
    os.utime(path, (time.time() - seconds,) * 2)


def test_one_gc_deletes_every_kind_of_leftover(store):
    torn = Key.of("binaries", kernel="torn")
    store.put(torn, FILES)
    (store.path(torn) / "entry.json").unlink()
    damaged = Key.of("binaries", kernel="damaged")
    store.put(damaged, FILES)
    (store.path(damaged) / "k.o").chmod(0o600)
    (store.path(damaged) / "k.o").write_bytes(b"cope")
    with pytest.warns(UserWarning, match="damaged"):
        store.get(damaged)
    with store.lock(KEY):
        pass
    staged(store, f"{HOST}-{dead_process()}-aa")
    (store.root / f".misses.json-{dead_process()}").write_text("{")
    age(store.root / next(store.root.glob(".misses*")).name, 100)
    left = collect_all(store, None).leftovers
    assert (left.staged, left.quarantined, left.torn, left.locks, left.count) == (2, 1, 1, 1, 5)
    assert sorted(path.name for path in store.root.iterdir() if path.is_file()) == ["CACHEDIR.TAG"]
    for name in ("staging", "quarantine", "locks"):
        assert list((store.root / name).iterdir()) == []
    assert [row.digest for row in rows(store)] == [KEY.digest]
    assert collect_all(store, None).leftovers.count == 0


def test_a_folder_that_a_writer_holds_stays_whatever_its_process_number(store):
    """As that of a writer in another container, whose number means nothing here."""
    folder = staged(store, f"{HOST}-{dead_process()}-aa")
    held = hold(folder)
    age(folder, 3600)
    collect_all(store, None)
    assert folder.exists()
    os.close(held)
    collect_all(store, None)
    assert not folder.exists()


def test_a_number_that_another_process_has_by_now_does_not_keep_a_leftover(store):
    folder = staged(store, f"{HOST}-{os.getpid()}-aa")
    collect_all(store, None)
    assert folder.exists()  # it may be locked in a moment
    age(folder, 100)
    collect_all(store, None)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["elsewhere-1-aa", f"{HOST}-word-aa", "nonsense"])
def test_what_is_of_another_machine_stays_for_a_day(store, name):
    folder = staged(store, name)
    age(folder, 23 * 3600)
    collect_all(store, None)
    assert folder.exists()
    age(folder, 25 * 3600)
    collect_all(store, None)
    assert not folder.exists()


def test_what_a_wrong_clock_dated_into_the_future_ages_from_the_next_gc_on(store):
    folder = staged(store, "elsewhere-1-aa")
    os.utime(folder, (9e9, 9e9))
    collect_all(store, None)
    assert abs(folder.stat().st_mtime - time.time()) < 100
    collect_all(store, None, now_s=time.time() + 25 * 3600)
    assert not folder.exists()


def test_a_read_brings_an_entry_of_the_future_back_to_now(store):
    record = store.path(KEY) / "entry.json"
    os.utime(record, (9e9, 9e9))
    store.get(KEY)
    assert abs(record.stat().st_mtime - time.time()) < 100


def test_without_locks_of_files_the_process_number_decides(store, monkeypatch):
    def refuse(*arguments):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    own, dead = (
        staged(store, f"{HOST}-{os.getpid()}-aa"),
        staged(store, f"{HOST}-{dead_process()}-b"),
    )
    age(own, 3600)
    collect_all(store, None)
    assert (own.exists(), dead.exists()) == (True, False)
    assert store.put(Key.of("binaries", kernel="other"), FILES)


def test_files_where_folders_should_be_are_deleted_too(store):
    for name in ("staging", "quarantine"):
        (store.root / name).mkdir(exist_ok=True)
        (store.root / name / "file").write_bytes(b"")
        age(store.root / name / "file", 2 * 86400)
    collect_all(store, None)
    assert list((store.root / "staging").iterdir()) == []
    assert list((store.root / "quarantine").iterdir()) == []


def test_a_lock_that_somebody_holds_stays(store):
    with store.lock(KEY):
        collect_all(store, None)
        assert len(list((store.root / "locks").iterdir())) == 1
    collect(store)  # a build's end leaves locks for a day
    assert len(list((store.root / "locks").iterdir())) == 1
    collect(store, now_s=time.time() + 25 * 3600)
    assert list((store.root / "locks").iterdir()) == []


def test_an_entry_that_a_reader_has_open_can_be_read_to_its_end(store):
    with (store.path(KEY) / "k.o").open("rb") as file:
        assert collect_all(store, 0).entries == 1
        assert file.read() == FILES["k.o"]
    assert store.get(KEY) is None


def test_readers_under_a_storm_of_deletions_see_whole_entries_or_none(store):
    """One process deletes and writes without end; no read raises, warns or is cut."""
    keys = [Key.of("binaries", kernel=f"k{index}") for index in range(6)]
    pid = os.fork()
    if pid == 0:
        own = Store(store.root)
        while True:
            for key in keys:
                own.put(key, FILES)
            collect_all(own, size_bytes(own) // 3)
    hits = 0
    try:
        end_s = time.monotonic() + 2
        while time.monotonic() < end_s or not hits:
            for key in keys:
                entry = store.get(key)
                assert entry is None or dict(entry.files) == FILES
                hits += entry is not None
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert (store.counters.damaged, store.counters.refused) == (0, 0)


def dated(store, ages_s, bucket="binaries"):
    keys = [Key.of(bucket, kernel=f"k{seconds}") for seconds in ages_s]
    for key, seconds in zip(keys, ages_s, strict=True):
        store.put(key, {"k.o": bytes(1000)})
        age(store.path(key) / "entry.json", seconds)
    return keys


def left(store):
    return sorted(dict(key.fields)["kernel"] for row in rows(store) if (key := key_of_row(row)))


def key_of_row(row):
    from aotc.cache.collect import key_record

    return key_record(row)


def test_prune_by_age_size_and_kind(tmp_path):
    store = Store(tmp_path / "cache")
    dated(store, (10, 20, 30, 40))
    dated(store, (50,), "tuning")
    assert prune(store, unused_s=25, is_dry=True).entries == 3
    assert len(left(store)) == 5
    assert prune(store, "binaries", unused_s=35).entries == 1
    assert left(store) == ["k10", "k20", "k30", "k50"]
    each_bytes = next(rows(store)).size_bytes
    found = prune(store, "binaries", cap_bytes=2 * each_bytes)
    assert (found.entries, found.bytes) == (1, each_bytes)
    assert left(store) == ["k10", "k20", "k50"]
    assert prune(store, unused_s=15, cap_bytes=0).entries == 3


def test_prune_takes_the_future_for_now(tmp_path):
    store = Store(tmp_path / "cache")
    (key,) = dated(store, (-9e8,))
    assert prune(store, unused_s=1).entries == 0
    assert store.get(key) is not None


def test_verify_says_what_is_the_matter_with_each_entry(store, monkeypatch):
    damaged, foreign, unread, moved, loose = keys = [
        Key.of("binaries", kernel=name)
        for name in ("damaged", "foreign", "unread", "moved", "loose")
    ]
    for key in keys:
        store.put(key, FILES)
    (store.path(damaged) / "k.o").chmod(0o600)
    (store.path(damaged) / "k.o").write_bytes(b"cope")
    store.path(foreign).parent.chmod(0o777)
    (store.path(unread) / "entry.json").chmod(0o600)
    (store.path(unread) / "entry.json").write_bytes(b"[")
    other = Key.of("binaries", kernel="other")
    store.path(other).parent.mkdir(exist_ok=True)
    store.path(moved).rename(store.path(other))
    (store.path(loose) / "k.o").chmod(0o622)
    before = sorted(store.root.rglob("*"))
    found = {each.row.digest: each for each in check(store)}
    assert sorted(store.root.rglob("*")) == before
    assert found[KEY.digest].state == "sound"
    assert (found[damaged.digest].state, found[unread.digest].state) == ("damaged", "damaged")
    assert found[foreign.digest].state == "unsafe"
    assert "another key" in found[other.digest].detail
    assert "of mode 622" in found[loose.digest].detail

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("aotc.cache.checking.read_entry", refuse)
    assert {each.state for each in check(store)} == {"damaged", "unreadable"}
