"""examples/serving: each recipe under load, or by the interface that its server calls."""

import asyncio
import contextlib
import http.client
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aotc import runtime

FOLDER = Path(__file__).parents[2] / "examples" / "serving"
CLIENTS, EACH = 4, 15
ROW = list(range(192))
GOOD, ANSWER = {"x": ROW}, {"outputs": [15 * number for number in ROW]}
BAD = {"x": [1, 2]}


def send(port, method, path, body=None):
    """(status, JSON or text) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        is_json = "json" in answer.getheader("Content-Type", "")
        return answer.status, json.loads(text) if is_json and text else text
    finally:
        connection.close()


def load_of_clients(ask):
    """Every answer to good requests of several clients at once."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(lambda _: ask(GOOD), range(CLIENTS * EACH)))


def calls_of(text):
    lines = [line for line in text.splitlines() if line.startswith("aotc_calls_total")]
    return sum(int(line.rpartition(" ")[2]) for line in lines)


@pytest.fixture
def model(native):
    from model import Model

    made = Model(native, warm_up=[GOOD])
    yield made
    made.close()


def test_answers_and_refusals(model):
    assert model.is_ready()
    assert calls_of(model.metrics()) == 2  # the warm-up, twice
    assert load_of_clients(model.answer) == [(200, ANSWER)] * (CLIENTS * EACH)
    bodies = [None, 3, [], {}, {"y": ROW}, {"x": ROW, "y": 1}, BAD]
    wrong = (1, [], [ROW], ["a"] * 192, [10**40] * 192, [0.5] * 192)
    for body in [*bodies, *({"x": each} for each in wrong)]:
        status, answer = model.answer(body)
        assert (status, list(answer)) == (400, ["error"])
    for body, text in (
        ({"y": ROW, "z": 1}, "the body has `y`, `z`, expected `x`"),
        ({}, "the body has nothing, expected `x`"),
        ([], "the body is no object, expected one with `x`"),
        ({"x": [0.5] * 192}, "`x`: expected numbers of i"),
    ):
        assert model.answer(body)[1]["error"].startswith(text)
    model.close()
    assert not model.is_ready()
    assert model.answer(GOOD)[0] == 503


def test_faults_give_away_nothing(model, monkeypatch):
    program = model.deployment.program
    monkeypatch.setattr(model, "deployment", types.SimpleNamespace(program=program))
    status, answer = model.answer(GOOD)
    assert (status, answer) == (500, {"error": "the model failed"})


@pytest.mark.torch
def test_requests_are_joined_and_swapped(bundles):
    from model import Model

    body = {"ids": [[1, 2, 3]], "scale": [1.0]}
    model = Model(bundles[0], warm_up=[body], max_batch=8)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: model.answer(body), range(64)))
    assert {status for status, _ in found} == {200}
    assert model.batcher.batches < 64
    assert asyncio.run(model.answer_async(body))[0] == 200
    before = model.answer(body)
    with pytest.raises(runtime.BundleError):
        model.swap("nowhere")
    assert model.answer(body) == before
    model.swap(bundles[1])
    assert model.answer(body) != before
    assert "aotc_swaps_total" in model.metrics() or model.deployment.swaps == 1
    model.close()


def test_a_thread_pool(native, tmp_path, monkeypatch, capsys):
    thread_pool = importlib.import_module("thread_pool")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{json.dumps(GOOD)}\n" * 20 + json.dumps(BAD)))
    thread_pool.main(native, 4)
    *found, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert found == [ANSWER] * 20
    assert list(last) == ["error"]


