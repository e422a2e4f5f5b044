"""DSSE envelopes, version 1: the encoding that is signed, and a strict reader.

    envelope = {"payload": base64, "payloadType": text,
                "signatures": [{"keyid": text, "sig": base64}, …]}
    signed   = PAE(payloadType, payload)
             = "DSSEv1" SP len(type) SP type SP len(payload) SP payload      lengths in bytes

Both alphabets of base64 are read, with padding and in their one canonical form. Unknown fields are
ignored, as the specification asks; key ids are hints for messages and decide nothing.

Source: https://github.com/secure-systems-lab/dsse, protocol.md and envelope.md.
"""

from __future__ import annotations

import base64
import binascii

from ..bundle.strict_json import NotStrict, parse
from ..record import Record
from .errors import SignatureMalformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT_BYTES = 1 << 18
SIGNATURES_LIMIT = 64
KEYID_LIMIT = 256
TYPE_LIMIT = 256
STANDARD = str.maketrans("-_", "+/")


class Signature(Record):
    """One signature's bytes, and the hint that says by which key, empty where there is none."""

    keyid: str
    value: bytes


class Envelope(Record):
    """A payload with its type and its signatures, none of them checked."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    @property
    def signed(self) -> bytes:
        """The bytes that each signature is over."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding of a payload and its type."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def read_envelope(data: bytes, path: str) -> Envelope:
    """The envelope in a file's bytes; `path` is for messages. Raises `SignatureMalformed`."""
    if len(data) > LIMIT_BYTES:
        raise _malformed(path, f"{len(data)} bytes", f"at most {LIMIT_BYTES}")
    try:
        tree = parse(data)
    except NotStrict as reason:
        raise _malformed(path, str(reason), "json with each key once") from None
    if not isinstance(tree, dict):
        raise _malformed(path, _kind(tree), "an object")
    kind = _text(tree, "payloadType", TYPE_LIMIT, path)
    payload = _base64(tree, "payload", path)
    rows = tree.get("signatures")
    if not isinstance(rows, list) or not 1 <= len(rows) <= SIGNATURES_LIMIT:
        found = f"{len(rows)} signatures" if isinstance(rows, list) else _kind(rows)
        raise _malformed(path, found, f"`signatures` of 1 to {SIGNATURES_LIMIT}")
    return Envelope(kind, payload, tuple(_signature(row, path) for row in rows))


def _signature(row: Any, path: str) -> Signature:
    if not isinstance(row, dict):
        raise _malformed(path, f"{_kind(row)} in `signatures`", "an object")
    keyid = row.get("keyid")
    keyid = "" if keyid is None else _text(row, "keyid", KEYID_LIMIT, path)
    return Signature(keyid, _base64(row, "sig", path))


def _text(row: dict[str, Any], name: str, limit: int, path: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or len(value) > limit:
        raise _malformed(path, f"`{name}` {_kind(value)}", f"text of at most {limit} letters")
    return value


def _base64(row: dict[str, Any], name: str, path: str) -> bytes:
    value = row.get(name)
    if not isinstance(value, str):
        raise _malformed(path, f"`{name}` {_kind(value)}", "base64")
    standard = value.translate(STANDARD)
    try:
        data = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError):
        raise _malformed(path, f"`{name}` that is not base64", "base64 with padding") from None
    if base64.b64encode(data).decode() != standard:
        raise _malformed(path, f"`{name}` with bits after its end", "canonical base64")
    return data


def _kind(value: Any) -> str:
    """What a value of JSON is, for messages."""
    if isinstance(value, str):
        return f"of {len(value)} letters"
    return "missing" if value is None else f"a {type(value).__name__}"


def _malformed(path: str, found: str, expected: str) -> SignatureMalformed:
    return SignatureMalformed(path=path, found=found, expected=expected)
