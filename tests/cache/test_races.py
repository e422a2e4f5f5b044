"""The store under racing writers and killed writers: no reader ever sees a part of an entry.

Each writer's files differ, so an entry mixed from two writers shows: all files of an entry must
carry one writer's number.
"""

import os
import signal
import time
import warnings

import pytest

from aotc.cache import Key, Store
from aotc.cache.collect import collect, rows

WRITERS = 8
KEYS = 60
KILLS = 60
NAMES = ("a.o", "b.o", "meta.json")


def keys():
    return [Key.of("binaries", kernel=f"k{index}") for index in range(KEYS)]


def files(writer, index):
    body = f"{writer}:{index};".encode() * 500
    return dict.fromkeys(NAMES, body)


def is_whole(entry):
    return len({bytes(data) for data in entry.files.values()}) == 1 and set(entry.files) == {*NAMES}


def spawn(work):
    """Run `work` in a forked process; its exit code is 0 only when work returned True."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = 0 if work() else 1
    finally:
        os._exit(code)


def write_and_read_all(root, writer, gate):
    os.read(gate, 1)
    store = Store(root)
    warnings.simplefilter("error")  # a damaged entry would warn
    for index, key in enumerate(keys()):
        store.put(key, files(writer, index))
        entry = store.get(key)
        if entry is None or not is_whole(entry):
            return False
    return store.counters.damaged == 0


def test_eight_writers_of_sixty_keys_tear_nothing(tmp_path):
    root = tmp_path / "cache"
    Store(root)
    reader, writer_end = os.pipe()
    children = [
        spawn(lambda writer=writer: write_and_read_all(root, writer, reader))
        for writer in range(WRITERS)
    ]
    os.write(writer_end, b"x" * WRITERS)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(reader)
    os.close(writer_end)
    assert codes == [0] * WRITERS
    store = Store(root)
    assert all(is_whole(store.get(key)) for key in keys())
    assert len(list(rows(store))) == KEYS
    assert list((root / "staging").iterdir()) == []


def write_forever(root, begun):
    store = Store(root)
    turn = 0
    while True:
        for index, key in enumerate(keys()[:8]):
            store.put(key, files(os.getpid() * 1000 + turn, index))
            if not turn and not index:
                os.write(begun, b"x")
            if turn % 3 == 2:
                for row in rows(store):
                    if row.digest == key.digest:
                        (row.folder / "entry.json").unlink()  # half of a deletion
        turn += 1


def test_sixty_killed_writers_leave_only_whole_entries(tmp_path):
    root = tmp_path / "cache"
    checked = Store(root)
    reader, begun = os.pipe()
    for turn in range(KILLS):
        child = spawn(lambda: write_forever(root, begun))
        os.read(reader, 1)  # the first entry is written, however long that took
        time.sleep(0.0007 * (turn % 20))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for key in keys()[:8]:
            entry = checked.get(key)
            assert entry is None or is_whole(entry)
    os.close(reader)
    os.close(begun)
    assert checked.counters.damaged == 0
    assert checked.counters.hits > 0
    collect(checked)
    assert list((root / "staging").iterdir()) == []


def compile_once(root, gate, count=20):
    """What a build does for each kernel: get, lock, get again, compile, put."""
    os.read(gate, 1)
    store = Store(root)
    for index in range(count):
        key = Key.of("binaries", kernel=f"k{index}")
        if store.get(key):
            continue
        with store.lock(key):
            if store.get(key) is None:
                time.sleep(0.002)
                store.put(key, files(os.getpid(), index))
    (root.parent / f"puts-{os.getpid()}").write_text(str(store.counters.puts))
    return True


@pytest.mark.parametrize(
    ("processes", "count"), [(4, 20), pytest.param(32, 200, marks=pytest.mark.nightly)]
)
def test_parallel_builds_compile_each_kernel_once(tmp_path, processes, count):
    root = tmp_path / "cache"
    Store(root)
    reader, writer_end = os.pipe()
    children = [spawn(lambda: compile_once(root, reader, count)) for _ in range(processes)]
    os.write(writer_end, b"x" * processes)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(reader)
    os.close(writer_end)
    assert codes == [0] * processes
    assert sum(int(path.read_text()) for path in tmp_path.glob("puts-*")) == count


def test_the_death_of_a_lock_holder_blocks_nobody(tmp_path):
    store = Store(tmp_path / "cache")
    key = keys()[0]
    reader, writer_end = os.pipe()

    def hold():
        with store.lock(key):
            os.write(writer_end, b"x")
            time.sleep(60)

    child = spawn(hold)
    os.read(reader, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with store.lock(key, timeout_s=10) as is_held:
        assert is_held
