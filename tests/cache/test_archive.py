"""Archives: equal entries give equal bytes, and a file that lies is refused before it is used."""

import hashlib
import io
import json
import os
import resource
import signal
import tarfile
import time

import pytest

from aotc.cache import Key, Store
from aotc.cache.archive import BLOCK_BYTES, export_to, import_from
from aotc.cache.collect import rows
from aotc.cache.errors import ArchiveInvalid, CacheNotWritable
from aotc.cache.keys import canonical
from aotc.cache.reading import file_row

KEYS = [Key.of("binaries", kernel=f"k{index}", count=index) for index in range(5)]
KEYS.append(Key.of("tuning", spec="s", device=None, is_far=True))


def files(key):
    return {"k.o": key.digest.encode() * 20, "facts.json": b"{}", "empty": b""}


def filled(folder, keys=KEYS):
    store = Store(folder)
    for key in keys:
        store.put(key, files(key))
    return store


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    export_to(filled(folder / "cache"), folder / "cache.tar")
    return (folder / "cache.tar").read_bytes()


def refused(tmp_path, data):
    """The error of importing `data`; nothing may be there after it."""
    (tmp_path / "lie.tar").write_bytes(data)
    store = Store(tmp_path / "own")
    with pytest.raises(ArchiveInvalid) as caught:
        import_from(store, tmp_path / "lie.tar")
    assert list(rows(store)) == []
    assert caught.value.exit_code == 6
    return str(caught.value)


def test_equal_entries_give_equal_bytes_whatever_order_times_and_users(tmp_path, archive):
    store = filled(tmp_path / "other", KEYS[::-1])
    for number, path in enumerate(sorted(store.root.rglob("*"))):
        os.utime(path, (number, number))
        path.chmod(0o500 if path.is_dir() else 0o444)
    umask = os.umask(0o077)
    try:
        found = export_to(store, tmp_path / "other.tar")
    finally:
        os.umask(umask)
    assert (tmp_path / "other.tar").read_bytes() == archive
    assert (found.entries, found.bytes, found.skipped) == (6, len(archive), 0)
    assert found.digest == hashlib.sha256(archive).hexdigest()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "other.tar"]


def test_what_was_exported_is_imported_once(tmp_path, archive):
    (tmp_path / "a.tar").write_bytes(archive)
    store = Store(tmp_path / "own")
    store.put(KEYS[0], {"k.o": b"its own"})
    found = import_from(store, tmp_path / "a.tar")
    assert (found.entries, found.added, found.present) == (6, 5, 1)
    assert store.get(KEYS[0]).files["k.o"] == b"its own"  # the first writer wins
    assert all(dict(store.get(key).files) == files(key) for key in KEYS[1:])
    again = import_from(store, tmp_path / "a.tar")
    assert (again.added, again.present) == (0, 6)


def test_only_one_kind_and_only_sound_entries_are_exported(tmp_path):
    store = filled(tmp_path / "cache")
    assert export_to(store, tmp_path / "tuning.tar", "tuning").entries == 1
    damaged = store.path(KEYS[0]) / "k.o"
    damaged.chmod(0o600)
    damaged.write_bytes(b"cope")
    (store.path(KEYS[1]) / "entry.json").chmod(0o600)
    (store.path(KEYS[1]) / "entry.json").write_bytes(b"{")
    found = export_to(store, tmp_path / "rest.tar")
    assert (found.entries, found.skipped) == (4, 2)
    assert import_from(Store(tmp_path / "own"), tmp_path / "rest.tar").added == 4


def test_an_empty_cache_is_an_archive_too(tmp_path):
    export_to(Store(tmp_path / "cache"), tmp_path / "a.tar")
    assert import_from(Store(tmp_path / "own"), tmp_path / "a.tar").entries == 0


