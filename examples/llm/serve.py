"""A server with OpenAI's `/v1/completions`, with neither torch nor transformers in its processes.

    pip install ".[serve]"
    python examples/llm/serve.py model.aotc --port 8000 --workers 2

Each worker has the slots of one session, which requests share token by token (`batches.py`). A
worker that dies is replaced; weights are pages of one file, which workers share.
"""

import argparse
import asyncio
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import fastapi
import uvicorn
from batches import Batches, Request, RequestRefused
from byte_tokens import tokens_of
from fastapi.responses import JSONResponse, StreamingResponse
from texts import Text

from aotc import runtime

MOST_WAITING = 256  # requests of a worker that have no slot yet; more are turned away


class Engine(threading.Thread):
    """Runs the steps. Requests come in and tokens go out by queues."""

    def __init__(self, program):
        super().__init__(daemon=True)
        self.batches = Batches(program)
        self.inbox = queue.SimpleQueue()
        self.notify = {}  # request → its listener, and whether that wants each token by itself
        self.loop = None

    def run(self):
        while True:
            self._receive()
            try:
                served = self.batches.step()
            except runtime.AotcError as error:  # none of the sequences under way can go on
                print(error, file=sys.stderr)
                served = list(self.batches.active.values())
                for request in served:
                    self.batches.cancel(request, "error")
            self._tell(served)

    def _tell(self, served):
        """Wake the event loop once a step at most, and not for tokens that nobody waits for."""
        news = []
        for request in served:
            listener, wants_each = self.notify[request]
            if wants_each or request.finish:
                news.append((listener, len(request.tokens), request.finish))
            if request.finish:
                del self.notify[request]
        if news:
            self.loop.call_soon_threadsafe(_put_all, news)

    def _receive(self):
        while self.batches.is_idle() or not self.inbox.empty():
            request, listener, wants_each = self.inbox.get()
            if listener is None:
                self.batches.cancel(request)
                self.notify.pop(request, None)
            else:
                self.notify[request] = listener, wants_each
                self.batches.add(request)

    async def generate(self, request, wants_each):
        """New tokens and finish as they come, or all at once. Whoever stops listening ends the
        request."""
        self.loop = asyncio.get_running_loop()
        listener = asyncio.Queue()
        self.inbox.put((request, listener, wants_each))
        finish, given = None, 0
        try:
            while finish is None:
                count, finish = await listener.get()
                yield request.tokens[given:count], finish
                given = count
        finally:
            if finish is None:
                self.inbox.put((request, None, False))


def _put_all(news):
    for listener, count, finish in news:
        listener.put_nowait((count, finish))


def refused(message, status=400):
    kind = "invalid_request_error" if status == 400 else "overloaded"
    return JSONResponse({"error": {"message": message, "type": kind}}, status)


def requests_of(body, tokens):
    """The requests of a body, one a prompt; raises RequestRefused."""
    if body.get("n", 1) != 1:
        raise RequestRefused("n is not 1: send a request for each text")
    prompts = body.get("prompt", "")
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        prompts = [prompts]
    ends = frozenset({tokens.end} - {None})
    try:
        return [
            Request(
                tokens.encode(each) if isinstance(each, str) else [int(token) for token in each],
                int(body.get("max_tokens", 16)),
                ends,
                float(body.get("temperature", 1.0)),
                int(body.get("top_k", 0)),
                float(body.get("top_p", 1.0)),
                float(body.get("repetition_penalty", 1.0)),
                None if body.get("seed") is None else int(body["seed"]),
            )
            for each in prompts
        ]
    except (TypeError, ValueError) as error:
        raise RequestRefused(str(error)) from error


