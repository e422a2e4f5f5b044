"""Sizes that the user gives for a call of a bundle, such as `batch=32`, in place of its
example's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aotc.aot.errors import SizeUnknown
from aotc.aot.host_array import HostArray
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.bundle.signature import SessionSizes, Signature

Shape = tuple[int, ...]


class CallSizes(NamedTuple):
    """shapes: of all inputs; dims: the sizes of all dims; session: the sizes of states that were
    given, by name."""

    shapes: list[Shape]
    dims: list[int]
    session: dict[str, int]


def sizes_of(
    signature: Signature, states: SessionSizes, example: Sequence[int], given: Mapping[str, int]
) -> CallSizes:
    """The sizes of a call: those given by name, else the example's, one a dim.

    Raises `SizeUnknown`, and what a call and a session raise for sizes that they do not take.
    """
    known = {dim.name: str(dim) for dim in states.dims}
    known |= {dim.name: str(dim) for dim in signature.dims if dim.input is not None}
    for name in given:
        if name not in known:
            expected = ", ".join(known.values()) or "none: all of its shapes are fixed"
            raise SizeUnknown(name=name, expected=expected)
    of_states = {dim.name for dim in states.dims}
    session = {name: size for name, size in given.items() if name in of_states}
    held = states.bind(session)
    pairs = zip(signature.dims, example, strict=True)
    dims = [given.get(dim.name, size) for dim, size in pairs]
    shapes = [tuple(spec.shape) for spec in signature.at(signature.values(dims))[0]]
    signature.bind(shapes, held)
    return CallSizes(shapes, dims, session)


def sizes_beside(
    signature: Signature,
    states: SessionSizes,
    arrays: Mapping[str, HostArray],
    given: Mapping[str, int],
) -> CallSizes:
    """The same where the example is a call with these inputs."""
    shapes = [arrays[spec.name].shape for spec in signature.inputs]
    example = signature.bind(shapes, states.bind({}))[: len(signature.dims)]
    return sizes_of(signature, states, example, given)


def resized_each(
    arrays: Mapping[str, HostArray], shapes: Iterable[Sequence[int]]
) -> dict[str, HostArray]:
    """Arrays by name at these shapes, in their order; see `resized`."""
    pairs = zip(arrays.items(), shapes, strict=True)
    return {name: resized(array, tuple(shape)) for (name, array), shape in pairs}


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
