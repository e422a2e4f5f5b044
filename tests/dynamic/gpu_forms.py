"""Runs the kernels that GPUs get for graphs with dims, at given sizes, as native code here; on a
device they are run by tests/gpu/test_dynamic.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy

from aotc.aot.ir.graph import Graph
from aotc.aot.ir.narrow import dims_of, narrowed
from aotc.aot.ir.size import Dim
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.schedule.buckets import buckets
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from schedule_runner import Job

TRAITS = GPUS[90]


def bucket_of(graph: Graph, sizes: Mapping[str, int]) -> tuple[Dim, ...]:
    """The first range of all dims that holds the sizes, as a plan chooses it."""
    rows = buckets(graph, is_fine=True)
    return next(row for row in rows if all(dim.low <= sizes[dim.name] <= dim.high for dim in row))


def run_each(
    graph: Graph,
    calls: Sequence[tuple[Mapping[str, int], Sequence[numpy.ndarray]]],
    folder: Path,
) -> list[list[numpy.ndarray]]:
    """Of each call, its sizes and inputs, the outputs of the variant of the graph that serves it.

    All run in one process, as the model's first picks of those that run natively here.
    """
    dims, job, outputs = dims_of(graph), Job(), []
    for sizes, inputs in calls:
        variant = narrowed(graph, dict(zip(dims, bucket_of(graph, sizes), strict=True)))
        job.sizes = sizes
        outputs.append(job.add(variant, inputs, _without_descriptors, TRAITS))
    results = job.run(folder, "native")
    assert not job.errors, "\n".join(job.errors.values())
    return [[results[name].reshape(shape) for name, shape in row] for row in outputs]


def _without_descriptors(spec: KernelSpec) -> Candidate:
    """The first candidate that reads by pointers alone."""
    return next(
        row
        for row in spec.candidates
        if not row.maps and "_descriptor(" not in spec.form(row).source
    )
