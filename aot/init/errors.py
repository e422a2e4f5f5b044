"""Why no spec can be written for a model."""

from __future__ import annotations

import re

from aotc.aot.errors import SpecError
from aotc.aot.spec_form import is_bundle, model_folder

HUB_NAME = re.compile(
    r"[\w.-]+/[\w.-]+|\w+(-\w+)+"
)  # such as `owner/model`, or an old `some-model`


class InitModelNotUnderstood(SpecError):
    """MODEL is none of the forms that `aotc init` takes."""

    code = "init-model-form"
    template = (
        "model `{path}` is not of the form `FILE.py`, `FILE.py:NAME`, `PACKAGE.MODULE:NAME` or a"
        " folder with `config.json`"
    )
    hint = "{advice}`aotc init --help` has examples"


def model_not_understood(text: str) -> InitModelNotUnderstood:
    """The error for a word that names no model; its hint fits what is there."""
    folder = model_folder(text)
    if text.endswith(".pt2"):
        advice = f"it is an exported model, which `aotc build {text} -o BUNDLE` takes as it is; "
    elif is_bundle(text):
        advice = f"it is a bundle, which `aotc run {text}` runs; "
    elif folder is not None:
        advice = f"name the folder: `aotc init {folder}`; "
    elif HUB_NAME.fullmatch(text):
        fetched = f"`hf download {text} --local-dir FOLDER`, then `aotc init FOLDER`"
        advice = f"nothing is downloaded; for a model of the Hugging Face hub: {fetched}; "
    else:
        advice = ""
    return InitModelNotUnderstood(path=text, advice=advice)


class InitFileMissing(SpecError):
    """The file that MODEL names is not there."""

    template = "file `{path}` does not exist"
    hint = "MODEL is the file of a model's class; see `aotc init --help` for examples"


class InitModelUnclear(SpecError):
    """A file or module has several models, and none was named."""

    template = "`{path}` has {found}, expected one model"
    hint = "name it: `aotc init {path}:NAME`"


class InitModelAbsent(SpecError):
    """A file or module has no model, or none of the name that was given."""

    template = "`{path}` has no {wanted}"
    hint = (
        "{known}name a class or an instance of torch.nn.Module, or a function `build_…` that makes"
        " one"
    )


class InitArgumentsMissing(SpecError):
    """A model's class cannot be called as it is."""

    template = "`{name}{signature}` needs values: {detail}"
    hint = "give each: `--argument NAME=VALUE`{advice}"


class InitArgumentInvalid(SpecError):
    """An `--argument` or an `--input` has another form."""

    template = "`{option} {text}`: {detail}"
    hint = "as in `--argument width=64`, `--input x=f32[2,64]` or `--input 'ids=i64[2,16]<30522'`"


class InitInputsUnknown(SpecError):
    """No example inputs were found that the model takes."""

    template = "no example inputs of `{name}{signature}` were found: {tried} were tried{detail}"
    hint = "give them: `--input x=f32[2,64]`, and `--input 'ids=i64[2,16]<30522'` for integers"


class InitModelRaised(SpecError):
    """The model raised on the inputs that were given."""

    template = "`{name}` raised on its `--input`s: {kind}: {detail}\n  at {source}"
    hint = "`--input NAME=DTYPE[SIZES]` gives an array, `--input NAME=VALUE` a number or text"


class InitIsSpec(SpecError):
    """The file is a spec itself."""

    template = "`{path}` is a spec itself: it has `{name}`"
    hint = "build it as it is: `aotc build {path} -o BUNDLE`"


class InitOverModel(SpecError):
    """The spec would be written over the file that holds the model."""

    template = "the spec would replace the model, `{path}`"
    hint = "choose another file with `-o`"


class InitFolderUnknown(SpecError):
    """The architecture of a folder's model is not one whose inputs are known."""

    template = "`{path}` holds {found}: {detail}"
    hint = "write a spec for it: docs/llm.md and examples/bert.py show how"
