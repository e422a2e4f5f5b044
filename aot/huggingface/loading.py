"""Reads models of transformers from folders on this machine; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aotc.aot.huggingface.errors import FolderInvalid, NotCausal, WeightsMissing

CAUSAL = "AutoModelForCausalLM"
SEQ2SEQ = "AutoModelForSeq2SeqLM"
INDEX = "model.safetensors.index.json"


def load_model(
    model_or_folder: nn.Module | str | Path, dtype: torch.dtype | None, kind: str = CAUSAL
) -> Any:
    """The model in eval mode; `kind` names the class of transformers that finds an architecture's.

    A model that is given stays as it is, but for `dtype` where that is given.
    """
    if isinstance(model_or_folder, nn.Module):
        model: Any = model_or_folder
        config_of(model)
        model = model if dtype is None else model.to(dtype)
    else:
        model = _read(Path(model_or_folder), dtype, kind)
    return model.eval().requires_grad_(False)


def config_of(model: nn.Module) -> Any:
    """The text model's config; raises NotCausal for what does not generate by itself."""
    import transformers

    name = type(model).__name__
    if not isinstance(model, transformers.PreTrainedModel):
        raise NotCausal(name=name, detail="it is no model of transformers")
    if not model.can_generate() or model.get_output_embeddings() is None:
        raise NotCausal(name=name, detail="it does not generate")
    if model.config.is_encoder_decoder:
        raise NotCausal(name=name, detail="it has an encoder")
    return model.config.get_text_config()


def _read(folder: Path, dtype: torch.dtype | None, kind: str) -> Any:
    import transformers

    _refuse_incomplete(folder)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise FolderInvalid(path=str(folder), detail=_first_line(error)) from error
    family = getattr(transformers, kind)
    if type(config) not in family._model_mapping:
        raise NotCausal(name=config.model_type, detail=f"`{kind}` does not know it")
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
