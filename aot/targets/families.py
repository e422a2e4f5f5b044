"""The families of targets, one row each: how a target is found, compiled for and linked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aotc.aot.errors import UnknownTarget
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.cpu import library as cpu_library
from aotc.aot.targets.cpu import target as cpu_target
from aotc.aot.targets.cuda import library as cuda_library
from aotc.aot.targets.cuda import target as cuda_target
from aotc.aot.targets.library import Library
from aotc.aot.targets.target import Target


@dataclass(frozen=True, slots=True)
class Family:
    """What the build asks of a device family.

    `compiler` and `support_code` are functions for worker processes, `package.module:function`. The
    compiler takes (source, function, params, config, architecture) and gives a KernelBinary. The
    support_code makes, as files by name, what a library holds beside its kernels, and so tells by
    its place in the cache whether this compiler was here before; `library` puts both together.
    """

    find: Callable[[str], Target | None]
    known: Callable[[], Sequence[str]]
    compiler: str
    support_code: str
    library: Callable[[Sequence[KernelBinary], Mapping[str, bytes]], Library]


FAMILIES: Mapping[str, Family] = {
    "cpu": Family(
        cpu_target.find,
        cpu_target.known,
        "aotc.aot.targets.cpu.compile:compile_kernel",
        "aotc.aot.targets.cpu.library:support_code",
        cpu_library.library,
    ),
    "cuda": Family(
        cuda_target.find,
        cuda_target.known,
        "aotc.aot.targets.cuda.compile:compile_kernel",
        "aotc.aot.targets.cuda.library:support_code",
        cuda_library.library,
    ),
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
