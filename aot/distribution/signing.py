"""`sign`: a signature of a bundle's digest, added to the DSSE envelope beside the bundle's files.

The envelope is no part of the digest, so that any number of people can sign one bundle. All sign
the same bytes: the statement follows from the manifest alone.
"""

# Files appear by one rename under descriptors that are held; the calls are this file's subject:
# ruff: noqa: PTH105, PTH108, PTH118, PTH120, PTH123
from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aotc.aot.distribution.errors import BundleUnsound, ReferenceInvalid, SignatureOther
from aotc.aot.errors import OutputExists
from aotc.runtime.bundle.directory import LAYOUT_PREFIX
from aotc.runtime.bundle.manifest import MANIFEST_NAME, Manifest, digest_of
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.errors import environment_fault
from aotc.runtime.trust.envelope import (
    LIMIT_BYTES,
    SIGNATURES_LIMIT,
    Envelope,
    Signature,
    read_envelope,
)
from aotc.runtime.trust.errors import SigningExtraMissing
from aotc.runtime.trust.keys import keyid_of, read_private_key
from aotc.runtime.trust.statement import (
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    SUBJECT_NAME,
)
from aotc.runtime.trust.trust import SIGNATURE_NAME
from aotc.runtime.verify import verify

FILE_MODE = 0o444


@dataclass(frozen=True, slots=True)
class SignReport:
    """What was signed: the envelope's path, the bundle's digest, the key's id, and how many
    signatures the envelope now has."""

    path: str
    digest: str
    keyid: str
    signatures: int


def sign(
    bundle: str | os.PathLike[str],
    key: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    digest: str | None = None,
) -> SignReport:
    """Sign the bundle at `bundle` with the private key in the PEM file `key`.

    digest: the bundle digest that it must have, as `runtime.load` takes it.

    The envelope is `signature.dsse.json` in the bundle, or the file `out`. A key that has signed
    already changes nothing. Raises `BundleUnsound` where a file does not match its digest,
    `SignatureOther` for an envelope of another bundle, unless `force`, and what reading the key and
    writing the file raise.
    """
    private = read_private_key(key)
    path = os.fspath(bundle)
    if out is None and path.startswith(LAYOUT_PREFIX):
        raise ReferenceInvalid(found=path, expected="a bundle's directory, which is then pushed")
    check_sound(path, digest)
    with Bundle(path, digest) as opened:
        manifest, data = opened.manifest, opened.data
    place = os.path.realpath(os.path.join(path, SIGNATURE_NAME) if out is None else os.fspath(out))
    payload = statement(manifest, data)
    with _locked(os.path.dirname(place)):
        found = _existing(place, payload, force)
        envelope = Envelope(PAYLOAD_TYPE, payload, found)
        keyid = keyid_of(private.public_key())
        signature = Signature(keyid, private.sign(envelope.signed))
        signatures = found if signature in found else (*found, signature)
        if len(signatures) > SIGNATURES_LIMIT:
            raise SignatureOther(path=place, found=f"{SIGNATURES_LIMIT} signatures, the most")
        write_file(place, envelope_bytes(envelope.replace(signatures=signatures)))
    return SignReport(place, digest_of(data), keyid, len(signatures))


def check_sound(path: str, digest: str | None = None) -> None:
    """Raise `BundleUnsound` unless every file of the bundle matches its digest, and for what is no
    bundle, or one of another digest, what opening it raises."""
    Bundle(path, digest).directory.close()
    for finding in verify(path, ("integrity",)):
        if finding.status == "failed":
            detail = finding.detail.partition("\n")[0]
            raise BundleUnsound(path=path, subject=finding.subject, detail=detail)


def statement(manifest: Manifest, data: bytes) -> bytes:
    """The in-toto statement of a bundle; `data` is its manifest's file."""
    digests = {SUBJECT_NAME: digest_of(data), MANIFEST_NAME: hashlib.sha256(data).hexdigest()}
    predicate = {
        "producer": manifest.producer,
        "targets": [target.name for target in manifest.targets],
    }
    return _json(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": predicate,
        }
    )


def envelope_bytes(envelope: Envelope) -> bytes:
    """The envelope as a file."""
    rows = [
        {"keyid": each.keyid, "sig": base64.b64encode(each.value).decode()}
        for each in envelope.signatures
    ]
    payload = base64.b64encode(envelope.payload).decode()
    tree = {"payload": payload, "payloadType": envelope.payload_type, "signatures": rows}
    return _json(tree) + b"\n"


def make_keys(name: str) -> tuple[str, str, str]:
    """Write a new pair of keys, `name.pem` (mode 0600) and `name.pub.pem`; their paths and the id.

    Raises `OutputExists`, `SigningExtraMissing` and `EnvironmentFault`.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise SigningExtraMissing() from None
    private_path, public_path = f"{name}.pem", f"{name}.pub.pem"
    for path in (private_path, public_path):
        if os.path.lexists(path):
            raise OutputExists(path=path)
    private = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    _write_new(private_path, private.private_bytes(pem, *plain), 0o600)
    _write_new(public_path, private.public_key().public_bytes(pem, spki), 0o644)
    return private_path, public_path, keyid_of(private.public_key())


def write_file(path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """Write a file that appears whole, in place of one that is there; raises `EnvironmentFault`."""
    staged = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.staging")
    try:
        try:
            _write_new(staged, data, mode)
            os.replace(staged, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(staged)
            raise
    except OSError as error:
        raise environment_fault("write", path, error) from error


def _write_new(path: str, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise OutputExists(path=path) from None
    except OSError as error:
        raise environment_fault("write", path, error) from error
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _existing(path: str, payload: bytes, force: bool) -> tuple[Signature, ...]:
    """The signatures over `payload` that the file has; none where there is no file.

    Raises `SignatureOther` for a file of something else, unless `force`.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise environment_fault("read", path, error) from error
    if force:
        return ()
    envelope = read_envelope(data, path)
    if (envelope.payload_type, envelope.payload) != (PAYLOAD_TYPE, payload):
        raise SignatureOther(path=path, found="another statement")
    return envelope.signatures


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Two who sign at once do so one after the other, where the file system has locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise environment_fault("write into", folder, error) from error
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _json(tree: Any) -> bytes:
    return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()
