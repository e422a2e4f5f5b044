"""Errors of signing, of bills of materials, and of OCI layouts and registries."""

from __future__ import annotations

from aotc.aot.errors import UserError
from aotc.runtime.errors import BundleError


class BundleUnsound(BundleError):
    """A bundle with a damaged or missing file is not signed and not sent."""

    code = "bundle-unsound"
    template = "`{path}` is not sound: `{subject}`: {detail}"


class SignatureOther(UserError):
    """The bundle has an envelope that says something else than the one to be written."""

    code = "signature-other"
    template = "`{path}` holds {found}, expected signatures of this bundle"
    hint = "pass `--force` to replace it and the signatures in it"
