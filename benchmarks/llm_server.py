"""The example's server on the bundle and on eager transformers, under the same load of clients.

    python -m benchmarks.llm_server FOLDER BUNDLE [--clients 24] [--requests 96] [--threads 1 2]

FOLDER is the model that BUNDLE was built from. Both servers are processes with the very app and
loop of `examples/llm`, the same slots and a static cache of the same lengths; on the eager side the
calls go to the model of transformers, whose next token is its plain argmax. Each is run with every
count of threads, in turns, and the best is stated. Clients are threads of this process, each with a
connection that stays, that ask for the next text when they have one. CPU seconds are those of the
server's process, which other work on the machine changes less than the time on the clock. With
`--direct` the same requests go through the loop alone, all at once, without HTTP. `--steps` prints
how long a decode step of all slots takes by the length of their sequences, on one thread.
"""

from __future__ import annotations

import argparse
import array
import concurrent.futures
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MAX_TOKENS = 48
LENGTHS, STEPS = (32, 64, 128, 256, 512), 200  # of `--steps`
EXAMPLE = Path(__file__).parents[1] / "examples" / "llm"
KINDS = ("aotc", "eager")


class EagerSession:
    """Calls of a session, run by torch."""

    def __init__(self, model: Any, entries: Any) -> None:
        self.model, self.entries = model, entries
        store = model.generation
        self.state = SimpleNamespace(
            specs=[
                SimpleNamespace(name=name, shape=tuple(buffer.shape))
                for name, buffer in store.named_buffers()
            ]
        )

    def __getitem__(self, name: str) -> Any:
        import numpy
        import torch

        function = self.entries[name]["function"]
        taken = 3 if name == "prefill" else 2

        def call(*arrays: Any) -> dict[str, Any]:
            tensors = [torch.from_numpy(numpy.array(each)) for each in arrays[:taken]]
            with torch.inference_mode():
                return {"tokens": function(self.model, *tensors)["tokens"].numpy()}

        return call


def eager_program(folder: str, slots: int, length: int) -> Any:
    """What `examples/llm` asks of a program, over the model of transformers."""
    from aotc.aot.huggingface import causal_lm

    model, entries = causal_lm(folder, max_length=length, batch=slots, sampling=False)
    tokens = SimpleNamespace(name="tokens", high=length)
    return SimpleNamespace(
        entries={"prefill": SimpleNamespace(dims=[tokens])},
        session=lambda **sizes: EagerSession(model, entries),
    )


def serve(given: argparse.Namespace) -> None:
    """One server, until it is ended; prints its port."""
    import socket

    sys.path.insert(0, str(EXAMPLE))
    import uvicorn
    from byte_tokens import tokens_of
    from serve import make_app

    program = program_of(given)
    app = make_app(program, tokens_of(given.folder), given.serve)

    @app.get("/seconds")
    def seconds() -> dict[str, float]:
        """CPU seconds of this process."""
        return {"cpu": time.process_time()}

    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def program_of(given: argparse.Namespace) -> Any:
    """The program of one kind, with its threads."""
    from aotc import runtime

    if given.serve == "aotc":
        return runtime.load(given.bundle)
    import torch

    torch.set_num_threads(given.threads[0])
    return eager_program(given.folder, given.slots, given.length)


def direct(given: argparse.Namespace) -> None:
    """Print the figures of all requests through the loop alone, as JSON."""
    sys.path.insert(0, str(EXAMPLE))
    from batches import Batches, Request
    from byte_tokens import tokens_of

    batches = Batches(program_of(given))
    for count in (given.slots, given.requests):  # the first ones meet the shapes
        asked = [Request(prompt, MAX_TOKENS, temperature=0.0) for prompt in prompts(count)]
        cpu_s, began_s, ends = time.process_time(), time.perf_counter(), {}
        for request in asked:
            batches.add(request)
        while not batches.is_idle():
            for request in batches.step():
                if request.finish is not None:
                    ends[request] = time.perf_counter() - began_s
        seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    decoded = [tokens_of(given.folder).decoder()(request.tokens) for request in asked]
    total = sum(len(request.tokens) for request in asked)
    print(json.dumps(figures(decoded, total, seconds, cpu_s, list(ends.values()))), flush=True)


def steps(given: argparse.Namespace) -> None:
    """Print the least time of a decode step, by how many positions each sequence has."""
    sys.path.insert(0, str(EXAMPLE))
    from batches import Batches

    from aotc import runtime

    with runtime.load(given.bundle, threads=1) as program:
        batches = Batches(program)
        for length in LENGTHS:
            batches.positions[:] = array.array("q", [length - 1] * batches.slots)
            took_s = []
            for _ in range(STEPS):
                began_s = time.perf_counter()
                batches.session["decode"](batches.ids, batches.positions, *batches.sampling)
                took_s.append(time.perf_counter() - began_s)
            print(f"{length:4} positions: {1e6 * min(took_s):6.0f} us", flush=True)


