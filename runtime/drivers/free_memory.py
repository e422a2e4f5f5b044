"""How much host memory a process can still take: of the machine, and of its container."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RESERVE_BYTES = 64 << 20  # left to everybody else, and to what is allocated beside
MACHINE = "/proc/meminfo"
OWN_GROUP = "/proc/self/cgroup"
GROUPS = "/sys/fs/cgroup"


def free_host_bytes(read: Callable[[str], str] | None = None) -> int | None:
    """Bytes that can be allocated and written, less a reserve; None where the system does not say.

    read: the text of a file; raises OSError.
    """
    read = read or _text
    found = [each for each in (_of_machine(read), *_of_groups(read)) if each is not None]
    return max(0, min(found) - RESERVE_BYTES) if found else None


def _text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def _of_machine(read: Callable[[str], str]) -> int | None:
    """What the kernel takes for available without swapping."""
    try:
        rows = dict(line.split(":", 1) for line in read(MACHINE).splitlines() if ":" in line)
        return int(rows["MemAvailable"].split()[0]) << 10
    except (OSError, LookupError, ValueError):
        return None


def _of_groups(read: Callable[[str], str]) -> list[int]:
    """What the control group of this process (version 2) and each one above it still allow.

    Its files' pages count as used there, and give way: those that are not in use are free.
    """
    try:
        lines = read(OWN_GROUP).splitlines()
    except OSError:
        return []
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    if path is None:
        return []
    found = []
    parts = [each for each in path.split("/") if each]
    for count in range(len(parts), -1, -1):
        folder = "/".join((GROUPS, *parts[:count]))
        try:
            limit = int(read(f"{folder}/memory.max"))
            used = int(read(f"{folder}/memory.current"))
            rows = dict(line.split() for line in read(f"{folder}/memory.stat").splitlines())
            found.append(limit - used + int(rows.get("inactive_file", 0)))
        except (OSError, ValueError):  # it has no limit (`max`), or no such file
            continue
    return found
