"""Is a bundle whole, does it fit this machine, does it still give the right numbers?

Three layers, each a list of findings: integrity (every digest, extras included), compatibility
(what `check` says) and golden (the stored input is run and compared with the stored output). Works
without numpy; a million elements take about a second.
"""

from __future__ import annotations

import hashlib
import os

from .check import check, read_manifest
from .directory import Directory
from .dtypes import DTYPES
from .errors import AotcError, BundleAltered, BundleFileMissing, BundleMalformed
from .loading import load
from .manifest import EXTRAS_NAME, GOLDEN_NAME, LIMITS, Extras
from .record import Record
from .weights import read_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .manifest import FileEntry, Manifest, TensorSpec, WeightsEntry
    from .weights import Tensor

LAYERS = ("integrity", "compatibility", "golden")
READ_STEP_BYTES = 4 << 20


class Finding(Record):
    """One answer: layer, subject (a file, a mismatch's field, an output), status and detail.

    status: `ok`, `failed`, or `absent` for an extra that was deleted or never written. difference
    and tolerance: of golden outputs, relative to the output's scale; else None.
    """

    __slots__ = ("code", "detail", "difference", "layer", "status", "subject", "tolerance")
    layer: str
    subject: str
    status: str
    detail: str
    code: str
    difference: float | None
    tolerance: float | None

    def __init__(
        self,
        layer: str,
        subject: str,
        status: str,
        detail: str = "",
        code: str = "",
        difference: float | None = None,
        tolerance: float | None = None,
    ) -> None:
        self._set(
            layer=layer,
            subject=subject,
            status=status,
            detail=detail,
            code=code,
            difference=difference,
            tolerance=tolerance,
        )

    def as_map(self) -> dict[str, Any]:
        """The finding as plain data, for `--json`."""
        return {name: getattr(self, name) for name in self.__slots__}


def verify(
    path: str | os.PathLike[str],
    layers: Sequence[str] = LAYERS,
    device: str | None = None,
    threads: int | None = None,
) -> list[Finding]:
    """Findings of the layers asked for, in the order of LAYERS; damage is data, not an exception.

    Golden runs only where the layers before it found nothing wrong. Raises `EnvironmentFault`.
    """
    text = os.fspath(path)
    findings: list[Finding] = []
    if "integrity" in layers:
        findings += _integrity(text)
    if "compatibility" in layers and not _failed(findings):
        rows = check(text, device)
        findings += [
            Finding("compatibility", row.field, "failed", str(row), row.code) for row in rows
        ] or [Finding("compatibility", "this machine", "ok")]
    if "golden" in layers and not _failed(findings):
        findings += _golden(text, device, threads)
    return findings


def _failed(findings: list[Finding]) -> bool:
    return any(finding.status == "failed" for finding in findings)


def _integrity(path: str) -> list[Finding]:
    try:
        with Directory(path) as directory:
            manifest, _ = read_manifest(directory)
            findings = [Finding("integrity", "manifest.msgpack", "ok")]
            for entry in manifest.files:
                findings.append(_file_finding(directory, entry, required=True))
            if manifest.weights is not None:
                findings.append(_weights_finding(directory, manifest.weights))
            return findings + _extras_findings(directory)
    except AotcError as error:
        return [_failure("integrity", path, error)]


def _extras_findings(directory: Directory) -> list[Finding]:
    try:
        data = directory.read_head(EXTRAS_NAME, LIMITS.file_bytes + 4096)
        extras = Extras.from_bytes(data, directory.where(EXTRAS_NAME))
    except BundleFileMissing:
        return [Finding("integrity", EXTRAS_NAME, "absent", "the bundle has no extras")]
    except AotcError as error:
        return [_failure("integrity", EXTRAS_NAME, error)]
    return [_file_finding(directory, entry, required=False) for entry in extras.files]


def _failure(layer: str, subject: str, error: AotcError) -> Finding:
    if error.exit_code == 7:
        raise error
    return Finding(layer, subject, "failed", error.message, error.code)


def _file_finding(directory: Directory, entry: FileEntry, required: bool) -> Finding:
    """The digest of a file, read in steps: extras have no bound on their size."""
    try:
        found = _digests(directory, entry.name, entry.nbytes, max(entry.nbytes, 1))
        _compare(directory, entry.name, "the file", found[0], entry.sha256)
    except BundleFileMissing as error:
        if not required:
            return Finding("integrity", entry.name, "absent", "deleted; nothing needs it")
        return _failure("integrity", entry.name, error)
    except AotcError as error:
        return _failure("integrity", entry.name, error)
    return Finding("integrity", entry.name, "ok")


def _weights_finding(directory: Directory, entry: WeightsEntry) -> Finding:
    try:
        found = _digests(directory, entry.name, entry.nbytes, entry.chunk_bytes)
        for index, (digest, expected) in enumerate(zip(found, entry.chunks, strict=True)):
            _compare(directory, entry.name, f"chunk {index}", digest, expected)
    except AotcError as error:
        return _failure("integrity", entry.name, error)
    return Finding("integrity", entry.name, "ok")


