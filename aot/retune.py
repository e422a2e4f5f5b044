"""`retune`: choose the kernels of a finished bundle anew, on the machine that will serve it.

Everything comes from the bundle: signature, weights, golden numbers and, from its `sources/`, the
kernels with their candidates and the buffer assignment. Only Triton is needed, neither torch nor
the model.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy

from aotc.aot import validation
from aotc.aot.compile import Resources, tune_and_plan
from aotc.aot.errors import (
    GoldenMismatch,
    SourcesMissing,
    TuningDeviceMissing,
    UnknownTarget,
    WeightsOutside,
)
from aotc.aot.extensions import extension
from aotc.aot.ir.memory_order import inverse
from aotc.aot.ir.storage import Array
from aotc.aot.options import BuildOptions
from aotc.aot.pack import (
    BackendContents,
    BundleContents,
    Golden,
    TargetContents,
    TensorData,
    pack,
)
from aotc.aot.pack.staging import check_free
from aotc.aot.sources import Sources, read_sources
from aotc.aot.stages import Clock, Progress, Quiet, StageTime
from aotc.aot.targets.families import FAMILIES, find_target, tool_versions
from aotc.aot.targets.target import Target as TargetRow
from aotc.aot.tasks.errors import ClusterDeviceMissing
from aotc.aot.tasks.task import Executor, Request
from aotc.aot.tune.compiling import Counts
from aotc.aot.tune.record import Choice
from aotc.aot.tune.tune import Tuning
from aotc.cache import Store
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.bundle.manifest import GOLDEN_NAME, REFIT_FOLDER, Entry, Target
from aotc.runtime.bundle.native_plan import BackendEntry
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.bundle.plan import Plan, split_library
from aotc.runtime.bundle.signature import SessionSizes, Signature, TensorSpec
from aotc.runtime.bundle.weights import Digests, MappedFile, hash_threads, read_header
from aotc.runtime.comparison import compare
from aotc.runtime.errors import GoldenMissing, InputError
from aotc.runtime.extras import golden_of
from aotc.runtime.loading import require_trust

PROVENANCE = "provenance.json"
DEBUG = "debug/"


@dataclass(frozen=True, slots=True)
class RetuneReport:
    """What `aotc tune` made."""

    path: str
    digest: str
    targets: tuple[str, ...]  # those whose kernels were chosen anew
    kernels: int  # distinct ones of these
    measured: int
    changed: int  # kernels that are not the cost model's choice
    left: int  # kernels that the budget left to the cost model's choice
    compiled: int
    cache_hits: int
    given_up: tuple[str, ...]  # by the processes that execute kernel sources: network, writes
    stages: tuple[StageTime, ...]
    seconds: float

    def record(self) -> dict[str, Any]:
        """The report as plain data, for `--json`."""
        return asdict(self)


def retune(
    bundle: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: BuildOptions,
    progress: Progress | None = None,
    digest: str | None = None,
    only: Sequence[str] = (),
) -> RetuneReport:
    """Write at `out` the bundle with the kernels that are fastest here, or on the devices that the
    options name.

    digest: the bundle digest that it must have, as `runtime.load` takes it. Only what that digest
    covers is read, each file checked before it is used. Targets that nobody there runs are kept as
    they are, and those that `only` does not name. Raises BundleError for damage,
    TuningDeviceMissing where no target runs here, SourcesMissing, GoldenMismatch where the new
    kernels give other numbers, and the families of a build.
    """
    started_s, clock = time.time(), Clock(progress or Quiet())
    check_free(os.fspath(out), options.force)
    store, counts = Store(options.cache_folder, options.cache_layers), Counts()
    with ExitStack() as stack:
        opened = stack.enter_context(Bundle(bundle, digest))
        require_trust(opened)
        manifest = opened.manifest
        executor = stack.enter_context(options.executor())
        clock.has_targets = len(manifest.targets) > 1
        here = _targets_here(opened, options, executor, only)
        resources = Resources(executor, store, counts)
        (rights,) = executor.map([Request("rights", "aotc.aot.tasks.worker:held", ())])
        libraries = ()
        if manifest.backends:
            libraries = extension("native libraries").tie_bundled(opened)
        tunings, targets = _choose(opened, here, options, resources, clock)
        contents = _contents(opened, targets, tunings, libraries)
        for row, target in zip(manifest.targets, targets, strict=True):
            own = here[target.name][0] if target.name in tunings else None
            runs = validation.runs_here(row.device, target.needs, manifest.ranks)
            if own is not None and runs:
                arguments = own, target, contents
                for number in range(len(manifest.entries)):
                    _validate(*arguments, number)
                    _compare_ranges(*arguments, number, _unchanged(opened, row))
        with clock.stage("pack"):
            packed = pack(contents, out, options.force)
            clock.detail = f"{len(packed.files)} files, digest {packed.digest[:12]}"
    store.send()
    return RetuneReport(
        path=packed.path,
        digest=packed.digest,
        targets=tuple(tunings),
        kernels=sum(len(tuning.kernels) for tuning in tunings.values()),
        measured=sum(tuning.measured for tuning in tunings.values()),
        changed=sum(_changed(here[name][1], tuning) for name, tuning in tunings.items()),
        left=sum(tuning.skipped for tuning in tunings.values()),
        compiled=counts.compiled,
        cache_hits=counts.cache_hits,
        given_up=rights.value or (),
        stages=tuple(clock.rows),
        seconds=time.time() - started_s,
    )


def _contents(
    opened: Bundle,
    targets: tuple[TargetContents, ...],
    tunings: Mapping[str, Tuning],
    libraries: Sequence[tuple[BackendEntry, bytes]],
) -> BundleContents:
    """The new bundle: all but the targets and what is said of them as it was."""
    manifest = opened.manifest
    return BundleContents(
        entries=manifest.entries,
        targets=targets,
        weights=_weights(opened),
        golden=_golden(opened),
        extras=_extras(opened, tunings),
        refit={
            entry.name: opened.read(entry.name)
            for entry in manifest.files
            if entry.name.startswith(REFIT_FOLDER)
        },
        backends=tuple(
            BackendContents(entry, None if entry.file is None else data)
            for entry, data in libraries
        ),
        states=manifest.states,
        session_dims=manifest.session_dims,
        session_sizes=manifest.session_sizes,
        ranks=manifest.ranks,
    )


def _targets_here(
    opened: Bundle,
    options: BuildOptions,
    executor: Executor,
    only: Sequence[str],
) -> dict[str, tuple[TargetRow, Sources]]:
    """The targets to choose anew: all that can be measured, or with `--frozen` all that have
    sources. Raises `WeightsOutside` for a bundle that cannot be measured at all."""
    if opened.manifest.is_without_weights:
        raise WeightsOutside(path=opened.path)
    rows = opened.manifest.targets
    for name in only:
        if not any(name in (row.name, row.device) for row in rows):
            known = dict.fromkeys(each for row in rows for each in (row.device, row.name))
            raise UnknownTarget(target=name, known=", ".join(known))
    found = {}
    missing: ClusterDeviceMissing | None = None
    for row in rows:
        if only and not {row.name, row.device} & set(only):
            continue
        target = find_target(row.name)  # whose candidates need more than what was chosen may
        if not options.frozen:
            try:
                is_apart = FAMILIES[row.device].is_apart
                if executor.devices(row.device, target.needs, is_apart) is None:
                    continue
            except ClusterDeviceMissing as error:
                missing = error
                continue
        sources = read_sources(opened, row.name)
        if sources is None:
            raise SourcesMissing(path=opened.path, target=row.name)
        traits = replace(target.traits, dot_precision=sources.dot_precision)
        found[row.name] = (replace(target, traits=traits), sources)
    if not found and missing is not None:
        raise missing
    if not found:
        names = ", ".join(row.name for row in rows)
        raise TuningDeviceMissing(target=names, count=_kernels(opened))
    return found


def _kernels(opened: Bundle) -> int:
    """Kernels of all targets that have sources."""
    sources = (read_sources(opened, row.name) for row in opened.manifest.targets)
    return sum(len(each.specs) for each in sources if each is not None)


def _choose(
    opened: Bundle,
    here: Mapping[str, tuple[TargetRow, Sources]],
    options: BuildOptions,
    resources: Resources,
    clock: Clock,
) -> tuple[dict[str, Tuning], tuple[TargetContents, ...]]:
    """What was chosen for each target of `here`, and all targets of the new bundle."""
    tunings, targets, golden = {}, [], _golden(opened)
    rows = [(entry.inputs, golden[entry.name].inputs) for entry in opened.manifest.entries
            if entry.name in golden]  # fmt: skip
    examples = [list(map(_laid, tensors, specs)) for specs, tensors in rows]
    for row in opened.manifest.targets:
        contents = _unchanged(opened, row)
        if row.name in here:
            target, sources = here[row.name]
            clock.target = row.name
            arguments = (target, sources, options, resources, clock, examples)
            tunings[row.name], plan, library = tune_and_plan(*arguments)
            needs = library.needs or contents.needs
            contents = replace(contents, needs=needs, plan=plan, library=library.data)
        targets.append(contents)
    clock.target = ""
    return tunings, tuple(targets)


def _unchanged(opened: Bundle, row: Target) -> TargetContents:
    """A target as the bundle has it."""
    plan = Plan.from_msgpack(opened.read(row.plan), opened.where(row.plan))
    library, _ = split_library(opened.read(row.library))
    return TargetContents(row.name, row.device, row.needs, plan, library)


def _validate(
    row: TargetRow, target: TargetContents, contents: BundleContents, number: int
) -> None:
    """Run an entry's new kernels on its golden input, where there is one; raises GoldenMismatch."""
    entry = contents.entries[number]
    golden, signature = contents.golden.get(entry.name), entry.signature
    if golden is None:
        return
    arrays = list(map(_laid, golden.inputs, entry.inputs))
    outputs = [validation.aligned(numpy.zeros(row.nbytes, numpy.uint8)) for row in golden.outputs]
    weights = {name: _bytes_of(tensor) for name, tensor in contents.weights.items()}
    of_states = SessionSizes(contents.session_dims, contents.session_sizes, contents.states)
    shapes = [tensor.shape for tensor in golden.inputs]
    plan, values = target.plan, signature.bind(shapes, of_states.bind({}))
    shaped = plan.at(values[: len(signature.dims)], number)
    validation.run(row, target.library, shaped, weights, arrays, outputs)
    _, specs = signature.at(values)
    for spec, found, expected, limit in zip(
        specs, outputs, golden.outputs, golden.tolerances, strict=True
    ):
        check = compare(spec, _as_shaped(found, spec), bytes(expected.data), limit)
        if not check.is_ok:
            raise GoldenMismatch(name=check.name, difference=check.difference, tolerance=limit)


