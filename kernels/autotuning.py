"""`triton.autotune` whose choices are kept: in our cache, and in tuning records that are committed.

Triton's Autotuner is in use; only what it asks of its disk cache is answered here. A choice is a
line of a tuning record (`aot/tune/record.py`): its digest is over the kernel's source and what it
calls, the values of the key, the element types and the configs. Looked for are the given record,
then the cache; what is in neither is measured, by one process at a time, and put into the cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.compiler.compiler import make_backend
from triton.runtime import autotuner as tritons
from triton.runtime import driver as active_driver
from triton.runtime.jit import JITFunction

from aotc.aot.errors import AutotuneFrozen
from aotc.aot.measure.device_lock import device_turn
from aotc.aot.measure.processor import device_name
from aotc.aot.targets.digest import triton_version
from aotc.aot.tasks.task import device_word
from aotc.aot.tune.record import (
    HEAD,
    Choice,
    Line,
    LineKey,
    Record,
    parse_record,
    read_record,
    write_record,
)
from aotc.cache import Key, Store
from aotc.cache.layers import FolderLayer
from aotc.kernels.driver import best_target
from aotc.kernels.library.devices import target_name
from aotc.kernels.triton_backend import NAME
from aotc.runtime import settings

_LINE_FILE = "line.txt"
_used: dict[LineKey, Line] = {}  # by this process
_used_lock = threading.Lock()
Bench = Callable[[], None]


class Autotuner(tritons.Autotuner):  # type: ignore[misc]
    """Triton's, with our record and cache in the place of its own on disk."""

    record: Path | None = None

    def check_disk_cache(
        self, tuning_key: tuple[Any, ...], configs: Sequence[Any], bench_fn: Bench
    ) -> bool:
        """Have a config for these key values in `self.cache`; whether it was known.

        Raises TuningRecordInvalid for a damaged record, and AutotuneFrozen.
        """
        function = _jit_function(self.fn)
        choices = _choices(configs)
        place = (_digest(function, tuning_key, choices), *_machine())
        line = _recorded(place, _read_record(self.record) if self.record else {}, choices)
        if line is None:
            line, is_known = self._cached_or_measured(place, tuning_key, choices, bench_fn)
        else:
            is_known = True
        if line is not None:
            with _used_lock:
                _used[line.key] = line
        if is_known and line is not None:
            best = self.cache[tuning_key] = choices[line.choice]
            self.configs_timings = {best: [line.time_us / 1e3] * 3}
            self.bench_time = 0.0
        return is_known

    def _cached_or_measured(
        self, place: LineKey, tuning_key: Any, choices: dict[Choice, Any], bench_fn: Bench
    ) -> tuple[Line | None, bool]:
        """The line of the cache and True, or the one that is measured now and False; no line where
        no config runs."""
        store, key = _store_of_now(), _cache_key(place)
        line = _cached(store, key, choices)
        if line is not None:
            return line, True
        if settings.read("AOTC_FROZEN").value:
            raise AutotuneFrozen(kernel=self.base_fn.__name__, key=tuning_key)
        with store.lock(key):
            line = _cached(store, key, choices)  # another process has measured meanwhile
            if line is not None:
                return line, True
            with _turn():
                bench_fn()
            line = _measured(place, choices, self.configs_timings)
            if line is not None and not store.put(key, {_LINE_FILE: f"{line}\n".encode()}):
                first = _cached(store, key, choices)  # without a lock another one may be first
                if first is not None:
                    return first, True
        return line, False


def autotune(
    configs: Sequence[Any],
    key: Sequence[str],
    prune_configs_by: dict[str, Any] | None,
    reset_to_zero: Sequence[str] | None,
    restore_value: Sequence[str] | None,
    pre_hook: Callable[..., Any] | None,
    post_hook: Callable[..., Any] | None,
    record: Path | None,
    options: dict[str, Any],
) -> Callable[[Any], Autotuner]:
    """The decorator of `aotc.kernels.autotune`."""

    def decorated(function: Any) -> Autotuner:
        made = Autotuner(
            function, function.arg_names, configs, key, reset_to_zero, restore_value,
            pre_hook=pre_hook, post_hook=post_hook, prune_configs_by=prune_configs_by,
            cache_results=True, **options,
        )  # fmt: skip
        made.record = record
        return made

    return decorated


def write_choices(path: Path) -> int:
    """Add the choices that this process used to the record at `path`; how many there were."""
    with _used_lock:
        lines = dict(_used)
    write_record(path, {**read_record(path), **lines})
    return len(lines)


