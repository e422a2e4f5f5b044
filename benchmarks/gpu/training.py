"""Training steps on one CUDA device: `backend="aotc"` beside eager and Inductor.

    python -m benchmarks.gpu.training [--only mlp,encoder] [--seconds 8] [--size full|small]
        [--fallback inductor] [--unchecked] [--tune quick] [--kernels 30] [--out FOLDER]

A step is forward under bf16 autocast, backward and AdamW (fused, by torch, for all). Each contender
has a process of its own, as a training run has, with the same weights and batch: in one process
they would take each other's places in torch's allocator. Blocks of steps are timed in turns by
events, after one step that is not timed, and the medians compared. Written are ratios (eager's and
Inductor's time by ours), peak memory of torch's allocator over a step and what the device holds
beside it (code, libraries, our sessions), the losses, and the seconds to the first step, as JSON
and markdown. A contender that fails is a row with its error. `--kernels` also prints which kernels
take a step's time, by torch's profiler.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from aotc.aot.dynamo import aotc
from benchmarks.dynamo.models import Encoder
from benchmarks.gpu.machine import facts
from benchmarks.models.llama import Layer, Norm, Shape
from benchmarks.models.resnet import ResNet
from benchmarks.zoo.unet import UNet

RATE, LOSSES, BLOCK = 1e-4, 5, 3  # learning rate; losses that are kept; steps of a timed block
CONTENDERS = ("eager", "inductor", "aotc")


class Gpt(nn.Module):
    """A GPT-2 over tokens, pre-norm, causal: i64[B, T] → logits [B, T, vocabulary]."""

    def __init__(self, width: int, heads: int, layers: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(self.before(x)).chunk(3, -1)
        heads = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.after(x)), approximate="tanh"))


class Block(nn.Module):
    """A layer that is called as a whole, as FSDP's hooks ask for."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.layer = Layer(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query, key, value = self.layer.heads(self.layer.before_attention(x), cos, sin)
        seen = functional.scaled_dot_product_attention(
            query.to(value.dtype), key.to(value.dtype), value, is_causal=True, enable_gqa=True
        )
        return self.layer.joined(x, seen)


class LlamaStyle(nn.Module):
    """Layers of `benchmarks/models/llama.py` for training: i64[B, T] → logits of every token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.tokens, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width)
        self.head = nn.Linear(shape.width, shape.tokens, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        size = self.shape.size
        steps = torch.arange(0, size, 2, device=tokens.device).float() / size
        angles = places[:, None].float() * (self.shape.base**-steps)[None, :]
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class Vit(nn.Module):
    """A vision transformer: images [N, 3, side, side] → logits [N, 1000]."""

    def __init__(self, side: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.places = nn.Parameter(torch.randn(1, (side // 16) ** 2, width) * 0.02)
        self.encoder = Encoder(layers, width, heads)
        self.head = nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.encoder(x).mean(1))


@dataclass(frozen=True)
class Case:
    """A model, a batch, and the loss of a result on the batch."""

    build: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]


def _near(result: Tensor, wanted: Tensor) -> Tensor:
    return (result.float() - wanted).square().mean()


def _classes(result: Tensor, wanted: Tensor) -> Tensor:
    return functional.cross_entropy(result.flatten(0, -2).float(), wanted.flatten())


def _pixels(result: Tensor, wanted: Tensor) -> Tensor:
    return functional.cross_entropy(result.float(), wanted)


def _same(*shape: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(shape, device="cuda")
    return x, torch.randn(shape, device="cuda")


def _tokens(batch: int, length: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    drawn = torch.randint(0, vocabulary, (batch, length + 1), device="cuda")
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()


def _images(batch: int, side: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, side, side, device="cuda"), torch.randint(
        0, 1000, (batch,), device="cuda"
    )


def _planes(batch: int, side: int) -> tuple[Tensor, Tensor]:
    wanted = torch.randint(0, 2, (batch, side, side), device="cuda")
    return torch.randn(batch, 3, side, side, device="cuda"), wanted


def _perceptron(width: int) -> nn.Module:
    inner = [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    return nn.Sequential(*inner, nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))


def cases(size: str) -> dict[str, Case]:
    """The issue's list; `small` has the same graphs of fewer layers and narrower ones."""
    if size == "full":
        llama = Shape(2048, 8, 32, 8, 64, 8192, 32000, 1024)
        return {
            "mlp": Case(lambda: _perceptron(4096), lambda: _same(4096, 4096), _near),
            "encoder": Case(lambda: Encoder(12, 768, 12), lambda: _same(16, 512, 768), _near),
            "gpt2": Case(
                lambda: Gpt(768, 12, 12, 1024, 50304), lambda: _tokens(8, 1024, 50304), _classes
            ),
            "llama": Case(lambda: LlamaStyle(llama), lambda: _tokens(4, 1024, 32000), _classes),
            "resnet50": Case(ResNet, lambda: _images(64, 224), _classes),
            "vit": Case(lambda: Vit(224, 768, 12, 12), lambda: _images(64, 224), _classes),
            "unet": Case(lambda: UNet(32), lambda: _planes(8, 256), _pixels),
        }
    llama = Shape(256, 2, 8, 2, 32, 512, 1000, 128)
    return {
        "mlp": Case(lambda: _perceptron(512), lambda: _same(256, 512), _near),
        "encoder": Case(lambda: Encoder(2, 256, 4), lambda: _same(4, 128, 256), _near),
        "gpt2": Case(lambda: Gpt(256, 4, 2, 128, 1024), lambda: _tokens(2, 128, 1024), _classes),
        "llama": Case(lambda: LlamaStyle(llama), lambda: _tokens(2, 128, 1000), _classes),
        "resnet50": Case(ResNet, lambda: _images(4, 64), _classes),
        "vit": Case(lambda: Vit(64, 192, 3, 2), lambda: _images(8, 64), _classes),
        "unet": Case(lambda: UNet(8, 2), lambda: _planes(2, 64), _pixels),
    }


