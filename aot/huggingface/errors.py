"""What is wrong with a model of transformers, or with how it is asked for."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

from aotc.aot.errors import SpecError


class TransformersMissing(SpecError):
    """transformers, or what it reads weights with, is not installed."""

    exit_code = 7
    template = "`{module}` is not installed, `aotc.aot.huggingface` needs it"
    hint = 'pip install "aotc[huggingface]"; in a checkout of aotc: pip install ".[huggingface]"'


class TransformersTooOld(SpecError):
    """transformers is of a release whose models are built otherwise: what they compute would be
    wrong without a word."""

    exit_code = 7
    template = "transformers is {found}, expected {expected} or later"
    hint = 'pip install "transformers>={expected}"'


OLDEST = 5  # the first number of transformers' release; also in pyproject.toml


def require_transformers() -> None:
    """Raise `TransformersMissing` where transformers or safetensors is not installed, and
    `TransformersTooOld`."""
    for needed in ("transformers", "safetensors"):
        if importlib.util.find_spec(needed) is None:
            raise TransformersMissing(module=needed)
    try:
        found = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:  # a folder of sources says no release
        return
    if int(found.partition(".")[0]) < OLDEST:
        raise TransformersTooOld(found=found, expected=OLDEST)


class FolderInvalid(SpecError):
    """The folder of a model cannot be read."""

    template = "cannot read a model from `{path}`: {detail}"
    hint = (
        "expected a folder with `config.json` and `*.safetensors`, as `save_pretrained` writes it"
    )


class WeightsMissing(SpecError):
    """The folder of a model has no weights, or not all of them."""

    template = "the folder `{path}` lacks weights: {detail}"
    hint = "expected `model.safetensors`, or `model.safetensors.index.json` and the files it names"


class NotCausal(SpecError):
    """The model does not generate token by token with a cache of keys and values."""

    template = "`{name}` is not a causal language model with a cache of keys and values: {detail}"
    hint = "encoders and models of fixed length build from a spec with `example_inputs`"


class NotSeq2Seq(SpecError):
    """The model does not generate tokens with an encoder and a decoder."""

    template = "`{name}` is not a model of transformers that has an encoder and a decoder of tokens"
    hint = "decoders by themselves are those of `causal_lm` and `causal_step`"


class ArchitectureUnknown(SpecError):
    """A folder's architecture is of another kind than was asked for."""

    template = "`{name}` is an architecture that {known} does not know"
    hint = "`causal_step` takes decoders, `seq2seq` encoders with a decoder"


class SizesInvalid(SpecError):
    """Lengths and batch do not fit each other or the model."""

    template = (
        "max_length {max_length}, max_prompt {max_prompt} and batch {batch} do not fit, expected "
        "2 <= max_prompt <= max_length{limited}, and a batch of at least 1"
    )
    hint = "give `max_length`, `max_prompt` and `batch` as docs/llm.md has them"

    def __init__(self, limit: int | None = None, limited: str = "", **fields: Any) -> None:
        if limit is not None:
            limited = f" <= {limit}, the positions that the model learned"
        super().__init__(limited=limited, **fields)


class DecodeLengthsInvalid(SpecError):
    """Lengths of shorter decodes do not fit the cache, or the cache's length varies."""

    template = "decode_lengths are {lengths}, expected different ones from 1 to {most}"
    hint = "they are for caches of one length, without `session_sizes`"
