"""Why no spec can be written for a model."""

from __future__ import annotations

from aotc.aot.errors import SpecError


class InitModelUnclear(SpecError):
    """A file or module has several models, and none was named."""

    template = "`{path}` has {found}, expected one model"
    hint = "name it: `aotc init {path}:NAME`"


class InitModelAbsent(SpecError):
    """A file or module has no model, or none of the name that was given."""

    template = "`{path}` has no {wanted}, expected one of: {known}"
    hint = "name a class or an instance of torch.nn.Module, or a function `build_…` that makes one"


class InitArgumentsMissing(SpecError):
    """A model's class cannot be called as it is."""

    template = "`{name}{signature}` needs values: {detail}"
    hint = "give each: `--argument NAME=VALUE`"


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
    """The architecture of a folder's model is none whose inputs are known."""

    template = "`{path}` holds {found}: {detail}"
    hint = "write a spec for it: docs/llm.md and examples/bert.py show how"