class Contender:
    """A copy of a model, compiled in one way, with its optimizer."""

    def __init__(self, name: str, case: Case, start: nn.Module, options: dict[str, Any]) -> None:
        self.module = copy.deepcopy(start)
        self.call: Any = self.module
        if name == "inductor":
            self.call = torch.compile(self.module)
        elif name == "aotc":
            self.call = torch.compile(self.module, backend=aotc, options=options)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=RATE, fused=True)
        self.loss = case.loss

    def step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """One step; the loss, still on the device."""
        given, wanted = batch
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.loss(self.call(given), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def timed_ms(contender: Contender, batch: tuple[Tensor, Tensor]) -> float:
    """Milliseconds of one step, of a block by events."""
    contender.step(batch)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(BLOCK):
        contender.step(batch)
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / BLOCK


def first_steps(contender: Contender, batch: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """Losses of the first steps, seconds of the first one, and the peak memory of a later one."""
    started_s = time.perf_counter()
    losses = [float(contender.step(batch))]
    ready_s = time.perf_counter() - started_s
    losses += [float(contender.step(batch)) for _ in range(LOSSES - 1)]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    contender.step(batch)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    return {"losses": losses, "first step s": ready_s, "peak MiB of a step": peak / 2**20}


def warm_libraries() -> None:
    """Have cuBLAS take the memory that it takes at its first call in each of torch's threads, some
    64 MiB each: else the first model that calls it there is held to have taken it."""
    layer = nn.Linear(64, 64, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = layer(torch.ones(64, 64, device="cuda")).sum()
    loss.backward()
    torch.cuda.synchronize()


def outside_bytes() -> int:
    """Memory of the device that torch's allocator does not have: code, libraries, our sessions."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def kernel_times(contender: Contender, batch: tuple[Tensor, Tensor], rows: int) -> str:
    """Which kernels take a step's time on the device, as lines of text: the mean of BLOCK steps."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(BLOCK):
            contender.step(batch)
        torch.cuda.synchronize()
    found = [each for each in seen.key_averages() if each.self_device_time_total > 0]
    found.sort(key=lambda each: -each.self_device_time_total)
    total_ms = sum(each.self_device_time_total for each in found) / 1e3 / BLOCK
    lines = [f"    {total_ms:8.3f} ms in {sum(each.count for each in found) // BLOCK} kernels"]
    for each in found[:rows]:
        taken_ms = each.self_device_time_total / 1e3 / BLOCK
        lines.append(f"    {taken_ms:8.3f} ms {each.count // BLOCK:5d}  {each.key[:110]}")
    return "\n".join(lines)


class Process:
    """What a contender's process does; each model replaces the one before."""

    contender: Contender
    batch: tuple[Tensor, Tensor]

    @classmethod
    def begin(cls, name: str, model: str, size: str, options: dict[str, Any]) -> dict[str, Any]:
        """Make a contender and take its first steps: what `first_steps` gives, and its memory."""
        cls.contender = cls.batch = None  # type: ignore[assignment]  # before memory is read
        torch._dynamo.reset()
        case = cases(size)[model]
        torch.manual_seed(0)
        start, cls.batch = case.build().to("cuda").train(), case.batch()
        warm_libraries()
        gc.collect()
        torch.cuda.empty_cache()
        before = outside_bytes()
        cls.contender = Contender(name, case, start, options)
        found = first_steps(cls.contender, cls.batch)
        return found | {"beside MiB": (outside_bytes() - before) / 2**20}

    @classmethod
    def kernels(cls, rows: int) -> str:
        """See `kernel_times`."""
        return kernel_times(cls.contender, cls.batch, rows)

    @classmethod
    def timed_ms(cls) -> float:
        """See `timed_ms`."""
        return timed_ms(cls.contender, cls.batch)


def measure(
    pools: dict[str, ProcessPoolExecutor], model: str, size: str, options: dict[str, Any],
    seconds: float, kernels: int,
) -> dict[str, Any]:  # fmt: skip
    """One model: figures of each contender, and the ratios of the medians; `kernels` of each are
    printed."""
    rows: dict[str, Any] = {}
    ready: dict[str, ProcessPoolExecutor] = {}
    for name, pool in pools.items():
        try:
            rows[name] = pool.submit(Process.begin, name, model, size, options).result()
            ready[name] = pool
        except Exception as error:  # one contender's failure is a figure too
            rows[name] = {"error": f"{type(error).__name__}: {error}"[:600]}
        print(f"  {name}: {rows[name]}", flush=True)
    for name, pool in ready.items():
        if kernels:
            print(f"  {name}:\n{pool.submit(Process.kernels, kernels).result()}", flush=True)
    samples: dict[str, list[float]] = {name: [] for name in ready}
    ends_s = time.perf_counter() + seconds
    while time.perf_counter() < ends_s or min(map(len, samples.values()), default=3) < 3:
        for name, pool in ready.items():
            samples[name].append(pool.submit(Process.timed_ms).result())
    for name, taken in samples.items():
        rows[name] |= {"median ms": statistics.median(taken), "least ms": min(taken)}
    return rows | {"ratios": ratios(rows)}


def ratios(rows: dict[str, Any]) -> dict[str, float]:
    """Times of the others by ours: above 1 where ours is faster."""
    ours = rows["aotc"].get("median ms")
    names = [name for name in CONTENDERS[:2] if ours and "median ms" in rows[name]]
    return {name: rows[name]["median ms"] / ours for name in names}


def page(found: dict[str, Any]) -> str:
    """The figures as a table of markdown."""
    lines = [
        "| model | eager ms | Inductor ms | aotc ms | Inductor / aotc | peak MiB of a step: "
        "eager, Inductor, aotc | memory beside torch's, MiB: eager, Inductor, aotc | "
        "first step s: Inductor, aotc |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, rows in found["models"].items():
        times = [_cell(rows[each], "median ms", 2) for each in CONTENDERS]
        ratio = rows["ratios"].get("inductor")
        cells = [name, *times, "–" if ratio is None else f"{ratio:.2f}"]
        for key in ("peak MiB of a step", "beside MiB"):
            cells.append(", ".join(_cell(rows[each], key, 0) for each in CONTENDERS))
        cells.append(", ".join(_cell(rows[each], "first step s", 1) for each in CONTENDERS[1:]))
        lines.append(f"| {' | '.join(cells)} |")
    facts_line = "; ".join(f"{key}: {value}" for key, value in found["facts"].items())
    return "\n".join([*lines, "", facts_line, ""])


def _cell(row: dict[str, Any], key: str, digits: int) -> str:
    return f"{row[key]:.{digits}f}" if key in row else "–"


def main(given: Sequence[str] | None = None) -> None:
    """Measure the models in turn; what is done is written after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of models, with commas")
    parser.add_argument("--seconds", type=float, default=8.0, help="of timed steps for each model")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--fallback", default="inductor")
    parser.add_argument("--unchecked", action="store_true", help="indices are taken as they come")
    parser.add_argument("--tune", default="off", help="how our kernels are chosen")
    parser.add_argument("--kernels", type=int, default=0, help="how many to print of each")
    parser.add_argument("--out", type=Path, default=Path())
    chosen = parser.parse_args(given)
    logging.basicConfig(level=logging.WARNING)
    options = {"fallback": chosen.fallback, "unchecked_indices": chosen.unchecked}
    options["tune"] = chosen.tune
    known = cases(chosen.size)
    names = chosen.only.split(",") if chosen.only else list(known)
    found: dict[str, Any] = {"facts": facts(), "size": chosen.size, "options": options}
    found["models"] = {}
    chosen.out.mkdir(parents=True, exist_ok=True)
    pools = {each: ProcessPoolExecutor(1, get_context("spawn")) for each in CONTENDERS}
    for name in names:
        print(name, flush=True)
        found["models"][name] = measure(
            pools, name, chosen.size, options, chosen.seconds, chosen.kernels
        )
        (chosen.out / "training.json").write_text(json.dumps(found, indent=1) + "\n")
        (chosen.out / "training.md").write_text(page(found))
    for pool in pools.values():
        pool.shutdown()
    print(page(found))


if __name__ == "__main__":
    main()
