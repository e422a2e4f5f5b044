"""Every process of a masked run sees a processor without AVX-512, or without tiles.

The suite's own switch: `AOTC_TESTS_WITHOUT=avx512,amx scripts/test …` takes the words that begin so
out of what `/proc/cpuinfo` says. `tests/conftest.py` loads this file into pytest's process and puts
its folder on PYTHONPATH, so that Python loads it into the processes that tests start.
"""

import builtins
import io
import os

CPUINFO = "/proc/cpuinfo"
VARIABLE = "AOTC_TESTS_WITHOUT"
_open = io.open


def _masked(file, mode="r", *rest, **named):
    if file != CPUINFO and not (hasattr(file, "__fspath__") and os.fspath(file) == CPUINFO):
        return _open(file, mode, *rest, **named)
    with _open(CPUINFO, encoding="ascii", errors="replace") as found:
        lines = [_without(line) for line in found]
    return io.BytesIO("".join(lines).encode()) if "b" in mode else io.StringIO("".join(lines))


def _without(line):
    if not line.startswith("flags"):
        return line
    hidden = tuple(os.environ[VARIABLE].split(","))
    return " ".join(word for word in line.split(" ") if not word.startswith(hidden))


def install():
    """Mask this process, where the variable is set."""
    if os.environ.get(VARIABLE):
        builtins.open = io.open = _masked


install()
