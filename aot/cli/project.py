"""`[tool.aotc]` of the nearest pyproject.toml, and settings read through it."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotc.aot.errors import UserError
from aotc.runtime import settings

if TYPE_CHECKING:
    from aotc.cache import Layer


class ProjectFileInvalid(UserError):
    """pyproject.toml does not parse."""

    code = "project-file"
    template = "{path} does not parse: {detail}"


@functools.cache
def project_table() -> Mapping[str, Any]:
    """The table `[tool.aotc]` of the pyproject.toml in this folder or the nearest above it.

    Raises ProjectFileInvalid, and SettingUnknown for a key that no setting has.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return _read(path)
    return {}


def setting(name: str, flag: Any = None) -> Any:
    """A setting's value: flag, then variable, then project file, then default."""
    return settings.read(name, flag, project_table()).value


def cache_folder(flag: str | None = None) -> Path:
    """Folder of the artifact cache."""
    return Path(settings.cache_dir(flag, project_table()).value)


def cache_layers() -> tuple[Layer, ...]:
    """The caches below one's own that are only read, first the one that is asked first."""
    from aotc.cache import FolderLayer

    return tuple(FolderLayer(Path(folder)) for folder in setting("AOTC_CACHE_LOWER"))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        table = tomllib.loads(path.read_text()).get("tool", {}).get("aotc", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectFileInvalid(path=path, detail=str(error)) from None
    if not isinstance(table, dict):
        raise ProjectFileInvalid(path=path, detail="`tool.aotc` is not a table")
    settings.check_project(table)
    return table