def test_wsgi(native, monkeypatch):
    """gunicorn's recipe as any server of WSGI calls it."""
    monkeypatch.setenv("BUNDLE", str(native))
    sys.modules.pop("gunicorn_app", None)
    app, model = (
        getattr(importlib.import_module("gunicorn_app"), name) for name in ("app", "model")
    )

    def ask(path, text=""):
        said = []
        environ = {"PATH_INFO": path, "CONTENT_LENGTH": str(len(text)),
                   "wsgi.input": io.BytesIO(text.encode())}  # fmt: skip
        parts = app(environ, lambda status, headers: said.append((status, dict(headers))))
        assert said[0][1]["Content-Length"] == str(sum(map(len, parts)))
        return said[0][0], b"".join(parts).decode()

    assert ask("/predict", json.dumps(GOOD)) == ("200 OK", json.dumps(ANSWER))
    assert ask("/predict", json.dumps(BAD))[0] == "400 Bad Request"
    assert ask("/predict", "{")[0] == "400 Bad Request"
    assert ask("/elsewhere")[0] == "404 Not Found"
    assert ask("/ready")[0] == "200 OK"
    assert calls_of(ask("/metrics")[1]) == 1
    model.close()
    assert ask("/ready")[0] == "503 Service Unavailable"


class Tensor:
    """Triton's: a name and an array of numpy."""

    def __init__(self, name, array):
        self.name, self.array = name, array

    def as_numpy(self):
        return self.array


class Config(dict):
    """Triton's ModelConfig, of which a model adds to inputs and outputs."""

    def add_input(self, row):
        self.setdefault("input", []).append(row)

    def add_output(self, row):
        self.setdefault("output", []).append(row)

    def set_max_batch_size(self, size):
        self["max_batch_size"] = size


