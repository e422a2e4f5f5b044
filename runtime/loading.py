"""`load`: from a directory to a `Program`, every byte checked before it is used."""

from __future__ import annotations

import os

from .bundle.manifest import HEAD_NAME, REFIT_FOLDER
from .bundle.opened import Bundle, read_bundle
from .bundle.plan import Plan, split_library
from .bundle.plan_parts import RANK_MARK, name_of_rank
from .bundle.plan_rules import check_steps
from .bundle.weights import ALIGNMENT_BYTES, Digests, MappedFile, hash_threads, read_header
from .drivers import load as load_driver
from .errors import (
    BundleAltered,
    BundleMalformed,
    environment_fault,
)
from .mismatch import require_target
from .programs.program import Loaded, Program
from .settings import SETTINGS, ArgumentInvalid, parse, read

TRUST_SETTINGS = ("AOTC_REQUIRE_SIGNATURE", "AOTC_TRUSTED_KEYS", "AOTC_REVOKED")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .bundle.manifest import Manifest, Target, TensorSpec
    from .bundle.plan import LaunchPlan
    from .drivers.protocol import Driver
    from .programs.fallback import Fallback
    from .programs.statistics import Statistics

    Check = Callable[[LaunchPlan, tuple[Sequence[TensorSpec], Sequence[TensorSpec]]], None]


def load(
    path: str | os.PathLike[str],
    device: str | None = None,
    digest: str | None = None,
    threads: int | None = None,
    verify: str | None = None,
    stream: Any = None,
    trusted_keys: Sequence[Any] | None = None,
    revoked: str | os.PathLike[str] | None = None,
    weights: Any = None,
    stats: bool | Statistics | None = None,
) -> Program:
    """Load the bundle at `path` and return a `Program`.

    device: `cpu`, `cuda` or `cuda:1`, or None for the first target of the bundle that runs here.
    digest: the bundle digest that it must have, `sha256:` and 64 hex digits or the digits.
    threads: host threads that share one call's work; None reads `AOTC_THREADS`, 0 takes what
    affinity and cgroup limits allow.
    verify: `full` digests manifest, plan, code and weights before they are used; `code` leaves
    the weights out, for files too large to read at every start. None reads `AOTC_LOAD_VERIFY`.
    stream: on a device, the stream of all calls that name no other: torch's or cupy's object, or a
    CUstream handle. None takes the one that is current at each call.
    trusted_keys: public keys, paths of PEM files or their text, of which one must have signed the
    bundle; None reads `AOTC_TRUSTED_KEYS`.
    revoked: path of a list of digests that are refused; None reads `AOTC_REVOKED`.
    weights: those that the program runs on, as `Program.load_weights` takes them. A bundle that was
    built with `--weights external` needs them, and those of the build; None reads `AOTC_WEIGHTS`.
    stats: whether calls, errors and latencies are counted for `Program.stats`, or the statistics of
    another program to count them in; None reads `AOTC_STATS`.

    Raises `BundleError` (damage, exit 6; among them `SignatureError`), `IncompatibleError` (not for
    this machine, 5; among them `FallbackUnavailable`, `NativeAbsent` and `NativeDiffers`),
    `EnvironmentFault` (7; among them `DeviceMemoryFull`) and `SettingInvalid` (2).
    """
    options = (device, threads, verify, stream, trusted_keys, revoked, weights, stats)
    return read_bundle(path, lambda bundle: load_open(bundle, *options), digest)


