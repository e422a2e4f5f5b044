"""Runs command lines in one process that obeys file permissions, for `test_wrong_uses.py`.

Input: {"lines": [[word, …], …], "folder": where they run, "answers": a file}. An answer: exit code,
standard output, errors, and the paths below the folder that the command made, changed or deleted.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import sys
from pathlib import Path

LIMIT_S = 60  # one command; the process ends there
NOT_LOOKED_AT = ("cache", "__pycache__")


def files_below(folder):
    """Path → size and time of all that lies there."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in NOT_LOOKED_AT]
        for path in (Path(place, name) for name in (*folders, *names)):
            state = path.lstat()
            found[path] = () if path.is_dir() else (state.st_size, state.st_mtime_ns)
    return found


def answer(words, run, folder, before):
    out, errors = io.StringIO(), io.StringIO()
    signal.alarm(LIMIT_S)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = run(words)
    signal.alarm(0)
    after = files_below(folder)
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    for path in changed:
        if path in before:  # a file that a command may replace
            before[path] = after.get(path)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return [code, out.getvalue(), errors.getvalue(), sorted(map(os.fspath, changed))]


def main():
    given = json.load(sys.stdin)
    os.chdir(given["folder"])
    from aotc.aot.cli.program import run

    before = files_below(given["folder"])
    rows = [answer(words, run, given["folder"], before) for words in given["lines"]]
    Path(given["answers"]).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