def _compare(directory: Directory, name: str, where: str, found: bytes, expected: bytes) -> None:
    if found != expected:
        path = directory.where(name)
        raise BundleAltered(path=path, where=where, found=found.hex(), expected=expected.hex())


def _digests(directory: Directory, name: str, nbytes: int, chunk_bytes: int) -> list[bytes]:
    """SHA-256 of each chunk of a file of the expected size; one digest for an empty file."""
    descriptor = directory.open_sized(name, nbytes)
    digests: list[bytes] = []
    try:
        rest = nbytes
        while rest or not digests:
            digest, chunk = hashlib.sha256(), min(rest, chunk_bytes)
            rest -= chunk
            while chunk:
                data = os.read(descriptor, min(chunk, READ_STEP_BYTES))
                if not data:
                    break  # it shrank while it was read: the digest will not fit
                digest.update(data)
                chunk -= len(data)
            digests.append(digest.digest())
    finally:
        os.close(descriptor)
    return digests


def _golden(path: str, device: str | None, threads: int | None) -> list[Finding]:
    try:
        with Directory(path) as directory:
            manifest, _ = read_manifest(directory)
            try:
                data = directory.read_head(GOLDEN_NAME, 1 << 32)
            except BundleFileMissing:
                return [Finding("golden", GOLDEN_NAME, "absent", "the bundle has no golden file")]
            where = directory.where(GOLDEN_NAME)
            tensors = read_header(data, where)
            _check_golden(manifest, tensors, where)
        with load(path, device, threads=threads, verify="code") as program:
            arrays = [_slice(data, tensors[f"input.{spec.name}"]) for spec in manifest.inputs]
            results = program(*arrays)
            results = results if isinstance(results, tuple) else (results,)
            return [
                _output_finding(spec, bytes(result), data, tensors)
                for spec, result in zip(manifest.outputs, results, strict=True)
            ]
    except AotcError as error:
        return [_failure("golden", GOLDEN_NAME, error)]


def _check_golden(manifest: Manifest, tensors: dict[str, Tensor], path: str) -> None:
    expected = {
        f"{role}.{spec.name}": (spec.dtype, spec.shape)
        for role, specs in (("input", manifest.inputs), ("output", manifest.outputs))
        for spec in specs
    }
    for spec in manifest.outputs:
        expected[f"tolerance.{spec.name}"] = ("f64", ())
    for name, (dtype, shape) in expected.items():
        tensor = tensors.get(name)
        if tensor is None or (tensor.dtype, tensor.shape) != (dtype, shape):
            found = "missing" if tensor is None else f"{tensor.dtype}{list(tensor.shape)}"
            raise BundleMalformed(
                path=path, field=name, found=found, expected=f"{dtype}{list(shape)}"
            )


def _slice(data: bytes, tensor: Tensor) -> bytes:
    return data[tensor.offset : tensor.offset + tensor.nbytes]


def _output_finding(
    spec: TensorSpec, result: bytes, data: bytes, tensors: dict[str, Tensor]
) -> Finding:
    import struct

    golden = _slice(data, tensors[f"output.{spec.name}"])
    tolerance = struct.unpack("<d", _slice(data, tensors[f"tolerance.{spec.name}"]))[0]
    difference = relative_difference(spec.dtype, result, golden)
    fits = difference <= tolerance  # a NaN difference does not fit
    detail = f"differs by {difference:.3g} of its scale, tolerance {tolerance:.3g}"
    code = "" if fits else "golden-differs"
    status = "ok" if fits else "failed"
    return Finding("golden", spec.name, status, detail, code, difference, tolerance)


def relative_difference(dtype: str, found: bytes, expected: bytes) -> float:
    """Largest absolute difference by the largest finite absolute value expected.

    NaN against NaN and equal infinities differ by 0; a NaN or infinity against anything else by
    infinity. Where everything expected is 0, the difference is absolute.
    """
    if found == expected:
        return 0.0
    if len(found) != len(expected):
        return float("inf")
    scale = largest = 0.0
    for left, right in zip(elements(dtype, found), elements(dtype, expected), strict=True):
        if left == right or (left != left and right != right):
            difference = 0.0
        else:
            difference = abs(left - right)
            if not difference < float("inf"):  # NaN or infinite
                return float("inf")
        largest = max(largest, difference)
        if abs(right) < float("inf"):
            scale = max(scale, abs(right))
    return largest / scale if scale else largest


def elements(dtype: str, data: bytes) -> Iterator[Any]:
    """The numbers of contiguous little-endian bytes; bf16 by widening its bits to f32."""
    import struct

    row = DTYPES[dtype]
    letter, size = row.buffer, row.itemsize_bytes
    for begin in range(0, len(data), READ_STEP_BYTES):
        part = data[begin : begin + READ_STEP_BYTES]
        if dtype == "bf16":
            wide = bytearray(2 * len(part))
            wide[2::4], wide[3::4] = part[0::2], part[1::2]
            part, letter, size = bytes(wide), "f", 4
        for (number,) in struct.iter_unpack(f"<{letter}", part[: len(part) // size * size]):
            yield number
