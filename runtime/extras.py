"""The golden numbers of a bundle."""

from __future__ import annotations

import os
import struct

from .arrays.dtypes import DTYPES
from .bundle.manifest import GOLDEN_NAME, TensorSpec
from .bundle.opened import Bundle, read_bundle
from .bundle.weights import read_header
from .errors import BundleMalformed, GoldenMissing
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .bundle.manifest import Entry
    from .bundle.weights import Tensor


class Golden(Record):
    """An example and the exported model's answer: contiguous arrays as bytes, by name.

    An input whose shape depends on the call is a view that has the example's.

    tolerances: the largest difference allowed of each output, relative to its scale.
    """

    inputs: dict[str, bytes | memoryview]
    outputs: dict[str, bytes]
    tolerances: dict[str, float]


def read_golden(
    path: str | os.PathLike[str], digest: str | None = None, entry: str | None = None
) -> Golden:
    """The golden numbers of the bundle at `path`, of the types that its manifest lists.

    digest: the bundle digest that it must have, as `load` takes it. entry: the name of an entry
    point, which a bundle of several needs. Raises `GoldenMissing` when they were deleted or never
    written, `EntryUnknown`, `EntryNotNamed`, and `BundleError`s.
    """
    return read_bundle(path, lambda bundle: golden_of(bundle, entry), digest)


def golden_of(bundle: Bundle, entry: str | None = None) -> Golden:
    """The same of an open bundle."""
    row, where = bundle.manifest.entry(entry), bundle.where(GOLDEN_NAME)
    data = bundle.read_extra(GOLDEN_NAME)
    if data is None:
        raise GoldenMissing(path=bundle.path)
    tensors = read_header(data, where)
    _check(row, tensors, where)

    def part(name: str) -> bytes:
        tensor = tensors[f"{row.name}.{name}"]
        return data[tensor.offset : tensor.offset + tensor.nbytes]

    def shaped(spec: TensorSpec) -> bytes | memoryview:
        """An input; with its own shape where the spec leaves that to the call."""
        found = part(f"input.{spec.name}")
        if spec.is_fixed:
            return found
        letter: Any = "H" if spec.dtype == "f16" else DTYPES[spec.dtype].buffer
        shape = tensors[f"{row.name}.input.{spec.name}"].shape
        return memoryview(found).cast("B").cast(letter, list(shape))

    return Golden(
        {spec.name: shaped(spec) for spec in row.inputs},
        {spec.name: part(f"output.{spec.name}") for spec in row.outputs},
        {spec.name: struct.unpack("<d", part(f"tolerance.{spec.name}"))[0] for spec in row.outputs},
    )


def _check(entry: Entry, tensors: dict[str, Tensor], path: str) -> None:
    expected = {
        f"{entry.name}.{role}.{spec.name}": spec
        for role, specs in (("input", entry.inputs), ("output", entry.outputs))
        for spec in specs
    }
    for spec in entry.outputs:
        expected[f"{entry.name}.tolerance.{spec.name}"] = TensorSpec(spec.name, "f64", ())
    for name, spec in expected.items():
        tensor = tensors.get(name)
        is_right = tensor and tensor.dtype == spec.dtype and spec.admits(tensor.shape)
        if not is_right:
            found = "missing" if tensor is None else f"{tensor.dtype}{list(tensor.shape)}"
            raise BundleMalformed(path=path, field=name, found=found, expected=str(spec))
