"""The examples through every contender: build time, first result, forward."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotc.aot.cli import contender as contender_program
from aotc.aot.cli.contest import Contender

FORWARD_KINDS = ("aotc", "eager", "compile", "aoti")
DEPLOYED_KINDS = ("aotc", "aoti")
BUNDLE = "bundle"
SECONDS_A_TURN = 0.25
_FIRST_RESULT = {
    "aotc": """
from aotc import runtime
program = runtime.load({place!r})
sizes = {{"f32": (4, "f"), "i64": (8, "q"), "bool": (1, "?"), "bf16": (2, "H"), "i32": (4, "i")}}
inputs = []
for each in program.inputs:
    count = 1
    for size in each.shape:
        count *= size
    nbytes, code = sizes[each.dtype]
    inputs.append(memoryview(bytearray(count * nbytes)).cast("B").cast(code, each.shape))
program(*inputs)
""",
    "aoti": """
import torch
program = torch._inductor.aoti_load_package({place!r})
arguments, keywords = torch.load({inputs!r}, weights_only=True)
with torch.no_grad():
    program(*arguments, **keywords)
""",
}
"""A serving process that answers once; ours gets plain buffers of zeros."""


@dataclass(slots=True)
class ModelFigures:
    """Everything that was measured of one example; times in seconds."""

    name: str
    build_seconds: dict[str, float] = field(default_factory=dict)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    artifact_bytes: dict[str, int] = field(default_factory=dict)
    first_result_seconds: dict[str, list[float]] = field(default_factory=dict)
    forward_seconds: dict[str, list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def measure(spec: Path, rounds: int) -> ModelFigures:
    """Builds, starts and calls one example with every contender that this machine can run."""
    figures = ModelFigures(spec.stem)
    with tempfile.TemporaryDirectory(prefix="aotc-bench-") as name:
        folder = Path(name)
        places = {"aotc": folder / BUNDLE, "aoti": folder / contender_program.PACKAGE}
        for kind in DEPLOYED_KINDS:
            _build(figures, kind, str(spec), folder, places[kind])
        _start(figures, {k: places[k] for k in figures.build_seconds}, rounds)
        _forward(figures, str(spec), folder, rounds)
    return figures


def _build(figures: ModelFigures, kind: str, spec: str, folder: Path, place: Path) -> None:
    """A first build, with empty caches, as a whole process."""
    commands = {
        "aotc": ["-m", "aotc.aot.cli", "build", spec, "-o", str(place), "--json"],
        "aoti": ["-m", contender_program.__name__, "build-aoti", spec, str(folder), "cpu"],
    }
    environment = {
        **os.environ,
        "AOTC_CACHE_DIR": str(folder / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *commands[kind]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode or not place.exists():
        lines = [*done.stdout.strip().splitlines(), *done.stderr.strip().splitlines(), "no message"]
        figures.skipped[kind] = lines[0]
        return
    figures.build_seconds[kind] = seconds
    figures.artifact_bytes[kind] = _size(place)
    if kind == "aotc":
        stages: list[dict[str, Any]] = json.loads(done.stdout)["stages"]
        figures.stage_seconds = {row["stage"]: row["seconds"] for row in stages}


def _start(figures: ModelFigures, places: dict[str, Path], rounds: int) -> None:
    """Process start → first result, the processes taken in turns."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kind, place in places.items():
            inputs = str(place.parent / contender_program.INPUTS)
            program = _FIRST_RESULT[kind].format(place=str(place), inputs=inputs)
            start = time.perf_counter()
            command = [sys.executable, "-c", program]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
                figures.skipped[f"{kind}, first result"] = reason
            else:
                found.setdefault(kind, []).append(time.perf_counter() - start)
    figures.first_result_seconds = found


def _forward(figures: ModelFigures, spec: str, folder: Path, rounds: int) -> None:
    running = []
    for kind in FORWARD_KINDS:
        if kind in figures.skipped:
            continue
        contender = Contender(kind, spec, folder / BUNDLE if kind == "aotc" else folder)
        if "skipped" in contender.head:
            figures.skipped[kind] = contender.head["skipped"]
        else:
            running.append(contender)
    for _ in range(rounds):
        for contender in running:
            contender.sample(SECONDS_A_TURN)
    for contender in running:
        figures.forward_seconds[contender.kind] = [us / 1e6 for us in contender.times_us]
        contender.close()


def _size(artifact: Path) -> int:
    files = [artifact] if artifact.is_file() else [x for x in artifact.rglob("*") if x.is_file()]
    return sum(x.stat().st_size for x in files)
