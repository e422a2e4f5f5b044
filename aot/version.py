"""The version of aotc, as the command line says it and bundles keep it, and its sources."""

import hashlib
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

VERSION = "0.1.0"
ROOT = Path(__file__).parents[1]

# The first and the last release of each that aotc is tested with: the bounds of the extra `build`
# in pyproject.toml. torch.export and libtriton change from release to release.
TESTED = {"torch": ((2, 11), (2, 13)), "triton": ((3, 6), (3, 9))}


def installed_version(name: str, otherwise: str = "not installed") -> str:
    """Version of a distribution, `otherwise` where there is none of that name."""
    from importlib.metadata import PackageNotFoundError, version  # takes a while

    try:
        return version(name)
    except PackageNotFoundError:
        return otherwise


class UntestedWarning(UserWarning):
    """An installed release of torch or triton is not one that aotc is tested with."""


def tested_text(name: str) -> str:
    """The tested releases of `name`, a distribution in TESTED: `2.11 to 2.13`."""
    return " to ".join(f"{major}.{minor}" for major, minor in TESTED[name])


def untested() -> list[str]:
    """A sentence for each installed distribution whose release is outside of what TESTED says."""
    found = {name: installed_version(name, "") for name in TESTED}
    return [
        f"{name} {version} is installed; aotc {VERSION} is tested with {name} {tested_text(name)}"
        for name, version in found.items()
        if (release := _release(version)) and not TESTED[name][0] <= release <= TESTED[name][1]
    ]


def warn_untested() -> None:
    """A warning for each sentence of `untested`."""
    for line in untested():
        warnings.warn(line, UntestedWarning, stacklevel=3)


def _release(version: str) -> tuple[int, int] | None:
    """(2, 13) of `2.13.0a0+git3a5c2f8`; None where the text does not begin with two numbers."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def sources_digest(paths: Iterable[Path]) -> str:
    """SHA-256 of files of aotc's own, in hex, by their names below ROOT and their bytes; of a
    folder all its Python files."""
    digest = hashlib.sha256()
    files = {file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])}
    for file in sorted(files):
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
