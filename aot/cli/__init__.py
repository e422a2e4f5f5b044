"""The command line: `aotc`. One file a command; nothing heavy is imported before it is needed."""

import contextlib
import gc
import importlib.util
import io
import os
import sys

LOWEST_PYTHON = (3, 11)
PACKAGES = ("click", "filelock")  # of the base installation; the runtime needs none
# Torch and torch.export are 400,000 objects that stay. By Python's own count of new objects all are
# walked six times while they are loaded, a quarter of the time that it takes.
FEW_COLLECTIONS = (20_000, 10, 10)


def main() -> None:
    """Entry point of the `aotc` program; ends the process with the documented exit code.

    The process ends at once: taking torch apart object by object would cost a second, and every
    file and child process has been closed by its own block by now.
    """
    gc.set_threshold(*FEW_COLLECTIONS)
    _open_streams()
    _check_installation()
    from aotc.aot.cli import signals

    signals.catch()
    try:
        from aotc.aot.cli.program import run

        code = run()
        signals.end(code)
    except KeyboardInterrupt as end:  # before the command began, or when it had ended
        word, code = signals.ending(end)
        print(f"error: {word}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader of a pipe went away
            stream.flush()
    os._exit(code)


def _check_installation() -> None:
    """End with 7 where the interpreter is too old or a package of the base installation is absent,
    as in a checkout that was never installed."""
    if sys.version_info < LOWEST_PYTHON:
        found, lowest = (".".join(map(str, each[:2])) for each in (sys.version_info, LOWEST_PYTHON))
        problem = f"this is Python {found}, expected {lowest} or later"
        advice = "name a newer Python, as in `python3.13 -m venv`"
    else:
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if not missing:
            return
        problem = f"`{missing[0]}` is not installed, the command line needs it"
        advice = "pip install aotc; in a checkout of aotc: pip install ."
    print(f"error: {problem}\n\nhint: {advice}", file=sys.stderr)
    raise SystemExit(7)


def _open_streams() -> None:
    """Give closed streams a place, and have each write any text; errors never fail to be written.

    Where standard output is closed, the next file that is opened has its number, and what native
    code or a child process prints would go into that file. A name that is not text of the locale's
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr = io.TextIOWrapper(
        _Errors(2, "wb", closefd=False),
        encoding=sys.stderr.encoding,
        errors="backslashreplace",
        line_buffering=True,
        write_through=True,
    )


class _Errors(io.FileIO):
    """Standard error. A full disk or a pipe without a reader takes progress and warnings away, but
    no command fails because of that."""

    def write(self, data: object, /) -> int:
        """The number of bytes, all of them."""
        left = memoryview(data)  # type: ignore[arg-type]
        nbytes = len(left)
        with contextlib.suppress(OSError):
            while left:
                left = left[super().write(left) or 0 :]
        return nbytes
