"""BuildOptions: everything about a build that is not its input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aotc.aot.rewrites.registry import UserRewrite
from aotc.aot.tune.job import Mode
from aotc.cache import Layer


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """The defaults are the command line's."""

    cache_folder: Path
    cache_layers: tuple[Layer, ...] = ()  # caches that are only read, such as an image's
    device: str = "any"  # this machine, as tuning records name it; devices have their own names
    tune: Mode = "off"
    tune_budget_seconds: float | None = None  # no kernel is measured after this long
    record: Path | None = None  # tuning record, read and, after measuring, written
    frozen: bool = False  # measure and compile nothing that is not in cache or record
    force: bool = False
    debug: bool = False
    dump: Path | None = None  # folder that gets every stage's text, also of a build that fails
    jobs: int | None = None
    allow_mismatch: bool = False
    fallback: Literal["torch"] | None = None  # what runs ops at each call that cannot be compiled
    skip: frozenset[str] = frozenset()  # rewrite steps and rules to leave out
    round_intermediates: bool = (
        False  # whether 16-bit results are rounded after each of torch's ops
    )
    unchecked_indices: bool = False  # whether programs take indices and divisors as they come
    embed_backends: bool = False  # whether the bundle keeps the native libraries that it calls
    rewrites: tuple[UserRewrite, ...] = ()  # of the user's
