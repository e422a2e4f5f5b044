"""The store: round trips, damage, foreign folders, read-only folders, explanations, collection."""

import gc
import json
import os
import sys
import time
import warnings

import pytest

from aotc.cache import Key, Store
from aotc.cache import collect as collecting
from aotc.cache.collect import (
    clear,
    collect,
    collect_in_turn,
    explain,
    last_misses,
    note_misses,
    rows,
    size_bytes,
)
from aotc.cache.errors import BucketUnknown, CacheNotAFolder, CacheUnsafe
from aotc.cache.keys import key_of
from aotc.cache.store import CacheWarning

KEY = Key.of("binaries", kernel="k", isa="x86-64-v4", config="XBLOCK=4")
FILES = {"k.o": b"\x7fELF code", "meta.json": b"{}"}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache")


def test_what_was_put_is_got(store):
    assert store.get(KEY) is None
    assert store.put(KEY, FILES)
    assert dict(store.get(KEY).files) == FILES
    counters = store.counters
    assert (counters.hits, counters.misses, counters.puts, counters.damaged) == (1, 1, 1, 0)


def test_first_writer_wins(store):
    assert store.put(KEY, FILES)
    assert not store.put(KEY, {"k.o": b"other"})
    assert store.get(KEY).files["k.o"] == FILES["k.o"]


def test_the_record_beside_an_entry_names_every_field(store):
    store.put(KEY, FILES)
    record = json.loads((store.path(KEY) / "entry.json").read_text())
    assert record["key"]["fields"] == {"kernel": "k", "isa": "x86-64-v4", "config": "XBLOCK=4"}
    assert key_of(record["key"]) == KEY


def test_any_field_changes_the_digest():
    digests = {KEY.digest}
    for name, value in KEY.fields:
        digests.add(Key.of("binaries", **{**dict(KEY.fields), name: f"{value}x"}).digest)
    digests.add(Key.of("tuning", **dict(KEY.fields)).digest)
    assert len(digests) == len(KEY.fields) + 2


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["k.o", "meta.json", "entry.json"])
def test_every_flipped_byte_is_a_miss_and_heals(store, name):
    store.put(KEY, FILES)
    length = len((store.path(KEY) / name).read_bytes())
    for at in range(length):
        flip(store.path(KEY) / name, at)
        with pytest.warns(CacheWarning, match="is damaged"):
            assert store.get(KEY) is None
        assert store.put(KEY, FILES)
        assert dict(store.get(KEY).files) == FILES
    assert store.counters.damaged == length


@pytest.mark.parametrize("name", ["k.o", "entry.json"])
def test_truncated_files_are_misses(store, name):
    store.put(KEY, FILES)
    path = store.path(KEY) / name
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(CacheWarning):
        assert store.get(KEY) is None


def test_a_missing_file_is_damage_but_a_missing_record_is_a_plain_miss(store):
    store.put(KEY, FILES)
    (store.path(KEY) / "k.o").unlink()
    with pytest.warns(CacheWarning, match="`k.o` is missing"):
        assert store.get(KEY) is None
    store.put(KEY, FILES)
    (store.path(KEY) / "entry.json").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get(KEY) is None
    assert store.put(KEY, FILES)  # the torn deletion makes room


def test_an_entry_of_another_key_is_damage(store):
    other = Key.of("binaries", kernel="other")
    store.put(other, FILES)
    store.path(KEY).parent.mkdir(parents=True, exist_ok=True)
    store.path(other).rename(store.path(KEY))
    with pytest.warns(CacheWarning, match="another key"):
        assert store.get(KEY) is None


def test_a_record_naming_a_file_outside_is_damage(store, tmp_path):
    (tmp_path / "secret").write_bytes(b"s")
    store.put(KEY, FILES)
    path = store.path(KEY) / "entry.json"
    record = json.loads(path.read_text())
    record["files"][0]["name"] = "../../../../secret"
    path.chmod(0o600)
    path.write_text(json.dumps(record))
    with pytest.warns(CacheWarning, match="outside the entry"):
        assert store.get(KEY) is None


def test_a_folder_others_can_write_is_refused(tmp_path):
    root = tmp_path / "cache"
    root.mkdir()
    root.chmod(0o770)
    with pytest.raises(CacheUnsafe) as raised:
        Store(root)
    assert raised.value.exit_code == 7
    assert "770" in str(raised.value)
    assert "chmod" in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path):
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    os.chown(root, 12345, -1)
    with pytest.raises(CacheUnsafe, match="owned by user 12345"):
        Store(root)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(CacheNotAFolder):
        Store(tmp_path / "cache")


