"""Memory that steps other than kernels use as a whole: inputs, outputs and weights, with their
sizes."""

from __future__ import annotations

from ..errors import BundleMalformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .signature import TensorSpec

    Memory = tuple[str, "int | str"]  # (space, place in it)


def whole_bytes(
    signature: tuple[Sequence[TensorSpec], Sequence[TensorSpec]], weights: Mapping[str, int]
) -> dict[Memory, int]:
    """The bytes of each input and output of the signature and of each weight."""
    sizes: dict[Memory, int] = {
        (space, index): spec.nbytes
        for space, specs in zip(("input", "output"), signature, strict=True)
        for index, spec in enumerate(specs)
    }
    return sizes | {("weight", name): nbytes for name, nbytes in weights.items()}


def check_whole(
    memory: Memory, nbytes: int, sizes: Mapping[Memory, int], field: str, path: str
) -> None:
    """Raises `BundleMalformed` unless the memory is in the arena or is taken with all its bytes."""
    if memory[0] != "arena" and sizes.get(memory) != nbytes:
        found = f"{nbytes} bytes of {memory[0]} {memory[1]!r}"
        expected = f"{sizes.get(memory)} bytes, all of it"
        raise BundleMalformed(path=path, field=field, found=found, expected=expected)
