"""Verifies a bundle: its signatures, its integrity, whether it fits this machine, and its numbers.

Four layers, each a list of findings: signature (where keys are trusted or digests revoked),
integrity (every digest, extras included), compatibility (what `check` says) and golden (the stored
input is run and compared with the stored output). Works without numpy.
"""

from __future__ import annotations

import hashlib
import os

from .bundle.manifest import EXTRAS_NAME, GOLDEN_NAME, MANIFEST_NAME, WEIGHTS_NAME
from .bundle.opened import Bundle, read_bundle
from .comparison import compare
from .errors import (
    AotcError,
    BundleAltered,
    BundleError,
    BundleFileMissing,
    GoldenDiffers,
    GoldenMissing,
    IncompatibleError,
    environment_fault,
)
from .extras import golden_of
from .loading import load_open
from .mismatch import check_open
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .bundle.directory import Directory
    from .bundle.manifest import FileEntry, TensorSpec, WeightsEntry
    from .extras import Golden

LAYERS = ("signature", "integrity", "compatibility", "golden")
READ_STEP_BYTES = 4 << 20


class Finding(Record):
    """One answer: layer, subject (a file, a mismatch's field, an output), status and detail.

    status: `ok`, `failed`, or `absent` for an extra that was deleted or never written. difference
    and tolerance: of golden outputs, relative to the output's scale; else None. hint: what to do
    about a failure, where that is known.
    """

    layer: str
    subject: str
    status: str
    detail: str = ""
    code: str = ""
    difference: float | None = None
    tolerance: float | None = None
    hint: str = ""


def verify(
    path: str | os.PathLike[str],
    layers: Sequence[str] = LAYERS,
    device: str | None = None,
    threads: int | None = None,
    trusted_keys: Sequence[Any] | None = None,
    revoked: str | os.PathLike[str] | None = None,
    digest: str | None = None,
) -> list[Finding]:
    """Findings of the layers asked for, in the order of LAYERS; damage is data, not an exception.

    digest, trusted_keys, revoked: as `load` takes them. Golden runs only where the layers before it
    found nothing wrong. Raises `EnvironmentFault`, and what `trust.policy` raises.
    """
    trust = (trusted_keys, revoked)
    try:
        return read_bundle(
            path, lambda bundle: _verify(bundle, layers, device, threads, trust), digest
        )
    except (BundleError, IncompatibleError) as error:  # of the manifest
        return [_failure(layers[0] if len(layers) == 1 else "integrity", os.fsdecode(path), error)]


def _verify(
    bundle: Bundle,
    layers: Sequence[str],
    device: str | None,
    threads: int | None,
    trust: tuple[Any, Any],
) -> list[Finding]:
    findings: list[Finding] = []
    if "signature" in layers:
        findings += _signature(bundle, trust, must_ask=len(layers) == 1)
    if "integrity" in layers:
        findings += _integrity(bundle)
    if "compatibility" in layers and not _failed(findings):
        rows = check_open(bundle, device)
        findings += [
            Finding("compatibility", row.field, "failed", str(row), row.code, hint=row.hint)
            for row in rows
        ] or [Finding("compatibility", "this machine", "ok")]
    if "golden" in layers and not _failed(findings):
        findings += _golden(bundle, (device, threads, "full", None, *trust))
    return findings


def _failed(findings: list[Finding]) -> bool:
    return any(finding.status == "failed" for finding in findings)


def _signature(bundle: Bundle, trust: tuple[Any, Any], must_ask: bool) -> list[Finding]:
    """Who signed the bundle; nothing where nobody need have, unless that was asked for alone."""
    from .trust.errors import TrustedKeysMissing
    from .trust.trust import SIGNATURE_NAME, check_trust, policy

    asked = policy(*trust)
    if not asked.keys and asked.revoked is None:
        if must_ask:
            raise TrustedKeysMissing(origin="`signature` was asked for")
        return _unchecked(bundle, SIGNATURE_NAME)
    try:
        keys = check_trust(bundle.directory, bundle.digest, asked)
    except AotcError as error:
        return [_failure("signature", SIGNATURE_NAME, error)]
    found = [Finding("signature", SIGNATURE_NAME, "ok", f"signed by {key}") for key in keys]
    if asked.revoked is not None:
        found.append(Finding("signature", "revoked digests", "ok", "not among them"))
    return found


def _unchecked(bundle: Bundle, name: str) -> list[Finding]:
    """That there are signatures which nobody checks, so that nobody takes them for checked."""
    try:
        os.close(bundle.directory.open(name)[0])
    except BundleFileMissing:
        return []
    except AotcError as error:
        return [_failure("signature", name, error)]
    return [Finding("signature", name, "absent", "not checked: no key is trusted")]


