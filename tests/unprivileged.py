"""Runs a program that obeys file permissions, also where the tests run as root."""

import ctypes
import os
import subprocess

PR_CAPBSET_DROP = 24
# To write and to read whatever the mode says, and to change modes of others' files.
CAPABILITIES = (1, 2, 3)


def drop():
    """Give up the rights of root over files, before a program begins."""
    prctl = ctypes.CDLL(None).prctl
    for capability in CAPABILITIES:
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for a user who has none anyway


def run(command, given=None, **environment):
    """The finished process, its output as text; `given` is its standard input."""
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        preexec_fn=drop,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def make_read_only(folder):
    """Take every right to write from a folder and all below it."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & 0o555)
