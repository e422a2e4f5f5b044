"""What lies beside a bundle's identity: the list of the extras, and the golden numbers in them."""

from __future__ import annotations

import os
import struct

from .arrays.dtypes import DTYPES
from .bundle.directory import Directory
from .bundle.manifest import EXTRAS_NAME, GOLDEN_NAME, LIMITS, Extras, TensorSpec
from .bundle.opening import open_bundle
from .bundle.weights import read_header
from .errors import BundleFileMissing, BundleMalformed, GoldenMissing
from .mismatch import read_manifest
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .bundle.manifest import Manifest
    from .bundle.weights import Tensor


class Golden(Record):
    """An example and the exported model's answer: contiguous arrays as bytes, by name.

    An input whose shape depends on the call is a view that has the example's.

    tolerances: the largest difference allowed of each output, relative to its scale.
    """

    inputs: dict[str, bytes | memoryview]
    outputs: dict[str, bytes]
    tolerances: dict[str, float]


def read_extras(directory: Directory) -> Extras:
    """Name, size and digest of every extra; raises `BundleFileMissing` and other `BundleError`s."""
    data = directory.read_head(EXTRAS_NAME, LIMITS.file_bytes + 4096)
    return Extras.from_bytes(data, directory.where(EXTRAS_NAME))


def read_extra(directory: Directory, name: str) -> bytes | None:
    """One extra, checked against its digest; None when it, or the list of them, was deleted.

    Raises `BundleError`s.
    """
    try:
        for entry in read_extras(directory).files:
            if entry.name == name:
                return directory.read(entry)
    except BundleFileMissing:
        pass
    return None


def read_golden(path: str | os.PathLike[str]) -> Golden:
    """The golden numbers of the bundle at `path`, of the types that its manifest lists.

    Raises `GoldenMissing` when they were deleted or never written, and `BundleError`s.
    """
    with open_bundle(path) as directory:
        manifest, _ = read_manifest(directory)
        data = read_extra(directory, GOLDEN_NAME)
        if data is None:
            raise GoldenMissing(path=directory.path)
        where = directory.where(GOLDEN_NAME)
    tensors = read_header(data, where)
    _check(manifest, tensors, where)

    def part(name: str) -> bytes:
        tensor = tensors[name]
        return data[tensor.offset : tensor.offset + tensor.nbytes]

    def shaped(spec: TensorSpec) -> bytes | memoryview:
        """An input; with its own shape where the spec leaves that to the call."""
        found = part(f"input.{spec.name}")
        if spec.is_fixed:
            return found
        letter: Any = "H" if spec.dtype == "f16" else DTYPES[spec.dtype].buffer
        shape = tensors[f"input.{spec.name}"].shape
        return memoryview(found).cast("B").cast(letter, list(shape))

    return Golden(
        {spec.name: shaped(spec) for spec in manifest.inputs},
        {spec.name: part(f"output.{spec.name}") for spec in manifest.outputs},
        {
            spec.name: struct.unpack("<d", part(f"tolerance.{spec.name}"))[0]
            for spec in manifest.outputs
        },
    )


def _check(manifest: Manifest, tensors: dict[str, Tensor], path: str) -> None:
    expected = {
        f"{role}.{spec.name}": spec
        for role, specs in (("input", manifest.inputs), ("output", manifest.outputs))
        for spec in specs
    }
    for spec in manifest.outputs:
        expected[f"tolerance.{spec.name}"] = TensorSpec(spec.name, "f64", ())
    for name, spec in expected.items():
        tensor = tensors.get(name)
        is_right = tensor and tensor.dtype == spec.dtype and spec.admits(tensor.shape)
        if not is_right:
            found = "missing" if tensor is None else f"{tensor.dtype}{list(tensor.shape)}"
            raise BundleMalformed(path=path, field=name, found=found, expected=str(spec))
