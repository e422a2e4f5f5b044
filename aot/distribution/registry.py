"""A client of the OCI distribution API, version 1.1, by the standard library's HTTP.

One `Registry` serves many threads, each with a connection of its own. It signs in where it is asked
to (Basic, or a bearer token), follows redirects of reads without taking credentials to another
host, and tries again where the network or the registry fails for a while. What it returns is not
checked: digests are the caller's.

Messages name method, host and path; never a query, a header or a body, which may hold secrets.

Source: https://github.com/opencontainers/distribution-spec, spec.md; tokens:
https://distribution.github.io/distribution/spec/auth/token/.
"""

from __future__ import annotations

import base64
import http.client
import random
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from typing import Self
from urllib.parse import quote, urlencode, urljoin, urlsplit, urlunsplit

from aotc.aot.distribution.errors import RegistryDenied, RegistryFailed, RegistryMissing
from aotc.aot.distribution.reference import Reference
from aotc.aot.version import VERSION
from aotc.cache.timed import Clock, Timed, TimedSecure
from aotc.runtime.bundle.strict_json import NotStrict, parse

TIMEOUT_S = 60.0
ATTEMPTS = 5
PAUSE_S = 0.2  # before the second attempt; doubled before each later one
PAUSE_LIMIT_S = 10.0
REDIRECTS_LIMIT = 5
ANSWER_LIMIT_BYTES = 1 << 16
BUSY = (408, 429, 500, 502, 503, 504)
MOVED = (301, 302, 303, 307, 308)
PARAMETER = re.compile(r'(\w+)="([^"]*)"')

Body = Callable[[], Iterable[bytes]]


class Interrupted(Exception):
    """The network or the registry failed in a way that may pass; holds what to say if it does not.

    pause_s: what the registry asks to wait, or None.
    """

    def __init__(self, detail: str, pause_s: float | None = None) -> None:
        super().__init__(detail)
        self.pause_s = pause_s