def test_it_is_a_tar_that_others_can_list(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = tar.getmembers()
    assert len(members) == len(KEYS) * 4 + 1
    assert {(each.mtime, each.uid, each.gid, each.uname, each.mode) for each in members} == {
        (0, 0, 0, "", 0o444)
    }


def test_every_byte_that_differs_is_refused(tmp_path, archive):
    """One bit in each of the places of a grid, and in all of the first header and record."""
    (tmp_path / "a.tar").write_bytes(archive)
    store = Store(tmp_path / "own")
    path = tmp_path / "lie.tar"
    for at in (*range(3 * BLOCK_BYTES), *range(3 * BLOCK_BYTES, len(archive), 37)):
        data = bytearray(archive)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        with pytest.raises(ArchiveInvalid):
            import_from(store, path)
    assert list(rows(store)) == []


def test_every_length_but_the_right_one_is_refused(tmp_path, archive):
    for length in (0, 1, 511, *range(512, len(archive), 512 * 3 + 7), len(archive) - 1):
        refused(tmp_path, archive[:length])
    assert "behind its end" in refused(tmp_path, archive + b"\0")
    assert "behind its end" in refused(tmp_path, archive + archive)


def tar_of(*members, record_end=None, **changes):
    """A tar of (name, data) with what an archive of ours ends with; `changes` of each header."""
    stream = io.BytesIO()
    for name, data in (*members, ("end.json", canonical({"entries": record_end or 1}))):
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(data), 0o444, 0
        for field, value in changes.items():
            setattr(info, field, value)
        stream.write(info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % BLOCK_BYTES))
    return stream.getvalue() + bytes(2 * BLOCK_BYTES)


def entry(key=KEYS[0], listed=None, given=None, record=None):
    """Members of one entry, whose record may say what is not so."""
    given = sorted((given or {"k.o": b"code"}).items())
    listed = [file_row(name, data) for name, data in given] if listed is None else listed
    text = canonical({"key": key.record(), "files": listed}) if record is None else record
    folder = f"{key.folder}/{key.digest[:2]}/{key.digest}"
    return [(f"{folder}/entry.json", text), *((f"{folder}/{name}", data) for name, data in given)]


def key_text(**changes):
    return canonical({"key": {**KEYS[0].record(), **changes}, "files": [file_row("a", b"")]})


LIES = {
    "a link": tar_of(*entry(), type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": tar_of(*entry(), type=tarfile.LNKTYPE, linkname="entry.json"),
    "a device": tar_of(*entry(), type=tarfile.CHRTYPE),
    "a folder": tar_of(*entry(), type=tarfile.DIRTYPE),
    "another user": tar_of(*entry(), uid=1000),
    "another mode": tar_of(*entry(), mode=0o755),
    "another time": tar_of(*entry(), mtime=1),
    "a name": tar_of(*entry(), uname="root"),
    "a path outside": tar_of(("../../outside", b"x"), *entry()),
    "an absolute path": tar_of(("/etc/aotc", b"x"), *entry()),
    "a file without an entry": tar_of(("binaries-v1/loose", b"x"), *entry()),
    "a file outside its entry": tar_of(*entry(given={"../k.o": b"x"})),
    "a second record": tar_of(*entry(given={"entry.json": b"x"})),
    "a digest": tar_of(*entry(listed=[{**file_row("k.o", b"code"), "sha256": "0" * 64}])),
    "a size": tar_of(*entry(listed=[{**file_row("k.o", b"code"), "size_bytes": 5}])),
    "a size of text": tar_of(*entry(listed=[{**file_row("k.o", b"code"), "size_bytes": "4"}])),
    "a file missing": tar_of(*entry(listed=[file_row("k.o", b"code"), file_row("z", b"")])),
    "a file too many": tar_of(*entry(listed=[file_row("a", b"")], given={"a": b"", "b": b""})),
    "no files": tar_of(*entry(listed=[])[:1]),
    "a field of a record": tar_of(*entry(listed=[{**file_row("k.o", b"code"), "more": 1}])),
    "a record of another key": tar_of(*entry(record=entry(KEYS[1])[0][1])),
    "a record that is no JSON": tar_of(*entry(record=b"{")),
    "a deep record": tar_of(*entry(record=b"[" * 100_000)),
    "a list for a record": tar_of(*entry(record=b"[]")),
    "spaces in a record": tar_of(
        *entry(record=json.dumps(json.loads(entry()[0][1]), sort_keys=True).encode())
    ),
    "a bucket of another version": tar_of(*entry(record=key_text(bucket="binaries-v99"))),
    "a bucket that nobody knows": tar_of(*entry(record=key_text(bucket="nonsense-v1"))),
    "a field named bucket": tar_of(*entry(record=key_text(fields={"bucket": "x"}))),
    "a field of a list": tar_of(*entry(record=key_text(fields={"kernel": ["x"]}))),
    "a field of a fraction": tar_of(*entry(record=key_text(fields={"kernel": 1.5}))),
    "an entry twice": tar_of(*entry(), *entry(), record_end=2),
    "too many entries": tar_of(*entry(), record_end=2),
}


@pytest.mark.parametrize("name", LIES)
def test_an_archive_that_lies_is_refused_and_nothing_is_used(tmp_path, name):
    assert "is not a cache archive" in refused(tmp_path, LIES[name])


def test_the_honest_one_of_these_is_taken(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_of(*entry()))
    assert import_from(Store(tmp_path / "own"), tmp_path / "a.tar").added == 1


def test_a_size_beyond_the_file_takes_no_memory(tmp_path, archive):
    listed = [{"name": "k.o", "sha256": "0" * 64, "size_bytes": 4 << 30}]
    record = entry(listed=listed)[0]
    head = tar_of(record)[: -4 * BLOCK_BYTES]
    info = tarfile.TarInfo(record[0].replace("entry.json", "k.o"))
    info.size, info.mode = 4 << 30, 0o444
    assert "ends too soon" in refused(tmp_path, head + info.tobuf(tarfile.USTAR_FORMAT))


def test_a_fifo_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ArchiveInvalid, match="not a plain file"):
        import_from(Store(tmp_path / "own"), tmp_path / "fifo")


