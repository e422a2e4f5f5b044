"""A spec for a model in Python: a class, an instance or a function, in a file or an installed
module."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import inspect
import os
import sys
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from aotc.aot.capture.spec import FunctionModule
from aotc.aot.capture.user_code import guarded, import_file, import_module
from aotc.aot.errors import SpecModelInvalid
from aotc.aot.init.errors import (
    InitArgumentInvalid,
    InitArgumentsMissing,
    InitIsSpec,
    InitModelAbsent,
    InitModelUnclear,
    model_not_understood,
)
from aotc.aot.init.inputs import Example, arguments_of, inputs_of
from aotc.aot.init.written import Written, dims_text, literal

MODEL_NAMES = ("model", "build_model")


def python_spec(
    text: str, out: Path, arguments: Mapping[str, Any], given: Mapping[str, Example]
) -> Written:
    """The spec of `FILE.py[:NAME]` or `PACKAGE.MODULE:NAME`, to be written at `out`.

    arguments: of the class or function, by name. given: example inputs that the user described.
    Raises a `SpecError`.
    """
    location, _, name = text.partition(":")
    if location.endswith(".py"):
        module = import_file(Path(location))
        _refuse_spec(module, location)
    elif name and all(part.isidentifier() for part in location.split(".")):
        module = import_module(location)
    else:
        raise model_not_understood(text)
    name = name or _only_model(module, location)
    model = _made(module, location, name, arguments)
    examples = inputs_of(model, _callee(model, name), dict(given))
    return Written(
        _text(text, module, location, name, out, arguments, model, examples),
        f"`{name}` of {location}",
        sum(parameter.numel() for parameter in model.parameters()),
        {each: str(example) for each, example in examples.items()},
        sorted({example.source for example in examples.values() if example.source}),
    )


def _refuse_spec(module: ModuleType, path: str) -> None:
    for name in ("example_inputs", "entry_points"):
        if hasattr(module, name):
            raise InitIsSpec(path=path, name=name)


def _only_model(module: ModuleType, path: str) -> str:
    """The one model of a file: `model`, `build_model`, or the one class that no other uses."""
    for name in MODEL_NAMES:
        if hasattr(module, name):
            return name
    classes = _classes(module)
    roots = [name for name in classes if name not in _used_by_others(module, classes)]
    if len(roots) == 1:
        return roots[0]
    if not classes:
        wanted = "model, `build_model` or class of torch.nn.Module"
        raise InitModelAbsent(path=path, wanted=wanted, known="")
    names = ", ".join(f"`{name}`" for name in roots or classes)
    raise InitModelUnclear(path=path, found=f"the models {names}")


def _classes(module: ModuleType) -> list[str]:
    """The classes of modules that are defined there."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, nn.Module)
        and value.__module__ == module.__name__
    ]