@pytest.mark.torch
def test_triton_inference_server(bundles, tmp_path, monkeypatch):
    """Its Python back end by its interface; the server itself is no package."""
    numpy = pytest.importorskip("numpy")
    stand_in = types.ModuleType("triton_python_backend_utils")
    stand_in.Tensor = Tensor
    stand_in.TritonError = lambda text: types.SimpleNamespace(message=lambda: text)
    stand_in.InferenceResponse = lambda output_tensors=(), error=None: types.SimpleNamespace(
        tensors=output_tensors, error=error
    )
    stand_in.get_input_tensor_by_name = lambda request, name: request[name]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", stand_in)
    (tmp_path / "bundle").symlink_to(bundles[0])
    (tmp_path / "model.py").write_text((FOLDER / "triton" / "model.py").read_text())
    spec = importlib.util.spec_from_file_location("of_triton", tmp_path / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.TritonPythonModel.auto_complete_config(Config())
    assert config == {
        "input": [
            {"name": "ids", "data_type": "TYPE_INT64", "dims": [-1, -1]},
            {"name": "scale", "data_type": "TYPE_FP32", "dims": [-1]},
        ],
        "output": [{"name": "output_0", "data_type": "TYPE_FP32", "dims": [-1, 4]}],
        "max_batch_size": 0,
    }
    made = module.TritonPythonModel()
    made.initialize({"model_instance_kind": "CPU", "model_instance_device_id": "0"})

    def request(batch, rows):
        arrays = (numpy.arange(3 * rows).reshape(rows, 3), numpy.ones(batch, numpy.float32))
        return {
            name: Tensor(name, each) for name, each in zip(("ids", "scale"), arrays, strict=True)
        }

    good, bad, other = made.execute([request(2, 2), request(1, 2), request(3, 3)])
    assert good.error is other.error is None
    assert "batch" in bad.error.message() or "scale" in bad.error.message()
    assert good.tensors[0].name == "output_0"
    assert other.tensors[0].as_numpy().shape == (3, 4)
    numpy.testing.assert_allclose(
        good.tensors[0].as_numpy(), other.tensors[0].as_numpy()[:2], rtol=1e-5, atol=1e-6
    )
    made.finalize()
    with pytest.raises(runtime.AotcError):
        made.program(*[each.array for each in request(2, 2).values()])


def test_fastapi_under_uvicorn_is_swapped(native, tmp_path, monkeypatch):
    """In a thread of this process, on loopback."""
    pytest.importorskip("fastapi")
    uvicorn = pytest.importorskip("uvicorn")
    monkeypatch.setenv("BUNDLE", str(native))
    module = importlib.import_module("fastapi_app")
    from model import Model

    (tmp_path / "v2").symlink_to(native)
    (tmp_path / "broken").mkdir()
    app = module.make_app(lambda: Model(native, [GOOD]), str(tmp_path))
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert send(port, "GET", "/live")[0] == 200
        assert send(port, "GET", "/ready")[0] == 200
        statuses = []

        def ask(body):
            if len(statuses) < 5:
                statuses.append(send(port, "POST", "/swap", {"name": "v2"})[0])
            return send(port, "POST", "/predict", body)

        assert load_of_clients(ask) == [(200, ANSWER)] * (CLIENTS * EACH)
        assert set(statuses) == {200}
        assert send(port, "POST", "/swap", {"name": "broken"})[0] == 409
        assert send(port, "POST", "/swap", {"name": "../v2"})[0] == 404
        assert send(port, "POST", "/predict", BAD)[0] == 400
        assert send(port, "POST", "/predict", "{")[0] == 400
        status, text = send(port, "GET", "/metrics")
        assert status == 200
        assert calls_of(text) >= CLIENTS * EACH
        assert "aotc_failed_swaps_total" in text
    finally:
        server.should_exit = True
        thread.join(60)


PROCESSES = {
    "uvicorn": ["-m", "uvicorn", "--app-dir", FOLDER, "fastapi_app:app", "--workers", "2",
                "--port"],
    "gunicorn": ["-m", "gunicorn", "--chdir", FOLDER, "--config", FOLDER / "gunicorn_conf.py",
                 "gunicorn_app:app", "--bind"],
    "litserve": [FOLDER / "litserve_app.py"],
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", PROCESSES)
def test_processes_under_load(name, native):
    """Two workers each, from the command of the page."""
    pytest.importorskip("fastapi" if name == "uvicorn" else name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = f"127.0.0.1:{port}" if name == "gunicorn" else str(port)
    line = [sys.executable, *map(str, PROCESSES[name]), place]
    env = {**os.environ, "BUNDLE": str(native), "MAX_BATCH": "1"}
    env["PYTHONPATH"] = str(FOLDER.parents[1])
    process = subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until_it_answers(process, port)
        found = load_of_clients(lambda body: send(port, "POST", "/predict", body))
        assert found == [(200, ANSWER)] * (CLIENTS * EACH)
        assert send(port, "POST", "/predict", BAD)[0] == 400
        if name != "litserve":
            assert calls_of(send(port, "GET", "/metrics")[1]) >= 1
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:  # LitServe leaves workers behind on SIGTERM
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


def wait_until_it_answers(process, port, limit=600):
    """Until a good request is answered; a server that ended fails at once."""
    waiting = threading.Event()
    for _ in range(limit):
        assert process.poll() is None
        try:
            if send(port, "POST", "/predict", GOOD)[0] == 200:
                return
        except OSError:
            pass
        waiting.wait(0.2)
    raise AssertionError("the server did not answer")


@pytest.mark.nightly
def test_ray_serve(native, monkeypatch):
    pytest.importorskip("ray")
    serve = pytest.importorskip("ray.serve", exc_type=ImportError)
    import ray

    monkeypatch.setenv("BUNDLE", str(native))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    paths = [str(FOLDER), str(FOLDER.parents[1])]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
             runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}})  # fmt: skip
    try:
        module = importlib.import_module("ray_app")
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        options = {"num_replicas": 1, "ray_actor_options": {"num_cpus": 1}}
        serve.run(module.Replica.options(**options).bind(str(native)))
        found = load_of_clients(lambda body: send(port, "POST", "/", body))
        assert found == [(200, ANSWER)] * (CLIENTS * EACH)
        assert send(port, "POST", "/", BAD)[0] == 400
    finally:
        serve.shutdown()
        ray.shutdown()
