"""Recognises arguments that are not a spec: a bundle, or a folder with a model of transformers."""

from __future__ import annotations

from pathlib import Path

from aotc.aot.errors import SpecNotUnderstood
from aotc.runtime.bundle.manifest import MANIFEST_NAME

CONFIG = "config.json"


def spec_not_understood(text: str) -> SpecNotUnderstood:
    """The error for a word that has none of the forms of a spec; its hint fits what is there."""
    advice = f"it is a bundle, which `aotc run {text}` runs; " if is_bundle(text) else ""
    return SpecNotUnderstood(spec=text, advice=advice, model=model_folder(text) or "MODEL")


def is_bundle(text: str) -> bool:
    """Whether there is a bundle's manifest in a folder of that name."""
    return _is_file(Path(text, MANIFEST_NAME))


def model_folder(text: str) -> Path | None:
    """The folder with a `config.json` that a path names, or that holds the file it names."""
    for folder in (Path(text), Path(text).parent):
        if (folder == Path(text) or _is_file(Path(text))) and _is_file(folder / CONFIG):
            return folder
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or that no path can have
        return False
