"""Strided arrays in host memory made contiguous, by a program's native code or by CPython's."""

from __future__ import annotations

from .dlpack import Array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .port import Copy

    # (to, source, itemsize, shape, strides in bytes)
    CopyStrided = Callable[[int, int, int, tuple[int, ...], tuple[int, ...]], None]

COPY_RANK_LIMIT = 8  # dims that native code takes


def copier(copy_strided: CopyStrided) -> Copy:
    """A function that copies a strided array into an `Array` of bytes."""

    def copy(source: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        nbytes = itemsize
        for extent in shape:
            nbytes *= extent
        array = Array("u8", (nbytes,))
        if nbytes:
            merged = merge_dims(itemsize, shape, strides)
            _copy_outer(copy_strided, array.address, source, itemsize, *merged)
        return array

    return copy


def merge_dims(
    itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same elements in the same order with as few dims as possible; strides in bytes."""
    dims: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if dims and dims[-1][1] == extent * stride:
            dims[-1] = (dims[-1][0] * extent, stride)
        else:
            dims.append((extent, stride))
    dims = dims or [(1, itemsize)]
    return tuple(extent for extent, _ in dims), tuple(stride for _, stride in dims)


def _copy_outer(
    copy_strided: CopyStrided,
    to: int,
    source: int,
    itemsize: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> None:
    """Loop over the outer dims that are more than native code takes."""
    if len(shape) <= COPY_RANK_LIMIT:
        copy_strided(to, source, itemsize, shape, strides)
        return
    step = itemsize
    for extent in shape[1:]:
        step *= extent
    for index in range(shape[0]):
        begin = source + index * strides[0]
        _copy_outer(copy_strided, to + index * step, begin, itemsize, shape[1:], strides[1:])
