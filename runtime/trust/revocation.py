"""The list of revoked digests: a text file, one digest a line, `#` begins a comment."""

from __future__ import annotations

from ..errors import environment_fault
from ..settings import path_text
from .errors import BundleRevoked, RevocationListInvalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

LIMIT_BYTES = 16 << 20
HEX = frozenset("0123456789abcdef")


def check_revoked(digest: str, revoked: str | os.PathLike[str], path: str) -> None:
    """Raise `BundleRevoked` where the file `revoked` lists the digest (64 hex digits) of the bundle
    at `path`. A list that cannot be read revokes everything: `EnvironmentFault`, or
    `RevocationListInvalid` for one that is not understood."""
    name = path_text("revoked", revoked)
    for line, listed in enumerate(_digests(name), 1):
        if listed == digest:
            raise BundleRevoked(path=path, found=digest, line=line, revoked=name)


def _digests(name: str) -> list[str]:
    """The digest in each line of the list, empty for one without."""
    try:
        with open(name, "rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise environment_fault("read the revoked digests in", name, error) from None
    if len(data) > LIMIT_BYTES:
        raise _invalid(name, "the file", f"over {LIMIT_BYTES} bytes", "a smaller list")
    found = []
    for number, raw in enumerate(data.split(b"\n"), 1):
        text = raw.partition(b"#")[0].strip().decode("ascii", "replace")
        digest = text.removeprefix("sha256:").lower()
        if digest and (len(digest) != 64 or not HEX.issuperset(digest)):
            raise _invalid(name, f"line {number}", repr(text[:80]), "a sha256 digest in hex")
        found.append(digest)
    return found


def _invalid(path: str, where: str, found: str, expected: str) -> RevocationListInvalid:
    return RevocationListInvalid(path=path, where=where, found=found, expected=expected)
