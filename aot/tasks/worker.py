"""The process side of `workers.py`: runs one function after another, named by the parent.

Started as `python -c BOOT folder confined path…`; where `confined` is not empty, the process gives
up the network and all writing but in its folder (`confine.py`). Messages are a length of 8 bytes
and what `pack` makes of plain values: the parent reads them strictly, as a confined process may
send anything. The process's own standard output becomes its standard error, so that nothing a
library prints reaches the parent as a message.
"""

from __future__ import annotations

import gc
import os
import select
import shutil
import signal
import struct
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import IO, Any

from aotc.aot.tasks.confine import confine
from aotc.aot.tasks.task import LIMITS, describe, pack, resolve, unpack
from aotc.runtime.errors import BundleLimit

# What is loaded stays, and what a kernel's compilation makes is dropped as it ends: between them
# Python would walk it all a thousand times.
FEW_COLLECTIONS = (20_000, 10, 10)
BODY_FILE = "body.ll"  # in a worker's folder: the text that is being compiled
LENGTH = struct.Struct("<Q")
STEP_BYTES = 1 << 20  # as much is asked for at once, so that a false length takes no memory
BOOT = "import sys; sys.path[:] = sys.argv[3:]; from aotc.aot.tasks.worker import main; main()"


HELD: tuple[str, ...] = ()  # what this process gave up


def held() -> tuple[str, ...]:
    """What the process gave up, as `confine` says it; a request of whoever wants to know."""
    return HELD


def write_message(stream: IO[bytes], data: bytes) -> None:
    """Send what `pack` made of plain values."""
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def read_message(read: Callable[[int], bytes]) -> Any:
    """Receive one message, lists as tuples; `read` gives at most so many bytes, none at the end.

    Raises EOFError when the other side is gone, and BundleError for what is not a message.
    """
    (length,) = LENGTH.unpack(_exactly(read, LENGTH.size))
    if length > LIMITS.file_bytes:
        limit = LIMITS.file_bytes
        raise BundleLimit(path="a message", what="size in bytes", found=length, limit=limit)
    return unpack(_exactly(read, length), "a message")


def _exactly(read: Callable[[int], bytes], nbytes: int) -> bytes:
    parts, left = [], nbytes
    while left:
        part = read(min(left, STEP_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def main() -> None:
    """Serve requests `(function name, arguments)` until the parent closes the pipe."""
    gc.set_threshold(*FEW_COLLECTIONS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what ctrl-c ends
    if sys.argv[2]:
        global HELD
        HELD = confine((sys.argv[1], os.devnull))
    tempfile.tempdir = sys.argv[1]  # what is left there tells the parent what was being compiled
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    requests = sys.stdin.buffer
    try:
        while True:
            name, arguments = read_message(requests.read)
            write_message(replies, _answer(name, arguments))
    except (EOFError, BrokenPipeError):
        _clear_and_end()


def _end_with_parent() -> None:
    """End this process, also at work, once the parent is gone, which may have been killed."""
    poll = select.poll()
    poll.register(0, 0)  # of itself it reports that the other end was closed
    poll.poll()
    _clear_and_end()


def _clear_and_end() -> None:
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    os._exit(0)


def _answer(name: str, arguments: tuple[Any, ...]) -> bytes:
    try:
        function: Callable[..., Any] = resolve(name)
        result = function(*arguments)
        return pack(("value", result))  # a value that is not plain is the function's error
    except Exception as error:
        return pack(_describe(error))


def _describe(error: Exception) -> tuple[str, Any]:
    """An `AotcError` travels as class name and fields, any other exception as text."""
    from aotc.aot.folders import machine_fault
    from aotc.runtime.errors import AotcError, PermissionMissing

    fault = machine_fault(error)
    if not isinstance(fault, PermissionMissing):  # which a confined task asks for in vain
        error = fault or error
    if isinstance(error, AotcError):
        return "error", describe(error)
    texts = (f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))
    return "exception", tuple(text.encode(errors="replace").decode() for text in texts)
