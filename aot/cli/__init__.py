"""The command line: `aotc`. One file a command; nothing heavy is imported before it is needed."""

import contextlib
import io
import os
import sys


def main() -> None:
    """Entry point of the `aotc` program; ends the process with the documented exit code.

    The process ends at once: taking torch apart object by object would cost a second, and every
    file and child process has been closed by its own block by now.
    """
    _open_streams()
    from aotc.aot.cli.program import run

    code = run()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader of a pipe went away
            stream.flush()
    os._exit(code)


def _open_streams() -> None:
    """Give closed streams a place, and have each write any text.

    Where standard output is closed, the next file that is opened has its number, and what native
    code or a child process prints would go into that file. A name that is no text of the locale's
    encoding is printed as `\\xff` or `\\u03bc`.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
