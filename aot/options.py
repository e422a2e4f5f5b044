"""BuildOptions: everything about a build that is not its input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from aotc.aot.errors import OptionInvalid
from aotc.aot.rewrites.registry import UserRewrite
from aotc.aot.tasks.files import TaskFiles
from aotc.aot.tasks.task import Executor
from aotc.aot.tasks.workers import Workers
from aotc.aot.tune.job import Mode
from aotc.cache import Layer

MOST_RANKS = 8  # GPUs of one host


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """The defaults are the command line's."""

    cache_folder: Path
    cache_layers: tuple[Layer, ...] = ()  # caches that are only read, such as an image's
    cache_max_bytes: int | None = 10 << 30  # what the cache may have at the end; None: any number
    device: str = "any"  # this machine, as tuning records name it; devices have their own names
    tune: Mode = "off"
    tune_budget_seconds: float | None = None  # no kernel is measured after this long
    record: Path | None = None  # tuning record, read and, after measuring, written
    frozen: bool = False  # measure and compile nothing that is not in cache or record
    force: bool = False
    debug: bool = False
    dump: Path | None = None  # folder that gets every stage's text, also of a build that fails
    jobs: int | None = None
    ray: str | None = None  # address of a cluster that compiles and measures
    measure_on: str = ""  # the device that measures, where it is not this machine's
    tasks_to: Path | None = None  # folder that gets what is to be measured, for `aotc measure`
    results_from: Path | None = None  # folder of its results
    is_confined: bool = False  # whether workers of this machine give up network and most writing
    allow_mismatch: bool = False
    quantize: Literal["int8", "int4", "fp8"] | None = None  # how linear weights are stored
    fallback: Literal["torch"] | None = None  # what runs ops at each call that cannot be compiled
    skip: frozenset[str] = frozenset()  # rewrite steps and rules to leave out
    round_intermediates: bool = (
        False  # whether 16-bit results are rounded after each of torch's ops
    )
    unchecked_indices: bool = False  # whether programs take indices and divisors as they come
    has_weights: bool = True  # whether bundles hold the weights; else they are given at load
    ranks: int = 1  # GPUs that each call of a program runs on
    adapters: bool = False  # whether programs can apply LoRA adapters
    embed_backends: bool = False  # whether the bundle keeps the native libraries that it calls
    rewrites: tuple[UserRewrite, ...] = ()  # of the user's

    def __post_init__(self) -> None:
        """Raises OptionInvalid for a value that an option has not."""
        for name, kind in get_type_hints(type(self)).items():
            values = [each for part in (kind, *get_args(kind)) for each in _values(part)]
            found = getattr(self, name)
            if values and found is not None and found not in values:
                expected = ", ".join(f"`{each}`" for each in values)
                raise OptionInvalid(name=name, found=repr(found), expected=expected)
        if not 1 <= self.ranks <= MOST_RANKS:
            raise OptionInvalid(name="ranks", found=self.ranks, expected=f"1 to {MOST_RANKS}")

    def executor(self) -> Executor:
        """Who compiles and measures: worker processes here, a cluster, or files for a scheduler.

        Raises the errors of `aot/tasks/`.
        """
        if self.ray is not None:
            from aotc.aot.tasks.cluster import Cluster

            return Cluster(self.ray, self.measure_on)
        if self.tasks_to is not None or self.results_from is not None:
            files = (self.tasks_to, self.results_from)
            return TaskFiles(self.jobs, self.measure_on, *files, self.is_confined)
        return Workers(self.jobs, is_confined=self.is_confined)


def _values(kind: Any) -> tuple[Any, ...]:
    """What a `Literal` allows; nothing of another type."""
    return get_args(kind) if get_origin(kind) is Literal else ()
