"""A Ray cluster as an executor: requests are Ray tasks, placed by Ray's resources, retried by Ray.

A task is bytes in and bytes out: a function's name and plain values, and what became of them. On
its node it runs in a worker process of ours (`workers.py`), so that code which ends its process
costs a kernel and not a Ray worker; a node or a Ray worker that dies costs a retry. A task takes
one CPU, or where it measures one of the resource `aotc:NAME` of that device, or a GPU of Ray's
`accelerator_type`. This file is the only one that imports ray.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from aotc.aot.tasks.errors import (
    ClusterDeviceMissing,
    ClusterDevicesSeveral,
    ClusterDiffers,
    ClusterExtraMissing,
    ClusterTaskLost,
    ClusterUnreachable,
)
from aotc.aot.tasks.task import (
    Batch,
    Devices,
    Executor,
    Outcome,
    Queue,
    Request,
    describe,
    device_word,
    keep_text,
    pack,
    restore,
    unpack,
)
from aotc.aot.tasks.workers import Workers
from aotc.aot.version import ROOT, VERSION, installed_version, sources_digest

RETRIES = 3  # of a task whose node or Ray worker died
CONNECT_SECONDS = 20.0
CHECK_SECONDS = 120.0  # for all nodes to say what is installed; a Ray worker starts in seconds
LOST_SECONDS = 30.0  # how long a resource may be gone that tasks wait for
POLL_SECONDS = 1.0
QUEUED = 2  # tasks in flight for each that can run, so that no node waits for this process
RESOURCE, ACCELERATOR = "aotc:", "accelerator_type:"
# What a task's result depends on beside the task.
SOURCES = ("aot/targets", "aot/tasks", "aot/measure", "runtime")

Placement = Mapping[str, Any]  # Ray's options of a task


class Cluster(Executor):
    """The cluster at an address; a context manager that leaves it."""

    queued = QUEUED
    shares_files = False

    def __init__(
        self,
        address: str,
        device: str = "",
        keep: Path | None = None,
        timeout_seconds: float = CONNECT_SECONDS,
    ) -> None:
        """`device` measures (empty: the only kind that fits); `keep` gets the texts of kernels that
        fail (None: the temporary folder). Raises ClusterExtraMissing, ClusterUnreachable,
        ClusterDiffers, ClusterDeviceMissing for a cluster without processors."""
        self.ray, self._is_own = _connected(address, timeout_seconds)
        self.keep = Path(tempfile.gettempdir()) if keep is None else keep
        self.flights: set[Any] = set()  # references of all batches
        self.is_cancelled = threading.Event()
        self._remote = self.ray.remote(perform)
        self._device = device
        try:
            self.count = int(self.resources().get("CPU", 0))
            if not self.count:
                raise ClusterDeviceMissing(expected="processor", found=self.found())
            self._check_nodes()
        except BaseException:
            self.close()
            raise

    def begin(self) -> Batch:
        """A batch of tasks that take a processor each."""
        return _Batch(self, {"num_cpus": 1}, self.count)

    def placed(self, placement: Placement, count: int) -> Executor:
        """The part of the cluster that has some resources, `count` times."""
        return _Part(self, placement, count)

    def devices(self, family: str, needs: Sequence[str], is_apart: bool) -> Devices | None:
        """Devices of one name that have `needs`, the one that was asked for where one was.

        Raises ClusterDeviceMissing, which says what there is, and ClusterDevicesSeveral.
        """
        fitting = {}
        for word, placement, count in self._kinds():
            part = self.placed(placement, count)
            request = Request("devices", "aotc.aot.measure.processor:devices_here", (family,))
            (outcome,) = part.map([request])
            features, names = outcome.unwrap()
            name = next((each for each in names if word in each), None)
            if name is not None and set(needs) <= set(features):
                fitting[name] = Devices(name, part, is_elsewhere=True)
        if not fitting:
            expected = f"device `{self._device}`" if self._device else f"device of {family}"
            raise ClusterDeviceMissing(
                expected=f"{expected} with {', '.join(needs)}", found=self.found()
            )
        if len(fitting) > 1:
            raise ClusterDevicesSeveral(found=", ".join(fitting), needs=", ".join(needs))
        return next(iter(fitting.values()))

    def resources(self) -> dict[str, float]:
        """Ray's resources of all nodes that are alive."""
        found: dict[str, float] = self.ray.cluster_resources()
        return found

    def found(self) -> str:
        """What the cluster has, for messages."""
        rows = [
            f"{count:g} × {name.removeprefix(RESOURCE)}"
            for name, count in sorted(self.resources().items())
            if name in ("CPU", "GPU") or name.startswith((RESOURCE, ACCELERATOR))
        ]
        return ", ".join(rows) or "no node"

    def submit(self, request: Request, placement: Placement) -> Any:
        """The reference of a task."""
        row = (request.name, request.function, request.arguments, request.timeout_seconds)
        options = {"max_retries": RETRIES, "name": request.name, **placement}
        reference = self._remote.options(**options).remote(pack((versions(), *row)))
        self.flights.add(reference)
        return reference

    def outcome(self, reference: Any, request: Request) -> Outcome:
        """What became of a task that has ended; raises TaskError where that is not the task's."""
        self.flights.discard(reference)
        errors = self.ray.exceptions
        try:
            kind, seconds, content = unpack(self.ray.get(reference), "a node's answer")
        except errors.TaskCancelledError:
            raise CancelledError from None
        except errors.RayTaskError as error:
            lines = str(error.cause).splitlines() or [type(error.cause).__name__]
            found = f"no aotc that takes the task ({lines[-1]})"
            raise ClusterDiffers(
                node="of the task", found=found, expected=_text(versions())
            ) from None
        except errors.RayError as error:
            detail = (str(error).splitlines() or [type(error).__name__])[0]
            raise ClusterTaskLost(task=request.name, tries=RETRIES + 1, detail=detail) from None
        if kind == "differs":
            node, own = content
            raise ClusterDiffers(node=node, found=_text(own), expected=_text(versions()))
        if kind == "value":
            return Outcome(request, content, None, seconds)
        name, fields, suffix, text = content
        if text is not None:
            fields = {**fields, "source": keep_text(self.keep, request.name, suffix, text)}
        return Outcome(request, None, restore(name, fields), seconds)

    def cancel(self) -> None:
        """End all tasks on the cluster, from any thread."""
        self.is_cancelled.set()
        for reference in list(self.flights):
            self.end(reference)

    def end(self, reference: Any) -> None:
        """End a task, whether it waits or runs."""
        self.flights.discard(reference)
        with contextlib.suppress(Exception):  # the cluster itself may be gone
            self.ray.cancel(reference, force=True)

    def close(self) -> None:
        """End what runs and leave the cluster; idempotent."""
        for reference in list(self.flights):
            self.end(reference)
        if self._is_own:
            self.ray.shutdown()

    def _kinds(self) -> Iterator[tuple[str, Placement, int]]:
        """(word of a device's name, what a task on it takes, how many there are)."""
        wanted = device_word(self._device) if self._device else ""
        for name, count in sorted(self.resources().items()):
            if name.startswith(RESOURCE) and count >= 1:
                word = device_word(name.removeprefix(RESOURCE))
                if wanted in ("", word):
                    yield word, {"num_cpus": 0, "resources": {name: 1}}, int(count)
            elif name.startswith(ACCELERATOR):
                word = device_word(name.removeprefix(ACCELERATOR))
                alive = (node["Resources"] for node in self.ray.nodes() if node["Alive"])
                gpus = int(sum(each.get("GPU", 0) for each in alive if name in each))
                if word in (wanted or word) and gpus:
                    yield word, {"num_cpus": 0, "num_gpus": 1, "resources": {name: 0.001}}, gpus

    def _check_nodes(self) -> None:
        """Have every node that tasks may run on say what is installed there."""
        strategy = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        request = Request("versions", "aotc.aot.tasks.cluster:versions", ())
        flights = []
        for node in self.ray.nodes():
            works = node["Resources"].get("CPU") or any(
                name.startswith((RESOURCE, ACCELERATOR)) for name in node["Resources"]
            )
            if node["Alive"] and works:
                affinity = strategy(node_id=node["NodeID"], soft=False)
                placement = {"num_cpus": 0, "scheduling_strategy": affinity}
                flights.append(self.submit(request, placement))
        _, late = self.ray.wait(flights, num_returns=len(flights), timeout=CHECK_SECONDS)
        if late:
            detail = f"{len(late)} of {len(flights)} nodes do not answer in {CHECK_SECONDS:g} s"
            raise ClusterUnreachable(address="the address given", detail=detail)
        for reference in flights:
            self.outcome(reference, request).unwrap()


