"""The architectures of transformers: every row of its own table of models, at a small size."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from benchmarks.breadth.inputs import Examples
from benchmarks.breadth.judge import TENSORS_LIMIT, Made, NotMade, NotRun
from benchmarks.breadth.shrink import small

SEED = 0


def names() -> list[str]:
    """The model types that have a model class, in the library's order."""
    table = importlib.import_module("transformers.models.auto.modeling_auto")
    return list(table.MODEL_MAPPING_NAMES)


def make(name: str) -> Made:
    """A small model of this type with random weights, and inputs on which it runs."""
    import transformers

    transformers.logging.set_verbosity_error()
    try:
        full = transformers.CONFIG_MAPPING[name]()
    except Exception as error:
        raise NotMade(f"its config has no defaults: {type(error).__name__}: {error}") from error
    reasons = []
    for config in _configs(full, reasons):
        try:
            model = _model(config, name)
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
            continue
        found = _inputs(model, config, reasons)
        if found is not None:
            return model, found
    kind = NotRun if any(each.startswith("run: ") for each in reasons) else NotMade
    raise kind("; ".join(dict.fromkeys(reasons))[:600])


def _configs(full: Any, reasons: list[str]) -> Iterator[Any]:
    """The config with all sizes small, with small depth alone, and as it is."""
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: small(full),
        lambda: small(full, has_sections=True),
        lambda: small(full, keep_widths=True),
        lambda: copy.deepcopy(full),
    )
    for attempt in attempts:
        try:
            config = attempt()
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
            continue
        for part in (config, *(each for each in vars(config).values() if hasattr(each, "to_dict"))):
            if getattr(part, "use_cache", None):
                part.use_cache = False
        yield config


def _model(config: Any, name: str) -> torch.nn.Module:
    import transformers

    kind = transformers.MODEL_MAPPING[type(config)]
    kind = kind[0] if isinstance(kind, list | tuple) else kind
    with torch.device("meta"):
        size = sum(each.numel() for each in kind(copy.deepcopy(config)).parameters())
    if size > TENSORS_LIMIT:
        raise NotMade(f"{size / 1e6:.0f} million weights")
    torch.manual_seed(SEED)
    model: torch.nn.Module = kind(config).eval().float()
    return model


def _inputs(model: torch.nn.Module, config: Any, reasons: list[str]) -> Mapping[str, Any] | None:
    for arguments in Examples(config).sets(model):
        try:
            with torch.no_grad():
                copy.deepcopy(model)(**copy.deepcopy(arguments))
        except Exception as error:
            given = ", ".join(arguments)
            reasons.append(f"run: ({given}) {type(error).__name__}: {error}"[:200])
            continue
        return arguments
    return None