def limited(nbytes, work):
    """Exit code of `work` in a forked process whose files may have so many bytes."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))
        try:
            work()
            os._exit(0)
        except OSError as fault:
            os._exit(10 if fault.filename else 11)
        except CacheNotWritable:
            os._exit(12)
        finally:
            os._exit(13)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore")
def test_on_a_full_disk_an_export_leaves_nothing_and_an_import_what_is_whole(tmp_path, archive):
    store = filled(tmp_path / "cache")
    for nbytes in range(0, len(archive), 4096):
        assert limited(nbytes, lambda: export_to(store, tmp_path / "out.tar")) == 10
        assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    (tmp_path / "a.tar").write_bytes(archive)
    own = Store(tmp_path / "own")
    assert limited(600, lambda: import_from(own, tmp_path / "a.tar")) == 12
    assert list((own.root / "staging").iterdir()) == []
    assert list(rows(own)) == []
    assert import_from(own, tmp_path / "a.tar").added == 6


def test_an_archive_that_changes_between_the_passes_is_refused(tmp_path, archive, monkeypatch):
    from aotc.cache import archive as module

    path = tmp_path / "a.tar"
    path.write_bytes(archive)
    read = module._files

    def alter_and_read(file, where, place):
        data = bytearray(archive)
        data[place.files[-1][2]] ^= 1
        path.write_bytes(data)
        return read(file, where, place)

    monkeypatch.setattr(module, "_files", alter_and_read)
    with pytest.raises(ArchiveInvalid, match="changed while it was read"):
        import_from(Store(tmp_path / "own"), path)


def test_a_killed_import_leaves_whole_entries_and_goes_on(tmp_path, archive):
    path = tmp_path / "a.tar"
    path.write_bytes(archive)
    for turn in range(6):
        pid = os.fork()
        if pid == 0:
            import_from(Store(tmp_path / "own"), path)
            os._exit(0)
        time.sleep(0.002 * turn)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    store = Store(tmp_path / "own")
    import_from(store, path)
    assert all(dict(store.get(key).files) == files(key) for key in KEYS)
