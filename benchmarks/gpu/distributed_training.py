"""Training on two devices: `backend="aotc"` beside eager and Inductor under DDP and FSDP2.

    python -m benchmarks.gpu.distributed_training [--kinds ddp,ddp-inside,fsdp,fsdp-whole]
        [--size small|medium|full] [--steps 20] [--seconds 5] [--contenders eager,inductor,aotc]
        [--device cuda|cpu] [--processes 2] [--out FILE]

A Llama-style model is trained for some steps, in every process on other tokens: with NCCL on CUDA
devices, one a process, with gloo on the CPU. `small` computes in f32, the others under bf16
autocast. Kinds: `ddp` compiles the `DistributedDataParallel`, whose graph Dynamo cuts at the
buckets; `ddp-inside` compiles the module inside of it; `fsdp` compiles each layer and shards it
(`fully_shard`); `fsdp-whole` compiles the sharded model. Each contender begins with the same
weights. Written are the mean losses of the processes at each step, the seconds to the first step,
the median milliseconds of a step (blocks in turns, by the clock behind a synchronisation), and what
aotc counted in the first process, one line of JSON a kind.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters
from benchmarks.gpu.training import LlamaStyle
from benchmarks.models.llama import Shape

KINDS = ("ddp", "ddp-inside", "fsdp", "fsdp-whole")
CONTENDERS = ("eager", "inductor", "aotc")
RATE, BLOCK, BATCH = 1e-3, 3, 4
SHAPES = {  # width, layers, heads, key heads, size of a head, inner width, tokens, length
    "small": Shape(32, 2, 4, 2, 8, 64, 64, 16),
    "medium": Shape(1024, 4, 16, 4, 64, 4096, 8000, 512),
    "full": Shape(2048, 8, 32, 8, 64, 8192, 32000, 1024),
}
SMALL_BUCKET_BYTES = 8192  # so that a small model has several


def compiling(name: str) -> dict[str, Any] | None:
    """The arguments of `torch.compile` of a contender, None for eager."""
    return {"eager": None, "inductor": {}, "aotc": {"backend": aotc}}[name]


def distributed_model(kind: str, module: LlamaStyle, how: dict[str, Any] | None) -> Any:
    """What is called, and whose parameters are trained."""
    if kind.startswith("ddp"):
        if how is not None and kind == "ddp-inside":
            module.compile(**how)
        named = {"device_ids": [torch.cuda.current_device()]} if _is_cuda(module) else {}
        if module.shape is SHAPES["small"]:
            distributed._DEFAULT_FIRST_BUCKET_BYTES = SMALL_BUCKET_BYTES
            named["bucket_cap_mb"] = SMALL_BUCKET_BYTES / 2**20
        whole = nn.parallel.DistributedDataParallel(module, **named)
        return torch.compile(whole, **how) if how is not None and kind == "ddp" else whole
    from torch.distributed.fsdp import fully_shard

    for layer in module.layers:
        if how is not None and kind == "fsdp":
            layer.compile(**how)
        fully_shard(layer)
    fully_shard(module)
    return torch.compile(module, **how) if how is not None and kind == "fsdp-whole" else module


def _is_cuda(module: nn.Module) -> bool:
    return next(module.parameters()).is_cuda


class Contender:
    """A model of its own with its optimizer and its tokens."""

    def __init__(self, name: str, kind: str, size: str, device: str) -> None:
        torch._dynamo.reset()
        torch.manual_seed(0)
        self.size, self.device = size, device
        with torch.device(device):
            module = LlamaStyle(SHAPES[size])
        self.call = distributed_model(kind, module, compiling(name))
        fused = {"fused": True} if device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(self.call.parameters(), lr=RATE, **fused)
        self.tokens = torch.Generator().manual_seed(5 + distributed.get_rank())

    def step(self) -> Tensor:
        """One step; the loss of this process."""
        shape = SHAPES[self.size]
        drawn = torch.randint(0, shape.tokens, (BATCH, shape.length + 1), generator=self.tokens)
        drawn = drawn.to(self.device)
        reduced = torch.autocast(self.device, torch.bfloat16, enabled=self.size != "small")
        with reduced:
            logits = self.call(drawn[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), drawn[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def mean_loss(self) -> float:
        """One step; the mean of the losses of all processes."""
        loss = self.step()
        distributed.all_reduce(loss)
        return float(loss) / distributed.get_world_size()

    def block_ms(self) -> float:
        """Milliseconds of a step, of a block of them."""
        self.wait()
        started_s = time.perf_counter()
        for _ in range(BLOCK):
            self.step()
        self.wait()
        return (time.perf_counter() - started_s) * 1e3 / BLOCK

    def wait(self) -> None:
        """All processes are here, and their devices idle."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        distributed.barrier()


def measure(kind: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """The figures of one kind by contender."""
    rows: dict[str, Any] = {}
    made: dict[str, Contender] = {}
    for name in chosen.contenders.split(","):
        before, started_s = counters(), time.perf_counter()
        contender = made[name] = Contender(name, kind, chosen.size, chosen.device)
        losses = [contender.mean_loss()]
        rows[name] = {"first step s": time.perf_counter() - started_s}
        losses += [contender.mean_loss() for _ in range(chosen.steps - 1)]
        rows[name]["losses"] = losses
        if name == "aotc":
            now = counters()
            rows[name]["counters"] = {each: now[each] - before[each] for each in now}
    samples: dict[str, list[float]] = {name: [] for name in made}
    rounds = _rounds(made, chosen.seconds)
    for _ in range(rounds):
        for name, contender in made.items():
            samples[name].append(contender.block_ms())
    for name, taken in samples.items():
        if taken:
            rows[name] |= {"median ms": statistics.median(taken), "least ms": min(taken)}
    return rows


def _rounds(made: dict[str, Contender], seconds: float) -> int:
    """How many blocks of each fit into the seconds, as the first process has it."""
    if not seconds:
        return 0
    taken_ms = sum(contender.block_ms() for contender in made.values()) * BLOCK
    count = torch.tensor(max(3, int(seconds * 1e3 / taken_ms)))
    given = count.to(next(iter(made.values())).device)
    distributed.broadcast(given, 0)
    return int(given)


def process(rank: int, chosen: argparse.Namespace, port: int) -> None:
    """One of the processes."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if chosen.device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    backend = "nccl" if chosen.device == "cuda" else "gloo"
    distributed.init_process_group(backend, rank=rank, world_size=chosen.processes)
    lines = []
    for kind in chosen.kinds.split(","):
        lines.append(json.dumps({"kind": kind, "size": chosen.size, **measure(kind, chosen)}))
        if not rank:
            print(lines[-1], flush=True)
            if chosen.out is not None:
                chosen.out.write_text("\n".join(lines) + "\n")
    distributed.destroy_process_group()


def main(given: Sequence[str] | None = None) -> None:
    """Measure the kinds in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--size", choices=tuple(SHAPES), default="full")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0, help="of timed steps for each kind")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(given)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(
        process, (chosen, port), chosen.processes, start_method="spawn"
    )


if __name__ == "__main__":
    main()
