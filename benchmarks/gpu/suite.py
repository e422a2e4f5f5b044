"""The parts of the GPU benchmark: what each runs, one process a step, results as JSON files.

A step whose file is there is not run again, so that a run that was cut off goes on; the compiler
caches of all contenders lie in the same folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("build", "profile", "peers", "forward", "start", "kernels")
PEERS = ("default", "max-autotune")


@dataclass(frozen=True, slots=True)
class Model:
    """A workload: its name in files, its spec below `benchmarks/models`, its title."""

    name: str
    spec: str
    title: str

    @property
    def path(self) -> str:
        """The spec's file."""
        return str(ROOT / "benchmarks" / "models" / f"{self.spec}.py")


MODELS = (
    Model("resnet50", "resnet", "ResNet-50, batch 8"),
    Model("bert_base", "bert_base", "BERT-base, 8×128"),
    Model("vit_b16", "vit_b16", "ViT-B/16, batch 8"),
    Model("llama_prefill", "llama", "Llama 1B, prefill 1×512"),
    Model("llama_decode", "llama_decode", "Llama 1B, decode step"),
)
# Tables of kernels, by their own scripts: name → arguments of `python -m`.
KERNELS: Mapping[str, Sequence[str]] = {
    "rows": ("benchmarks.gpu.rows", "--compile", "--seconds", "150"),
    "matmul": (
        "benchmarks.gpu.matmul",
        "middle",
        "large",
        "few",
        "--seconds",
        "150",
        "--best",
        "3",
    ),
    "attention": ("benchmarks.gpu.attention",),
    "convolution": ("benchmarks.gpu.convolution", "--seconds", "120"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """A process: where its result goes, what it is about, its arguments after `python`."""

    part: str
    name: str
    command: tuple[str, ...]
    has_own_file: bool = True  # else its standard output is the result


@dataclass(slots=True)
class Suite:
    """A folder of results and caches, and a time by which everything must have ended."""

    work: Path
    seconds: float
    tune: str = "quick"
    started_s: float = field(default_factory=time.monotonic)

    def result(self, part: str, name: str) -> Path:
        """The file of a step's result."""
        return self.work / f"{part}-{name}.json"

    def bundle(self, model: Model) -> Path:
        """Where a model's bundle is built."""
        return self.work / "bundles" / model.name

    def left_s(self) -> float:
        """Seconds until everything must have ended."""
        return self.seconds - (time.monotonic() - self.started_s)

    def read(self, part: str, name: str) -> dict[str, Any]:
        """A step's result; empty when there is none."""
        path = self.result(part, name)
        if not path.is_file():
            return {}
        record: dict[str, Any] = json.loads(path.read_text())
        return record

    def run(self, step: Step) -> bool:
        """Run a step unless its result is there; whether it is there afterwards."""
        path = self.result(step.part, step.name)
        if path.is_file():
            return True
        if self.left_s() < 5:
            print(f"{step.part} {step.name}: no time left", flush=True)
            return False
        began_s = time.monotonic()
        out, code = self._process(step.command)
        seconds = time.monotonic() - began_s
        print(f"{step.part} {step.name}: {seconds:.1f} s, status {code}", flush=True)
        (self.work / f"{step.part}-{step.name}.log").write_text(out)
        if code:
            print("\n".join(out.splitlines()[-6:]), flush=True)
            return False
        if not step.has_own_file:
            start = out.find("{\n")
            record = json.loads(out[start:]) if start >= 0 else {"text": out}
            path.write_text(json.dumps({**record, "step_seconds": seconds}, indent=1) + "\n")
        return path.is_file()

    def _process(self, command: Sequence[str]) -> tuple[str, int]:
        environment = {
            **os.environ,
            "AOTC_CACHE_DIR": str(self.work / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.work / "inductor"),
            "TRITON_CACHE_DIR": str(self.work / "triton"),
        }
        process = subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            out, _ = process.communicate(timeout=max(self.left_s() - 2, 1))
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            return out + "\nout of time", 124
        return out, process.returncode


def steps(suite: Suite, part: str, models: Sequence[Model]) -> Iterator[Step]:
    """The steps of a part, in order."""
    if part == "kernels":
        for name, command in KERNELS.items():
            yield Step(part, name, ("-m", *command), has_own_file=False)
        return
    for model in models:
        yield from _STEPS[part](suite, model)


def _build(suite: Suite, model: Model) -> Iterator[Step]:
    record = suite.work / f"{model.name}.record"
    command = ("-m", "aotc.aot.cli", "build", model.path, "-o", str(suite.bundle(model)))
    options = ("--target", "cuda", "--tune", suite.tune, "--record", str(record))
    yield Step("build", model.name, (*command, *options, "--force", "--quiet", "--json"), False)


def _profile(suite: Suite, model: Model) -> Iterator[Step]:
    command = ("-m", "aotc.aot.cli", "profile", str(suite.bundle(model)), "--json")
    yield Step("profile", model.name, command, has_own_file=False)


def _peers(suite: Suite, model: Model) -> Iterator[Step]:
    """Torch compiles each model once by itself: its autotuner measures on the device too."""
    for mode in PEERS:
        name = f"{model.name}-{mode}"
        file = str(suite.result("peers", name))
        yield Step("peers", name, ("-m", "benchmarks.gpu.peers", model.path, mode, file))


def _forward(suite: Suite, model: Model) -> Iterator[Step]:
    places = (model.path, str(suite.bundle(model)), str(suite.result("forward", model.name)))
    yield Step("forward", model.name, ("-m", "benchmarks.gpu.forward", *places))


def _start(suite: Suite, model: Model) -> Iterator[Step]:
    places = (model.path, str(suite.bundle(model)), str(suite.result("start", model.name)))
    yield Step("start", model.name, ("-m", "benchmarks.gpu.starts", *places))


_STEPS = {
    "build": _build,
    "profile": _profile,
    "peers": _peers,
    "forward": _forward,
    "start": _start,
}
