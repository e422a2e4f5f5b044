"""The process side of `workers.py`: runs one function after another, named by the parent.

Started as `python -c BOOT folder confined path…`; where `confined` is not empty, the process gives
up the network and all writing but in its folder (`confine.py`). Messages are a length of 8 bytes
and `marshal` data, which holds plain values only. The process's own standard output becomes its
standard error, so that nothing a library prints reaches the parent as a message.
"""

from __future__ import annotations

import marshal
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
from aotc.aot.tasks.task import describe, resolve

BODY_FILE = "body.ll"  # in a worker's folder: the text that is being compiled
LENGTH = struct.Struct("<Q")
BOOT = "import sys; sys.path[:] = sys.argv[3:]; from aotc.aot.tasks.worker import main; main()"


HELD: tuple[str, ...] = ()  # what this process gave up


def held() -> tuple[str, ...]:
    """What the process gave up, as `confine` says it; a request of whoever wants to know."""
    return HELD


def write_message(stream: IO[bytes], value: Any) -> None:
    """Send plain values: None, bool, int, float, str, bytes, tuple, list, dict."""
    data = marshal.dumps(value)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def read_message(stream: IO[bytes]) -> Any:
    """Receive one message; EOFError when the other side is gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return marshal.loads(data)


def main() -> None:
    """Serve requests `(function name, arguments)` until the parent closes the pipe."""
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
            name, arguments = read_message(requests)
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


def _answer(name: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        function: Callable[..., Any] = resolve(name)
        result = function(*arguments)
        marshal.dumps(result)  # a value that is not plain is the function's error
        return "value", result
    except Exception as error:
        return _describe(error)


def _describe(error: Exception) -> tuple[str, Any]:
    """An `AotcError` travels as class name and fields, any other exception as text."""
    from aotc.runtime.errors import AotcError

    if isinstance(error, AotcError):
        return "error", describe(error)
    text = f"{type(error).__name__}: {error}"
    return "exception", (text, "".join(traceback.format_exception(error)))
