"""The versions of what makes machine code here, for a bundle to say."""

from __future__ import annotations

from collections.abc import Iterable

from aotc.aot.targets.digest import triton_version
from aotc.aot.targets.families import FAMILIES
from aotc.aot.version import VERSION


def tool_versions(families: Iterable[str]) -> dict[str, str]:
    """aotc, triton, and what these families of targets run beside it → version."""
    found = {"aotc": VERSION, "triton": triton_version()}
    for name in sorted(set(families)):
        found |= FAMILIES[name].tools()
    return found
