"""Golden numbers: run a bundle on its own example and compare with the exported model's output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotc.aot.errors import GoldenMissing
from aotc.aot.host_array import HostArray, difference
from aotc.runtime import Program
from aotc.runtime.directory import Directory
from aotc.runtime.errors import BundleFileMissing
from aotc.runtime.manifest import EXTRAS_NAME, GOLDEN_NAME, LIMITS, Extras
from aotc.runtime.weights import read_header


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """How far one output of the bundle is from the golden one; both relative to its scale."""

    name: str
    difference: float
    tolerance: float

    @property
    def is_ok(self) -> bool:
        """Whether it is within the tolerance."""
        return self.difference <= self.tolerance


def read_extras(bundle: Path) -> dict[str, bytes]:
    """Every file that lies in the bundle beside its identity, checked against its digest.

    Empty when the extras were deleted. Raises `BundleError`s.
    """
    with Directory(str(bundle)) as directory:
        try:
            head = directory.read_head(EXTRAS_NAME, LIMITS.file_bytes)
        except BundleFileMissing:
            return {}
        extras = Extras.from_bytes(head, directory.where(EXTRAS_NAME))
        return {entry.name: directory.read(entry) for entry in extras.files}


def read_golden(bundle: Path) -> dict[str, HostArray]:
    """The golden file: `input.NAME`, `output.NAME`, `tolerance.NAME`; or raises GoldenMissing."""
    data = read_extras(bundle).get(GOLDEN_NAME)
    if data is None:
        raise GoldenMissing(path=bundle)
    tensors = read_header(data, str(bundle / GOLDEN_NAME))
    return {
        name: HostArray(
            tensor.dtype, tensor.shape, data[tensor.offset : tensor.offset + tensor.nbytes]
        )
        for name, tensor in tensors.items()
    }


def run(program: Program, inputs: Mapping[str, HostArray]) -> dict[str, HostArray]:
    """Call the program on arrays by name; its outputs by name."""
    results: Any = program(**{name: array.buffer() for name, array in inputs.items()})
    if len(program.outputs) == 1:
        results = (results,)
    return {
        spec.name: HostArray(spec.dtype, spec.shape, bytes(result))
        for spec, result in zip(program.outputs, results, strict=True)
    }


def compare(
    found: Mapping[str, HostArray],
    expected: Mapping[str, HostArray],
    tolerances: Mapping[str, float],
) -> tuple[OutputCheck, ...]:
    """One check for each expected output."""
    return tuple(
        OutputCheck(name, difference(found[name], array), tolerances[name])
        for name, array in expected.items()
    )


def tolerances_of(golden: Mapping[str, HostArray]) -> dict[str, float]:
    """The tolerance of each output by name, as the build chose it."""
    prefix = "tolerance."
    return {
        name.removeprefix(prefix): array.values()[0]
        for name, array in golden.items()
        if name.startswith(prefix)
    }
