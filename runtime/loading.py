"""`load`: from a directory to a `Program`, every byte checked before it is used."""

from __future__ import annotations

import os

from .check import mismatches, pick_target, read_manifest
from .directory import Directory
from .drivers import load as load_driver
from .errors import BundleIncompatible, BundleMalformed, IdentityMismatch, SettingInvalid
from .manifest import identity_of
from .plan import LaunchPlan
from .program import Loaded, Program
from .settings import SETTINGS, parse, read
from .weights import ALIGNMENT_BYTES, Digests, MappedFile, hash_threads, read_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .manifest import Manifest, Target, WeightsEntry
    from .weights import Tensor


def load(
    path: str | os.PathLike[str],
    device: str | None = None,
    digest: str | None = None,
    threads: int | None = None,
    verify: str | None = None,
) -> Program:
    """Load the bundle at `path` and return a `Program`.

    device: a device family of the bundle, or None for the first target that runs here.
    digest: the identity that the bundle must have, `sha256:` and 64 hex digits or the digits.
    threads: threads that share one call's work; None reads `AOTC_THREADS`, 0 takes what affinity
    and cgroup limits allow.
    verify: `full` digests manifest, plan, code and weights before they are used; `code` leaves
    the weights out, for files too large to read at every start. None reads `AOTC_LOAD_VERIFY`.

    Raises `BundleError` (damage, exit 6), `IncompatibleError` (not for this machine, 5),
    `EnvironmentFault` (7) and `SettingInvalid` (2).
    """
    thread_count = _setting("AOTC_THREADS", threads)
    extent = _setting("AOTC_LOAD_VERIFY", verify)
    with Directory(os.fspath(path)) as directory:
        manifest, data = read_manifest(directory)
        identity = identity_of(data)
        if digest is not None:
            _check_digest(directory.path, identity, digest)
        target = _fitting_target(directory, manifest, device)
        weights = _map_weights(directory, manifest.weights)
        digests = None
        if weights is not None and manifest.weights is not None and extent == "full":
            where = directory.where(manifest.weights.name)
            digests = Digests(weights.view, manifest.weights, where, hash_threads())
        try:
            plan_bytes = directory.read(manifest.file(target.plan))
            library = directory.read(manifest.file(target.library))
        finally:
            if digests is not None:
                digests.finish()
        plan = LaunchPlan.from_msgpack(plan_bytes, directory.where(target.plan))
        addresses = _addresses(directory, manifest, plan, target, len(library), weights)
    driver = load_driver(target.device)
    counts = (len(manifest.inputs), len(manifest.outputs))
    where = directory.where(target.library)
    executable = driver.Executable(library, plan, addresses, *counts, thread_count, where)
    return Program(manifest, target, identity, plan, Loaded(executable, weights))


def _setting(name: str, argument: Any) -> Any:
    """An argument of `load` by the rules of the setting's row, else the setting."""
    if argument is None:
        return read(name).value
    return parse(SETTINGS[name], argument, "argument")


def _check_digest(path: str, identity: str, digest: str) -> None:
    expected = digest.removeprefix("sha256:").lower()
    if len(expected) != 64 or not set(expected) <= set("0123456789abcdef"):
        raise SettingInvalid(
            name="digest", found=digest, origin="argument", expected="`sha256:` and 64 hex digits"
        )
    if expected != identity:
        raise IdentityMismatch(path=path, found=identity, expected=expected)


def _fitting_target(directory: Directory, manifest: Manifest, device: str | None) -> Target:
    found = mismatches(manifest, device)
    target = pick_target(manifest, device)
    if found or target is None:
        raise BundleIncompatible(
            path=directory.path,
            summary="; ".join(str(each) for each in found),
            advice=found[0].hint,
            mismatches=found,
        )
    return target


def _map_weights(directory: Directory, entry: WeightsEntry | None) -> MappedFile | None:
    if entry is None:
        return None
    descriptor = directory.open_sized(entry.name, entry.nbytes)
    try:
        return MappedFile(descriptor, entry.nbytes)
    finally:
        os.close(descriptor)


def _addresses(
    directory: Directory,
    manifest: Manifest,
    plan: LaunchPlan,
    target: Target,
    library_bytes: int,
    weights: MappedFile | None,
) -> dict[str, int]:
    """Addresses of all tensors of the weights, after the plan was checked against them."""
    tensors: dict[str, Tensor] = {}
    if weights is not None and manifest.weights is not None:
        where = directory.where(manifest.weights.name)
        tensors = read_header(weights.view, where)
        for tensor in tensors.values():
            if tensor.offset % ALIGNMENT_BYTES:
                raise BundleMalformed(
                    path=where,
                    field=f"{tensor.name}.data_offsets",
                    found=f"byte {tensor.offset} of the file",
                    expected=f"a multiple of {ALIGNMENT_BYTES}",
                )
    counts = (len(manifest.inputs), len(manifest.outputs))
    where = directory.where(target.plan)
    plan.validate(*counts, tensors.keys(), where, target.device, library_bytes)
    base = weights.address if weights is not None else 0
    return {name: base + tensor.offset for name, tensor in tensors.items()}