def _compare_ranges(
    row: TargetRow,
    target: TargetContents,
    contents: BundleContents,
    number: int,
    old: TargetContents,
) -> None:
    """Hold an entry's new kernels against the bundle's own at the smallest sizes of each range.

    On the golden input, cut or repeated; where sizes are none that the model takes, not at all.
    Raises GoldenMismatch.
    """
    entry, plans = contents.entries[number], (target.plan, old.plan)
    golden, signature = contents.golden.get(entry.name), entry.signature
    if golden is None or not target.plan.dims:
        return
    weights = {name: _bytes_of(tensor) for name, tensor in contents.weights.items()}
    for sizes in (sizes for sizes, own in target.plan.lows if own == number):
        inputs, specs = signature.at(signature.values(sizes))
        if not _is_taken(signature, inputs, sizes):
            continue
        arrays = [_resized(*pair) for pair in zip(golden.inputs, inputs, strict=True)]
        found = []
        for each, plan in zip((target, old), plans, strict=True):
            outputs = [validation.aligned(numpy.zeros(spec.nbytes, numpy.uint8)) for spec in specs]
            shaped = plan.at(sizes, number)
            try:
                validation.run(row, each.library, shaped, weights, arrays, outputs)
            except InputError:  # data of the example that these sizes do not take
                break
            found.append(list(map(_as_shaped, outputs, specs)))
        if len(found) < len(plans):
            continue
        for spec, new, was, limit in zip(specs, *found, golden.tolerances, strict=True):
            check = compare(spec, new, was, 2 * limit)  # each may be off by as much
            if not check.is_ok:
                name = f"{check.name} at sizes {list(sizes)}"
                raise GoldenMismatch(name=name, difference=check.difference, tolerance=2 * limit)