def load_open(
    bundle: Bundle,
    device: str | None = None,
    threads: int | None = None,
    verify: str | None = None,
    stream: Any = None,
    trusted_keys: Sequence[Any] | None = None,
    revoked: str | os.PathLike[str] | None = None,
    weights: Any = None,
    stats: bool | Statistics | None = None,
) -> Program:
    """The same of an open bundle; raises `BundleReplaced` too."""
    thread_count = _setting("AOTC_THREADS", threads)
    extent = _setting("AOTC_LOAD_VERIFY", verify)
    statistics = find_statistics(stats)
    manifest = bundle.manifest
    require_trust(bundle, trusted_keys, revoked)
    fallback = _find_ops(manifest, bundle.path)
    target, ordinal = require_target(manifest, bundle.path, device)
    driver = load_driver(target.device)
    _check_stream(stream, driver, target.name)
    refit = _refit_files(bundle)
    source = read("AOTC_WEIGHTS").value if weights is None else weights
    mapped = _map_weights(bundle, refit, source)
    is_outside = HEAD_NAME in refit
    digests = _start_digests(bundle, mapped) if extent == "full" or is_outside else None
    loaded = None
    try:
        plan_bytes = bundle.read(target.plan)
        library, vouched = split_library(bundle.read(target.library))
        plan = Plan.from_msgpack(plan_bytes, bundle.where(target.plan))
        _check_code(plan, vouched)
        spans = _spans(bundle, mapped)
        _check_states(manifest, plan, spans)
        check = _check_plan(manifest, plan, spans, library, driver)
        # The code is digested by now. Weights whose digests still run may be uploaded, but
        # nothing runs on them before `_finish`.
        natives = _bind(bundle, plan, (driver.DEVICE, ordinal))
        rest = (mapped, (ordinal, thread_count), fallback, natives, check)
        loaded = _loaded(manifest, plan, library, spans, driver, *rest)
    finally:
        if digests is not None:
            _finish(digests, loaded)
    program = _program(bundle, target, plan, loaded, stream, statistics)
    program.refit = refit
    if source is not None and not is_outside:
        try:
            program.load_weights(source)
        except BaseException:
            program.close()
            raise
    return program


def _refit_files(bundle: Bundle) -> dict[str, bytes]:
    """What `Program.load_weights` needs of the bundle, which may be gone by then."""
    names = (entry.name for entry in bundle.manifest.files if entry.name.startswith(REFIT_FOLDER))
    return {name: bundle.read(name) for name in names}


def require_trust(
    bundle: Bundle,
    trusted_keys: Sequence[Any] | None = None,
    revoked: str | os.PathLike[str] | None = None,
) -> None:
    """Refuse an open bundle unless arguments and settings trust it.

    Raises what `trust.policy` and `trust.check_trust` raise.
    """
    is_asked = any(read(name).value for name in TRUST_SETTINGS)
    if not is_asked and trusted_keys is None and revoked is None:
        return  # and import nothing
    from .trust.trust import check_trust, policy

    check_trust(bundle.directory, bundle.digest, policy(trusted_keys, revoked))


def _check_stream(stream: Any, driver: Driver, target: str) -> None:
    """Raises `ArgumentInvalid` for a stream where a target has none."""
    if stream is not None and not driver.HAS_DEVICE_MEMORY:
        expected = f"None, since target `{target}` has no streams"
        remedy = "leave `stream` out, or load the bundle on a CUDA device"
        raise ArgumentInvalid(name="stream", found=stream, expected=expected, remedy=remedy)


def _find_ops(manifest: Manifest, path: str) -> Fallback | None:
    """The ops that the bundle leaves to torch; raises `FallbackUnavailable`."""
    if not manifest.torch:
        return None
    from .programs.fallback import Fallback

    return Fallback(manifest.torch, path)


def _bind(bundle: Bundle, plan: Plan, device: tuple[str, int]) -> Any:
    """The native functions that the plan calls, from libraries that are loaded for it."""
    if not plan.named("native", "backend"):
        return None
    from .extensions import extension

    backends = extension("native back ends")
    libraries = backends.open_entries(bundle.manifest.backends, bundle.read, bundle.path)
    natives = (step for lows in plan.lows for step in plan.at(*lows).natives)
    return backends.bind(natives, libraries, bundle.path, device)