class Registry:
    """A registry and one repository in it."""

    def __init__(
        self,
        reference: Reference,
        credentials: tuple[str, str] | None,
        is_plain: bool = False,
        pause_s: float = PAUSE_S,
    ) -> None:
        """credentials: user and password. is_plain: plain HTTP; loopback has it anyway."""
        scheme = "http" if is_plain or reference.is_loopback else "https"
        self.reference = reference
        self._origin = f"{scheme}://{reference.address}"
        self._base = f"{self._origin}/v2/{reference.repository}/"
        self._credentials = credentials
        self._authorization: str | None = None
        self._local = threading.local()
        self._opened: list[Timed] = []
        self._pause_s = pause_s
        self._tls = ssl.create_default_context() if scheme == "https" else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._opened:
            connection.close()

    def url(self, path: str, **query: str) -> str:
        """The address of a path below the repository."""
        return self._base + path + (f"?{urlencode(query)}" if query else "")

    def join(self, method: str, url: str, location: str | None, **query: str) -> str:
        """Where an answer of `url` leads, with a query added to its own.

        Raises `RegistryFailed` where that is nowhere, or leaves TLS.
        """
        try:
            parts = urlsplit(urljoin(url, location or ""))
            is_web = parts.scheme in ("http", "https") and parts.netloc
        except ValueError:
            is_web = False
        if not location or not is_web or (parts.scheme == "http" and url.startswith("https:")):
            where = parts.scheme if location and is_web else "nowhere"
            detail = f"a redirect to {where}"
            raise RegistryFailed(method=method, url=_plain(url), detail=detail)
        added = "&".join(filter(None, (parts.query, urlencode(query))))
        return urlunsplit(parts._replace(query=added, fragment=""))

    def call(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        accepts: tuple[int, ...] = (200,),
    ) -> HTTPResponse:
        """One request with its redirects and its sign-in; the answer's body is not yet read.

        Raises `RegistryMissing` (404), `RegistryDenied` (401, 403), `RegistryFailed` for other
        answers, and `Interrupted` for what may pass.
        """
        sent = {"User-Agent": f"aotc/{VERSION}", "Accept-Encoding": "identity", **(headers or {})}
        has_signed_in = False
        redirects = 0
        while True:
            response = self._send(method, url, sent, body)
            status = response.status
            if status in accepts:
                return response
            if status == 401 and not has_signed_in and self._is_ours(url):
                challenge = response.getheader("WWW-Authenticate") or ""
                self._drain(response)
                self._sign_in(challenge, url, method)
                has_signed_in = True
                continue
            if status in MOVED and method in ("GET", "HEAD") and redirects < REDIRECTS_LIMIT:
                location = response.getheader("Location")
                self._drain(response)
                url = self.join(method, url, location)
                redirects += 1
                continue
            raise self._refusal(method, url, response)

    def retried(self, method: str, url: str, action: Callable[[], bytes]) -> bytes:
        """What `action` returns, tried again while it raises `Interrupted`.

        Raises `RegistryFailed` after the last attempt.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return action()
            except Interrupted as reason:
                self.pause(attempt, reason, method, url)
        raise AssertionError("`pause` raises at the last attempt")

    def pause(self, attempt: int, reason: Interrupted, method: str, url: str) -> None:
        """Wait before the next attempt; raises `RegistryFailed` where there is none."""
        self.disconnect()
        if attempt >= ATTEMPTS:
            detail = f"{reason} ({attempt} attempts)"
            raise RegistryFailed(method=method, url=_plain(url), detail=detail) from None
        asked = self._pause_s * 2 ** (attempt - 1) * (0.5 + random.random())
        time.sleep(min(max(asked, reason.pause_s or 0), PAUSE_LIMIT_S))

    def read(
        self, method: str, url: str, limit_bytes: int, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """The whole body of a small answer; raises what `call` does, `Interrupted` apart."""

        def action() -> bytes:
            response = self.call(method, url, headers)
            data = self.body(response, limit_bytes + 1)
            if len(data) > limit_bytes:
                detail = f"an answer of more than {limit_bytes} bytes"
                raise RegistryFailed(method=method, url=_plain(url), detail=detail)
            return data

        return self.retried(method, url, action)

    def body(self, response: HTTPResponse, limit_bytes: int) -> bytes:
        """Up to `limit_bytes` of an answer; raises `Interrupted` where it is cut off."""
        try:
            data = response.read(limit_bytes)
            missing = response.length
        except (OSError, HTTPException) as error:
            raise Interrupted(f"the answer was cut off ({type(error).__name__})") from None
        if missing and len(data) < limit_bytes:
            raise Interrupted("the answer was cut off")
        if not response.isclosed():
            self.disconnect()
        return data

    def disconnect(self) -> None:
        """Close this thread's connections: an answer was left unread, or failed."""
        for connection in self._connections().values():
            connection.close()
        self._connections().clear()

    def go_on(self) -> None:
        """Give this thread's connections their time again: something has arrived, or is sent."""
        self._clock().deadline = time.monotonic() + TIMEOUT_S

    def _clock(self) -> Clock:
        found: Clock | None = getattr(self._local, "clock", None)
        if found is None:
            found = self._local.clock = Clock(time.monotonic() + TIMEOUT_S, TIMEOUT_S)
        return found

    def _steps(self, body: Iterable[bytes]) -> Iterator[bytes]:
        for data in body:
            self.go_on()
            yield data

    def _connections(self) -> dict[str, Timed]:
        found: dict[str, Timed] | None = getattr(self._local, "connections", None)
        if found is None:
            found = self._local.connections = {}
        return found

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: Body | None
    ) -> HTTPResponse:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = dict(headers)
        if self._authorization is not None and origin == self._origin:
            sent.setdefault("Authorization", self._authorization)
        try:
            connection = self._connections().get(origin) or self._connect(origin)
            self.go_on()
            data = None if body is None else self._steps(body())
            connection.request(method, target, body=data, headers=sent)
            self.go_on()
            return connection.getresponse()
        except ssl.SSLError as error:
            self.disconnect()
            detail = f"TLS: {error.reason or error}"
            raise RegistryFailed(method=method, url=_plain(url), detail=detail) from None
        except (OSError, HTTPException, ValueError, OverflowError) as error:
            self.disconnect()
            raise Interrupted(_words(error)) from None
        except BaseException:  # of the body: half a request was sent
            self.disconnect()
            raise

    def _connect(self, origin: str) -> Timed:
        scheme, _, host = origin.partition("://")
        if scheme == "https":
            tls = self._tls or ssl.create_default_context()
            connection: Timed = TimedSecure(host, timeout=TIMEOUT_S, context=tls)
        else:
            connection = Timed(host, timeout=TIMEOUT_S)
        connection.clock = self._clock()
        connection.blocksize = 1 << 20
        self._connections()[origin] = connection
        self._opened.append(connection)
        return connection

    def _is_ours(self, url: str) -> bool:
        return url.startswith(f"{self._origin}/")

    def _sign_in(self, challenge: str, url: str, method: str) -> None:
        """Answer a challenge; raises `RegistryDenied` where that is not possible."""
        kind, _, rest = challenge.partition(" ")
        values = dict(PARAMETER.findall(rest))
        if kind.lower() == "basic" and self._credentials is not None:
            self._authorization = self._basic()
        elif kind.lower() == "bearer" and "realm" in values:
            self._authorization = f"Bearer {self._token(values, url, method)}"
        else:
            detail = "it wants a user and a password" if kind else "it names no way to sign in"
            raise RegistryDenied(method=method, url=_plain(url), detail=detail)

    def _token(self, values: dict[str, str], url: str, method: str) -> str:
        """A bearer token from the place that the challenge names."""
        try:
            realm = urlsplit(values["realm"])
        except ValueError:
            realm = urlsplit("")
        is_safe = realm.scheme == "https" or (realm.scheme == "http" and self._tls is None)
        if not is_safe or not realm.netloc:
            detail = f"it sends sign-in to {realm.scheme or 'nowhere'}"
            raise RegistryDenied(method=method, url=_plain(url), detail=detail)
        asked: dict[str, str] = {
            name: values[name] for name in ("service", "scope") if name in values
        }
        query = "&".join(filter(None, (realm.query, urlencode(asked))))
        headers = {} if self._credentials is None else {"Authorization": self._basic()}
        place = urlunsplit(realm._replace(query=query, fragment=""))
        response = self._send("GET", place, headers, None)
        data = self.body(response, ANSWER_LIMIT_BYTES)
        if response.status in BUSY:
            raise Interrupted(f"status {response.status} where it signs in")
        try:
            found = parse(data) if response.status == 200 else {}
            token = found.get("token") or found.get("access_token")
        except (NotStrict, AttributeError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            detail = f"sign-in gives no token (status {response.status})"
            raise RegistryDenied(method=method, url=_plain(url), detail=detail)
        return token

    def _basic(self) -> str:
        user, password = self._credentials or ("", "")
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def _refusal(self, method: str, url: str, response: HTTPResponse) -> Exception:
        """The error for an answer that is not accepted; reads its body."""
        status, after = response.status, response.getheader("Retry-After") or ""
        code = _error_code(self._drain(response))
        detail = f"status {status}{f', {code}' if code else ''}"
        if status in BUSY:
            return Interrupted(detail, float(after) if after.isdigit() else None)
        kind = {401: RegistryDenied, 403: RegistryDenied, 404: RegistryMissing}.get(status)
        return (kind or RegistryFailed)(method=method, url=_plain(url), detail=detail)

    def _drain(self, response: HTTPResponse) -> bytes:
        """The beginning of a body, so that the connection can be used again, or is closed."""
        try:
            data = response.read(ANSWER_LIMIT_BYTES)
        except (OSError, HTTPException):
            data = b""
        if not response.isclosed():
            self.disconnect()
        return data


def blob_path(digest: str) -> str:
    """The path of a blob below its repository."""
    return f"blobs/{quote(digest, safe=':')}"


def _plain(url: str) -> str:
    """An address without its query, which may be signed, and without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _error_code(data: bytes) -> str:
    """The code in a registry's error, `BLOB_UNKNOWN`; empty where there is none."""
    try:
        code = parse(data)["errors"][0]["code"]
    except (NotStrict, LookupError, TypeError):
        return ""
    return code if isinstance(code, str) and re.fullmatch(r"[A-Z_]{1,40}", code) else ""


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:.0f} s"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__