def _is_taken(signature: Signature, inputs: Sequence[TensorSpec], sizes: Sequence[int]) -> bool:
    """Whether the model's own guards allow these shapes, in a session of these sizes."""
    names = (dim.name for dim in signature.dims)
    try:
        signature.bind([spec.shape for spec in inputs], dict(zip(names, sizes, strict=True)))
    except InputError:
        return False
    return True


def _resized(tensor: TensorData, spec: TensorSpec) -> Array:
    """The elements of an array, as often as a shape asks for, in the order of its memory."""
    array = numpy.resize(numpy.frombuffer(tensor.data, _kind(spec)), spec.shape)
    return validation.aligned(array.transpose(spec.order) if spec.order else array)


def _laid(tensor: TensorData, spec: TensorSpec) -> Array:
    """An array in the order of its memory."""
    array = numpy.frombuffer(tensor.data, _kind(spec)).reshape(tensor.shape)
    return validation.aligned(array.transpose(spec.order) if spec.order else array)


def _as_shaped(found: Array, spec: TensorSpec) -> bytes:
    """The bytes of an output, row by row, of those that its memory holds."""
    if not spec.order:
        return found.tobytes()
    shape = [spec.shape[axis] for axis in spec.order]
    elements: Array = found.view(_kind(spec)).reshape(shape)
    return elements.transpose(inverse(spec.order)).tobytes()


