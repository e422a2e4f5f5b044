"""A spec for a model of transformers in a folder with its `config.json`; nothing is downloaded, and
no code that lies in the folder is run."""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from aotc.aot.huggingface.errors import FolderInvalid, require_transformers
from aotc.aot.init.errors import InitArgumentInvalid, InitFolderUnknown, InitModelRaised
from aotc.aot.init.inputs import BATCH, LENGTH, Example, what_raised
from aotc.aot.init.written import Written, dims_text, literal

CONFIG = "config.json"
LONGEST = 2048  # tokens of a cache, where the model has learned more positions
SOURCE = 512  # tokens of a source, likewise
CONFIG_LINE = "config = AutoConfig.from_pretrained(FOLDER, local_files_only=True)"
CAUSAL = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
SEQ2SEQ = "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"
SPEECH = "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES"
_AUTO = "transformers.models.auto.modeling_auto"


def folder_spec(folder: Path, out: Path, given: Mapping[str, Example]) -> Written:
    """The spec of the model that a folder's `config.json` describes, to be written at `out`.

    With weights in the folder it reads them, else it makes the model with random ones and says so.
    Raises `FolderInvalid`, `InitFolderUnknown` and `TransformersMissing`.
    """
    require_transformers()
    config = _config(folder)
    names = getattr(config, "architectures", None) or [""]
    if not isinstance(names, list) or not isinstance(names[0], str):
        detail = f"`{CONFIG}`: `architectures` is {names!r}, expected a list of names"
        raise FolderInvalid(path=str(folder), detail=detail)
    name = names[0]
    has_weights = any(folder.glob("*.safetensors"))
    generating = (CAUSAL, SEQ2SEQ, SPEECH)
    if given and any(name in _architectures(each) for each in generating):
        detail = f"`{name}` generates: its spec has lengths, expected no example inputs"
        raise InitArgumentInvalid(option="--input", text=next(iter(given)), detail=detail)
    if name in _architectures(CAUSAL):
        return _generating(folder, out, config, name, "causal_lm", has_weights)
    if any(name in _architectures(each) for each in (SEQ2SEQ, SPEECH)):
        return _generating(folder, out, config, name, "seq2seq", has_weights)
    return _once_through(folder, out, config, name, has_weights, given)


def _config(folder: Path) -> Any:
    import transformers

    path = folder / CONFIG
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FolderInvalid(path=str(folder), detail=f"`{CONFIG}` does not exist") from None
    except OSError as error:
        detail = f"`{CONFIG}`: {(error.strerror or str(error)).lower()}"
        raise FolderInvalid(path=str(folder), detail=detail) from None
    except (ValueError, RecursionError) as error:
        raise FolderInvalid(path=str(folder), detail=f"`{CONFIG}`: {error}") from None
    if not isinstance(table, dict):
        detail = f"`{CONFIG}` holds a {type(table).__name__}, expected an object"
        raise FolderInvalid(path=str(folder), detail=detail)
    kind = table.get("model_type")
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        found = f"a model of type {kind!r}" if kind else f"a `{CONFIG}` without `model_type`"
        detail = f"transformers {transformers.__version__} does not know it"
        raise InitFolderUnknown(path=str(folder), found=found, detail=detail)
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # what a config's class raises for fields of other types
        detail = f"`{CONFIG}`: {_first_line(error)}"
        raise FolderInvalid(path=str(folder), detail=detail) from error


def _architectures(table: str) -> set[str]:
    names: set[str] = set()
    for each in getattr(importlib.import_module(_AUTO), table).values():
        names.update([each] if isinstance(each, str) else each)
    return names


def _generating(
    folder: Path, out: Path, config: Any, name: str, function: str, has_weights: bool
) -> Written:
    """A spec with `causal_lm` or `seq2seq`."""
    text_config = config.get_text_config()
    fields = ("max_position_embeddings", "max_target_positions")
    limits = [limit for field in fields if (limit := getattr(text_config, field, None))]
    length = max(2, min([*map(int, limits), LONGEST]))
    imports = [f"from aotc.aot.huggingface import {function}"]
    body, model = [], "FOLDER"
    if not has_weights:
        imports.insert(0, f"from transformers import AutoConfig, {name}\n")
        model = "random_model"
        body = [
            "# The folder has no weights: these are random.",
            CONFIG_LINE,
            f"{model} = {name}(config)",
        ]
    is_text = function == "seq2seq" and name not in _architectures(SPEECH)
    source = f", max_source={min(length, SOURCE)}" if is_text else ""
    body.append(f"model, entry_points = {function}({model}, max_length={length}{source}, batch=1)")
    notes = [f"a cache of one sequence of {length} tokens: `max_length` and `batch` of the spec"]
    return Written(
        _file(folder, out, name, imports, body),
        f"`{name}` of {folder}",
        _parameters(config, name),
        notes=[*notes, *_weights_note(has_weights)],
    )


