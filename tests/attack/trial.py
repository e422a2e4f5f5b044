"""One use of an altered artifact, in a forked process with bounds of time and memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

SECONDS = 15
MEMORY_BYTES = 3 << 30  # of address space, beyond what the process has already

USED, RIGHT, REFUSED, CRASHED, HUNG = "used", "right", "refused", "crashed", "hung"
SOUND = "sound"  # of entries read while they are written


class Missed(Exception):
    """A cache gives nothing: its user makes the artifact again."""


@dataclass(frozen=True)
class Outcome:
    """What came of one use."""

    kind: str
    note: str = ""  # the error's class


def outcome_of(use: Callable[[], bytes], honest: str) -> Outcome:
    """Whether `use` gives bytes of the digest `honest`, others, an error, or does not end."""
    word, note = answer_of(use)
    if word == "gave":
        return Outcome(RIGHT if note == honest else USED)
    return Outcome(word, note)


def digest_of(use: Callable[[], bytes]) -> str:
    """Digest of what `use` gives of an artifact that nobody altered."""
    word, note = answer_of(use)
    if word != "gave":
        raise RuntimeError(f"an artifact that nobody altered: {word} {note}")
    return note


def answer_of(use: Callable[[], bytes]) -> tuple[str, str]:
    """`use` in a fork: ("gave", digest), or a kind of Outcome and its note."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        _answer(use, sender)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        deadline = time.monotonic() + SECONDS
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return HUNG, ""
            time.sleep(0.002)
        word, _, note = pipe.read().decode().partition(" ")
    if os.WIFSIGNALED(status):
        return CRASHED, signal.Signals(os.WTERMSIG(status)).name
    if word == "broken":
        raise RuntimeError("the attack itself is wrong")
    return {"gave": "gave", "raised": REFUSED}.get(word, CRASHED), note


def _answer(use: Callable[[], bytes], sender: int) -> None:
    """In the child: write `gave DIGEST` or `raised CLASS` and end."""
    warnings.simplefilter("ignore")
    with contextlib.suppress(OSError, ValueError):
        pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115, PTH123
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        text = f"gave {hashlib.sha256(use()).hexdigest()}"
    except (ImportError, NameError):  # of the attacks themselves
        text = "broken"
    except BaseException as error:
        text = f"raised {type(error).__name__}"
    os.write(sender, text.encode())
    os._exit(0)
