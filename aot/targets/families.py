"""The families of targets: each folder here says in its `target.py` what the build asks of it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping

from aotc.aot.errors import UnknownTarget
from aotc.aot.targets.digest import triton_version
from aotc.aot.targets.target import Family, Target
from aotc.aot.version import VERSION
from aotc.runtime.drivers import FAMILIES as NAMES

FAMILIES: Mapping[str, Family] = {
    name: importlib.import_module(f"aotc.aot.targets.{name}.target").FAMILY for name in NAMES
}


def find_target(text: str) -> Target:
    """The target that `--target` names: `cpu`, `cpu-x86-64-v3`, `cuda`, `cuda:sm_90`.

    Raises UnknownTarget, which lists the known ones, and TargetDeviceAbsent for `cuda` without one.
    """
    for family in FAMILIES.values():
        target = family.find(text)
        if target is not None:
            return target
    known = [name for family in FAMILIES.values() for name in family.known()]
    raise UnknownTarget(target=text, known=", ".join(known))


def tool_versions(families: Iterable[str]) -> dict[str, str]:
    """What makes machine code here, for a bundle to say: aotc, triton, and what these families of
    targets run beside it → version."""
    found = {"aotc": VERSION, "triton": triton_version()}
    for name in sorted(set(families)):
        found |= FAMILIES[name].tools()
    return found
