"""A Ray cluster of several nodes on this machine: as local workers, and what goes wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from aotc.aot.errors import KernelFailed
from aotc.aot.measure.processor import device_name
from aotc.aot.tasks import cluster as subject
from aotc.aot.tasks.cluster import Cluster
from aotc.aot.tasks.errors import (
    ClusterDeviceMissing,
    ClusterDiffers,
    ClusterTaskLost,
)
from aotc.aot.tasks.task import Request, device_word
from aotc.aot.tune.record import parse_record

ray = pytest.importorskip("ray", reason="ray is not installed")
from ray.cluster_utils import Cluster as LocalCluster  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.nightly]
DEVICE = "aotc:recorded"


@pytest.fixture(scope="module")
def nodes():
    """A head without processors and two nodes of one."""
    local = LocalCluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    for _ in range(2):
        local.add_node(num_cpus=1, resources={DEVICE: 1}, wait=False)
    local.wait_for_nodes()
    yield local
    local.shutdown()


@pytest.fixture(scope="module")
def cluster(nodes, tmp_path_factory):
    with Cluster(nodes.address, keep=tmp_path_factory.mktemp("kept")) as found:
        yield found


def requests(*calls):
    return [Request(f"kernel {n}", name, arguments) for n, (name, *arguments) in enumerate(calls)]


def test_outcomes_are_those_of_local_workers(cluster):
    calls = [("operator:mul", n, "ab") for n in range(7)]
    seen = []
    outcomes = cluster.map(requests(*calls, ("os:abort",), ("operator:truediv", 1, 0)), seen.append)
    assert [outcome.value for outcome in outcomes[:7]] == ["ab" * n for n in range(7)]
    assert len(seen) == len(outcomes)
    for outcome in outcomes[7:]:  # tried once: it is the task that fails
        assert isinstance(outcome.error, KernelFailed)
        assert outcome.request.name in outcome.error.message
    assert "ZeroDivisionError" in Path(outcomes[8].error.source).read_text()


def test_a_node_that_dies_half_way_costs_a_retry(nodes, cluster):
    node = nodes.add_node(num_cpus=2)
    begun = [("time:sleep", 0.3)] * 12
    ended = []

    def kill_once(outcome):
        ended.append(outcome)
        if len(ended) == 3:
            nodes.remove_node(node)

    outcomes = cluster.map(requests(*begun), kill_once)
    assert [outcome.error for outcome in outcomes] == [None] * 12


def test_a_task_whose_ray_worker_dies_each_time_is_a_typed_error(cluster, monkeypatch):
    monkeypatch.setattr(subject, "RETRIES", 1)
    end_parent = ("builtins:exec", "import os; os.kill(os.getppid(), 9)")
    with pytest.raises(ClusterTaskLost, match="kernel 0"):
        cluster.map(requests(end_parent))


def test_cancelling_ends_the_tasks(nodes, tmp_path):
    marks = [tmp_path / str(n) for n in range(2)]
    text = "import time; open({!r}, 'w').close(); time.sleep(60)"
    with Cluster(nodes.address) as own, own.begin() as batch:
        for mark in marks:
            batch.submit(Request("k", "builtins:exec", (text.format(str(mark)),)))
        timer = threading.Thread(target=_cancel_when, args=(own, marks))
        timer.start()
        with pytest.raises(CancelledError):
            next(batch.results())
        timer.join()
        assert not own.flights
        # Both processors are free again, long before a minute is over.
        own.is_cancelled.clear()
        assert own.map(requests(("operator:add", 1, 2)))[0].value == 3


def _cancel_when(executor, marks):
    while not all(mark.exists() for mark in marks):
        time.sleep(0.02)
    executor.cancel()


def test_other_versions_are_refused_with_both(nodes, cluster, monkeypatch):
    own = subject.versions()
    monkeypatch.setattr(subject, "versions", lambda: {**own, "triton": "2.0"})
    with pytest.raises(ClusterDiffers) as caught:
        Cluster(nodes.address)
    assert f"triton {own['triton']}" in caught.value.found
    assert "triton 2.0" in caught.value.expected
    assert caught.value.exit_code == 5


def test_a_device_that_is_not_there_is_refused_with_what_is(nodes, cluster):
    with (
        Cluster(nodes.address, "NVIDIA H200") as own,
        pytest.raises(ClusterDeviceMissing) as caught,
    ):
        own.devices("cuda", ("sm_90",), True)
    assert "2 × recorded" in str(caught.value)
    assert "nvidia-h200" in device_word(str(caught.value))


def test_a_resource_that_is_lost_is_not_waited_for(nodes, cluster, monkeypatch):
    monkeypatch.setattr(subject, "LOST_SECONDS", 0.5)
    monkeypatch.setattr(subject, "POLL_SECONDS", 0.2)
    node = nodes.add_node(num_cpus=0, resources={"aotc:gone": 1})
    part = cluster.placed({"num_cpus": 0, "resources": {"aotc:gone": 1}}, 1)
    with part.begin() as batch:
        batch.submit(Request("k", "time:sleep", (60,)))
        nodes.remove_node(node)
        with pytest.raises(ClusterDeviceMissing, match="gone"):
            next(batch.results())


# The commands.


def built(aotc, out, spec, cache, *options):
    words = ("build", spec, "-o", out, "--cache-dir", cache, "--quiet", "--json", *options)
    code, text, errors = aotc(*words)
    assert code == 0, errors
    return json.loads(text)


def test_a_build_on_a_cluster_is_the_bundle_of_a_build_here(
    nodes, cluster, aotc, bundle, spec, tmp_path
):
    report = built(aotc, tmp_path / "out", spec, tmp_path / "cache", "--ray", nodes.address)
    assert report["compiled"] > 0
    here = built(aotc, tmp_path / "here", spec, tmp_path / "cache-here")
    assert here["compiled"] == report["compiled"]
    assert here["digest"] == report["digest"]
    again = built(
        aotc, tmp_path / "again", spec, tmp_path / "cache"
    )  # what nodes made is kept here
    assert again["compiled"] == 0


def test_an_interrupted_build_leaves_no_bundle_and_no_tasks(nodes, cluster, spec, tmp_path):
    """SIGINT while nodes compile its kernels."""
    cache, out = tmp_path / "cache", tmp_path / "out"
    words = ["build", spec, "-o", out, "--ray", nodes.address, "--cache-dir", cache, "--quiet"]
    command = [sys.executable, "-m", "aotc.aot.cli", *map(str, words)]

    def free():
        return cluster.ray.available_resources().get("CPU", 0)

    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        _wait_for(lambda: cache.exists() and free() < 2)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=90)
    finally:
        child.kill()
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert not list((cache / "staging").glob("*"))
    _wait_for(lambda: free() == 2)  # no task goes on
    assert cluster.map(requests(("operator:add", 1, 2)))[0].value == 3


def _wait_for(is_there):
    deadline = time.monotonic() + 90
    while not is_there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_bundle_is_tuned_on_a_device_of_the_cluster(nodes, cluster, aotc, bundle, tmp_path):
    device = nodes.add_node(num_cpus=0, resources={f"aotc:{device_name()}": 1})
    record = tmp_path / "record"
    cache = ("--cache-dir", tmp_path / "cache", "--quiet")
    ray = ("--ray", nodes.address, "--on", device_name(), "--record", record)
    code, _, errors = aotc("tune", bundle, "-o", tmp_path / "out", *ray, *cache)
    assert code == 0, errors
    assert {place[2] for place in parse_record(record.read_text(), "")} == {device_name()}
    assert aotc("verify", tmp_path / "out")[0] == 0
    nodes.remove_node(device)
    other = ("--cache-dir", tmp_path / "other", "--quiet", "--ray", nodes.address)
    code, _, errors = aotc("tune", bundle, "-o", tmp_path / "no", "--on", "NVIDIA H200", *other)
    assert code == 7
    assert "2 × recorded" in errors
    assert not (tmp_path / "no").exists()


SILENT = """
import socket, sys
from aotc.aot.tasks.cluster import Cluster
from aotc.aot.tasks.errors import ClusterUnreachable

server = socket.create_server(("127.0.0.1", 0))
try:
    Cluster(f"127.0.0.1:{server.getsockname()[1]}", timeout_seconds=2.0)
except ClusterUnreachable as error:
    print(error)
"""


def test_a_server_that_is_not_rays_is_given_up():
    done = subprocess.run(
        [sys.executable, "-c", SILENT], capture_output=True, text=True, timeout=60, check=False
    )
    assert "no answer of Ray's in 2 s" in done.stdout, done.stderr
