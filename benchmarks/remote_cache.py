"""`python -m benchmarks.remote_cache SPEC`: a second machine's build over a remote cache.

A build with a warm local cache, and one with an empty local cache over a full remote one, are run
in turn, each in a process of its own; printed are the median and the range of each, and how the
medians compare. Without `--url` a server of Python's own is started; with it, AOTC_REMOTE_CACHE_KEY
and AOTC_REMOTE_CACHE_TOKEN have to fit that server.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

Times = tuple[float, float]  # seconds that passed, and of processors


class _Handler(BaseHTTPRequestHandler):
    """Files in memory, by their path."""

    protocol_version = "HTTP/1.1"
    files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        body = self.files.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if body and self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        self.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec")
    parser.add_argument("--url", help="a server that runs; default: one in this process")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--target", default="cpu")
    given = parser.parse_args()
    environment = dict(os.environ)
    url = given.url
    if url is None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        environment["AOTC_REMOTE_CACHE_KEY"] = secrets.token_hex(32)
        environment["AOTC_REMOTE_CACHE_TOKEN"] = "benchmark"
    with tempfile.TemporaryDirectory() as folder:
        _measure(given, url, environment, Path(folder))


def _measure(given: Any, url: str, environment: dict[str, str], folder: Path) -> None:
    local: list[Times] = []
    remote: list[Times] = []

    def build(cache: str, *flags: str) -> tuple[Times, dict[str, Any]]:
        out = ["-o", str(folder / "out"), "--force", "--cache-dir", str(folder / cache)]
        command = [sys.executable, "-m", "aotc.aot.cli", "build", given.spec, *out]
        command += ["--target", given.target, "--json", "--quiet", *flags]
        started_s, before_s = time.perf_counter(), _processor_s()
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
        times = time.perf_counter() - started_s, _processor_s() - before_s
        return times, json.loads(done.stdout)

    times, report = build("warm", "--remote-cache", url)
    print(f"first build: {report['compiled']} kernels compiled, {times[0]:.2f} s", flush=True)
    build("warm")
    for run in range(given.runs):
        times, report = build("warm")
        local.append(times)
        assert report["compiled"] == 0
        times, report = build(f"fresh-{run}", "--remote-cache", url)
        remote.append(times)
        if report["compiled"]:
            raise SystemExit(f"the second machine compiled {report['compiled']} kernels")
    print(f"0 kernels compiled; {given.runs} builds of each in turn")
    for index, what in enumerate(("elapsed", "processor")):
        ours, theirs = (sorted(row[index] for row in rows) for rows in (local, remote))
        for name, found in (("warm local cache", ours), ("empty local, remote cache", theirs)):
            low, middle, high = found[0], statistics.median(found), found[-1]
            print(f"{what}: {name}: median {middle:.2f} s ({low:.2f} to {high:.2f})")
        print(f"{what}: ratio {statistics.median(theirs) / statistics.median(ours):.2f}")


def _processor_s() -> float:
    """Processor seconds of all children that have ended, their workers with them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
