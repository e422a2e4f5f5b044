"""The parts of the GPU benchmark: the models, what is run of each, and how.

Compiling comes first, all contenders and models side by side: it needs processors, and every
measurement of an autotuner, ours or torch's, waits until it has the device for itself. What is
published is measured afterwards, by one process at a time on a machine that does nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.suite import ROOT, Step, Suite

PEERS_NICENESS = 5
RESERVE_SECONDS = 30.0  # of each model: what measuring it takes once it is compiled


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


# ResNet-50 first: torch's autotuner takes longest for it, and the others give way to it.
MODELS = (
    Model("resnet50", "resnet", "ResNet-50, batch 8"),
    Model("bert_base", "bert_base", "BERT-base, 8×128"),
    Model("vit_b16", "vit_b16", "ViT-B/16, batch 8"),
    Model("llama_prefill", "llama", "Llama 1B, prefill 1×512"),
    Model("llama_decode", "llama_decode", "Llama 1B, decode step"),
)
# Tables of kernels, by their own scripts: name → arguments of `python -m`.
KERNELS: Mapping[str, tuple[str, ...]] = {
    "rows": ("benchmarks.gpu.rows", "--compile", "--seconds", "150"),
    "matmul": ("benchmarks.gpu.matmul", "middle", "large", "few", "--seconds", "150"),
    "attention": ("benchmarks.gpu.attention", "--summary"),
    "convolution": ("benchmarks.gpu.convolution", "--seconds", "120"),
}


def bundle(suite: Suite, model: Model) -> Path:
    """Where a model's bundle is built."""
    return suite.work / "bundles" / model.name


def saved(suite: Suite, model: Model) -> Path:
    """Where torch's model is saved."""
    return suite.work / "models" / model.name


def record(suite: Suite, model: Model, device: str) -> Path:
    """The tuning record of a model, one of those that `shipped_record.py` merges."""
    return suite.work / f"{model.spec}-{device}.txt"


def _compile(suite: Suite, models: Sequence[Model]) -> None:
    """Bundles and torch's compilations, side by side."""
    from aotc.aot.tasks.task import device_word
    from benchmarks.gpu.machine import query

    device = device_word(query("name"))
    steps = [
        *(_peers(suite, model) for model in models),
        *(_build(suite, model, device) for model in models),
    ]
    suite.together(steps, RESERVE_SECONDS * len(models))


def _build(suite: Suite, model: Model, device: str) -> Step:
    command = ("-m", "aotc.aot.cli", "build", model.path, "-o", str(bundle(suite, model)))
    options = ("--target", "cuda", "--tune", suite.tune, "--jobs", str(_share(5)))
    record_options = ("--record", str(record(suite, model, device)))
    shown = ("--force", "--quiet", "--json")
    words = (*command, *options, *record_options, *shown)
    return Step("build", model.name, words, has_own_file=False, settings=_threads())


def _peers(suite: Suite, model: Model) -> Step:
    places = (model.path, str(saved(suite, model)), str(suite.result("peers", model.name)))
    is_first = model is MODELS[0]
    compilers = _share(2) if is_first else _share(4)
    return Step(
        "peers",
        model.name,
        ("-m", "benchmarks.gpu.peers", *places),
        niceness=0 if is_first else PEERS_NICENESS,
        settings=_threads(compilers),
    )


def _share(parts: int) -> int:
    """That part of the processors that this process may run on, or two of them."""
    return max(2, len(os.sched_getaffinity(0)) // parts)


def _threads(compilers: int = 2) -> dict[str, str]:
    """For processes that run side by side: processes of Inductor, threads of torch."""
    threads = str(_share(8))
    return {"TORCHINDUCTOR_COMPILE_THREADS": str(compilers), "OMP_NUM_THREADS": threads}


def _forward(suite: Suite, models: Sequence[Model]) -> None:
    steps = []
    for model in _built(suite, models):
        out = str(suite.result("forward", model.name))
        places = (_theirs(suite, model), str(bundle(suite, model)), out)
        modes = ",".join(suite.read("peers", model.name).get("seconds", {}))
        command = ("-m", "benchmarks.gpu.forward", *places, "--wait", f"--modes={modes}")
        steps.append(Step("forward", model.name, command, settings=_threads()))
    suite.in_turns(steps)


def _start(suite: Suite, models: Sequence[Model]) -> None:
    suite.one_by_one([
        _start_step(suite, model, "start", ("aotc", "eager")) for model in _built(suite, models)
    ])  # fmt: skip


def _start_compiled(suite: Suite, models: Sequence[Model]) -> None:
    suite.one_by_one(
        [
            _start_step(suite, model, "start_compiled", ("compile", "max-autotune"))
            for model in _built(suite, models)
        ]
    )


def _start_step(suite: Suite, model: Model, part: str, kinds: tuple[str, ...]) -> Step:
    out = str(suite.result(part, model.name))
    places = (_theirs(suite, model), str(bundle(suite, model)), out)
    return Step(part, model.name, ("-m", "benchmarks.gpu.startup", *places, *kinds))


def _lower_bounds(suite: Suite, models: Sequence[Model]) -> None:
    suite.one_by_one([
        Step("floors", model.name, (
            "-m", "benchmarks.gpu.lower_bounds", str(bundle(suite, model)),
            str(suite.result("floors", model.name)),
        ))
        for model in _built(suite, models)
    ])  # fmt: skip


def _kernels(suite: Suite, models: Sequence[Model]) -> None:
    suite.one_by_one(
        [Step("kernels", name, ("-m", *command), False) for name, command in KERNELS.items()]
    )


def _built(suite: Suite, models: Sequence[Model]) -> list[Model]:
    return [model for model in models if bundle(suite, model).is_dir()]


def _theirs(suite: Suite, model: Model) -> str:
    """The saved model, or its spec where saving has failed."""
    folder = saved(suite, model)
    return str(folder) if folder.is_dir() else model.path


# In the order of their run; the kernels' tables, minutes each, only where they are asked for.
PARTS: Mapping[str, Callable[[Suite, Sequence[Model]], None]] = {
    "compile": _compile,
    "forward": _forward,
    "start": _start,
    "floors": _lower_bounds,
    "start_compiled": _start_compiled,
    "kernels": _kernels,
}
USUAL = tuple(part for part in PARTS if part != "kernels")
