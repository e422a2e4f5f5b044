"""One model of the zoo: built, compared with eager, and what was found of it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aotc.runtime import load
from benchmarks.zoo.row import Row

ROOT = Path(__file__).resolve().parents[2]
PEERS = ("eager", "compile", "aoti")
TOLERANCE = 1e-4  # of an f32 output's scale, from eager's
_SPEC = """\
import sys

sys.path.insert(0, {root!r})
from benchmarks.zoo.table import ZOO


def build_model():
    return ZOO[{name!r}].model({is_full})


def example_inputs():
    return ZOO[{name!r}].example({is_full})
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What was found about one model at one size."""

    name: str
    refused: str = ""  # why there is no bundle; nothing below holds then
    difference: float = 0.0  # largest one of an output from eager, relative to its scale
    is_correct: bool = False
    kernels: int = 0
    launches: int = 0
    build_seconds: float = 0.0
    forward_us: dict[str, float] = field(default_factory=dict)  # contender → median
    skipped: dict[str, str] = field(default_factory=dict)  # contender → why
    facts: dict[str, str] = field(default_factory=dict)  # what it was measured on

    def best_peer_us(self) -> float | None:
        """The fastest of torch's ways."""
        found = [self.forward_us[peer] for peer in PEERS if peer in self.forward_us]
        return min(found) if found else None

    def speedup(self) -> float | None:
        """The fastest of torch's ways relative to ours."""
        best = self.best_peer_us()
        return best / self.forward_us["aotc"] if best and "aotc" in self.forward_us else None

    def record(self) -> dict[str, Any]:
        """The figures as plain data."""
        return asdict(self)


def write_spec(row: Row, is_full: bool, folder: Path) -> Path:
    """A SPEC file of the model, as `aotc build` takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{row.name}.py"
    path.write_text(_SPEC.format(root=str(ROOT), name=row.name, is_full=is_full))
    return path


def build_and_compare(row: Row, is_full: bool, folder: Path) -> Figures:
    """The model's bundle at `folder`, and how far it is from eager; nothing is timed."""
    spec, bundle = write_spec(row, is_full, folder), folder / row.name
    report = _build(spec, bundle)
    if "refused" in report:
        return Figures(row.name, refused=report["refused"])
    launches = sum(target["launches"] for target in report["targets"])
    built = (report["kernels"], launches, report["seconds"])
    checks = [check for target in report["targets"] for check in target["checks"]]
    tolerance = max((check["tolerance"] for check in checks), default=TOLERANCE)
    return Figures(row.name, "", *compare_with_eager(spec, bundle, tolerance), *built)


def _build(spec: Path, bundle: Path) -> dict[str, Any]:
    command = ["-m", "aotc.aot.cli", "build", str(spec), "-o", str(bundle), "--json", "--quiet"]
    command.append("--force")  # what a build left that was cut off
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    lines = done.stdout.splitlines() or [""]
    answer: dict[str, Any] = json.loads(done.stdout) if lines[0].startswith("{") else {}
    if done.returncode == 0:
        return answer
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    message = answer.get("error", {}).get("message") or (errors or [done.stderr[-300:]])[0]
    return {"refused": " ".join(message.removeprefix("error: ").split())}


def compare_with_eager(
    spec: Path, bundle: Path, tolerance: float = TOLERANCE
) -> tuple[float, bool]:
    """The largest difference from eager, and whether all outputs are as close and as named."""
    import torch

    from aotc.aot.capture.spec import load_spec

    loaded = load_spec(str(spec))
    assert loaded.module is not None
    with torch.no_grad():
        wanted = loaded.module(*loaded.arguments, **loaded.keyword_arguments)
    with load(bundle) as program:
        found = program(*loaded.arguments, **loaded.keyword_arguments)
    differences = list(_differences(found, wanted))
    largest = max(differences)
    return largest, largest <= tolerance and _names(found) == _names(wanted)


def _names(result: Any) -> list[str]:
    return list(result) if isinstance(result, dict) else []


def _differences(found: Any, wanted: Any) -> Iterator[float]:
    """Difference of each output relative to its scale; an output of zeros proves nothing."""
    import torch

    if isinstance(wanted, torch.Tensor):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        distance = (found.double() - wanted.double()).abs().max().item()
        scale = wanted.double().abs().max().item()
        yield distance / scale if scale else math.inf
    elif isinstance(wanted, dict):
        for name, value in wanted.items():
            yield from _differences(found[name], value)
    elif isinstance(wanted, tuple | list):
        for left, right in zip(found, wanted, strict=True):
            yield from _differences(left, right)
