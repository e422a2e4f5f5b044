"""A registry in this process that fails on demand: the OCI distribution API over a dict.

`faults` is a list of (method, part of the path, what to do); the first that fits a request is taken
out of the list, unless it is `always`. What to do is a function of the handler, which answers by
itself and returns True, or changes what is about to be sent (`handler.cut`, `handler.alter`) and
returns None.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class FakeRegistry:
    """Blobs and manifests by digest or tag, and what was asked of it."""

    def __init__(self):
        self.blobs, self.manifests, self.uploads = {}, {}, {}
        self.faults, self.log, self.sent_bytes = [], [], 0
        self.password = self.token = None  # asked for where they are set
        self.blob_host = None  # blobs are redirected there
        self.has_ranges = True
        self.was_waited_for = False  # until an answer without an end was given up by the registry
        self.lock = threading.Lock()
        registry = self

        class Bound(Handler):
            state = registry

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def host(self):
        return f"127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def fault(self, method, path, action, always=False):
        self.faults.append((method, path, action, always))

    def asked(self, method, part=""):
        """Paths of the requests of a method that have a part."""
        return [path for kind, path, _ in self.log if kind == method and part in path]

    def headers(self, part):
        """The headers of the requests whose path has a part."""
        return [headers for _, path, headers in self.log if part in path]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: FakeRegistry

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, OSError):
            self.close_connection = True

    def go_on_for(self, seconds, pause_s=0.02):
        """Numbers until so much time is over; then the connection is closed."""
        self.close_connection = True
        end_s = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end_s:
            yield number
            number += 1
            time.sleep(pause_s)
        self.state.was_waited_for = True

    def answer(self, status, data=b"", **headers):
        self.send_response(status)
        headers.setdefault("content_length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-").title(), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def fail(self, status, code="UNKNOWN", **headers):
        self.answer(status, json.dumps({"errors": [{"code": code}]}).encode(), **headers)
        return True

    def take_body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def route(self):
        state = self.state
        self.cut = self.alter = None
        self.parts = urlsplit(self.path)
        with state.lock:
            state.log.append((self.command, self.path, dict(self.headers)))
            found = next(
                (each for each in state.faults if each[0] == self.command and each[1] in self.path),
                None,
            )
            if found is not None and not found[3]:
                state.faults.remove(found)
        if found is not None and found[2](self):
            return
        if not self.is_allowed():
            return
        path = self.parts.path
        for pattern, handle in (
            (r"/v2/.+/blobs/uploads/(.*)", self.upload),
            (r"(?:/elsewhere)?/v2/.+/blobs/(sha256:.+)", self.blob),
            (r"/v2/.+/manifests/(.+)", self.manifest),
        ):
            matched = re.fullmatch(pattern, path)
            if matched:
                handle(matched[1])
                return
        self.fail(404, "NAME_UNKNOWN")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = route

    def is_allowed(self):
        state, given = self.state, self.headers.get("Authorization", "")
        if self.parts.path == "/token":
            user = base64.b64decode(given.removeprefix("Basic ") or "").decode()
            if user != f"user:{state.password}":
                self.fail(401, "DENIED")
            else:
                self.answer(200, json.dumps({"token": state.token}).encode())
            return False
        if state.token is None or self.path.startswith("/elsewhere"):
            return True
        if given == f"Bearer {state.token}":
            return True
        self.take_body()
        realm = f'Bearer realm="http://{state.host}/token",service="fake",scope="x:pull,push"'
        self.fail(401, "UNAUTHORIZED", www_authenticate=realm)
        return False

    def blob(self, digest):
        state = self.state
        data = state.blobs.get(digest)
        if data is None:
            self.fail(404, "BLOB_UNKNOWN")
            return
        if state.blob_host and self.command == "GET" and not self.path.startswith("/elsewhere"):
            location = f"http://{state.blob_host}/elsewhere{self.parts.path}?secret=signed"
            self.answer(307, location=location)
            return
        self.send_blob(data)

    def send_blob(self, data):
        state, asked = self.state, self.headers.get("Range")
        begin, end, status, headers = 0, len(data), 200, {}
        if asked and state.has_ranges:
            first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", asked).groups()
            begin, end, status = int(first), int(last) + 1, 206
            headers = {"content_range": f"bytes {begin}-{end - 1}/{len(data)}"}
        sent = data[begin:end]
        if self.alter is not None:
            sent = self.alter(sent)
        if self.cut is not None and len(sent) > self.cut:
            self.answer(status, sent[: self.cut], content_length=str(len(sent)), **headers)
            self.close_connection = True
            self.connection.close()
            sent = sent[: self.cut]
        else:
            self.answer(status, sent, **headers)
        if self.command == "GET":
            with state.lock:
                state.sent_bytes += len(sent)

    def manifest(self, name):
        state = self.state
        if self.command == "PUT":
            data = self.take_body()
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            rows = json.loads(data)
            missing = [
                row["digest"]
                for row in [rows["config"], *rows["layers"]]
                if row["digest"] not in state.blobs
            ]
            if missing:
                self.fail(400, "MANIFEST_BLOB_UNKNOWN")
                return
            state.manifests[digest] = state.manifests[name] = data
            self.answer(201, docker_content_digest=digest)
            return
        data = state.manifests.get(name)
        if data is None:
            self.fail(404, "MANIFEST_UNKNOWN")
            return
        self.answer(200, data if self.alter is None else self.alter(data))

    def upload(self, name):
        state = self.state
        if self.command == "POST":
            name = f"u{len(state.log)}-{threading.get_ident()}"
            state.uploads[name] = b""
            self.answer(202, location=f"{self.parts.path}{name}?state=1")
            return
        if name not in state.uploads:
            self.take_body()
            self.fail(404, "BLOB_UPLOAD_UNKNOWN")
            return
        if self.command == "PATCH":
            begin = int(self.headers["Content-Range"].partition("-")[0])
            body = self.take_body()
            if begin != len(state.uploads[name]):
                self.fail(416)
                return
            state.uploads[name] += body
        if self.command == "PUT":
            data = state.uploads.pop(name) + self.take_body()
            digest = parse_qs(self.parts.query)["digest"][0]
            if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
                self.fail(400, "DIGEST_INVALID")
                return
            state.blobs[digest] = data
            self.answer(201)
            return
        last = max(0, len(state.uploads[name]) - 1)
        status = 202 if self.command == "PATCH" else 204
        self.answer(status, location=self.path, range=f"0-{last}")


def status(code, **headers):
    """Answer with a status."""

    def act(handler):
        handler.take_body()
        return handler.fail(code, **headers)

    return act


def hang_up(handler):
    """Close the connection without an answer."""
    handler.close_connection = True
    handler.connection.close()
    return True


def cut(nbytes):
    """Send only the first bytes of the body."""

    def act(handler):
        handler.cut = nbytes

    return act


def flip(place):
    """Send one bit wrong."""

    def act(handler):
        handler.alter = lambda data: (
            data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            if len(data) > place
            else data
        )

    return act


def take_part(nbytes):
    """Of an upload's body keep the first bytes, then close the connection."""

    def act(handler):
        name = handler.parts.path.rpartition("/")[2]
        handler.state.uploads[name] += handler.rfile.read(nbytes)
        return hang_up(handler)

    return act


def lose_upload(handler):
    """Forget the upload."""
    handler.take_body()
    handler.state.uploads.pop(handler.parts.path.rpartition("/")[2])
    return handler.fail(404, "BLOB_UPLOAD_UNKNOWN")