class _Part(Executor):
    """What a cluster has of some resources; closed with the cluster."""

    queued = QUEUED
    shares_files = False

    def __init__(self, cluster: Cluster, placement: Placement, count: int) -> None:
        self._cluster, self._placement, self.count = cluster, placement, count

    def begin(self) -> Batch:
        return _Batch(self._cluster, self._placement, self.count)

    def cancel(self) -> None:
        self._cluster.cancel()


class _Batch(Queue):
    def __init__(self, cluster: Cluster, placement: Placement, count: int) -> None:
        super().__init__()
        self._cluster, self._placement, self._count = cluster, placement, count
        self._flights: dict[Any, tuple[int, Request]] = {}
        self._lost_since_s: float | None = None

    def results(self) -> Iterator[tuple[int, Outcome]]:
        cluster, flights = self._cluster, self._flights
        while self.waiting or flights:
            if cluster.is_cancelled.is_set():
                raise CancelledError
            while self.waiting and len(flights) < QUEUED * self._count:
                number, request = self.waiting.popleft()
                flights[cluster.submit(request, self._placement)] = number, request
            ready, _ = cluster.ray.wait(list(flights), timeout=POLL_SECONDS)
            if not ready:
                self._check_resources()
            for reference in ready:
                number, request = flights.pop(reference)
                yield number, cluster.outcome(reference, request)

    def close(self) -> None:
        super().close()
        while self._flights:
            self._cluster.end(self._flights.popitem()[0])

    def _check_resources(self) -> None:
        """Ray keeps a task that no node can run, in case that one joins: not for ever here."""
        needed = [*self._placement.get("resources", ()), *(["CPU"] * self._placement["num_cpus"])]
        gone = [name for name in needed if not self._cluster.resources().get(name)]
        now_s = time.monotonic()
        if not gone:
            self._lost_since_s = None
        elif self._lost_since_s is None:
            self._lost_since_s = now_s
        elif now_s - self._lost_since_s > LOST_SECONDS:
            expected = f"`{gone[0].removeprefix(RESOURCE)}` any more"
            raise ClusterDeviceMissing(expected=expected, found=self._cluster.found())


