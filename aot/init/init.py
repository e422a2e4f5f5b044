"""The stage behind `aotc init`: the text of a spec for a model that a user names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from aotc.aot.extensions import extension
from aotc.aot.init.errors import InitArgumentInvalid, model_not_understood
from aotc.aot.init.inputs import Example, parse_argument, parse_input
from aotc.aot.init.python_model import python_spec
from aotc.aot.init.written import Written


def init(text: str, out: Path, inputs: Sequence[str], arguments: Sequence[str]) -> Written:
    """The spec of the model that `text` names, to be written at `out`; writes nothing itself.

    inputs: `NAME=DTYPE[SIZES]` or `NAME=VALUE`; arguments: `NAME=VALUE`. Raises a `SpecError`.
    """
    given: dict[str, Example] = _by_name("--input", inputs, parse_input)
    values: dict[str, Any] = _by_name("--argument", arguments, parse_argument)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if Path(text).is_dir():
            if values:
                detail = "the folder's `config.json` says how the model is made"
                raise InitArgumentInvalid(option="--argument", text=arguments[0], detail=detail)
            found: Written = extension("aotc init FOLDER").folder_spec(Path(text), out, given)
            return found
        if text.endswith(".pt2"):
            raise model_not_understood(text)
        return python_spec(text, out, values, given)


def _by_name(option: str, texts: Sequence[str], parse: Callable[[str], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, value = parse(text)
        if name in found:
            raise InitArgumentInvalid(option=option, text=text, detail=f"`{name}` is given twice")
        found[name] = value
    return found
