"""What is free of host memory: of the machine and of the control groups above the process."""

import errno
import os

import pytest

from aotc.runtime.bundle.plan import StateSlot
from aotc.runtime.drivers import memory
from aotc.runtime.drivers.free_memory import RESERVE_BYTES, free_host_bytes
from aotc.runtime.drivers.memory import HostStates, doublings, no_memory
from aotc.runtime.errors import DriverFault, HostMemoryFull

GIB = 1 << 30
MEMINFO = "MemTotal:  16777216 kB\nMemAvailable:  8388608 kB\n"


def reader(**files):
    def read(path):
        name = path.removeprefix("/").replace("/", "_")
        if name not in files:
            raise FileNotFoundError(path)
        return files[name]

    return read


def group(folder, limit, used, inactive=0):
    root = f"sys_fs_cgroup{folder}_memory"
    return {
        f"{root}.max": f"{limit}\n",
        f"{root}.current": f"{used}\n",
        f"{root}.stat": f"anon 5\ninactive_file {inactive}\n",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc_meminfo": MEMINFO}, 8 * GIB),
        ({"proc_meminfo": "MemTotal: 5 kB\n"}, None),
        ({"proc_meminfo": MEMINFO, "proc_self_cgroup": "0::/a/b\n",
          **group("_a_b", "max", 5), **group("_a", 4 * GIB, 3 * GIB, GIB)}, 2 * GIB),
        ({"proc_self_cgroup": "0::/\n", **group("", 2 * GIB, GIB)}, GIB),
        ({"proc_meminfo": MEMINFO, "proc_self_cgroup": "5:memory:/old\n"}, 8 * GIB),
    ],
)  # fmt: skip
def test_the_least_of_all_counts(files, expected):
    found = free_host_bytes(reader(**files))
    assert found == (None if expected is None else expected - RESERVE_BYTES)


def test_this_machine_says_something():
    assert free_host_bytes() is None or free_host_bytes() >= 0


def test_states_that_do_not_fit_are_refused_with_both_sizes(monkeypatch):
    monkeypatch.setattr(memory, "free_host_bytes", lambda: 4096)
    with pytest.raises(HostMemoryFull, match="needs 8192 bytes, 4096 are free") as caught:
        HostStates((StateSlot(8192),), {})
    assert isinstance(caught.value, DriverFault)
    assert caught.value.code == "host-memory-full"
    HostStates((StateSlot(4096),), {}).close()


@pytest.mark.parametrize(("start", "nbytes"), [(1, 1), (1, 2), (3, 17), (8, 8), (4, 3), (2, 64)])
def test_doublings_fill_all(start, nbytes):
    filled = min(start, nbytes)
    for at, count in doublings(start, nbytes):
        assert at == filled
        assert 0 < count <= at
        filled += count
    assert filled == nbytes


def test_no_room_for_a_session_says_what_helps():
    """Running it again, as for other faults of a driver, would not."""
    error = no_memory(4096, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
    assert isinstance(error, DriverFault)
    assert str(error).splitlines() == [
        "no memory for a session: 4096 bytes are needed: cannot allocate memory",
        "hint: close sessions that are not in use, or raise the limits of this process",
    ]
