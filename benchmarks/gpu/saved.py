"""Models of the benchmark: from a spec, and saved for processes that shall not make them again.

A saved model is a folder with the pickled module and its inputs, both on the processor and in the
memory format that suits torch, and the folder of the spec that the pickle refers to.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch

Loaded = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]  # inputs by position and by name
MODEL, INPUTS, SPECS = "model.pt", "inputs.pt", "specs.txt"


def made(path: str) -> Loaded:
    """The spec's model and its example inputs, on the processor, ready for torch."""
    sys.path.insert(0, str(Path(path).resolve().parent))  # of specs that share a module
    module = importlib.import_module(Path(path).stem)
    model = module.build_model() if hasattr(module, "build_model") else module.model
    if hasattr(module, "for_torch"):  # a spec may know a form that suits torch better
        model = module.for_torch(model)
    inputs = module.example_inputs
    inputs = inputs() if callable(inputs) else inputs
    if isinstance(inputs, dict):
        return channels_last(model, (), inputs)
    return channels_last(model, tuple(inputs), {})


def channels_last(model: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Loaded:
    """A model of images in channels-last memory, its faster form; any other as it is."""
    if any(isinstance(each, torch.nn.Conv2d) for each in model.modules()):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        args = tuple(
            value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value
            for value in args
        )
    return model, args, named


def save(path: str, folder: Path) -> None:
    """Make the spec's model and save it; the folder is new or stands complete afterwards."""
    model, args, named = made(path)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model, folder / MODEL)
    torch.save((args, named), folder / INPUTS)
    (folder / SPECS).write_text(str(Path(path).resolve().parent))


def load(path: str, device: str = "cuda") -> Loaded:
    """A saved model, its file mapped into memory, or the one that a spec makes."""
    if Path(path).is_file():
        model, args, named = made(path)
        move = {name: value.to(device) for name, value in named.items()}
        return model.to(device), tuple(value.to(device) for value in args), move
    folder = Path(path)
    sys.path.insert(0, (folder / SPECS).read_text())
    model = torch.load(folder / MODEL, weights_only=False, mmap=True, map_location=device)
    args, named = torch.load(folder / INPUTS, weights_only=True, map_location=device)
    return model, args, named