def _kind(spec: TensorSpec) -> Any:
    return numpy.dtype(f"V{DTYPES[spec.dtype].itemsize_bytes}")


def _bytes_of(tensor: TensorData) -> Array:
    return numpy.frombuffer(tensor.data, numpy.uint8)


def _weights(opened: Bundle) -> dict[str, TensorData]:
    """All tensors in the order of the file, checked against their digests; mapped, not read."""
    entry = opened.manifest.weights
    if entry is None:
        return {}
    descriptor = opened.directory.open_sized(entry.name, entry.nbytes)
    try:
        mapped = MappedFile(descriptor, entry.nbytes)
    finally:
        os.close(descriptor)
    where = opened.where(entry.name)
    Digests(mapped.view, entry, where, hash_threads()).finish()
    tensors = sorted(read_header(mapped.view, where).values(), key=lambda tensor: tensor.offset)
    return {
        row.name: TensorData(
            row.dtype, row.shape, mapped.view[row.offset : row.offset + row.nbytes]
        )
        for row in tensors
    }


def _golden(opened: Bundle) -> dict[str, Golden]:
    """The golden numbers of each entry; none where they were deleted."""
    try:
        return {entry.name: _golden_of(opened, entry) for entry in opened.manifest.entries}
    except GoldenMissing:
        return {}


def _golden_of(opened: Bundle, entry: Entry) -> Golden:
    golden, signature = golden_of(opened, entry.name), entry.signature
    views = [memoryview(golden.inputs[row.name]) for row in entry.inputs]
    rows = zip(entry.inputs, views, strict=True)
    shapes = [row.shape if row.is_fixed else view.shape or () for row, view in rows]
    values = signature.bind(shapes, opened.manifest.session.bind({}))
    inputs, outputs = signature.at(values)
    return Golden(
        tuple(
            TensorData(row.dtype, row.shape, bytes(view))
            for row, view in zip(inputs, views, strict=True)
        ),
        tuple(TensorData(row.dtype, row.shape, golden.outputs[row.name]) for row in outputs),
        tuple(golden.tolerances[row.name] for row in outputs),
    )


def _extras(opened: Bundle, tunings: Mapping[str, Tuning]) -> dict[str, bytes]:
    """Sources as they were, the provenance with what was chosen here; no debug texts, which would
    be of other kernels."""
    extras = {}
    for entry in opened.extras().files:
        if entry.name != GOLDEN_NAME and not entry.name.startswith(DEBUG):
            data = opened.read_extra(entry.name)
            extras[entry.name] = data or b""
    facts = json.loads(extras.get(PROVENANCE, b"{}"))
    families = (row.device for row in opened.manifest.targets if row.name in tunings)
    facts["versions"] = {**facts.get("versions", {}), **tool_versions(families)}
    for name, tuning in tunings.items():
        row = facts.setdefault("targets", {}).setdefault(name, {})
        row["tuning"] = [str(line) for line in tuning.lines]
        row["kernels"] = {
            tuned.binary.symbol: {
                "choice": str(Choice.of(tuned.candidate)),
                "code_bytes": len(tuned.binary.code),
                **tuned.binary.facts,
            }
            for tuned in tuning.kernels.values()
        }
    text = json.dumps(facts, indent=2, sort_keys=True)
    return {**extras, PROVENANCE: text.encode() + b"\n"}


def _changed(sources: Sources, tuning: Tuning) -> int:
    picks = {spec.digest: spec.candidates[0] for spec in sources.specs}
    return sum(tuned.candidate != picks[digest] for digest, tuned in tuning.kernels.items())
