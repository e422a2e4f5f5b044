"""A server on a bundle and on eager PyTorch under the same clients: requests/s, start, memory.

    python -m benchmarks.serving BUNDLE [--clients 8] [--requests 200] [--threads 1] [--rounds 3]

BUNDLE is built from `examples/serving/spec.py`. All servers are one worker process with the app of
`examples/serving/fastapi_app.py`, which answers each request by a call, or (`batches`) joins those
of equal lengths. They run at once, each idle while another one is measured, in turns
with a pause before each, in which threads of the one before come to rest; medians of the rounds are
stated. Clients are threads of this process with connections that stay; a request is
one text of 8, 16, 32 or 64 words. Start is from the process's beginning to its first answer, by the
clock and in CPU seconds. Memory is what the kernel says is private to each of two such workers that
run at once.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "examples" / "serving"
KINDS = ("aotc", "aotc, batches", "eager")
LENGTHS = (8, 16, 32, 64)
PAUSE_S = 0.5  # threads of torch wait actively for 0.2 s after a call


class EagerModel:
    """The model as the app asks for it, run by torch."""

    batcher = None

    def __init__(self, threads: int) -> None:
        import torch
        from spec import model

        torch.set_num_threads(threads)
        self.torch, self.model = torch, model

    def answer(self, body: Any) -> tuple[int, Any]:
        """(status, answer) of a request."""
        with self.torch.inference_mode():
            return 200, {"outputs": self.model(self.torch.tensor(body["ids"])).tolist()}

    def is_ready(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """Nothing to do."""


def serve(given: argparse.Namespace) -> None:
    """One server, until it is ended."""
    sys.path.insert(0, str(EXAMPLE))
    import uvicorn
    from fastapi_app import make_app

    def make_model() -> Any:
        if given.serve == "eager":
            return EagerModel(given.threads)
        from model import Model

        return Model(given.bundle, max_batch=8 if "batches" in given.serve else 1)

    listening = socket.socket(fileno=given.listen_on)
    app = make_app(make_model)

    @app.get("/seconds")
    def seconds() -> dict[str, float]:
        """CPU seconds of this process."""
        return {"cpu": time.process_time()}

    config = uvicorn.Config(app, log_level="warning", timeout_keep_alive=600)
    uvicorn.Server(config).run(sockets=[listening])


class Server:
    """A worker process and its clients' connections."""

    def __init__(self, kind: str, given: argparse.Namespace) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port, self.own = listening.getsockname()[1], threading.local()
        names = ("AOTC_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        line = [sys.executable, "-m", "benchmarks.serving", given.bundle, "--serve", kind]
        line += ["--threads", str(given.threads), "--listen-on", str(listening.fileno())]
        began_s = time.perf_counter()
        self.process = subprocess.Popen(
            line,
            pass_fds=[listening.fileno()],
            env={**os.environ, **dict.fromkeys(names, str(given.threads))},
        )
        listening.close()
        self.ask("/predict", json.dumps({"ids": [list(range(1, 17))]}))
        self.start_s = time.perf_counter() - began_s
        self.start_cpu_s = self.ask("/seconds")["cpu"]

    def ask(self, path: str, body: str | None = None) -> Any:
        """The answer to one request."""
        if not hasattr(self.own, "connection"):
            self.own.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        headers = {"Content-Type": "application/json"}
        self.own.connection.request("GET" if body is None else "POST", path, body, headers)
        answer = self.own.connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)

    def private_bytes(self) -> int:
        """Memory that no other process shares."""
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))

    def run(self, bodies: list[str], clients: int) -> tuple[list[Any], float, float, list[float]]:
        """Answers, requests a second, CPU seconds a request, latencies in seconds, in order."""

        def one(body: str) -> tuple[Any, float]:
            began_s = time.perf_counter()
            return self.ask("/predict", body)["outputs"], time.perf_counter() - began_s

        cpu_s, began_s = self.ask("/seconds")["cpu"], time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            rows = list(pool.map(one, bodies))
        seconds = time.perf_counter() - began_s
        cpu_s = self.ask("/seconds")["cpu"] - cpu_s
        latencies_s = sorted(row[1] for row in rows)
        return [row[0] for row in rows], len(bodies) / seconds, cpu_s / len(bodies), latencies_s

    def end(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.wait()


def requests(count: int) -> list[str]:
    """Texts of one row each, the same at each call."""
    draw = random.Random(0)
    rows = [[draw.randrange(1, 30522) for _ in range(draw.choice(LENGTHS))] for _ in range(count)]
    return [json.dumps({"ids": [row]}) for row in rows]


def starts(given: argparse.Namespace) -> None:
    """Print seconds to the first answer and private memory of two workers of each kind."""
    for kind in KINDS[::2]:
        servers = []
        try:
            for _ in range(2):
                servers.append(Server(kind, given))
            for each in servers:
                each.run(requests(16), 4)
            seconds = [f"{each.start_s:.2f} s" for each in servers]
            nbytes = [f"{each.private_bytes() / 1e6:.0f} MB" for each in servers]
            cpu = [f"{each.start_cpu_s:.2f} s" for each in servers]
            print(f"| {kind} | {' | '.join(map(', '.join, (seconds, cpu, nbytes)))} |", flush=True)
        finally:
            for each in servers:
                each.end()


def rates(given: argparse.Namespace) -> None:
    """Print requests a second of each kind, measured in turns."""
    bodies, found = requests(given.requests), {kind: [] for kind in KINDS}  # type: ignore[var-annotated]
    servers = {kind: Server(kind, given) for kind in KINDS}
    try:
        for each in servers.values():
            each.run(requests(64), given.clients)  # meets the shapes
        for _ in range(given.rounds):
            for kind, each in servers.items():
                time.sleep(PAUSE_S)
                found[kind].append(each.run(bodies, given.clients))
    finally:
        for each in servers.values():
            each.end()
    for kind, rows in found.items():
        pairs = zip(rows, found["eager"], strict=True)
        ratio = statistics.median(ours[1] / theirs[1] for ours, theirs in pairs)
        rate, cpu_s = (statistics.median(row[place] for row in rows) for place in (1, 2))
        p50 = statistics.median(row[3][len(bodies) // 2] for row in rows)
        p99 = statistics.median(row[3][len(bodies) * 99 // 100] for row in rows)
        print(
            f"| {kind} | {given.threads} | {rate:.0f} | {ratio:.2f} | {1e3 * p50:.0f} ms | "
            f"{1e3 * p99:.0f} ms | {1e3 * cpu_s:.2f} ms |",
            flush=True,
        )
    answers = [[row[0] for row in found[kind][0][0]] for kind in KINDS]
    far = max(
        abs(left - right)
        for ours in answers[:-1]
        for pair in zip(ours, answers[-1], strict=True)
        for left, right in zip(*pair, strict=True)
    )
    print(
        f"largest difference of any number from eager's: {far:.1e}; load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Measure, or be one of the servers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundle")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--listen-on", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given)
        return
    starts(given)
    rates(given)


if __name__ == "__main__":
    main()
