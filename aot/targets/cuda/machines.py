"""The GPUs that code is generated for, by compute capability, and the assemblers that are here."""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
from pathlib import Path

from aotc.aot.traits import TargetTraits

ASSEMBLERS = ("ptxas", "ptxas-blackwell")  # which one serves what is Triton's business
BACKEND = "cuda"  # as Triton calls its back end
PROGRAMMATIC_LAUNCH_CAPABILITY = (
    90  # the first whose kernels can wait by themselves for those before them
)
TENSOR_COPIES_SHARED_KIB = 227  # what GPUs have that copy tiles by descriptors
# GPUs whose tensor cores multiply TF32 several times as fast as other units multiply f32. Measured
# on sm_90 (`benchmarks/gpu/matmul.py --dtype f32`); A100, B200 and B300 are taken to be alike.
FAST_TF32 = frozenset({80, 90, 100, 103})


def _gpu(
    capability: int, multiprocessors: int, shared_kib: int, cache_mib: int, bytes_per_ns: float
) -> TargetTraits:
    """A GPU's row: its largest part in the field, memory rates as measured or from data sheets."""
    has_tensor_copies = shared_kib >= TENSOR_COPIES_SHARED_KIB
    return TargetTraits(
        device=BACKEND,
        is_gpu=True,
        packs_weights=False,
        has_tensor_copies=has_tensor_copies,
        has_tensor_maps=has_tensor_copies,
        is_launched_early=capability >= PROGRAMMATIC_LAUNCH_CAPABILITY,
        has_float8=capability >= 89,
        can_overlap=capability == 90,
        has_tf32x3=capability in FAST_TF32,
        lanes=32,
        programs_wanted=8 * multiprocessors,
        shared_by=(8 * multiprocessors,),
        program_bytes=8 * 1024,
        cache_bytes=cache_mib << 20,
        byte_ns=1 / bytes_per_ns,
        operation_ns=1 / 20_000,
        multiprocessors=multiprocessors,
        shared_bytes=shared_kib << 10,
    )


GPUS: dict[int, TargetTraits] = {
    80: _gpu(80, 108, 163, 40, 1700),
    86: _gpu(86, 84, 99, 6, 850),
    87: _gpu(87, 16, 163, 4, 180),
    89: _gpu(89, 142, 99, 96, 800),
    90: _gpu(90, 132, 227, 50, 4200),
    100: _gpu(100, 148, 227, 126, 7000),
    103: _gpu(103, 148, 227, 126, 7000),
    110: _gpu(110, 20, 227, 32, 250),
    120: _gpu(120, 188, 99, 128, 1600),
    121: _gpu(121, 48, 99, 24, 270),
}


def capability(architecture: str) -> int:
    """The number in `sm_90`."""
    return int(architecture.removeprefix("sm_"))


@functools.cache
def assembler_architectures() -> frozenset[str]:
    """Names such as `sm_90` that some assembler of the Triton wheel knows; empty without Triton."""
    texts = [_ask(path, "--help") for path in _assemblers()]
    return frozenset(name for text in texts for name in re.findall(r"'(sm_\d+)a?'", text))


def assembler_versions() -> dict[str, str]:
    """Assembler → its version; empty without Triton."""
    found = {path.name: re.search(r"V([\d.]+)", _ask(path, "--version")) for path in _assemblers()}
    return {name: match[1] for name, match in found.items() if match}


def _assemblers() -> list[Path]:
    """The wheel's assemblers, found without importing Triton."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent / "backends" / "nvidia" / "bin"
    return [folder / name for name in ASSEMBLERS if (folder / name).is_file()]


@functools.cache  # each build asks both for their versions
def _ask(path: Path, option: str) -> str:
    try:
        result = subprocess.run([path, option], capture_output=True, text=True, check=False)
    except OSError:  # a wheel of another system
        return ""
    return result.stdout
