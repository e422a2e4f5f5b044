"""Kernels tuned over the nodes of a Ray cluster here: `python -m benchmarks.many_machines`.

No device is needed: a measurement is a stub (`recorded_times.py`) that gives times drawn by a fixed
seed, and sleeps as long as it is said to take. So nodes cost no processor, and what is measured is
how well four nodes are kept at work: that is why four nodes on two cores can be four times as fast
as one. The kernels' code is in the cache before; nothing is compiled. Ray's health checks are
set to notice a dead node in about a second; by default it takes some ten.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.families import find_target
from aotc.aot.tasks.cluster import Cluster
from aotc.aot.tasks.task import Devices, Executor, Here
from aotc.aot.tune.compiling import Counts, Resources, Task, files_of
from aotc.aot.tune.job import Job, Operand
from aotc.aot.tune.measuring import Measurer
from aotc.aot.tune.record import print_record
from aotc.aot.tune.tune import Policy, tune
from aotc.cache import Store

TARGET, DEVICE = find_target("cuda:sm_90"), "nvidia-h200"
RESOURCE = f"aotc:{DEVICE}"
ROOT = Path(__file__).parents[1]
CANDIDATES = 8
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
ADVANCE = "best"  # what is reported when a kernel's times are there


@dataclass(frozen=True, slots=True)
class Run:
    """One tuning of all kernels."""

    label: str
    seconds: float
    record: str


def jobs(kernels: int) -> list[Job]:
    """Kernels with candidates, none like another."""
    made = []
    for number in range(kernels):
        form = Form("", f"# source of kernel {number}", "kernel")
        candidates = tuple(
            Candidate((("BLOCK", 16 << each),), (1, 1, 1)) for each in range(CANDIDATES)
        )
        params = (Param("x", "*fp32"),)
        spec = KernelSpec(f"kernel_{number}", (form,), params, candidates, 1 << 20, 0)
        made.append(Job(spec, (Operand(1 << 20),)))
    return made


def fill(store: Store, kernels: list[Job], seconds: float) -> None:
    """Put the code of all candidates into a cache: its times, drawn by a fixed seed."""
    draw = random.Random(8)
    for job in kernels:
        took = draw.uniform(0.5, 1.5) * seconds
        for candidate in job.spec.candidates:
            facts = {"time_us": draw.uniform(5.0, 50.0), "seconds": took / CANDIDATES}
            code = json.dumps(facts).encode()
            task = Task(job.spec, candidate, TARGET)
            store.put(task.key, files_of(KernelBinary("kernel", code, threads=128)))


def run(
    label: str,
    executor: Executor,
    kernels: int,
    seconds: float,
    half_way: Callable[[], Any] = lambda: None,
) -> Run:
    """Tune all kernels on devices of an executor; `half_way` is called when half have times."""
    work = jobs(kernels)
    policy = Policy(TARGET, DEVICE, "full")
    measurer = Measurer(
        TARGET,
        {},
        Devices(DEVICE, executor, is_elsewhere=True),
        "benchmarks.recorded_times:recorded",
    )
    begun = []

    def report(_done: int, _total: int, text: str) -> None:
        begun.extend([text] if ADVANCE in text else [])
        if len(begun) == kernels // 2 and ADVANCE in text:
            threading.Thread(target=half_way).start()

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        fill(store, work, seconds)
        started_s = time.perf_counter()
        tuning = tune(work, policy, Resources(Here(), store, Counts(), report), measurer)
        took_s = time.perf_counter() - started_s
    return Run(label, took_s, print_record({line.place: line for line in tuning.lines}))


def measure(kernels: int, seconds: float) -> list[Run]:
    """The same tuning on one node, on four, and on four of which one is killed half-way."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    from ray.cluster_utils import Cluster as LocalCluster

    local = LocalCluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": HEALTH},
    )
    try:
        nodes = [local.add_node(num_cpus=1, resources={RESOURCE: 1})]
        placement = {"num_cpus": 0, "resources": {RESOURCE: 1}}
        with Cluster(local.address) as cluster:
            runs = [run("one node", cluster.placed(placement, 1), kernels, seconds)]
        nodes += [local.add_node(num_cpus=1, resources={RESOURCE: 1}) for _ in range(3)]
        with Cluster(local.address) as cluster:
            four = cluster.placed(placement, 4)
            runs.append(run("four nodes", four, kernels, seconds))
            kill = lambda: local.remove_node(nodes[-1], allow_graceful=False)  # noqa: E731
            label = "four nodes, one killed half-way"
            runs.append(run(label, four, kernels, seconds, kill))
        return runs
    finally:
        local.shutdown()


def page(runs: list[Run], kernels: int) -> str:
    """A table."""
    rows = ["| run | s | against one node | record |", "|---|---|---|---|"]
    for each in runs:
        word = "the same" if each.record == runs[0].record else "DIFFERS"
        speed = runs[0].seconds / each.seconds
        rows.append(f"| {each.label} | {each.seconds:.1f} | {speed:.2f}x | {word} |")
    head = f"{datetime.date.today()}, {kernels} kernels of {CANDIDATES} candidates, "
    return "\n".join([f"{head}{os.cpu_count()} cores:", "", *rows])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0, help="that a kernel's times take")
    given = parser.parse_args()
    print(page(measure(given.kernels, given.seconds), given.kernels))


if __name__ == "__main__":
    main()
