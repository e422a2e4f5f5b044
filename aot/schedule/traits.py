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
    lanes: int = 16  # f32 elements of one vector register
    programs_wanted: int = 8  # programs of a large kernel, so that a few cores share it evenly
    program_bytes: int = 32 * 1024  # data of one program below which starting it costs too much
    cache_bytes: int = 1024 * 1024  # cache of one core, beyond which data is slow
    byte_ns: float = 0.04  # time to move one byte to or from a buffer, one core
    operation_ns: float = 0.02  # time of one operation on one element in vector code, one core
    launch_ns: float = 2000.0  # fixed cost of one more kernel


CPU = TargetTraits("cpu")