def _once_through(
    folder: Path,
    out: Path,
    config: Any,
    name: str,
    has_weights: bool,
    given: Mapping[str, Example],
) -> Written:
    """A model that is called once an input: its class, and example inputs by its config."""
    import transformers

    maker = getattr(transformers, name, None) if name else _base_class(config)
    if maker is None or not hasattr(maker, "main_input_name"):
        found = f"the architecture `{name}`" if name else f"a model of type `{config.model_type}`"
        detail = f"transformers {transformers.__version__} has no such class"
        raise InitFolderUnknown(path=str(folder), found=found, detail=detail)
    name = maker.__name__
    _refuse_unknown(maker, _base_class(config), given)
    examples = {**_examples(folder, config, maker, given), **given}
    count = _tried(folder, config, maker, examples, given)
    reading = f"    return {name}.from_pretrained(FOLDER, local_files_only=True)"
    making = ["    # The folder has no weights: these are random.", f"    {CONFIG_LINE}"]
    lines = [reading] if has_weights else [*making, f"    return {name}(config)"]
    rows = [f'    "{each}": {example.text()},' for each, example in examples.items()]
    body = ["", "", "def build_model():", *lines, "", "", "example_inputs = {", *rows, "}", ""]
    body += dims_text({each: example.shape for each, example in examples.items() if example.shape})
    imported = name if has_weights else f"AutoConfig, {name}"
    return Written(
        _file(folder, out, name, ["import torch", f"from transformers import {imported}"], body),
        f"`{name}` of {folder}",
        count,
        {each: str(example) for each, example in examples.items()},
        [CONFIG],
        _weights_note(has_weights),
    )


def _weights_note(has_weights: bool) -> list[str]:
    return [] if has_weights else ["the folder has no *.safetensors: the weights are random"]


def _base_class(config: Any) -> Any:
    import transformers

    mapping = transformers.MODEL_MAPPING
    found = mapping.get(type(config), None)
    return found[0] if isinstance(found, tuple) else found


def _examples(
    folder: Path, config: Any, maker: Any, given: Mapping[str, Example]
) -> dict[str, Example]:
    """Example inputs of a class by the fields of its config; raises `InitFolderUnknown`."""
    parameters = inspect.signature(maker.forward).parameters
    main = maker.main_input_name
    if main == "input_ids":
        vocabulary = getattr(config.get_text_config(), "vocab_size", None)
        if vocabulary:
            found = {main: Example(torch.int64, (BATCH, LENGTH), int(vocabulary))}
            if "attention_mask" in parameters:
                found["attention_mask"] = Example(torch.int64, (BATCH, LENGTH), 2)
            return found
    if main == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        if isinstance(size, Mapping):
            size = (size["height"], size["width"])
        sizes = tuple(size) if isinstance(size, list | tuple) else (size, size)
        channels = getattr(config, "num_channels", None) or 3
        return {main: Example(torch.float32, (BATCH, int(channels), *map(int, sizes)))}
    if main == "input_values":
        return {main: Example(torch.float32, (BATCH, 16000))}
    if main in given:
        return {}
    found_text = f"`{maker.__name__}`, whose first input is `{main}`"
    detail = "no example of it is known"
    raise InitFolderUnknown(path=str(folder), found=found_text, detail=detail)


def _refuse_unknown(maker: Any, base: Any, given: Mapping[str, Example]) -> None:
    """Raise for an input that the model does not name: `**kwargs` would take and ignore it."""
    known = {"args", "kwargs", "self"}
    names = [*inspect.signature(maker.forward).parameters]
    names += [*inspect.signature(base.forward).parameters] if base is not None else []
    names = [each for each in dict.fromkeys(names) if each not in known]
    for each in given:
        if each not in names:
            near = difflib.get_close_matches(each, names, n=1) or names
            detail = f"`{maker.__name__}.forward` has no such parameter, expected one of: "
            raise InitArgumentInvalid(option="--input", text=each, detail=detail + ", ".join(near))


def _tried(
    folder: Path,
    config: Any,
    maker: Any,
    examples: Mapping[str, Example],
    given: Mapping[str, Example],
) -> int:
    """Run the model on its examples; returns how many parameters it has.

    First with tensors that have no elements; where an operation needs those, with random weights.
    """
    for device in ("meta", "cpu"):
        try:
            with torch.device(device):
                model = maker(config).eval()
        except Exception as error:
            detail = f"`{CONFIG}`: {_first_line(error)}"
            raise FolderInvalid(path=str(folder), detail=detail) from error
        try:
            with torch.no_grad():
                model(**{name: _moved(each.make(), device) for name, each in examples.items()})
            break
        except Exception as error:
            if device == "meta":
                continue
            if given:
                kind, detail, source = what_raised(error, maker)
                raise InitModelRaised(
                    name=maker.__name__, kind=kind, detail=detail, source=source
                ) from error
            detail = f"it raised on examples: {_first_line(error)}"
            found = f"`{maker.__name__}`"
            raise InitFolderUnknown(path=str(folder), found=found, detail=detail) from error
    return sum(parameter.numel() for parameter in model.parameters())


def _moved(value: Any, device: str) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no text').splitlines()[0]}"


def _parameters(config: Any, name: str) -> int:
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _file(folder: Path, out: Path, name: str, imports: list[str], body: list[str]) -> str:
    """The spec's text, with the folder by its path from the spec where it lies beside it."""
    beside = _beside(folder, out)
    if beside is None:
        place, paths = literal(str(folder.resolve())), []
    else:
        below = "" if beside == "." else f" / {literal(beside)}"
        place, paths = f"Path(__file__).resolve().parent{below}", ["from pathlib import Path", ""]
    title = f'"""`{name}` of transformers, for `aotc build`; written by `aotc init`."""'
    lines = [title, "", *paths, *imports, "", f"FOLDER = {place}", *body]
    return "\n".join(lines).rstrip() + "\n"


def _beside(folder: Path, out: Path) -> str | None:
    """The folder from the spec's own, where it lies in that; None elsewhere."""
    try:
        return str(folder.resolve().relative_to(Path(os.path.realpath(out)).parent))
    except ValueError:
        return None
