"""Runs the kernels that GPUs get for graphs with dims, at given sizes, in Triton's interpreter or
as native code here; on a device they are run by tests/gpu/test_dynamic.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy

from aotc.aot.ir.graph import Graph
from aotc.aot.ir.narrow import dims_of, narrowed
from aotc.aot.ir.size import Dim
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.schedule.buckets import buckets
from aotc.aot.schedule.traits import GPUS

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from schedule_runner import Job

TRAITS = GPUS[90]


def bucket_of(dims: Sequence[Dim], sizes: Mapping[str, int]) -> tuple[Dim, ...]:
    """The first range of all dims that holds the sizes, as a plan chooses it."""
    return next(
        row for row in buckets(dims) if all(dim.low <= sizes[dim.name] <= dim.high for dim in row)
    )


def run_at(
    graph: Graph,
    inputs: Sequence[numpy.ndarray],
    sizes: Mapping[str, int],
    folder: Path,
    mode: str = "native",
    candidate: Any = None,
    threads: int = 0,
) -> list[numpy.ndarray]:
    """Outputs of the variant of the graph that serves these sizes.

    candidate: as for `Job.add`; None is the model's pick of those that run natively here.
    """
    dims = dims_of(graph)
    variant = narrowed(graph, dict(zip(dims, bucket_of(dims, sizes), strict=True)))
    job = Job(sizes=sizes)
    chosen = _without_descriptors if candidate is None else candidate
    outputs = job.add(variant, inputs, chosen, TRAITS)
    results = job.run(folder, mode, threads)
    assert not job.errors, "\n".join(job.errors.values())
    return [results[name].reshape(shape) for name, shape in outputs]


def _without_descriptors(spec: KernelSpec) -> Candidate:
    """The first candidate that reads by pointers alone."""
    return next(
        row
        for row in spec.candidates
        if not row.maps and "_descriptor(" not in spec.form(row).source
    )
