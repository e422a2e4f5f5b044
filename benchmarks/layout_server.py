"""A server that has one OCI layout: manifests and blobs, whole or in ranges, by `sendfile`.

    python -m benchmarks.layout_server LAYOUT PORT

What it costs is the kernel's copy into the socket, so that a client that reads from it measures
itself. Not for use: it checks nothing.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """GET of `/v2/`, `/v2/NAME/manifests/…` and `/v2/NAME/blobs/DIGEST`."""

    protocol_version = "HTTP/1.1"
    layout = Path()

    def do_GET(self) -> None:
        """Answer with a file, or the part of it that is asked for."""
        what, _, digest = self.path.rpartition("/")
        if what.endswith("/manifests"):
            index = json.loads((self.layout / "index.json").read_bytes())
            digest = index["manifests"][-1]["digest"]
        path = self.layout / "blobs" / digest.replace(":", "/")
        if not digest:
            return self._answer(200, 0)
        with path.open("rb") as file:
            begin, end = 0, path.stat().st_size
            if asked := self.headers.get("Range"):
                first, last = asked.removeprefix("bytes=").split("-")
                begin, end = int(first), min(end, int(last) + 1)
            headers = {"Content-Range": f"bytes {begin}-{end - 1}/*"} if asked else {}
            self._answer(206 if asked else 200, end - begin, **headers)
            while begin < end:
                begin += os.sendfile(self.connection.fileno(), file.fileno(), begin, end - begin)
        return None

    def _answer(self, status: int, nbytes: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(nbytes)}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Silent."""


if __name__ == "__main__":
    Handler.layout = Path(sys.argv[1])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
