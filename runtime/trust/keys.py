"""Ed25519 keys in PEM files, by the extra `signing`, which is imported when the first is read.

A key's id is the SHA-256 of its public half in DER (SubjectPublicKeyInfo), 64 hex digits:
`openssl pkey -pubin -in NAME.pub.pem -outform DER | sha256sum`.
"""

from __future__ import annotations

import hashlib
import os

from ..errors import environment_fault
from ..record import Record
from ..settings import path_text
from .errors import KeyInvalid, SigningExtraMissing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT_BYTES = 1 << 16
PEM = b"-----BEGIN "


class PublicKey(Record):
    """A key that signatures are checked with: its id, where it came from, and the library's key."""

    keyid: str
    origin: str
    key: Any

    def accepts(self, signature: bytes, data: bytes) -> bool:
        """Whether the signature over the data is by this key."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.key.verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True

    def __str__(self) -> str:
        return f"key {self.keyid[:16]} (`{self.origin}`)"


def read_public_key(source: Any) -> PublicKey:
    """A public key: the path of a PEM file, or the file's text or bytes.

    Raises `SigningExtraMissing`, `KeyInvalid` and `EnvironmentFault`.
    """
    origin, data = _pem(source)
    serialization, ed25519 = _library()
    expected = "an Ed25519 public key in PEM"
    if b"PRIVATE KEY" in data:
        raise KeyInvalid(path=origin, found="a private key", expected=expected)
    try:
        key = serialization.load_pem_public_key(data)
    except Exception as error:  # the library's own classes, too, which differ by release
        found = f"unreadable ({type(error).__name__})"
        raise KeyInvalid(path=origin, found=found, expected=expected) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise KeyInvalid(path=origin, found=f"a {type(key).__name__}", expected=expected)
    return PublicKey(keyid_of(key), origin, key)


def read_private_key(path: str | os.PathLike[str]) -> Any:
    """The library's private key in a PEM file without a passphrase.

    Raises `SigningExtraMissing`, `KeyInvalid` and `EnvironmentFault`.
    """
    origin, data = _pem(path)
    serialization, ed25519 = _library()
    expected = "an Ed25519 private key in PEM without a passphrase"
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except TypeError:
        found = "protected by a passphrase"
        raise KeyInvalid(path=origin, found=found, expected=expected) from None
    except Exception as error:
        found = f"unreadable ({type(error).__name__})"
        raise KeyInvalid(path=origin, found=found, expected=expected) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise KeyInvalid(path=origin, found=f"a {type(key).__name__}", expected=expected)
    return key


def keyid_of(public: Any) -> str:
    """The id of the library's public key."""
    serialization, _ = _library()
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    der = public.public_bytes(serialization.Encoding.DER, spki)
    return hashlib.sha256(der).hexdigest()


def _pem(source: Any) -> tuple[str, bytes]:
    """Where a key comes from, for messages, and its PEM text."""
    if isinstance(source, str) and source.lstrip().startswith(PEM.decode()):
        source = source.encode()
    if isinstance(source, bytes) and source.lstrip().startswith(PEM):
        return "given as text", source
    path = path_text("trusted_keys", source)
    try:
        with open(path, "rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise environment_fault("read the key", path, error) from None
    if len(data) > LIMIT_BYTES:
        raise KeyInvalid(path=path, found=f"over {LIMIT_BYTES} bytes", expected="a key in PEM")
    return path, data


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise SigningExtraMissing() from None
    return serialization, ed25519
