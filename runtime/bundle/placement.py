"""`refit/placement.msgpack`: where the tensors of a bundle hold the model's parameters as they are,
and the code that adds adapters to them on a device.

A runtime that does without this file computes all new weights on the host.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES
from ..errors import BundleMalformed
from ..record import Record, field
from .canonical import Limits, decode, encode
from .manifest import REFIT_FOLDER
from .parameters import COUNT_LIMIT, NAME, Parameters, WeightsCode
from .schema import FILE_NAME, Choice, Fields, Integer, List, Optional, read

PLACEMENT_NAME = f"{REFIT_FOLDER}placement.msgpack"
LIMITS = Limits(file_bytes=64 << 20, values=1 << 21, depth=16, text_bytes=1 << 16)
EXTENT = Integer(0, 1 << 40)


class View(Record):
    """A parameter, by its number, within a tensor of the weights file: element [i, j, …] is element
    start + i · strides[0] + j · strides[1] + … of the tensor."""

    parameter: int = field(Integer(0, COUNT_LIMIT))
    tensor: str = field(NAME)
    start: int = field(EXTENT)
    strides: tuple[int, ...] = field(List(EXTENT, limit=64))


class SumCode(Record):
    """A kernel of a device that adds a product to a weight: what the machine must have, element
    types of the weight and of the factors, file and symbol, threads and shared memory of a program,
    rows and columns that it computes."""

    device: str = field(NAME)
    needs: tuple[str, ...] = field(List(NAME, limit=256))
    dtype: str = field(Choice(*DTYPES))
    factors: str = field(Choice(*DTYPES))
    library: str = field(FILE_NAME)
    symbol: str = field(NAME)
    threads: int = field(Integer(1, 1024))
    shared_bytes: int = field(Integer(0, 1 << 20))
    rows: int = field(Integer(1, 1 << 16))
    columns: int = field(Integer(1, 1 << 16))


class Placement(Record):
    """The file. moved: tensors that rows of parameters make up, by `views`, beside what does not
    depend on any; rest: the weights program of all others, for those who copy the former."""

    views: tuple[View, ...] = field(List(View, limit=COUNT_LIMIT))
    moved: tuple[str, ...] = field(List(NAME, limit=COUNT_LIMIT))
    sums: tuple[SumCode, ...] = field(List(SumCode, limit=256))
    rest: WeightsCode | None = field(Optional(WeightsCode))

    def to_bytes(self) -> bytes:
        """The whole file."""
        data = encode(SCHEMA.write(self))
        Placement.from_bytes(data)
        return data

    @classmethod
    def from_bytes(cls, data: bytes, path: str = PLACEMENT_NAME) -> Placement:
        """Read and check the file; raises `BundleError`s."""
        found: Placement = read(SCHEMA, decode(data, LIMITS, path), path)
        return found

    def check(self, parameters: Parameters, path: str) -> None:
        """Numbers are those of parameters; raises `BundleMalformed`."""
        numbers = [view.parameter for view in self.views]
        numbers += [] if self.rest is None else self.rest.inputs
        if max(numbers, default=-1) >= len(parameters.parameters):
            expected = f"numbers below {len(parameters.parameters)}"
            raise BundleMalformed(
                path=path, field="views", found=str(max(numbers)), expected=expected
            )


SCHEMA = Fields(Placement)


def as_rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(rows, elements of a row, elements from row to row) of an array in memory, or None."""
    merged: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if merged and merged[-1][1] == extent * stride:
            merged[-1] = merged[-1][0] * extent, stride
        else:
            merged.append((extent, stride))
    if len(merged) > 2 or (merged and merged[-1][1] != 1):
        return None
    width = merged[-1][0] if merged else 1
    rows, pitch = merged[0] if len(merged) == 2 else (1, width)
    return rows, width, pitch