# On a node.


def perform(data: bytes) -> bytes:
    """Run one packed request in a worker process of this node, if this is the same aotc."""
    expected, *row = unpack(data, "the task")
    own = versions()
    if own != expected:
        return pack(("differs", 0.0, (socket.gethostname(), own)))
    pool = _pool()
    (outcome,) = pool.map([Request(*row)])
    if outcome.error is None:
        return pack(("value", outcome.seconds, outcome.value))
    kind, fields = describe(outcome.error)
    source = Path(str(fields.get("source", "")))
    text = source.read_bytes() if source.is_relative_to(pool.keep) else None
    shutil.rmtree(pool.keep, ignore_errors=True)
    return pack(("error", outcome.seconds, (kind, fields, source.suffix[1:] or "txt", text)))


@functools.cache
def _pool() -> Workers:
    """One worker process of a Ray worker; it ends when the Ray worker does."""
    return Workers(1, keep=Path(tempfile.gettempdir()) / f"aotc-node-{os.getpid()}")


@functools.cache
def versions() -> dict[str, str]:
    """What must be equal here and on every node: the sources that decide, triton and torch."""
    digest = sources_digest(ROOT / folder for folder in SOURCES)
    own = {"aotc": f"{VERSION}+{digest[:12]}"}
    return own | {name: installed_version(name, "none") for name in ("triton", "torch")}


def _text(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


# The connection.


def _connected(address: str, timeout_seconds: float) -> tuple[Any, bool]:
    """Ray, and whether it was connected here and not before by the caller.

    Raises ClusterExtraMissing, ClusterUnreachable.
    """
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ModuleNotFoundError:
        raise ClusterExtraMissing from None
    if ray.is_initialized():
        return ray, False
    _refuse_silence(address, timeout_seconds)
    failures: list[BaseException] = []

    def connect() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except BaseException as error:  # Ray also raises SystemExit
            failures.append(error)

    # Ray itself waits for two minutes and then ends the process.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(timeout_seconds)
    if thread.is_alive():
        detail = f"no answer of Ray's in {timeout_seconds:g} s"
        raise ClusterUnreachable(address=address, detail=detail)
    if failures:
        lines = str(failures[0]).splitlines() or [type(failures[0]).__name__]
        raise ClusterUnreachable(address=address, detail=lines[0])
    return ray, True


def _refuse_silence(address: str, timeout_seconds: float) -> None:
    """Raise ClusterUnreachable at once where nobody listens; `auto` is looked up by Ray."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not port.isdecimal():
        detail = "expected HOST:PORT, ray://HOST:PORT or auto"
        raise ClusterUnreachable(address=address, detail=detail)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_seconds).close()
    except OSError as error:
        detail = error.strerror or str(error)
        raise ClusterUnreachable(address=address, detail=detail.lower()) from None
