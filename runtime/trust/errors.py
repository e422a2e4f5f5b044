"""Errors of signatures, keys and revocation lists; `load` raises them before it uses anything."""

from __future__ import annotations

from ..errors import AotcError, BundleError, EnvironmentFault


class SignatureError(BundleError):
    """The bundle's signatures do not vouch for its digest."""

    code = "signature"
    hint = "do not use it: ask its builder for the signed bundle"


class SignatureMissing(SignatureError):
    """A signature is required, and the bundle has none."""

    template = "`{path}` is missing, expected a signature by one of {expected}"
    hint = "`aotc sign BUNDLE --key KEY.pem` signs a bundle"


class SignatureMalformed(SignatureError):
    """The file of signatures is not a DSSE envelope, or larger than one may be."""

    template = "`{path}` is not a DSSE envelope: {found}, expected {expected}"


class SignatureUntrusted(SignatureError):
    """None of the signatures is by a trusted key."""

    template = "`{path}` has signatures by {found}, expected one by {expected}"
    hint = "give the public key of the bundle's builder, if you trust it"


class SignatureInvalid(SignatureError):
    """A signature names a trusted key and does not hold: envelope or payload were altered."""

    template = "`{path}`: the signature by {found} does not hold for the payload"


class SignaturePayloadType(SignatureError):
    """A trusted key signed something other than an in-toto statement."""

    template = "`{path}` signs a payload of type {found}, expected `{expected}`"


class SignatureStatement(SignatureError):
    """A trusted key signed an in-toto statement that does not release a bundle."""

    template = "`{path}` signs a statement whose `{field}` is {found}, expected {expected}"


class SignatureSubject(SignatureError):
    """A trusted key signed another bundle."""

    template = "`{path}` signs {found}, expected sha256:{expected}, the digest of this bundle"
    hint = "the signature belongs to another build: fetch the bundle and its signature together"


class BundleRevoked(SignatureError):
    """The bundle's digest is in the list of revoked ones."""

    template = "`{path}` has the digest sha256:{found}, which line {line} of `{revoked}` revokes"
    hint = "do not use it: fetch the build that replaces it"


class SigningExtraMissing(EnvironmentFault):
    """Signatures are to be made or checked, and the extra `signing` is not installed."""

    template = "`cryptography` is not installed, which signatures need"
    hint = 'pip install "aotc[signing]"; in a checkout of aotc: pip install ".[signing]"'


class KeyInvalid(AotcError):
    """A file is not the key that it was given for."""

    exit_code = 2
    template = "key `{path}` is {found}, expected {expected}"
    hint = "`aotc keygen NAME` writes a pair: NAME.pem to sign with, NAME.pub.pem to check with"


class TrustedKeysMissing(AotcError):
    """A signature is required, and no key is trusted."""

    exit_code = 2
    template = "a signature is required ({origin}), and no trusted key is given"
    hint = "give `trusted_keys=` or `--key`, or set AOTC_TRUSTED_KEYS to files of public keys"


class RevocationListInvalid(AotcError):
    """A line of the list of revoked digests is not a digest."""

    exit_code = 2
    template = "`{path}`: {where} is {found}, expected {expected}"
    hint = "one digest a line: `sha256:` and 64 hex digits; `#` begins a comment"
