"""The in-toto statement that a signature of a bundle is over.

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "bundle", "digest": {"sha256": the bundle's digest}},
                 {"name": "manifest.msgpack", "digest": {"sha256": the digest of that file}}],
     "predicateType": "urn:aotc:bundle:v1",
     "predicate": {"producer": text, "targets": [text, …]}}

The first subject is what is checked here. The second lets tools that know nothing of bundles match
the file `manifest.msgpack`. The type of the predicate says that the signer releases this bundle: a
statement of another type about it (a test report, a warning) does not vouch for it.

Source: https://github.com/in-toto/attestation, spec/v1.
"""

from __future__ import annotations

from ..bundle.strict_json import NotStrict, parse
from .errors import SignatureStatement, SignatureSubject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:aotc:bundle:v1"
SUBJECT_NAME = "bundle"


def check_statement(payload: bytes, digest: str, path: str) -> None:
    """The payload is a statement that releases the bundle of this digest (64 hex digits).

    Raises `SignatureStatement` and `SignatureSubject`; `path` is for messages.
    """
    try:
        statement = parse(payload)
    except NotStrict as reason:
        raise _broken(path, "the statement", str(reason), "json with each key once") from None
    if not isinstance(statement, dict):
        raise _broken(path, "the statement", "no object", "an object")
    for name, expected in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if statement.get(name) != expected:
            raise _broken(path, name, repr(statement.get(name))[:80], f"`{expected}`")
    found = [_digest(subject, path) for subject in _subjects(statement, path)]
    if digest not in found:
        texts = ", ".join(f"sha256:{digest}" for digest in found[:2])
        raise SignatureSubject(path=path, found=texts, expected=digest)


def _subjects(statement: dict[str, Any], path: str) -> list[Any]:
    subjects = statement.get("subject")
    if not isinstance(subjects, list) or not subjects:
        raise _broken(path, "subject", repr(subjects)[:40], "a list of at least one subject")
    return subjects


def _digest(subject: Any, path: str) -> str:
    digests = subject.get("digest") if isinstance(subject, dict) else None
    digest = digests.get("sha256") if isinstance(digests, dict) else None
    if not isinstance(digest, str) or len(digest) != 64 or not digest.isascii():
        raise _broken(path, "subject", repr(subject)[:80], "a subject with a sha256 digest")
    return digest


def _broken(path: str, field: str, found: str, expected: str) -> SignatureStatement:
    return SignatureStatement(path=path, field=field, found=found, expected=expected)