def figures(
    texts: list[str], tokens: int, seconds: float, cpu_s: float, latencies_s: list[float]
) -> dict[str, Any]:
    """Texts, tokens a second, CPU milliseconds a token and latencies in seconds."""
    found = sorted(latencies_s)
    last = len(found) - 1
    return {
        "texts": texts,
        "rate": tokens / seconds,
        "cpu_ms": 1e3 * cpu_s / tokens,
        "p50": found[len(found) // 2],
        "p99": found[min(last, len(found) * 99 // 100)],
    }


def prompts(count: int) -> list[list[int]]:
    """Tokens of 4 to 60 bytes, the same at each call."""
    import random

    draw = random.Random(0)
    return [[draw.randrange(32, 127) for _ in range(draw.randrange(4, 60))] for _ in range(count)]


class Load:
    """Clients of one server, which ask for texts until all are there."""

    def __init__(self, port: int, clients: int) -> None:
        self.port, self.clients = port, clients
        self.own = threading.local()

    def ask(self, path: str, body: Any = None) -> Any:
        """The answer to one request."""
        if not hasattr(self.own, "connection"):
            self.own.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        text = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        self.own.connection.request("GET" if body is None else "POST", path, text, headers)
        return json.loads(self.own.connection.getresponse().read())

    def run(self, count: int) -> dict[str, Any]:
        """Texts, tokens a second, latencies and CPU seconds of `count` requests."""

        def one(prompt: list[int]) -> tuple[str, float, int]:
            began_s = time.perf_counter()
            body = {"prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0.0}
            found = self.ask("/v1/completions", body)
            seconds = time.perf_counter() - began_s
            return found["choices"][0]["text"], seconds, found["usage"]["completion_tokens"]

        cpu_s, began_s = self.ask("/seconds")["cpu"], time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(self.clients) as pool:
            rows = list(pool.map(one, prompts(count)))
        seconds = time.perf_counter() - began_s
        tokens, cpu_s = sum(row[2] for row in rows), self.ask("/seconds")["cpu"] - cpu_s
        return figures([row[0] for row in rows], tokens, seconds, cpu_s, [row[1] for row in rows])


def measured(given: argparse.Namespace, kind: str, threads: int) -> dict[str, Any]:
    """One server's figures; it is started and ended here."""
    line = [sys.executable, "-m", "benchmarks.llm_server", given.folder, given.bundle]
    line += ["--serve", kind, "--threads", str(threads)]
    line += ["--slots", str(given.slots), "--length", str(given.length)]
    line += ["--requests", str(given.requests), *(["--direct"] if given.direct else [])]
    names = ("AOTC_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    process = subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **dict.fromkeys(names, str(threads))},
    )
    try:
        assert process.stdout is not None
        if given.direct:
            return json.loads(process.stdout.readline())
        load = Load(int(process.stdout.readline()), given.clients)
        load.run(min(given.requests, given.slots))  # meets the shapes
        return load.run(given.requests)
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Measure, or be one of the servers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("bundle")
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--direct", action="store_true", help="the loop alone, without HTTP")
    parser.add_argument("--steps", action="store_true", help="the time of a decode step alone")
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        (direct if given.direct else serve)(given)
        return
    if given.steps:
        steps(given)
        return
    best: dict[str, dict[str, Any]] = {}
    for turn in range(given.rounds):
        for threads in given.threads:
            for kind in KINDS:
                row = measured(given, kind, threads)
                print(
                    f"{kind:6} {threads} threads: {row['rate']:7.0f} tokens/s  "
                    f"p50 {row['p50']:.2f} s  p99 {row['p99']:.2f} s  {row['cpu_ms']:.3f} ms of "
                    f"CPU a token  (round {turn + 1}, load {os.getloadavg()[0]:.1f})",
                    flush=True,
                )
                if row["rate"] > best.get(kind, row)["rate"] or kind not in best:
                    best[kind] = {**row, "threads": threads}
    pairs = zip(best["aotc"]["texts"], best["eager"]["texts"], strict=True)
    equal = sum(ours == theirs for ours, theirs in pairs)
    ours, theirs = best["aotc"], best["eager"]
    print(
        f"at their best: {ours['rate'] / theirs['rate']:.1f} times the tokens/s, p99 "
        f"{ours['p99']:.2f} s and {theirs['p99']:.2f} s, {theirs['cpu_ms'] / ours['cpu_ms']:.1f} "
        f"times less CPU a token, {equal} of {given.requests} texts equal"
    )


if __name__ == "__main__":
    main()