def require_integrity(bundle: Bundle) -> None:
    """Hold every byte of an open bundle against its digest; raises the `BundleError` of the first
    file that fails. Files that may be deleted may be missing."""
    manifest, directory = bundle.manifest, bundle.directory
    for entry in manifest.files:
        _check_file(directory, entry)
    if manifest.weights_file is not None:
        _check_weights(directory, manifest.weights_file)
    try:
        extras = bundle.extras().files
    except BundleFileMissing:
        return
    for entry in extras:
        try:
            _check_file(directory, entry)
        except BundleFileMissing:
            continue


def _check_file(directory: Directory, entry: FileEntry) -> None:
    """The digest of a file, read in steps: extras have no bound on their size."""
    found = _digests(directory, entry.name, entry.nbytes, max(entry.nbytes, 1))
    _compare(directory, entry.name, "the file", found[0], entry.sha256)


def _check_weights(directory: Directory, entry: WeightsEntry) -> None:
    found = _digests(directory, entry.name, entry.nbytes, entry.chunk_bytes)
    for index, (digest, expected) in enumerate(zip(found, entry.chunks, strict=True)):
        _compare(directory, entry.name, f"chunk {index}", digest, expected)


def _integrity(bundle: Bundle) -> list[Finding]:
    manifest, directory = bundle.manifest, bundle.directory
    findings = [Finding("integrity", MANIFEST_NAME, "ok")]
    for entry in manifest.files:
        findings.append(_file_finding(directory, entry, required=True))
    if manifest.is_without_weights:
        text = "outside of the bundle; checked when a program is loaded with them"
        findings.append(Finding("integrity", WEIGHTS_NAME, "absent", text))
    elif manifest.weights is not None:
        findings.append(_weights_finding(directory, manifest.weights))
    return findings + _extras_findings(bundle)


def _extras_findings(bundle: Bundle) -> list[Finding]:
    try:
        extras = bundle.extras()
    except BundleFileMissing:
        return [Finding("integrity", EXTRAS_NAME, "absent", "deleted; nothing needs it")]
    except AotcError as error:
        return [_failure("integrity", EXTRAS_NAME, error)]
    return [_file_finding(bundle.directory, entry, required=False) for entry in extras.files]


def _failure(layer: str, subject: str, error: AotcError) -> Finding:
    if error.exit_code == 7:
        raise error
    return Finding(layer, subject, "failed", error.message, error.code, hint=error.hint_text)


def _file_finding(directory: Directory, entry: FileEntry, required: bool) -> Finding:
    try:
        _check_file(directory, entry)
    except BundleFileMissing as error:
        if not required:
            return Finding("integrity", entry.name, "absent", "deleted; nothing needs it")
        return _failure("integrity", entry.name, error)
    except AotcError as error:
        return _failure("integrity", entry.name, error)
    return Finding("integrity", entry.name, "ok")


def _weights_finding(directory: Directory, entry: WeightsEntry) -> Finding:
    try:
        _check_weights(directory, entry)
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
    except OSError as error:
        raise environment_fault("read", directory.where(name), error) from None
    finally:
        os.close(descriptor)
    return digests


def _golden(bundle: Bundle, options: tuple[Any, ...]) -> list[Finding]:
    findings: list[Finding] = []
    entries = bundle.manifest.entries
    try:
        rows = [(entry.name, golden_of(bundle, entry.name)) for entry in entries]
        with load_open(bundle, *options) as program:
            for name, golden in rows:
                label = f"{name}." if len(entries) > 1 else ""
                with program.session() as session:  # golden numbers are of a first call
                    entry = session[name]
                    results = entry.flatten(entry(*golden.inputs.values()))
                for spec, result in zip(entry.outputs, results, strict=True):
                    findings.append(_output_finding(spec, bytes(result), golden, label))
        return findings
    except GoldenMissing:
        detail = "the bundle has no golden file, or its digest went with `extras.msgpack`"
        return [Finding("golden", GOLDEN_NAME, "absent", detail, GoldenMissing.code)]
    except AotcError as error:
        return [_failure("golden", GOLDEN_NAME, error)]


def _output_finding(spec: TensorSpec, found: bytes, golden: Golden, label: str) -> Finding:
    row = compare(spec, found, golden.outputs[spec.name], golden.tolerances[spec.name])
    detail = (
        f"max error {row.difference:.3g} relative to max |expected|, at most {row.tolerance:.3g}"
    )
    status, code = ("ok", "") if row.is_ok else ("failed", GoldenDiffers.code)
    return Finding("golden", label + spec.name, status, detail, code, row.difference, row.tolerance)
