"""One model: made, run in torch, built and compared.

A model that cannot be made small, that does not run on inputs which nobody wrote for it, or that
torch.export itself refuses says nothing of aotc: it is listed with its reason and not counted.
"""

from __future__ import annotations

import copy
import importlib.machinery
import math
import sys
import tempfile
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aotc.aot.capture.golden import golden_tensors
from aotc.aot.errors import ExportFailed, GoldenMismatch, ModelRaised, UnsupportedError
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.aot.tasks.workers import Workers
from aotc.runtime import load

RIGHT, WRONG, REFUSED, BROKEN = "right", "wrong", "refused", "broken"
NOT_EXPORTED, NOT_RUN, NOT_MADE = "not exported", "not run", "not made"
UNJUDGED = "not judged"  # eager itself is far from the numbers in f64
COUNTED = (RIGHT, WRONG, REFUSED, BROKEN)
EAGERS_DISTANCE = 10  # times eager's own distance from f64
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# Of the largest element of an output: some roundings of 16-bit types, where nothing runs in f64.
LEAST_TOLERANCES = {"f32": 1e-4, "bf16": 2.0**-6, "f16": 2.0**-9}
# How far eager may be from f64 for that to judge: farther off it has drawn or chosen otherwise.
FARTHEST = {"f32": 1e-2, "bf16": 2.0**-2, "f16": 2.0**-4}
MODULE = "aotc_breadth_subject"
TENSORS_LIMIT = 60_000_000  # elements of weights
TIES = "equal scores: as eager with stable sorts"
OTHERWISE = "eager in f32 draws or chooses otherwise than in f64: beside eager's numbers"
Run = Callable[[Callable[[], Any]], Sequence[torch.Tensor]]
Made = tuple[torch.nn.Module, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one model."""

    name: str
    kind: str  # its class
    verdict: str
    reason: str = ""
    difference: float = 0.0  # the largest one, of its output's scale
    eager: float = 0.0  # eager's own from f64
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


class NotMade(Exception):
    """The library does not make this model from a config alone."""


class NotRun(Exception):
    """The model takes none of the inputs that were tried."""


def judged(
    name: str, make: Callable[[str], Made], setting: Mapping[str, Any], staff: Workers
) -> Outcome:
    """What becomes of the model that `make` gives for a name, with its keyword arguments."""
    started = time.perf_counter()
    kind = ""
    try:
        model, arguments = _in_dtype(*_made(name, make), DTYPES[setting["dtype"]])
        kind = type(model).__name__
        difference, eager, reason = _compared(model, arguments, setting, staff)
        verdict = RIGHT if _is_close(difference, eager, setting) else WRONG
        if reason == OTHERWISE and verdict == WRONG:
            verdict, reason = UNJUDGED, f"{reason}, and ours are {difference:.2g} from eager's"
        elif verdict == WRONG:
            reason = f"max error {difference:.2g} relative to max |expected|"
        found = Outcome(name, kind, verdict, reason, difference, eager)
    except NotMade as error:
        found = Outcome(name, kind, NOT_MADE, str(error))
    except (NotRun, ModelRaised) as error:
        found = Outcome(name, kind, NOT_RUN, _line(error))
    except ExportFailed as error:
        found = Outcome(name, kind, NOT_EXPORTED, _line(error))
    except UnsupportedError as error:
        found = Outcome(name, kind, REFUSED, f"{type(error).__name__}: {_line(error)}")
    except GoldenMismatch as error:
        found = Outcome(name, kind, WRONG, _line(error), error.difference)
    except Exception as error:
        found = Outcome(name, kind, BROKEN, f"{type(error).__name__}: {_line(error)}")
    finally:
        sys.modules.pop(MODULE, None)
    return Outcome(**{**found.record(), "seconds": round(time.perf_counter() - started, 1)})


def _made(name: str, make: Callable[[str], Made]) -> Made:
    try:
        return make(name)
    except (NotMade, NotRun):
        raise
    except Exception as error:  # of the library, or of what shrinks its configs
        raise NotMade(f"{type(error).__name__}: {error}") from error


def _in_dtype(model: torch.nn.Module, arguments: Mapping[str, Any], dtype: torch.dtype) -> Made:
    """The model and its inputs with all floats of one type."""
    if dtype == torch.float32:
        return model, arguments
    return model.to(dtype), pytree.tree_map_only(
        torch.Tensor, lambda each: each.to(dtype) if each.is_floating_point() else each, arguments
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _compared(
    model: torch.nn.Module, arguments: Mapping[str, Any], setting: Mapping[str, Any], staff: Workers
) -> tuple[float, float, str]:
    """Largest difference of the bundle's and of eager's numbers from those in f64, and a remark.

    Eager leaves the order of equal elements open in its sorts and top-k, and ours keeps it: what
    differs from eager is compared with eager that keeps it too, and the remark says so. Where eager
    is far from its own numbers in f64, the difference is that from eager's.
    """
    found = _found(model, arguments, setting, staff)
    *plain, apart = _differences(found, model, arguments, _tensors_of)
    if _is_close(*plain, setting):
        return *plain, ""
    *stable, stably_apart = _differences(found, model, arguments, golden_tensors)
    if _is_close(*stable, setting):
        return *stable, TIES
    if min(plain[1], stable[1]) > FARTHEST[setting["dtype"]]:
        return min(apart, stably_apart), min(plain[1], stable[1]), OTHERWISE
    return *plain, ""


def _is_close(difference: float, eager: float, setting: Mapping[str, Any]) -> bool:
    """Whether a difference is one of roundings; eager's own distance counts where it is such."""
    least, farthest = LEAST_TOLERANCES[setting["dtype"]], FARTHEST[setting["dtype"]]
    return difference <= max(least, EAGERS_DISTANCE * eager if eager <= farthest else 0.0)


def _differences(
    found: Sequence[torch.Tensor],
    model: torch.nn.Module,
    arguments: Mapping[str, Any],
    run: Run,
) -> tuple[float, float, float]:
    """Largest difference from f64 of what was found, and of eager, by one way to run eager; and of
    the first from the second."""
    with torch.no_grad():
        expected = list(run(lambda: copy.deepcopy(model)(**copy.deepcopy(arguments))))
        precise = _precise(model, arguments, expected, run)
    if len(found) != len(expected):
        raise AssertionError(f"{len(found)} tensors, expected {len(expected)}")
    ours = max((_distance(*pair) for pair in zip(found, precise, strict=True)), default=0.0)
    eagers = max((_distance(*pair) for pair in zip(expected, precise, strict=True)), default=0.0)
    apart = max((_distance(*pair) for pair in zip(found, expected, strict=True)), default=0.0)
    return ours, eagers, apart


def _tensors_of(call: Callable[[], Any]) -> Sequence[torch.Tensor]:
    return _tensors(call())


def _found(
    model: torch.nn.Module, arguments: Mapping[str, Any], setting: Mapping[str, Any], staff: Workers
) -> list[torch.Tensor]:
    """What the bundle gives."""
    subject = types.ModuleType(MODULE)
    subject.__spec__ = importlib.machinery.ModuleSpec(MODULE, None)
    subject.model, subject.example_inputs = model, dict(arguments)  # type: ignore[attr-defined]
    sys.modules[MODULE] = subject
    with tempfile.TemporaryDirectory() as folder:
        options = BuildOptions(Path(setting["cache_dir"]), tune=setting["tune"])
        out = Path(folder) / "bundle"
        build(f"{MODULE}:model", out, [setting["target"]], options, executor=staff)
        with load(out) as program:
            given = _on(setting["target"], arguments)
            return [torch.as_tensor(each).cpu().clone() for each in _arrays(program(**given))]


def _on(target: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    device = "cuda" if target.startswith("cuda") else "cpu"
    return pytree.tree_map_only(torch.Tensor, lambda each: each.to(device), dict(arguments))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]


def _arrays(value: Any) -> list[Any]:
    """The arrays of a program's answer, in order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [array for each in value for array in _arrays(each)]
    return [value] if hasattr(value, "shape") else []


def _precise(
    model: torch.nn.Module, arguments: Mapping[str, Any], expected: list[torch.Tensor], run: Run
) -> list[torch.Tensor]:
    """The model's numbers in f64, where it runs so; else eager's own."""

    def wide(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.double() if tensor.is_floating_point() else tensor.clone()

    try:
        given = pytree.tree_map_only(torch.Tensor, wide, dict(arguments))
        found = list(run(lambda: copy.deepcopy(model).double()(**given)))
    except Exception:  # some element type of the model's own
        return expected
    shapes = [each.shape for each in found]
    return found if shapes == [each.shape for each in expected] else expected


def _distance(found: torch.Tensor, precise: torch.Tensor) -> float:
    """Of the largest finite element; infinite where one is finite and the other is not."""
    if found.shape != precise.shape:
        return math.inf
    left, right = found.double(), precise.double()
    is_same = (left == right) | (left.isnan() & right.isnan())
    left, right = left[~is_same], right[~is_same]
    if not left.numel():
        return 0.0
    if not (left.isfinite() & right.isfinite()).all():
        return math.inf
    finite = precise.double()[precise.isfinite()].abs()
    return float((left - right).abs().max() / finite.max().clamp(min=1e-30))
