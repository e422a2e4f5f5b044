"""The command line: `aotc`. One file a command; nothing heavy is imported before it is needed."""

import os
import sys


def main() -> None:
    """Entry point of the `aotc` program; ends the process with the documented exit code.

    The process ends at once: taking torch apart object by object would cost a second, and every
    file and child process has been closed by its own block by now.
    """
    from aotc.aot.cli.program import run

    code = run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):  # the reader of a pipe went away
        pass
    os._exit(code)