def test_the_folder_is_private_and_tagged(store):
    assert store.root.stat().st_mode & 0o777 == 0o700
    assert (store.root / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172")


def refuse_writes(monkeypatch):
    """Root may write anywhere, so a read-only file system is imitated at the system calls."""

    def refuse(*arguments, **options):
        raise OSError(30, "Read-only file system")

    for name in ("mkdir", "rename", "unlink", "write_text"):
        monkeypatch.setattr(f"pathlib.Path.{name}", refuse)
    monkeypatch.setattr("os.utime", refuse)


def test_a_read_only_cache_serves_reads_and_fails_no_put(store, monkeypatch):
    store.put(KEY, FILES)
    os.utime(store.path(KEY) / "entry.json", (1, 1))
    refuse_writes(monkeypatch)
    frozen = Store(store.root)
    assert dict(frozen.get(KEY).files) == FILES
    with pytest.warns(CacheWarning, match="cannot be written"):
        assert not frozen.put(Key.of("binaries", kernel="new"), FILES)
    assert not frozen.put(Key.of("binaries", kernel="newer"), FILES)  # warned of once only
    with frozen.lock(KEY) as is_held:
        assert is_held in (True, False)
    assert (frozen.counters.hits, frozen.counters.refused) == (1, 2)


def test_a_folder_that_cannot_be_made_is_an_empty_cache():
    store = Store("/proc/no-such-folder/cache")
    assert store.get(KEY) is None
    with pytest.warns(CacheWarning):
        assert not store.put(KEY, FILES)


def test_a_full_disk_leaves_nothing_behind(store, monkeypatch):
    def full(path, data):
        path.write_bytes(data[:1])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("aotc.cache.store._write", full)
        with pytest.warns(CacheWarning, match="no space left"):
            assert not store.put(KEY, FILES)
    assert list((store.root / "staging").iterdir()) == []
    assert store.get(KEY) is None


@pytest.mark.filterwarnings("ignore::aotc.cache.store.CacheWarning")  # of a descriptor closed twice
@pytest.mark.parametrize("is_there", [False, True])
def test_a_signal_at_any_line_leaves_nothing_behind(store, is_there):
    """An exception out of nowhere, as a handler raises it, at each line of a put in turn: at those
    that clean up, too."""

    def interrupted_at(count):
        seen = 0

        def trace(frame, event, _):
            nonlocal seen
            if event == "line":
                seen += 1
                if seen == count:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            store.put(KEY if is_there else Key.of("binaries", number=str(count)), FILES)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return seen >= count

    if is_there:
        store.put(KEY, FILES)
    count = 1
    gc.freeze()  # what the tests before have left takes no part: it is a second a collection
    try:
        while interrupted_at(count):
            gc.collect()  # a block that was entered and has no end yet
            assert list((store.root / "staging").glob("*")) == [], f"line {count}"
            count += 1
    finally:
        gc.unfreeze()
    assert count > 300


def test_unknown_buckets_are_refused(store):
    with pytest.raises(BucketUnknown):
        store.get(Key("nonsense", ()))


def test_a_held_lock_times_out_and_the_caller_goes_on(store):
    with store.lock(KEY) as is_held:
        assert is_held
        pid = os.fork()
        if pid == 0:
            with store.lock(KEY, timeout_s=0.05) as second:
                os._exit(1 if second else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_explain_names_the_fields_that_differ_from_the_nearest_key(store):
    store.put(Key.of("binaries", kernel="far", isa="x", config="y"), FILES)
    store.put(KEY, FILES)
    wanted = Key.of("binaries", kernel="k", isa="x86-64-v3", config="XBLOCK=4")
    explanation = explain(store, wanted)
    assert explanation.nearest == KEY
    (difference,) = explanation.differing
    assert (difference.field, difference.stored, difference.wanted) == (
        "isa",
        "x86-64-v4",
        "x86-64-v3",
    )
    assert explain(store, Key.of("tuning", kernel="k")).nearest is None


def test_misses_of_the_last_build_are_kept(store):
    store.get(KEY)
    note_misses(store, started_s=12.5)
    assert last_misses(store) == (12.5, (KEY,))
    (store.root / "misses.json").write_text("{")
    assert last_misses(store) == (float("inf"), ())


def fill(store, count):
    keys = [Key.of("binaries", kernel=f"k{index}") for index in range(count)]
    for index, key in enumerate(keys):
        store.put(key, {"k.o": bytes(1000)})
        os.utime(store.path(key) / "entry.json", (1000 + index, 1000 + index))
    return keys


def test_collect_deletes_the_least_recently_used_down_to_the_cap(store):
    keys = fill(store, 10)
    total = size_bytes(store)
    assert collect(store, cap_bytes=total, now_s=2000) == 0
    freed = collect(store, cap_bytes=total // 2, now_s=2000)
    assert size_bytes(store) == total - freed <= total // 2
    kept = [index for index, key in enumerate(keys) if store.get(key)]
    assert kept == list(range(10))[-len(kept) :]


NOW, CAP = 1_000_000.0, 10**9


@pytest.mark.parametrize(
    ("note", "count"),
    [
        (None, 1),
        ({"begun_s": NOW - 1, "seconds": 0.1, "cap_bytes": CAP}, 0),
        ({"begun_s": NOW - 11, "seconds": 0.1, "cap_bytes": CAP}, 1),
        ({"begun_s": NOW - 1, "seconds": 0.1, "cap_bytes": 2 * CAP}, 1),  # another cap
        ({"begun_s": NOW - 1, "seconds": 0.1, "cap_bytes": None}, 1),
        ({"begun_s": NOW + 60, "seconds": 0.1, "cap_bytes": CAP}, 1),  # of a wrong clock
        ({"begun_s": NOW - 2 * 24 * 3600, "seconds": 1e300, "cap_bytes": CAP}, 1),
        ({"begun_s": float("nan"), "seconds": 1, "cap_bytes": CAP}, 1),
        ({"begun_s": [], "seconds": 1, "cap_bytes": CAP}, 1),
        ([], 1),
    ],
)
def test_builds_collect_in_turn(store, monkeypatch, note, count):
    fill(store, 3)
    if note is not None:
        (store.root / "collected.json").write_text(json.dumps(note))
    looked = []
    monkeypatch.setattr(time, "time", lambda: NOW)
    monkeypatch.setattr(collecting, "collect", lambda *given: looked.append(given) or 7)
    assert collect_in_turn(store, CAP) == 7 * count
    assert looked == [(store, CAP)] * count
    left = json.loads((store.root / "collected.json").read_text())
    assert left["begun_s"] == (NOW if count else NOW - 1)


def test_the_cost_of_a_builds_collections_does_not_grow_with_the_store(store, monkeypatch):
    """Of forty builds one after the other."""
    now, looked = [NOW], []
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def collect(*given):
        looked.append(len(looked))
        now[0] += 2.0

    monkeypatch.setattr(collecting, "collect", collect)
    for _ in range(40):
        now[0] += 1.0
        collect_in_turn(store, CAP)
    assert looked == [0]


def test_a_store_that_cannot_be_written_collects_nothing_and_fails_nothing(store):
    fill(store, 2)
    store.root.chmod(0o500)
    try:
        assert collect_in_turn(store, CAP) == 0
    finally:
        store.root.chmod(0o700)


def test_a_read_marks_an_entry_as_used(store):
    keys = fill(store, 4)
    store.get(keys[0])
    collect(store, cap_bytes=size_bytes(store) - 1, now_s=time.time())
    assert store.get(keys[0]) is not None
    assert store.get(keys[1]) is None


def test_a_time_in_the_far_future_counts_as_now(store):
    keys = fill(store, 3)
    os.utime(store.path(keys[0]) / "entry.json", (9e9, 9e9))
    os.utime(store.path(keys[1]) / "entry.json", (5000, 5000))
    os.utime(store.path(keys[2]) / "entry.json", (5001, 5001))
    collect(store, cap_bytes=size_bytes(store) - 1, now_s=4990)
    assert [store.get(key) is None for key in keys] == [True, False, False]


def test_collect_removes_what_dead_writers_left_and_spares_the_living(store):
    store.put(KEY, FILES)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    host = os.uname().nodename
    dead, living = f"{host}-{pid}-aa", f"{host}-{os.getpid()}-bb"
    for name in (dead, living):
        (store.root / "staging" / name).mkdir()
    collect(store)
    assert [item.name for item in (store.root / "staging").iterdir()] == [living]
    assert store.get(KEY) is not None


def test_clear_empties_one_bucket_or_all(store):
    store.put(KEY, FILES)
    store.put(Key.of("tuning", kernel="k"), FILES)
    assert clear(store, "tuning") == 1
    assert [row.bucket for row in rows(store)] == ["binaries-v1"]
    assert clear(store) == 1
    assert list(rows(store)) == []
