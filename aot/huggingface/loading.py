"""Reads models of transformers from folders on this machine; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aotc.aot.huggingface.errors import (
    ArchitectureUnknown,
    FolderInvalid,
    NotCausal,
    WeightsMissing,
)

CAUSAL = "AutoModelForCausalLM"
SEQ2SEQ = "AutoModelForSeq2SeqLM"
SPEECH = "AutoModelForSpeechSeq2Seq"
INDEX = "model.safetensors.index.json"


def load_model(
    model_or_folder: nn.Module | str | Path, dtype: torch.dtype | None, kinds: tuple[str, ...]
) -> Any:
    """The model in eval mode; `kinds` are the classes of transformers that find an architecture's.

    A model that is given stays as it is, but for `dtype` where that is given.
    """
    if isinstance(model_or_folder, nn.Module):
        model: Any = model_or_folder if dtype is None else model_or_folder.to(dtype)
    else:
        model = _read(Path(model_or_folder), dtype, kinds)
    return model.eval().requires_grad_(False)


def is_seq2seq(model: nn.Module) -> bool:
    """Whether it is a model of transformers that generates behind an encoder."""
    import transformers

    is_theirs = isinstance(model, transformers.PreTrainedModel) and model.can_generate()
    return is_theirs and bool(model.config.is_encoder_decoder)


def config_of(model: nn.Module) -> Any:
    """The text model's config; raises NotCausal for what does not generate by itself."""
    import transformers

    name = type(model).__name__
    if not isinstance(model, transformers.PreTrainedModel):
        raise NotCausal(name=name, detail="it is not a model of transformers")
    if not model.can_generate() or model.get_output_embeddings() is None:
        raise NotCausal(name=name, detail="it does not generate")
    if model.config.is_encoder_decoder:
        raise NotCausal(name=name, detail="it has an encoder")
    return model.config.get_text_config()


def _read(folder: Path, dtype: torch.dtype | None, kinds: tuple[str, ...]) -> Any:
    import transformers

    _refuse_incomplete(folder)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise FolderInvalid(path=str(folder), detail=_first_line(error)) from error
    families = [getattr(transformers, kind) for kind in kinds]
    family = next((each for each in families if type(config) in each._model_mapping), None)
    if family is None:
        known = " nor ".join(f"`{kind}`" for kind in kinds)
        raise ArchitectureUnknown(name=config.model_type, known=known)
    try:
        model, loaded = family.from_pretrained(
            folder,
            config=config,
            dtype=dtype or "auto",
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise FolderInvalid(path=str(folder), detail=_first_line(error)) from error
    missing = sorted(loaded["missing_keys"])
    if missing:
        names = ", ".join(f"`{name}`" for name in missing[:8])
        raise WeightsMissing(path=str(folder), detail=f"{len(missing)} are missing: {names}")
    return model


def _refuse_incomplete(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise FolderInvalid(path=str(folder), detail="`config.json` does not exist")
    index = folder / INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise FolderInvalid(path=str(folder), detail=f"`{INDEX}`: {error}") from error
        absent = [name for name in names if not (folder / name).is_file()]
        if absent:
            detail = f"`{absent[0]}`, which `{INDEX}` names, does not exist"
            raise WeightsMissing(path=str(folder), detail=detail)
    elif not any(folder.glob("*.safetensors")):
        raise WeightsMissing(path=str(folder), detail="no file is named `*.safetensors`")


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]