class Completions:
    """The body of an answer, whole or in parts."""

    def __init__(self, engine, tokens, name, body):
        self.engine, self.tokens, self.name = engine, tokens, name
        self.requests = requests_of(body, tokens)
        for request in self.requests:
            engine.batches.check(request)
        stops = body.get("stop") or []
        self.stops = [stops] if isinstance(stops, str) else stops
        self.identity, self.created = f"cmpl-{uuid.uuid4().hex}", int(time.time())

    def record(self, choices):
        return {
            "id": self.identity,
            "object": "text_completion",
            "created": self.created,
            "model": self.name,
            "choices": choices,
        }

    async def parts(self, index, wants_each):
        """Text and finish of one request, by each token or all at once."""
        request = self.requests[index]
        text = Text(self.tokens.decoder(), self.tokens.end, self.stops)
        # A text may end at any token where it has stops.
        async for new, finish in self.engine.generate(request, wants_each or bool(self.stops)):
            said = text.more(new, is_last=finish is not None)
            finish = "stop" if text.is_stopped else finish
            yield {"index": index, "text": said, "finish_reason": finish, "logprobs": None}
            if finish is not None:
                return

    async def whole(self, index):
        parts = [part async for part in self.parts(index, False)]
        return {**parts[-1], "text": "".join(part["text"] for part in parts)}

    async def answer(self):
        choices = await asyncio.gather(*map(self.whole, range(len(self.requests))))
        prompt = sum(len(each.prompt) for each in self.requests)
        made = sum(len(each.tokens) for each in self.requests)
        usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
        return {**self.record(choices), "usage": usage}

    async def stream(self):
        """Server-sent events; prompts of one body come one after the other."""
        for index in range(len(self.requests)):
            async for part in self.parts(index, True):
                yield f"data: {json.dumps(self.record([part]))}\n\n"
        yield "data: [DONE]\n\n"


def make_app(program, tokens, name):
    """The application of one worker."""
    app, engine = fastapi.FastAPI(), Engine(program)
    engine.start()
    worker = {"x-worker": str(os.getpid())}

    @app.get("/health")
    def health():
        return {"worker": os.getpid(), "active": len(engine.batches.active)}

    @app.get("/v1/models")
    def models():
        return {"object": "list", "data": [{"id": name, "object": "model"}]}

    @app.post("/v1/completions")
    async def completions(asked: fastapi.Request):
        try:
            body = await asked.json()
            if not isinstance(body, dict):
                raise RequestRefused("the body is no JSON object")
            found = Completions(engine, tokens, name, body)
        except (RequestRefused, ValueError) as error:
            return refused(str(error))
        if len(engine.batches.waiting) + engine.inbox.qsize() >= MOST_WAITING:
            return refused(f"{MOST_WAITING} requests wait already", 503)
        if body.get("stream"):
            return StreamingResponse(found.stream(), media_type="text/event-stream", headers=worker)
        return JSONResponse(await found.answer(), headers=worker)

    return app


def work(given):
    """One worker: answers on the socket that the parent holds."""
    with runtime.load(given.bundle) as program:
        app = make_app(program, tokens_of(given.tokenizer), given.name)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        server.run(sockets=[socket.socket(fileno=given.listen_on)])


def supervise(given):
    """Starts the workers, and another one for each that dies."""
    listening = socket.create_server((given.host, given.port), backlog=1024)
    place = listening.fileno()
    line = [sys.executable, *sys.orig_argv[1:], "--listen-on", str(place)]
    workers = [subprocess.Popen(line, pass_fds=[place]) for _ in range(given.workers)]
    print(f"http://{given.host}:{listening.getsockname()[1]}/v1/completions", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while True:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            for index, worker in enumerate(workers):
                if worker.poll() is not None:
                    print(f"worker {worker.pid} ended ({worker.returncode})", file=sys.stderr)
                    time.sleep(0.2)  # one that cannot start is not started without end at once
                    workers[index] = subprocess.Popen(line, pass_fds=[place])
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="with a tokenizer.json; else bytes")
    parser.add_argument("--name", default="aotc", help="the model's name in answers")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--listen-on", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    supervise(given) if given.listen_on is None else work(given)


if __name__ == "__main__":
    main()
