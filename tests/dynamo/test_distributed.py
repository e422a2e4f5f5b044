"""`DistributedDataParallel` and FSDP2 around and inside of what is compiled: eager's losses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dynamo_models import Perceptron
from torch import distributed, nn

from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters

pytestmark = [
    pytest.mark.torch,
    pytest.mark.triton,
    pytest.mark.skipif(not distributed.is_available(), reason="torch without torch.distributed"),
]
ROOT = Path(__file__).parents[2]
STRICT = {"fallback": "error"}
BUCKET_BYTES = 512  # of gradients; the model has more


@pytest.fixture
def alone(fresh, tmp_path, monkeypatch):
    """A group of this process alone, whose buckets are small."""
    monkeypatch.setattr(distributed, "_DEFAULT_FIRST_BUCKET_BYTES", BUCKET_BYTES)
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class Triangular(Perceptron):
    """With an op at its end that is left to Inductor."""

    def forward(self, x):
        return torch.linalg.qr(super().forward(x)).R


def parallel(module, is_compiled, options=STRICT):
    whole = nn.parallel.DistributedDataParallel(module, bucket_cap_mb=BUCKET_BYTES / 2**20)
    return torch.compile(whole, backend=aotc, options=options) if is_compiled else whole


def sharded(module, is_compiled):
    from torch.distributed.fsdp import fully_shard

    if is_compiled:
        module.compile(backend=aotc, options=STRICT)
    return fully_shard(module)


def losses(wrapped, model=Perceptron, **named):
    torch._dynamo.reset()
    torch.manual_seed(3)
    module = wrapped(model(), **named)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    found = []
    for _ in range(20):
        loss = module(torch.randn(5, 12)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("wrapped", [parallel, sharded])
def test_losses_are_those_of_eager(wrapped, alone):
    """The first of two compilations traces and the second finds all of it in the caches. Dynamo
    asks for a first call with fake tensors of each part of a graph that it cuts at the buckets."""
    wanted = losses(wrapped, is_compiled=False)
    for is_first in (True, False):
        before = counters()
        found = losses(wrapped, is_compiled=True)
        made = {name: count - before[name] for name, count in counters().items()}
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
        assert made["graphs"] >= (4 if wrapped is parallel else 2)
        assert is_first or made["traces_skipped"] == made["graphs"]


def test_a_part_with_a_region_that_is_left_to_inductor(alone):
    """Whose compilation torch counts, and then asks the part for fake tensors."""
    wanted = losses(parallel, Triangular, is_compiled=False)
    found = losses(parallel, Triangular, is_compiled=True, options={"fallback": "inductor"})
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_llama_style_model_of_two_processes(caches):
    """By the script that measures two GPUs: DDP around and inside of what is compiled, FSDP2 of
    compiled layers and of a whole compiled model."""
    command = [sys.executable, "-m", "benchmarks.gpu.distributed_training", "--device", "cpu"]
    command += ["--size", "small", "--seconds", "0", "--contenders", "eager,aotc"]
    variables = {**os.environ, **caches, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["kind"] for row in rows] == ["ddp", "ddp-inside", "fsdp", "fsdp-whole"]
    for row in rows:
        torch.testing.assert_close(row["aotc"]["losses"], row["eager"]["losses"], rtol=1e-5, atol=0)
        assert len(row["aotc"]["losses"]) == 20
        assert row["aotc"]["counters"]["graphs"]
        assert not row["aotc"]["counters"]["regions_left"]
