"""Errors of signing, of bills of materials, and of OCI layouts and registries."""

from __future__ import annotations

from aotc.aot.errors import UserError
from aotc.runtime.errors import BundleError, EnvironmentFault


class BundleUnsound(BundleError):
    """A bundle with a damaged or missing file is not signed and not sent."""

    template = "`{path}` is not sound: `{subject}`: {detail}"


class SignatureOther(UserError):
    """The bundle has an envelope that says something other than the one to be written."""

    template = "`{path}` holds {found}, expected signatures of this bundle"
    hint = "pass `--force` to replace it and the signatures in it"


class LayoutForeign(UserError):
    """An image is to be written where something other than an OCI layout is."""

    template = "`{path}` is {found}, expected an OCI image layout or nothing"
    hint = "choose another path"


class ReferenceInvalid(UserError):
    """A text is not a reference of an image in a registry."""

    template = "reference `{found}`, expected {expected}"
    hint = "a folder on this disk is `oci-layout:FOLDER:TAG`"


class CredentialsInvalid(EnvironmentFault):
    """The file of registries' credentials cannot be used."""

    template = "credentials in `{path}` are {found}"
    hint = "`docker login HOST` writes them, or remove the file to go without"


class RegistryFailed(EnvironmentFault):
    """A registry cannot be reached, fails, or answers what its specification does not have."""

    template = "{method} {url}: {detail}"
    hint = "try again: the next try continues where this one ended"


class RegistryDenied(EnvironmentFault):
    """A registry asks for credentials, or refuses those that it was given."""

    template = "{method} {url}: {detail}"
    hint = "`docker login HOST` keeps user and password where aotc reads them"


class RegistryMissing(EnvironmentFault):
    """A registry has no image or blob of that name."""

    template = "{method} {url}: {detail}"
    hint = "check the name, the tag and whether the image was pushed"


class ImageAltered(BundleError):
    """Bytes that a registry sent do not have the digest that they were asked for by."""

    template = "{where} of `{path}` has sha256 {found}, expected {expected}"
    hint = "nothing was kept: the registry or the connection altered the data"


class ProvenanceUnusable(BundleError):
    """A bundle does not say what made it."""

    exit_code = 2
    template = "`{path}` is {found}, expected the facts of a build"
    hint = "copy the bundle with all its files, or build it again with this version"
