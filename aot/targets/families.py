"""The families of targets: each folder here says in its `target.py` what the build asks of it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from aotc.aot.errors import UnknownTarget
from aotc.aot.targets.target import Family, Target
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
