"""GET, HEAD and PUT of small files at one server, over kept connections and within bounds.

A server may be slow, broken or hostile: each request ends within its time, whatever arrives and
however slowly; no more bytes are kept than were asked for; nothing is decoded, and no redirect is
followed. Every failure is a `TransportFault`, whose text holds neither credentials nor headers.
It must not know what the files mean.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from aotc.cache.errors import RemoteCacheAddressInvalid, RemoteCacheSecretInvalid
from aotc.cache.timed import Clock, Timed, TimedSecure

CONNECT_S = 5.0
SILENCE_S = 5.0  # the longest wait for the next byte
STEP_BYTES = 1 << 20
DRAIN_BYTES = 1 << 16  # of a refusal's page, so that the connection can be used again
LOCAL = ("localhost", "127.0.0.1", "::1")
_GONE = (
    http.client.RemoteDisconnected,
    BrokenPipeError,
    ConnectionResetError,
    ConnectionAbortedError,
)


class TransportFault(Exception):
    """A request got no answer, or not one of the kind that was asked for."""


class Refused(TransportFault):
    """The server does not let us: 401, 403 or 407."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a remote cache is: `http://host:port/path` or `https://…`."""

    scheme: str
    host: str
    port: int
    path: str  # without a slash at its end

    @staticmethod
    def of(url: str) -> Address:
        """The parts of `url`; raises RemoteCacheAddressInvalid, without the credentials in it."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise RemoteCacheAddressInvalid(found="what cannot be parsed") from None
        if parts.username is not None or parts.password is not None:
            raise RemoteCacheAddressInvalid(found="an address with credentials in it")
        if parts.query or parts.fragment:
            raise RemoteCacheAddressInvalid(found="an address with a query or a fragment")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RemoteCacheAddressInvalid(found=f"`{url}`")
        if not url.isascii() or any(ord(letter) <= 32 for letter in url):
            raise RemoteCacheAddressInvalid(found="an address with spaces or other characters")
        return Address(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way reads what is sent there."""
        return self.scheme == "https" or self.host in LOCAL

    @property
    def authority(self) -> str:
        """Host and port, as a proxy is asked for them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Transport:
    """Requests to one server, by any number of threads; connections are kept for the next one."""

    def __init__(self, address: Address, token: str = "", total_s: float = 20.0) -> None:
        """`token`: sent as `Authorization: Bearer`, or `Basic` where it is `user:password`.

        total_s: seconds that a request may take, besides a second for each MiB of it. Raises
        RemoteCacheSecretInvalid and RemoteCacheAddressInvalid.
        """
        self._idle: list[Timed] = []  # its methods are atomic
        self.address = address
        self.total_s = total_s
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "aotc"}
        if token:
            self._headers["Authorization"] = _authorization(token, address)
        self._proxy = _proxy_of(address)
        self._tls = ssl.create_default_context() if address.scheme == "https" else None
        self.is_stopped = False  # makes every request that is under way fail at its next byte

    def get(self, path: str, limit_bytes: int, nbytes: int | None = None) -> bytes | None:
        """The body at `path`, of `nbytes` where that is known; None for 404 and 410.

        Raises TransportFault, as for more than `limit_bytes`.
        """
        with self._response("GET", path, None, limit_bytes) as response:
            if response.status in (404, 410):
                return None
            _expect(response, (200,))
            return _body(response, limit_bytes, nbytes)

    def has(self, path: str, nbytes: int | None = None) -> bool:
        """Whether there is a file at `path`, of `nbytes` where the server says how many it has.

        Raises TransportFault.
        """
        with self._response("HEAD", path, None, 0) as response:
            if response.status in (404, 410):
                return False
            _expect(response, (200, 204))
            said = response.getheader("Content-Length")
            return nbytes is None or said is None or said.strip() == str(nbytes)

    def put(self, path: str, data: bytes) -> None:
        """Store a file; raises TransportFault."""
        with self._response("PUT", path, data, len(data)) as response:
            _expect(response, (200, 201, 202, 204))

    def close(self) -> None:
        """Close the kept connections."""
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        self.close()

    @contextlib.contextmanager
    def _response(
        self, method: str, path: str, body: bytes | None, nbytes: int
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request; afterwards its connection is kept, or closed after a fault."""
        deadline = time.monotonic() + self.total_s + nbytes / 2**20
        connection = None
        try:
            connection, response = self._asked(method, path, body, deadline)
            yield response
            if response.length is not None and response.length <= DRAIN_BYTES:
                response.read()
            if response.isclosed() and connection.sock is not None:
                self._idle.append(connection)
                connection = None
        except (OSError, http.client.HTTPException, ValueError) as fault:
            raise TransportFault(f"{method}: {_text(fault)}") from None
        finally:
            if connection is not None:
                connection.close()

    def _asked(
        self, method: str, path: str, body: bytes | None, deadline: float
    ) -> tuple[Timed, http.client.HTTPResponse]:
        """Send a request, once more where a kept connection turns out to have been closed."""
        target, headers = self.address.path + path, self._headers
        if self._proxy is not None and self._tls is None:
            target = f"http://{self.address.authority}{target}"
            headers = headers | self._proxy.headers
        while True:
            connection, is_kept = self._connection(deadline)
            try:
                connection.request(method, target, body, headers)
                return connection, connection.getresponse()
            except BaseException as fault:
                connection.close()
                if not is_kept or not isinstance(fault, _GONE):
                    raise

    def _connection(self, deadline: float) -> tuple[Timed, bool]:
        """A connection, and whether it has been used before."""
        with contextlib.suppress(IndexError):
            kept = self._idle.pop()
            kept.clock.deadline = deadline
            return kept, True
        connect_s = max(0.01, min(CONNECT_S, deadline - time.monotonic()))
        place = self._proxy or self.address
        made: Timed
        if self._tls is None:
            made = Timed(place.host, place.port, timeout=connect_s)
        else:
            made = TimedSecure(place.host, place.port, timeout=connect_s, context=self._tls)
            if self._proxy is not None:
                made.set_tunnel(self.address.host, self.address.port, self._proxy.headers)
        made.clock = Clock(deadline, SILENCE_S, lambda: self.is_stopped)
        return made, False


