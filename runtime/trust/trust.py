"""Checks that a bundle's digest is signed by a trusted key and not revoked, before anything is
used.

A signature is required where trusted keys are given, by `trusted_keys` or `AOTC_TRUSTED_KEYS`, and
where `AOTC_REQUIRE_SIGNATURE` is set: then also that keys are given. A bundle without signatures is
never taken for one that needs none.
"""

from __future__ import annotations

from ..errors import BundleFileMissing
from ..record import Record
from ..settings import ArgumentInvalid, read
from .envelope import LIMIT_BYTES, read_envelope
from .errors import (
    SignatureInvalid,
    SignatureMissing,
    SignaturePayloadType,
    SignatureUntrusted,
    TrustedKeysMissing,
)
from .keys import PublicKey, read_public_key
from .revocation import check_revoked
from .statement import PAYLOAD_TYPE, check_statement

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Any

    from ..bundle.directory import Directory
    from .envelope import Envelope

SIGNATURE_NAME = "signature.dsse.json"
KEYS_LIMIT = 64


class Policy(Record):
    """What is asked of a bundle. keys: one of them must have signed it; none: nobody need have.
    revoked: path of the list of revoked digests, or None."""

    keys: tuple[PublicKey, ...]
    revoked: str | os.PathLike[str] | None


def policy(
    trusted_keys: Sequence[Any] | None = None, revoked: str | os.PathLike[str] | None = None
) -> Policy:
    """The policy of arguments and settings; an argument goes before its setting.

    Raises `SigningExtraMissing`, `KeyInvalid`, `TrustedKeysMissing`, `SettingInvalid` and
    `EnvironmentFault`.
    """
    given = read("AOTC_TRUSTED_KEYS").value if trusted_keys is None else trusted_keys
    is_list = isinstance(given, (list, tuple))
    if not is_list or len(given) > KEYS_LIMIT:
        found = f"{len(given)} keys" if is_list else type(given).__name__
        expected = f"a list of at most {KEYS_LIMIT} keys"
        remedy = "put a single key into a list; `revoked` ends trust in bundles one by one"
        raise ArgumentInvalid(name="trusted_keys", found=found, expected=expected, remedy=remedy)
    if not given and trusted_keys is not None:
        raise TrustedKeysMissing(origin="`trusted_keys` is an empty list")
    if not given and read("AOTC_REQUIRE_SIGNATURE").value:
        raise TrustedKeysMissing(origin="AOTC_REQUIRE_SIGNATURE is set")
    keys = tuple(read_public_key(source) for source in given)
    return Policy(keys, read("AOTC_REVOKED").value if revoked is None else revoked)


def check_trust(directory: Directory, digest: str, asked: Policy) -> tuple[PublicKey, ...]:
    """The trusted keys that signed the open bundle whose digest is `digest` (64 hex digits).

    Raises `SignatureError`s, `RevocationListInvalid` and `EnvironmentFault`.
    """
    if asked.revoked is not None:
        check_revoked(digest, asked.revoked, directory.path)
    if not asked.keys:
        return ()
    where = directory.where(SIGNATURE_NAME)
    try:
        data = directory.read_head(SIGNATURE_NAME, LIMIT_BYTES)
    except BundleFileMissing:
        raise SignatureMissing(path=where, expected=_names(asked.keys)) from None
    return check_envelope(data, digest, asked.keys, where)


def check_envelope(
    data: bytes, digest: str, keys: Sequence[PublicKey], path: str
) -> tuple[PublicKey, ...]:
    """The keys whose signatures hold, each once; the payload releases the bundle `digest`.

    Raises `SignatureError`s; `path` is the envelope's, for messages.
    """
    envelope = read_envelope(data, path)
    found = accepted_keys(envelope, keys)
    if not found:
        raise _refusal(envelope, keys, path)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise SignaturePayloadType(
            path=path, found=repr(envelope.payload_type)[:80], expected=PAYLOAD_TYPE
        )
    check_statement(envelope.payload, digest, path)
    return found


def accepted_keys(envelope: Envelope, keys: Sequence[PublicKey]) -> tuple[PublicKey, ...]:
    """Every key that made one of the signatures, whatever the key ids say, each once."""
    signed = envelope.signed
    unique = {key.keyid: key for key in keys}.values()
    values = [signature.value for signature in envelope.signatures]
    return tuple(key for key in unique if any(key.accepts(value, signed) for value in values))


def _refusal(envelope: Envelope, keys: Sequence[PublicKey], path: str) -> Exception:
    """Why no signature counts; key ids choose the words only."""
    named = {signature.keyid for signature in envelope.signatures}
    for key in keys:
        if key.keyid in named:
            return SignatureInvalid(path=path, found=str(key))
    found = ", ".join(sorted(f"key {keyid[:16]!r}" if keyid else "keys unnamed" for keyid in named))
    return SignatureUntrusted(path=path, found=found, expected=_names(keys))


def _names(keys: Sequence[PublicKey]) -> str:
    return ", ".join(str(key) for key in keys)
