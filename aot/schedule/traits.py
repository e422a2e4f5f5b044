"""What scheduling and lowering need to know of a target, as plain figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TargetTraits:
    """Properties of a target that decide fusion and tile sizes.

    Figures are those of the kind of machine, never of the building one: the same input must give
    the same bundle everywhere.
    """

    name: str
    device: str = "cpu"  # family: "cpu" or "cuda"
    lanes: int = 16  # f32 elements of one vector register
    programs_wanted: int = 8  # programs of a large kernel, so that a few cores share it evenly
    program_bytes: int = 32 * 1024  # data of one program below which starting it costs too much
    cache_bytes: int = 1024 * 1024  # cache of one core, beyond which data is slow
    byte_ns: float = 0.04  # time to move one byte to or from a buffer, one core
    operation_ns: float = 0.02  # time of one operation on one element in vector code, one core
    launch_ns: float = 2000.0  # fixed cost of one more kernel
    multiprocessors: int = 0  # of a GPU
    shared_bytes: int = 0  # shared memory that one program of a GPU may have
    dot_precision: str = "ieee"  # of f32 operands: "ieee", or "tf32" on a GPU
    has_maps: bool = False  # launches can make tensor descriptors of their parameters


MAPS_SHARED_KIB = 227  # from GPUs on that copy tiles by descriptors of the launch

CPU = TargetTraits("cpu")


def _gpu(
    capability: int, multiprocessors: int, shared_kib: int, cache_mib: int, bytes_per_ns: float
) -> TargetTraits:
    """A GPU's row: its largest part in the field, memory rates as measured or from data sheets."""
    return TargetTraits(
        f"cuda-sm_{capability}",
        device="cuda",
        lanes=32,
        programs_wanted=8 * multiprocessors,
        program_bytes=8 * 1024,
        cache_bytes=cache_mib << 20,
        byte_ns=1 / bytes_per_ns,
        operation_ns=1 / 20_000,
        multiprocessors=multiprocessors,
        shared_bytes=shared_kib << 10,
        has_maps=shared_kib >= MAPS_SHARED_KIB,
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