def _program(
    bundle: Bundle,
    target: Target,
    plan: Plan,
    loaded: Loaded,
    stream: Any,
    statistics: Statistics | None,
) -> Program:
    """The program with its first session; raises `DeviceMemoryFull`, with nothing left behind."""
    parts = (bundle.manifest, target, bundle.digest, plan, loaded)
    try:
        if load_driver(target.device).HAS_DEVICE_MEMORY:
            from .programs.device import DeviceSession

            return Program(*parts, DeviceSession, stream, statistics)
        return Program(*parts, statistics=statistics)
    except BaseException:  # its traceback holds `loaded`, so that nothing would be freed yet
        loaded.executable.close()
        raise


def _check_plan(
    manifest: Manifest,
    plan: Plan,
    spans: dict[str, tuple[int, int]],
    library: bytes,
    driver: Driver,
) -> Check:
    """The plan fits signature, weights and library; it has the dims of the manifest, or neither
    has any. Returns what holds plans of other sizes against the bundle.

    Raises `BundleMalformed`.
    """
    path = plan.path
    image_bytes = len(library) if driver.HAS_DEVICE_MEMORY else None
    dims = manifest.entries[0].dims
    _check_parts(spans, manifest.ranks, path)
    ranks = plan.ranks
    if ranks != manifest.ranks:
        expected = f"{manifest.ranks}, as the manifest has"
        raise BundleMalformed(path=path, field="ranks", found=str(ranks), expected=expected)
    if plan.dims != len(dims):
        expected = f"{len(dims)}, as the manifest has"
        raise BundleMalformed(path=path, field="dims", found=str(plan.dims), expected=expected)
    counts = [(len(entry.inputs), len(entry.outputs)) for entry in manifest.entries]
    plan.validate(counts, spans.keys(), path, image_bytes)
    sizes = {name: nbytes for name, (_, nbytes) in spans.items()}
    names = [entry.name for entry in manifest.backends]

    def check(
        plan: LaunchPlan, signature: tuple[Sequence[TensorSpec], Sequence[TensorSpec]]
    ) -> None:
        check_steps(plan, manifest.torch, names, signature, sizes, path)

    for lows, number in plan.lows:
        signature = manifest.entries[number].signature
        check(plan.at(lows, number), signature.at(signature.values(lows)))
    return check


def _check_parts(spans: dict[str, tuple[int, int]], ranks: int, path: str) -> None:
    """A weight of which one rank has a part has one of the same size for each of them.

    Raises `BundleMalformed`.
    """
    names = {name.partition(RANK_MARK)[0] for name in spans if RANK_MARK in name}
    for name in names if ranks > 1 else ():
        sizes = [spans.get(name_of_rank(name, rank), (0, -1))[1] for rank in range(ranks)]
        if len(set(sizes)) != 1:
            found = f"parts of `{name}` of {', '.join(map(str, sizes))} bytes"
            expected = f"{ranks} of one size"
            raise BundleMalformed(path=path, field="weights", found=found, expected=expected)


def _check_code(plan: Plan, vouched: bytes) -> None:
    """The plan launches kernels as the file of the library says that they are made to be launched.

    Raises `BundleMalformed`.
    """
    if plan.code_digest != vouched:
        raise BundleMalformed(
            path=plan.path,
            field="kernels",
            found=f"kernels and sizes of digest {plan.code_digest.hex()[:16]}",
            expected=f"{vouched.hex()[:16]}, which the library's file ends with",
        )


def _check_states(manifest: Manifest, plan: Plan, spans: dict[str, tuple[int, int]]) -> None:
    """The plan keeps what the manifest lists, and what it starts with is of that size."""
    ends = ({dim.name: dim.low for dim in manifest.session_dims},
            {dim.name: dim.default for dim in manifest.session_dims})  # fmt: skip
    for sizes in ends:
        plan.state_slots(manifest.entries[0].dims, sizes, manifest.session.at(sizes))
    for index, slot in enumerate(plan.states):
        wanted: Any = slot.initial_bytes or slot.nbytes
        nbytes = spans[slot.initial][1] if slot.initial in spans else wanted
        if nbytes != wanted:
            field = f"states[{index}].initial"
            expected_text = f"{wanted}, as the state has"
            raise BundleMalformed(
                path=plan.path, field=field, found=f"{nbytes} bytes", expected=expected_text
            )


