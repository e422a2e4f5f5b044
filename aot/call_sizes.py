"""Sizes that a person names for a call of a bundle: `batch=32` in place of its example's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.aot.errors import SizeUnknown
from aotc.aot.host_array import HostArray
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.bundle.signature import Signature

Shape = tuple[int, ...]


def shapes_at(
    signature: Signature, example: Sequence[int], given: Mapping[str, int]
) -> tuple[list[Shape], list[int]]:
    """The shapes of all inputs, and the sizes of all dims, where those given by name differ from
    the example's sizes, one a dim.

    Raises `SizeUnknown`, and what a call raises for sizes that it does not take.
    """
    dims = [dim for dim in signature.dims if dim.input is not None]
    for name in given:
        if name not in {dim.name for dim in dims}:
            expected = ", ".join(map(str, dims)) or "none: the shapes of its inputs are fixed"
            raise SizeUnknown(name=name, expected=expected)
    sizes = [
        given.get(dim.name, size) if dim.input is not None else size
        for dim, size in zip(signature.dims, example, strict=True)
    ]
    inputs, _ = signature.at(signature.values(sizes))
    shapes = [tuple(spec.shape) for spec in inputs]
    signature.bind(shapes)
    return shapes, sizes


def example_sizes(signature: Signature, shapes: Sequence[Sequence[int]]) -> list[int]:
    """The sizes of all dims in a call with inputs of these shapes."""
    return signature.bind(shapes)[: len(signature.dims)]


def at_sizes(
    signature: Signature, arrays: Mapping[str, HostArray], given: Mapping[str, int]
) -> dict[str, HostArray]:
    """The inputs of a call at the sizes that are given by name, with the arrays' numbers; see
    `shapes_at`."""
    known = [arrays[spec.name] for spec in signature.inputs]
    example = example_sizes(signature, [array.shape for array in known])
    shapes, _ = shapes_at(signature, example, given)
    pairs = zip(signature.inputs, known, shapes, strict=True)
    return {spec.name: resized(array, shape) for spec, array, shape in pairs}


def resized(array: HostArray, shape: Shape) -> HostArray:
    """The array cut, or repeated from its start, along each dim to this shape: whole numbers stay
    within their range. Zeros where it has no element to repeat."""
    data, itemsize = array.data, DTYPES[array.dtype].itemsize_bytes
    inner_bytes = itemsize
    for axis in reversed(range(len(shape))):
        row_bytes, wanted_bytes = array.shape[axis] * inner_bytes, shape[axis] * inner_bytes
        if row_bytes != wanted_bytes:
            starts = range(0, len(data), row_bytes) if row_bytes else ()
            rows = (data[start : start + row_bytes] for start in starts)
            data = b"".join(_repeated(row, wanted_bytes) for row in rows)
        inner_bytes = wanted_bytes
    count_bytes = itemsize
    for extent in shape:
        count_bytes *= extent
    return HostArray(array.dtype, shape, data or bytes(count_bytes))


def _repeated(row: bytes, nbytes: int) -> bytes:
    return (row * -(-nbytes // len(row)))[:nbytes]
