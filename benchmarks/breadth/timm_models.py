"""The families of timm: the first model of each that is small, at a small image."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.breadth.judge import TENSORS_LIMIT, Made, NotMade, NotRun

SEED, SIDES = 0, (64, 96, 224)
SMALL = ("atto", "femto", "pico", "nano", "_xxs", "_xs", "tiny", "_t", "mini", "small", "_s", "18")


def names() -> list[str]:
    """One model a module of timm, the one whose name says that it is the smallest."""
    timm = importlib.import_module("timm")
    found = []
    for family in timm.list_modules():
        models = timm.list_models(module=family)
        if models:
            found.append(min(models, key=_size))
    return found


def _size(name: str) -> tuple[int, int, str]:
    rank = next((at for at, word in enumerate(SMALL) if word in name), len(SMALL))
    return rank, len(name), name


def make(name: str) -> Made:
    """The model with random weights, and the smallest image that it takes."""
    timm = importlib.import_module("timm")
    reasons: list[str] = []
    for side in SIDES:
        for options in ({"img_size": side}, {}):
            try:
                torch.manual_seed(SEED)
                model = timm.create_model(name, pretrained=False, **options).eval()
                if sum(each.numel() for each in model.parameters()) > TENSORS_LIMIT:
                    raise NotMade("too large")
                arguments = _image(model, side)
                with torch.no_grad():
                    model(**arguments)
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {error}"[:200])
                continue
            return model, arguments
    raise NotRun("; ".join(dict.fromkeys(reasons)))


def _image(model: torch.nn.Module, side: int) -> Mapping[str, Any]:
    channels = model.default_cfg.get("input_size", (3,))[0]  # type: ignore[union-attr, operator]
    generator = torch.Generator().manual_seed(SEED)
    return {"x": torch.randn(2, channels, side, side, generator=generator)}