def find_statistics(stats: bool | Statistics | None) -> Statistics | None:
    """What calls are counted in; nothing is imported where they are not. Raises `ArgumentInvalid`
    and `SettingInvalid`."""
    if stats is None or isinstance(stats, (bool, int, str)):
        if not _setting("AOTC_STATS", stats):
            return None
        from .programs.statistics import Statistics

        return Statistics()
    if not hasattr(stats, "tally"):
        expected = "a bool or the statistics of another program"
        found, remedy = type(stats).__name__, "`stats=True` counts calls for `Program.stats`"
        raise ArgumentInvalid(name="stats", found=found, expected=expected, remedy=remedy)
    return stats


def _setting(name: str, argument: Any) -> Any:
    """An argument of `load` by the rules of the setting's row, else the setting."""
    if argument is None:
        return read(name).value
    return parse(SETTINGS[name], argument, "argument")


def _map_weights(bundle: Bundle, refit: dict[str, bytes], source: Any) -> MappedFile | None:
    entry = bundle.manifest.weights
    if entry is None:
        return None
    if HEAD_NAME in refit:
        from .programs.weights import weights_outside

        return weights_outside(refit, entry.nbytes, source, bundle.path)
    descriptor = bundle.directory.open_sized(entry.name, entry.nbytes)
    try:
        return MappedFile(descriptor, entry.nbytes)
    except OSError as error:
        raise environment_fault("map", bundle.where(entry.name), error) from None
    finally:
        os.close(descriptor)


def _start_digests(bundle: Bundle, weights: MappedFile | None) -> Digests | None:
    """Threads that check the weights' digests from now on."""
    entry = bundle.manifest.weights
    if weights is None or entry is None:
        return None
    return Digests(weights.view, entry, bundle.where(entry.name), hash_threads())


def _finish(digests: Digests, loaded: Loaded | None) -> None:
    """Wait for the digests; code whose weights were altered is unloaded at once."""
    try:
        digests.finish()
    except BundleAltered:
        if loaded is not None:
            loaded.executable.close()
        raise


def _spans(bundle: Bundle, weights: MappedFile | None) -> dict[str, tuple[int, int]]:
    """Address and size in bytes of each tensor of the mapped weights.

    Raises `BundleMalformed` for one that is not aligned.
    """
    entry = bundle.manifest.weights
    if weights is None or entry is None:
        return {}
    where = bundle.where(entry.name)
    tensors = read_header(weights.view, where)
    for tensor in tensors.values():
        if tensor.offset % ALIGNMENT_BYTES:
            raise BundleMalformed(
                path=where,
                field=f"{tensor.name}.data_offsets",
                found=f"byte {tensor.offset} of the file",
                expected=f"a multiple of {ALIGNMENT_BYTES}",
            )
    base = weights.address
    return {name: (base + each.offset, each.nbytes) for name, each in tensors.items()}


def _loaded(
    manifest: Manifest,
    plan: Plan,
    library: bytes,
    spans: dict[str, tuple[int, int]],
    driver: Driver,
    weights: MappedFile | None,
    device: tuple[int, int],
    fallback: Fallback | None,
    natives: Any,
    check: Check,
) -> Loaded:
    """The code on its device, a number and the host threads of a call. Code in this process reads
    the weights where they are mapped; once they are in the memory of a device, no more."""
    # Those of shapes that depend on the call are given with each shape, as are other entries'.
    inputs, outputs = (
        tuple(spec.nbytes if spec.is_fixed else 0 for spec in specs)
        for specs in (manifest.entries[0].inputs, manifest.entries[0].outputs)
    )
    rest = (spans, inputs, outputs, *device, natives, fallback)
    code = driver.group(manifest.ranks) if manifest.ranks > 1 else driver.Executable
    executable = code(library, plan.fixed or plan, *rest)
    in_place = None if driver.HAS_DEVICE_MEMORY else weights
    return Loaded(executable, in_place, fallback, check, weights, spans)
