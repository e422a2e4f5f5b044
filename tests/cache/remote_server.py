"""A server in Bazel's HTTP layout, in this process, that can be made to fail in many ways."""

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aotc.cache import Key

KEY = b"k" * 32
TOKEN = "writer-token"
ENTRY = Key.of("binaries", kernel="k")
FILES = {"facts.json": b"{}", "kernel.code": bytes(range(256)) * 40, "kernel.texts": b"texts"}


class Handler(BaseHTTPRequestHandler):
    """One connection; `server.fault(handler, body)` may answer in place of the store."""

    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        """Send a whole answer; `headers` have `_` for `-`."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def raw(self, data):
        """Send bytes as they are and close."""
        self.wfile.write(data)
        self.close_connection = True

    def do_GET(self):
        self.server.requests.append((self.command, self.path, dict(self.headers)))
        body = self.server.files.get(self.path)
        if self.server.fault is not None and self.server.fault(self, body):
            return
        self.answer(404) if body is None else self.answer(200, body)

    do_HEAD = do_GET

    def do_PUT(self):
        self.server.requests.append((self.command, self.path, dict(self.headers)))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.fault is not None and self.server.fault(self, body):
            return
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.answer(401)
            return
        self.server.files[self.path] = body
        self.answer(201)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """Holds files by path, and every request's method, path and headers."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.requests, self.fault = {}, [], None
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.connections = 0

    def get_request(self):
        self.connections += 1
        return super().get_request()

    def handle_error(self, *_):  # clients that go away are what is tested
        pass

    @property
    def methods(self):
        return [method for method, _, _ in self.requests]


@contextlib.contextmanager
def serving():
    """A server that answers until the block ends."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def free_port():
    """A port of this machine at which nobody answers."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