def _used_by_others(module: ModuleType, classes: Sequence[str]) -> set[str]:
    """Those that the text of another class or function names."""
    tree = ast.parse(inspect.getsource(module))
    used = set()
    for each in tree.body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef):
            names = {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
            used |= names & set(classes) - {each.name}
    return used


def _made(module: ModuleType, path: str, name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The model; raises `InitModelAbsent`, `InitArgumentsMissing` and what the user's code does."""
    if not hasattr(module, name):
        raise InitModelAbsent(path=path, wanted=f"`{name}`", known=_known(module, name))
    found = getattr(module, name)
    is_class = inspect.isclass(found) and issubclass(found, nn.Module)
    if is_class or (inspect.isfunction(found) and name.startswith("build_")):
        _check_arguments(found, name, arguments)
        found = guarded(lambda: found(**arguments), path, f"`{_call(name, arguments)}` ran")
    elif arguments:
        detail = f"`{name}` is not a class and no `build_…` function, expected no arguments"
        raise InitArgumentInvalid(option="--argument", text=next(iter(arguments)), detail=detail)
    if isinstance(found, nn.Module):
        return found.eval()
    if inspect.isfunction(found):
        return FunctionModule(found)
    kind = f"class {found.__name__}" if inspect.isclass(found) else type(found).__name__
    raise SpecModelInvalid(name=name, path=path, found=kind)


def _known(module: ModuleType, name: str) -> str:
    """What a name was likely meant to be, as the beginning of a hint; empty where nothing is."""
    near = difflib.get_close_matches(name, dir(module), n=1)
    if near:
        return f"did you mean `{near[0]}`? "
    own = [*_classes(module), *(each for each in MODEL_NAMES if hasattr(module, each))]
    return f"it has {', '.join(f'`{each}`' for each in own)}; " if own else ""


def _check_arguments(maker: Any, name: str, arguments: Mapping[str, Any]) -> None:
    signature = inspect.signature(maker)
    rows = signature.parameters.values()
    missing = [
        row
        for row in rows
        if row.default is row.empty
        and row.kind not in (row.VAR_POSITIONAL, row.VAR_KEYWORD)
        and row.name not in arguments
    ]
    takes_any = any(row.kind is row.VAR_KEYWORD for row in rows)
    for each in arguments:
        if each not in signature.parameters and not takes_any:
            detail = f"`{name}{signature}` has no such parameter"
            raise InitArgumentInvalid(option="--argument", text=each, detail=detail)
    if missing:
        words = ", ".join(f"`{row}`" for row in missing)
        advice = _advice_on(missing)
        raise InitArgumentsMissing(name=name, signature=signature, detail=words, advice=advice)


def _advice_on(missing: Sequence[inspect.Parameter]) -> str:
    """How objects are given, as the end of a hint; empty where no parameter takes one."""
    if not any(row.name == "config" or _is_object(row.annotation) for row in missing):
        return ""
    made = "a function `build_model` in a file can make one"
    return f"; an object is none of its values: {made}, or a folder with `config.json` names it"


def _is_object(annotation: Any) -> bool:
    """Whether a parameter's type is a class that no literal of Python makes."""
    if isinstance(annotation, str):
        name = annotation.rpartition(".")[2]
        return name.isidentifier() and name[0].isupper() and not hasattr(typing, name)
    return inspect.isclass(annotation) and annotation.__module__ not in ("builtins", "inspect")


def _callee(model: nn.Module, name: str) -> str:
    return name if isinstance(model, FunctionModule) else f"{type(model).__name__}.forward"


def _text(
    text: str,
    module: ModuleType,
    location: str,
    name: str,
    out: Path,
    arguments: Mapping[str, Any],
    model: nn.Module,
    examples: Mapping[str, Example],
) -> str:
    imports, reached = _import(module, location, name, out)
    found = getattr(module, name)
    is_model = isinstance(found, nn.Module) or isinstance(model, FunctionModule)
    lines = [f'"""`{name}` of {_shown(location)}, for `aotc build`; written by `aotc init`."""', ""]
    lines += imports
    if is_model:
        lines += ["", f"model = {reached}"] if reached != "model" else []
    else:
        lines += [
            "",
            "",
            "def build_model():",
            f"    found = {_call(reached, arguments)}",
            "    # trained weights: found.load_state_dict(torch.load(FILE, weights_only=True))",
            "    return found",
            "",
        ]
    guessed = [example for example in examples.values() if example.source]
    lines += ["", *_note(guessed), *_inputs_lines(model, examples), ""]
    lines += dims_text({each: example.shape for each, example in examples.items() if example.shape})
    return "\n".join(lines).rstrip() + "\n"


def _note(guessed: Sequence[Example]) -> list[str]:
    if not guessed:
        return []
    sources = "; ".join(sorted({example.source for example in guessed}))
    return [f"# Sizes that the model runs on ({sources}); put those of your data here."]


def _inputs_lines(model: nn.Module, examples: Mapping[str, Example]) -> list[str]:
    try:
        signature = inspect.signature(model.forward)
    except ValueError:
        signature = inspect.Signature()
    by_place, _ = arguments_of(signature, dict(examples))
    if by_place or not examples:
        lines = [f"    {example.text()}," for example in examples.values()]
        return ["example_inputs = (", *lines, ")"] if lines else ["example_inputs = ()"]
    rows = [f"    {name!r}: {example.text()},".replace("'", '"', 2)
            for name, example in examples.items()]  # fmt: skip
    return ["example_inputs = {", *rows, "}"]


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _shown(location: str) -> str:
    return location.replace("\\", "/").replace('"', "'")


def _import(module: ModuleType, location: str, name: str, out: Path) -> tuple[list[str], str]:
    """Lines that import the model, and how they reach it. A spec's own folder is on the path."""
    if not location.endswith(".py"):
        return ["import torch", "", f"from {location} import {name}"], name
    path, folder = Path(location).resolve(), Path(os.path.realpath(out)).parent
    if path.parent == folder and _is_free(path.stem, path):
        return ["import torch", "", f"from {path.stem} import {name}"], name
    try:
        place = f"Path(__file__).resolve().parent / {literal(str(path.relative_to(folder)))}"
    except ValueError:
        place = f"Path({literal(str(path))})"
    return [
        "from pathlib import Path",
        "",
        "import torch",
        "",
        "from aotc.aot.capture.user_code import import_file",
        "",
        f"module = import_file({place})",
    ], f"module.{name}"


def _is_free(stem: str, path: Path) -> bool:
    """Whether `import stem`, in the file's folder, is that file, whatever else is installed."""
    if not stem.isidentifier() or stem in sys.stdlib_module_names or stem in sys.modules:
        return False
    found = importlib.util.find_spec(stem)
    return found is None or found.origin == str(path)
