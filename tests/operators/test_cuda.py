"""The same samples compile for a GPU, which none is needed for."""

import torch

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import Spec
from aotc.aot.compile import Resources, compile_for
from aotc.aot.options import BuildOptions
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.stages import Clock
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.targets.families import find_target
from aotc.aot.tasks.workers import Workers
from aotc.aot.tune.compiling import Counts
from aotc.cache import Store
from benchmarks.operators.samples import Batch, samples_of

# One of each way of writing an op: ranks and merges, blocks of a scan, lookups, tables, functions.
RECORDS = (
    "sort", "topk", "cumsum", "cummax", "scatter_add", "index_put", "masked_scatter", "atan2",
    "grid_sampler_2d", "nn.functional.interpolate.bicubic", "nn.functional.max_pool2d",
    "bitwise_left_shift", "asin", "erfinv", "erfc", "as_strided", "cdist", "__rpow__",
)  # fmt: skip


def test_ops_compile_for_a_gpu(tmp_path):
    samples = [samples_of(record, _dtype(record), 2)[-1] for record in RECORDS]
    tensors = tuple(tensor for sample in samples for tensor in sample.tensors)
    torch.manual_seed(0)
    captured = capture(Spec("operators", "operators", tensors, {}, Batch(samples).eval()))
    graph, _ = rewrite_each(captured.graph, {"cuda": GPUS[90]})["cuda"]
    target = find_target("cuda:sm_90")
    with Workers() as workers:
        resources = Resources(workers, Store(tmp_path), Counts())
        made = compile_for(target, [graph], BuildOptions(tmp_path), resources, Clock())
    assert resources.counts.failed == 0
    assert len(made.plan.at().launches) >= len(RECORDS) // 2


def _dtype(record):
    return "i64" if record in ("bitwise_left_shift", "__rpow__") else "f32"
