"""Connections of HTTP whose every wait is bounded by a clock, however slowly bytes arrive.

A time-out of a socket is of one wait: a server that sends a byte now and then, or headers without
end, is never late. Here each wait is at most what is left until a deadline, which whoever uses the
connection sets and may set again.
"""

from __future__ import annotations

import http.client
import io
import math
import time
from collections.abc import Callable
from typing import Any


class Clock:
    """How long the request that is under way may still wait."""

    def __init__(
        self, deadline: float, silence_s: float, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """deadline: of time.monotonic(). silence_s: the longest wait for the next byte.
        is_stopped: whether every wait is to end."""
        self.deadline, self._silence_s, self._is_stopped = deadline, silence_s, is_stopped

    def step_s(self, longest_s: float) -> float:
        """Seconds that the next wait may take, at most `longest_s`; raises TimeoutError."""
        left_s = self.deadline - time.monotonic()
        if left_s <= 0 or self._is_stopped():
            raise TimeoutError("the answer took too long")
        return min(left_s, longest_s)

    def read_s(self) -> float:
        """The same of a wait for bytes."""
        return self.step_s(self._silence_s)


class _Reader(io.RawIOBase):
    """Reads a socket; each wait is bounded by what is left of the request's time."""

    def __init__(self, sock: Any, clock: Clock) -> None:
        self._sock, self._clock = sock, clock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._clock.read_s())
        return int(self._sock.recv_into(buffer))


class _Socket:
    """What http.client asks of a socket, with the clock of the request."""

    def __init__(self, sock: Any, clock: Clock) -> None:
        self._sock, self._clock = sock, clock

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._clock))

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._clock.step_s(math.inf))  # of the whole call
        self._sock.sendall(data)

    def close(self) -> None:
        self._sock.close()


class Timed(http.client.HTTPConnection):
    """A connection whose waits a clock bounds."""

    clock: Clock

    def connect(self) -> None:
        """Connect, within the time-out that the connection was made with."""
        super().connect()
        self.sock: Any = _Socket(self.sock, self.clock)


class TimedSecure(Timed, http.client.HTTPSConnection):
    """With TLS; certificates are verified. `connect` is that of `Timed` over HTTPSConnection's."""