def _jit_function(function: Any) -> JITFunction:
    while not isinstance(function, JITFunction):
        function = function.fn  # behind `triton.heuristics`
    return function


def _choices(configs: Sequence[Any]) -> dict[Choice, Any]:
    """Configs by what a record says of them: their whole numbers, and their place where those do
    not tell them apart."""
    rows = [_numbers(config) for config in configs]
    return {
        Choice(row if rows.count(row) == 1 else (("config", index), *row)): config
        for index, (row, config) in enumerate(zip(rows, configs, strict=True))
    }


def _numbers(config: Any) -> tuple[tuple[str, int], ...]:
    return tuple((name, int(v)) for name, v in config.all_kwargs().items() if isinstance(v, int))


def _digest(function: JITFunction, tuning_key: Any, choices: dict[Choice, Any]) -> str:
    """SHA-256 of all that a choice is about, beside the machine."""
    configs = [
        f"{choice} {sorted(config.all_kwargs().items(), key=repr)} "
        f"{getattr(config.pre_hook, '__qualname__', '')}"
        for choice, config in choices.items()
    ]
    text = "\n".join([function.cache_key, repr(tuning_key), *configs])
    return hashlib.sha256(text.encode()).hexdigest()


def _machine() -> tuple[str, str]:
    """Target and device of Triton's active driver, as tuning records name them."""
    active = active_driver.active
    found = active.get_current_target()
    if found.backend == NAME:
        return f"cpu-{best_target()}", device_name()
    target = target_name(found)
    name = active.get_device_interface().get_device_name(active.get_current_device())
    return target, device_word(name)


@contextlib.contextmanager
def _turn() -> Any:
    """Measuring on a GPU waits for other processes that do."""
    active = active_driver.active
    if active.get_current_target().backend == NAME:
        yield
    else:
        with device_turn(active.get_current_device()):
            yield


def _cache_key(place: LineKey) -> Key:
    """A measured choice holds for the kernel, the machine and the compiler."""
    digest, target, device = place
    compiler = make_backend(active_driver.active.get_current_target()).hash()
    variables = sorted(get_cache_invalidating_env_vars().items())
    return Key.of(
        "tuning", compiler=hashlib.sha256(f"{compiler} {variables}".encode()).hexdigest(),
        device=device, mode="autotune", spec=digest, target=target, triton=triton_version(),
    )  # fmt: skip


def _recorded(place: LineKey, record: Record, choices: dict[Choice, Any]) -> Line | None:
    """The record's line for this device, else the first by name of another one of its target."""
    found = record.get(place)
    if found is None:
        others = [line for key, line in record.items() if key[:2] == place[:2]]
        found = min(others, key=lambda line: line.key, default=None)
    return found if found is not None and found.choice in choices else None


def _cached(store: Store, key: Key, choices: dict[Choice, Any]) -> Line | None:
    entry = store.get(key, (frozenset({_LINE_FILE}),))
    if entry is None:
        return None
    lines = parse_record(f"{HEAD}\n{entry.files[_LINE_FILE].decode()}", "the cache")
    return next((line for line in lines.values() if line.choice in choices), None)


def _measured(
    place: LineKey, choices: dict[Choice, Any], timings_ms: dict[Any, Any]
) -> Line | None:
    """The line of what was measured; None where no config runs."""
    times_us = {
        choice: 1e3 * (time[0] if isinstance(time, list | tuple) else time)
        for choice, config in choices.items()
        if (time := timings_ms.get(config)) is not None
    }
    order = sorted(times_us, key=lambda choice: times_us[choice])
    order = [choice for choice in order if times_us[choice] < float("inf")]
    if not order:
        return None
    second = order[1] if len(order) > 1 else None
    return Line(
        *place, order[0], round(times_us[order[0]], 2),
        second, None if second is None else round(times_us[second], 2),
    )  # fmt: skip


def _store_of_now() -> Store:
    folder = str(settings.cache_dir().value)
    return _store(folder, settings.read("AOTC_CACHE_LOWER").value)


@functools.cache
def _store(folder: str, layers: tuple[str, ...]) -> Store:
    return Store(folder, [FolderLayer(Path(layer)) for layer in layers])


def _read_record(path: Path) -> Record:
    state = path.stat() if path.exists() else None
    return _lines_of(path, state and (state.st_mtime_ns, state.st_size, state.st_ino))


@functools.lru_cache(maxsize=64)
def _lines_of(path: Path, state: Any) -> Record:
    return read_record(path)
