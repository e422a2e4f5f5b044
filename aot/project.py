"""`[tool.aotc]` of the nearest pyproject.toml, settings read through it, and a build's options."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotc.aot.errors import UserError
from aotc.aot.measure.processor import device_name
from aotc.runtime import settings

if TYPE_CHECKING:
    from aotc.aot.options import BuildOptions
    from aotc.cache import Layer
    from aotc.cache.remote import RemoteLayer


class ProjectFileInvalid(UserError):
    """pyproject.toml does not parse."""

    code = "project-file"
    template = "{path} does not parse: {detail}"
    hint = "it is read for its table `tool.aotc`; correct the line"


@functools.cache
def project_table() -> Mapping[str, Any]:
    """The table `[tool.aotc]` of the pyproject.toml in this folder or the nearest above it.

    Raises ProjectFileInvalid, and SettingUnknown for a key that no setting has.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was deleted
        return {}
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


def cache_layers(remote: str | None = None) -> tuple[Layer, ...]:
    """The caches below one's own, first the one that is asked first; `remote`: the flag's value."""
    from aotc.cache import FolderLayer

    folders = tuple(FolderLayer(Path(folder)) for folder in setting("AOTC_CACHE_LOWER"))
    url = setting("AOTC_REMOTE_CACHE", remote)
    return (*folders, remote_layer(url)) if url else folders


def build_options(
    *,
    cache_dir: str | None = None,
    remote_cache: str | None = None,
    tune: str | None = None,
    frozen: bool = False,
    jobs: int | None = None,
    **others: Any,
) -> BuildOptions:
    """The options of a build: what is given, and where nothing is, what the settings say.

    others: fields of `BuildOptions` by name; raises TypeError for one that it has not.
    """
    from aotc.aot.options import BuildOptions

    dump = setting("AOTC_DUMP")
    settled = {
        "cache_folder": cache_folder(cache_dir),
        "cache_layers": cache_layers(remote_cache),
        "cache_max_bytes": setting("AOTC_CACHE_MAX_SIZE"),
        "device": device_name(),
        "tune": setting("AOTC_TUNE", tune),
        "frozen": setting("AOTC_FROZEN", "1" if frozen else None),
        "dump": Path(dump) if dump else None,
        "jobs": setting("AOTC_JOBS", jobs) or None,
        "skip": frozenset(setting("AOTC_SKIP")),
    }
    return BuildOptions(**settled | others)


def remote_layer(url: str) -> RemoteLayer:
    """The remote cache at `url`, as the settings describe it; the network is not used yet."""
    from aotc.cache.remote import open_remote

    return open_remote(
        url,
        key=setting("AOTC_REMOTE_CACHE_KEY"),
        key_file=setting("AOTC_REMOTE_CACHE_KEY_FILE"),
        token=setting("AOTC_REMOTE_CACHE_TOKEN"),
        token_file=setting("AOTC_REMOTE_CACHE_TOKEN_FILE"),
        is_authenticated=setting("AOTC_REMOTE_CACHE_AUTHENTICATION") == "required",
        is_writable=setting("AOTC_REMOTE_CACHE_WRITE"),
        total_s=float(setting("AOTC_REMOTE_CACHE_TIMEOUT")),
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        table = tomllib.loads(path.read_text()).get("tool", {}).get("aotc", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectFileInvalid(path=path, detail=str(error)) from None
    if not isinstance(table, dict):
        raise ProjectFileInvalid(path=path, detail="`tool.aotc` is not a table")
    settings.check_project(table)
    return table
