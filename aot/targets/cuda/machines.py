"""The GPUs that code is generated for, by compute capability."""

from __future__ import annotations

from aotc.aot.traits import TargetTraits

BACKEND = "cuda"  # as Triton calls its back end
TENSOR_COPIES_SHARED_KIB = 227  # what GPUs have that copy tiles by descriptors


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
        can_overlap=capability == 90,
        lanes=32,
        programs_wanted=8 * multiprocessors,
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
