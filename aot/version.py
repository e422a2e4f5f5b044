"""The version of aotc, as the command line says it and bundles keep it, and its sources."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

VERSION = "0.1.0"
ROOT = Path(__file__).parents[1]


def installed_version(name: str, otherwise: str = "not installed") -> str:
    """Version of a distribution, `otherwise` where there is none of that name."""
    from importlib.metadata import PackageNotFoundError, version  # takes a while

    try:
        return version(name)
    except PackageNotFoundError:
        return otherwise


def sources_digest(paths: Iterable[Path]) -> str:
    """SHA-256 of files of aotc's own, in hex, by their names below ROOT and their bytes; of a
    folder all its Python files."""
    digest = hashlib.sha256()
    files = {file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])}
    for file in sorted(files):
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
