"""Does a bundle fit this machine? Answered from its head, before anything is loaded."""

from __future__ import annotations

import os

from .bundle.manifest import FEATURES, Manifest
from .bundle.opened import Bundle, read_bundle
from .bundle.plan import PLAN_ABI
from .drivers import DRIVERS
from .drivers import load as load_driver
from .errors import (
    AotcError,
    BundleIncompatible,
    DeviceUnknown,
)
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .bundle.manifest import Target


UPGRADE = "install the version of aotc on this machine that built it, or a later one"


class Mismatch(Record):
    """One reason why a bundle does not run here; target is empty where it concerns all of them."""

    code: str
    target: str
    field: str
    found: str
    expected: str
    hint: str

    def __str__(self) -> str:
        where = f"target `{self.target}`: " if self.target else ""
        return f"{where}{self.field} is {self.found}, expected {self.expected}"


def check(
    path: str | os.PathLike[str], device: str | None = None, digest: str | None = None
) -> list[Mismatch]:
    """Every reason why the bundle at `path` does not run on this machine; empty when it does.

    digest: the bundle digest that it must have, as `load` takes it.

    Reads the manifest and the sizes of the files it lists, nothing else: no digest of a payload,
    no code. For a bundle that runs ops through torch, torch is asked for them. What is not a
    bundle, too new, cut off or altered is a mismatch too; only an `EnvironmentFault` (no permission
    …) is raised.
    """
    try:
        return read_bundle(path, lambda bundle: check_open(bundle, device), digest)
    except AotcError as error:
        if error.exit_code == 7:
            raise
        return [_from_error(error)]


def check_open(bundle: Bundle, device: str | None = None) -> list[Mismatch]:
    """The same of an open bundle."""
    found = mismatches(bundle.manifest, device)
    found += _missing_ops(bundle.manifest, bundle.path)
    found += _missing_backends(bundle.manifest, bundle.path)
    return found + _file_mismatches(bundle)


def _missing_ops(manifest: Manifest, path: str) -> list[Mismatch]:
    """Ops that the bundle runs through torch and that are not here."""
    if not manifest.torch:
        return []
    from .programs.fallback import Fallback

    try:
        Fallback(manifest.torch, path)
    except AotcError as error:
        return [_from_error(error)]
    return []


def _missing_backends(manifest: Manifest, path: str) -> list[Mismatch]:
    """Native libraries that the bundle calls and that are not here, or are others; none is run."""
    outside = [entry for entry in manifest.backends if entry.file is None]
    if not outside:
        return []
    from .extensions import extension

    try:
        read_here = extension("native back ends").read_here
    except AotcError as error:
        return [_from_error(error)]
    found = []
    for entry in outside:
        try:
            read_here(entry, path)
        except AotcError as error:
            found.append(_from_error(error))
    return found


def mismatches(manifest: Manifest, device: str | None = None) -> list[Mismatch]:
    """Every reason why nothing in the manifest runs here; empty when a target does."""
    return fit(manifest, device)[0]


def fit(
    manifest: Manifest, device: str | None = None
) -> tuple[list[Mismatch], tuple[Target, int] | None]:
    """Every reason why nothing runs here, and the first target that does with the number of its
    device, or None. Targets are listed best first; no driver of a later one is asked.

    Raises `DeviceUnknown`.
    """
    known = "a feature that this runtime knows"
    unknown = [
        Mismatch("feature-unknown", "", "feature", f"`{name}`", known, UPGRADE)
        for name in manifest.features
        if name not in FEATURES
    ]
    targets, ordinal = _of_device(manifest, device)
    reasons: list[Mismatch] = []
    for target in targets:
        rows = _target_mismatches(target, ordinal, manifest.ranks)
        if not rows:
            return unknown, None if unknown else (target, ordinal)
        reasons += rows
    return unknown + _said_once(reasons), None


def _said_once(reasons: list[Mismatch]) -> list[Mismatch]:
    """The same without repetition: what several targets lack is no longer about one of them."""
    found: dict[tuple[str, str, str], Mismatch] = {}
    for row in reasons:
        key = row.code, row.found, row.expected
        if key in found:
            row = Mismatch(row.code, "", row.field, row.found, row.expected, row.hint)
        found[key] = row
    return list(found.values())


def require_target(manifest: Manifest, path: str, device: str | None = None) -> tuple[Target, int]:
    """The first target that runs here and the number of its device; `path` is of the bundle.

    Raises `BundleIncompatible` with every reason, and `DeviceUnknown`.
    """
    found, picked = fit(manifest, device)
    if picked is None:
        raise BundleIncompatible(
            path=path,
            summary="; ".join(str(each) for each in found),
            advice=found[0].hint,
            mismatches=found,
        )
    return picked


def _of_device(manifest: Manifest, device: str | None) -> tuple[list[Target], int]:
    """The targets of `cpu`, `cuda` or `cuda:1`, all of them for None, and the device's number.

    Raises `DeviceUnknown`.
    """
    text = device if isinstance(device, str) else ""
    family, colon, number = text.partition(":")
    targets = [each for each in manifest.targets if device is None or family == each.device]
    is_number = number.isascii() and number.isdigit() and len(number) < 5
    if not targets or (colon and not is_number):
        known = ", ".join(sorted({each.device for each in manifest.targets}))
        raise DeviceUnknown(found=device, expected=known)
    return targets, int(number or 0)


def _target_mismatches(target: Target, ordinal: int, ranks: int) -> list[Mismatch]:
    """Each reason why a target does not run on devices of this machine, `ranks` from one on."""
    if target.device not in DRIVERS:
        known = "one of " + ", ".join(f"`{name}`" for name in DRIVERS)
        found = f"`{target.device}`"
        return [Mismatch("device-unsupported", target.name, "device", found, known, UPGRADE)]
    rows = []
    if target.abi != PLAN_ABI:
        hint = UPGRADE if target.abi > PLAN_ABI else "rebuild with this version of aotc"
        row = ("abi", str(target.abi), str(PLAN_ABI), hint)
        rows.append(Mismatch("abi", target.name, *row))
    missing = load_driver(target.device).missing(target.needs, ordinal, ranks)
    return rows + [Mismatch(code, target.name, *row) for code, *row in missing]


def _file_mismatches(bundle: Bundle) -> list[Mismatch]:
    manifest = bundle.manifest
    sizes = [(entry.name, entry.nbytes) for entry in manifest.files]
    if manifest.weights_file is not None:
        sizes.append((manifest.weights_file.name, manifest.weights_file.nbytes))
    found = []
    for name, nbytes in sizes:
        try:
            os.close(bundle.directory.open_sized(name, nbytes))
        except AotcError as error:
            if error.exit_code == 7:
                raise
            found.append(_from_error(error))
    return found


def _from_error(error: AotcError) -> Mismatch:
    """A bundle error as data: its fields where it has them, else its message."""
    fields = error.fields
    return Mismatch(
        error.code,
        "",
        str(fields.get("field") or fields.get("path") or "bundle"),
        str(fields.get("found", error.message)),
        str(fields.get("expected", "a complete bundle")),
        error.hint_text,
    )
