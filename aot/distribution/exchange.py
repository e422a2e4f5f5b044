"""`push_bundle` and `pull_bundle`: from a reference as text to a registry or a layout."""

from __future__ import annotations

import os

from aotc.aot.distribution.credentials import find_credentials
from aotc.aot.distribution.image import image_of
from aotc.aot.distribution.layout import write_layout
from aotc.aot.distribution.pulling import PullReport, pull
from aotc.aot.distribution.pushing import PushReport, push
from aotc.aot.distribution.reference import read_reference
from aotc.aot.distribution.registry import Registry
from aotc.aot.distribution.signing import check_sound
from aotc.aot.distribution.sources import LayoutSource, RegistrySource
from aotc.aot.distribution.transfers import JOBS
from aotc.aot.stages import Progress
from aotc.runtime.bundle.directory import LAYOUT_PREFIX
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.trust.trust import Policy


def push_bundle(
    bundle: str | os.PathLike[str],
    reference: str,
    jobs: int = JOBS,
    plain_http: bool = False,
    progress: Progress | None = None,
    digest: str | None = None,
) -> PushReport:
    """Send the bundle at a path, or in a layout, to a registry or into a layout.

    digest: the bundle digest that it must have, as `runtime.load` takes it.

    Raises `BundleUnsound`, `ReferenceInvalid`, and what `push` and `write_layout` raise.
    """
    is_layout = reference.startswith(LAYOUT_PREFIX)
    parts = None if is_layout else read_reference(reference)
    check_sound(os.fspath(bundle), digest)
    with Bundle(bundle, digest) as opened:
        image = image_of(opened)
        if parts is None:
            written = write_layout(opened.directory, image, reference)
            return PushReport(written, image.digest, image.bundle, image.nbytes, image.nbytes)
        with Registry(parts, find_credentials(parts.host), plain_http) as registry:
            return push(opened.directory, image, registry, jobs, progress)


def pull_bundle(
    reference: str,
    out: str | os.PathLike[str],
    asked: Policy,
    digest: str | None = None,
    force: bool = False,
    jobs: int = JOBS,
    plain_http: bool = False,
    progress: Progress | None = None,
) -> PullReport:
    """Write the bundle in an image at `out`; arguments and errors are those of `pull`."""
    if reference.startswith(LAYOUT_PREFIX):
        with LayoutSource(reference) as source:
            return pull(source, out, asked, digest, force, jobs, progress)
    parts = read_reference(reference)
    with Registry(parts, find_credentials(parts.host), plain_http) as registry:
        return pull(RegistrySource(registry), out, asked, digest, force, jobs, progress)