@dataclass(frozen=True, slots=True)
class _Proxy:
    host: str
    port: int
    headers: dict[str, str]


def _proxy_of(address: Address) -> _Proxy | None:
    """The proxy that the environment names for this address."""
    named = getproxies().get(address.scheme)
    if not named or address.host in LOCAL or proxy_bypass(address.authority):
        return None
    try:
        parts = urlsplit(named if "://" in named else f"http://{named}")
        port = parts.port or 80
    except ValueError:
        raise RemoteCacheAddressInvalid(found="a proxy's address that cannot be parsed") from None
    if parts.scheme != "http" or not parts.hostname:
        raise RemoteCacheAddressInvalid(found="a proxy's address that is not `http://host:port`")
    headers = {}
    if parts.username is not None:
        given = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = _basic(given)
    return _Proxy(parts.hostname, port, headers)


def _authorization(token: str, address: Address) -> str:
    if not all(33 <= ord(letter) <= 126 for letter in token):
        raise RemoteCacheSecretInvalid(what="token", found="spaces or other characters in it")
    if not address.is_private:
        raise RemoteCacheSecretInvalid(what="token", found="to be sent to a host over http")
    return _basic(token) if ":" in token else f"Bearer {token}"


def _basic(given: str) -> str:
    return f"Basic {base64.b64encode(given.encode()).decode()}"


def _expect(response: http.client.HTTPResponse, wanted: tuple[int, ...]) -> None:
    status = response.status
    if status in wanted:
        return
    if status in (401, 403, 407):
        raise Refused(f"the server answers {status}, it wants other credentials")
    if 300 <= status < 400:
        raise TransportFault(f"the server answers {status}; redirects are not followed")
    raise TransportFault(f"the server answers {status}")


def _body(response: http.client.HTTPResponse, limit_bytes: int, nbytes: int | None) -> bytes:
    coding = response.getheader("Content-Encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        raise TransportFault("the answer is compressed, expected plain bytes")
    length = response.length  # None where the answer says none
    limit = limit_bytes if nbytes is None else nbytes
    if length is not None and (length > limit or (nbytes is not None and length != nbytes)):
        raise TransportFault(f"the answer has {length} bytes, expected {_expected(limit, nbytes)}")
    parts, total = [], 0
    while total <= limit:
        part = response.read(min(STEP_BYTES, limit + 1 - total))
        if not part:
            break
        parts.append(part)
        total += len(part)
    wanted = length if nbytes is None else nbytes
    if total > limit or (wanted is not None and total != wanted):
        raise TransportFault(f"{total} bytes arrived, expected {_expected(limit, wanted)}")
    return b"".join(parts)


def _expected(limit: int, nbytes: int | None) -> str:
    return f"at most {limit}" if nbytes is None else f"{nbytes}"


def _text(fault: Exception) -> str:
    """A fault in words of our own: what a server wrote is not repeated."""
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({fault.verify_message})"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    return f"not an answer of HTTP ({type(fault).__name__})"
