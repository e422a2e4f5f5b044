"""The options of `torch.compile(…, backend="aotc", options={…})`, one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from aotc.aot.dynamo.errors import OptionInvalid, OptionUnknown
from aotc.runtime import settings
from aotc.runtime.drivers.cpu.driver import best_isa, features
from aotc.runtime.errors import AotcError, SettingInvalid

FALLBACKS = ("inductor", "eager", "error")
CHECKS = ("off", "first")
# Modes of torch.compile → how kernels are chosen; torch takes a mode or options, never both.
MODES: Mapping[str, str | None] = {
    "default": None,
    "reduce-overhead": None,  # of CUDA graphs; a call on the CPU has nothing to record
    "max-autotune": "full",
    "max-autotune-no-cudagraphs": "full",
}


@dataclass(frozen=True, slots=True)
class Options:
    """How graphs are compiled; the names are those that a user writes."""

    fallback: str  # who takes what we cannot compile: one of `FALLBACKS`
    target: str  # a name of the target table, `cpu-x86-64-v4`
    threads: int  # that share the work of one call; 0 takes what affinity and cgroup allow
    tune: str  # `off`, `quick` or `full`
    round_intermediates: bool  # whether 16-bit results are rounded after each of torch's ops
    unchecked_indices: bool = False  # whether indices and divisors are taken as they come
    check: str = "off"  # which calls of a graph are compared with eager: one of `CHECKS`
    # What one graph's tensors and torch's switches say, and not the user:
    ordinal: int | None = None  # of the CUDA device
    dot_precision: str = "ieee"  # of products of f32 there: "ieee" or "tf32"


def read_options(given: Mapping[str, Any] | None, mode: str | None = None) -> Options:
    """The options of a call of torch.compile; raises `OptionUnknown` and `OptionInvalid`."""
    known = [field.name for field in fields(Options) if field.name in _ROWS]
    for name in given or {}:
        if name not in known:
            raise OptionUnknown(name=name, backend="aotc", known=", ".join(known))
    asked = {"tune": MODES[checked_mode(mode)], **(given or {})}
    values = {name: _ROWS[name](asked.get(name)) for name in known}
    return Options(**values)


def checked_mode(mode: Any) -> str:
    """A mode of torch.compile; raises `OptionInvalid`."""
    if mode is None:
        return "default"
    if mode not in MODES:
        raise OptionInvalid(name="mode", found=mode, expected=f"one of {', '.join(MODES)}")
    return str(mode)


def _choice(option: str, choices: Sequence[str]) -> Callable[[Any], Any]:
    """A row for one of some words, by default the first."""

    def read(given: Any) -> Any:
        if given is None:
            return choices[0]
        if given not in choices:
            raise OptionInvalid(name=option, found=given, expected=f"one of {', '.join(choices)}")
        return str(given)

    return read


def _switch(option: str) -> Callable[[Any], bool]:
    """A row that is off by default."""

    def read(given: Any) -> bool:
        if given is None or isinstance(given, bool):
            return bool(given)
        raise OptionInvalid(name=option, found=given, expected="True or False")

    return read


def _target(given: Any) -> str:
    best = best_isa(features())
    if given is None and best is not None:
        return f"cpu-{best}"  # a start from the cache does not import the compilers
    from aotc.aot.targets.families import find_target

    expected = "a CPU target that this machine runs, such as `cpu` or `cpu-x86-64-v3`"
    try:
        target = find_target(str(given or "cpu"))
    except AotcError:  # a name that nobody knows, or of a device that is not here
        raise OptionInvalid(name="target", found=given, expected=expected) from None
    if target.traits.is_gpu or not set(target.needs) <= features():
        raise OptionInvalid(name="target", found=given, expected=expected)
    return target.name


def _setting(option: str, name: str) -> Callable[[Any], Any]:
    """A row whose default is a setting of `runtime/settings.py`."""

    def read(given: Any) -> Any:
        if given is None:
            return settings.read(name).value
        try:
            return settings.parse(settings.SETTINGS[name], given, "option")
        except SettingInvalid:
            expected = settings.SETTINGS[name].expected
            raise OptionInvalid(name=option, found=given, expected=expected) from None

    return read


_ROWS: Mapping[str, Callable[[Any], Any]] = {
    "check": _choice("check", CHECKS),
    "fallback": _choice("fallback", FALLBACKS),
    "target": _target,
    "threads": _setting("threads", "AOTC_THREADS"),
    "tune": _setting("tune", "AOTC_TUNE"),
    "round_intermediates": _switch("round_intermediates"),
    "unchecked_indices": _switch("unchecked_indices"),
}
