"""Replaces the weights of a loaded program: all are computed in separate memory, then exchanged at
once.

    given tensors → the bundle's weights program on the host → tensors as the bundle stores them
    → every session between two calls → the same addresses

The result is bit-equal to what a build with these parameters stores, because the build ran the same
code.
"""

from __future__ import annotations

import _thread
import ctypes
import hashlib
import mmap
import os
import weakref

from ..arrays.buffers import buffer_address
from ..arrays.dtypes import DTYPES
from ..bundle.manifest import HEAD_NAME, TABLES_NAME
from ..bundle.parameters import PARAMETERS_NAME, Parameters
from ..bundle.placement import PLACEMENT_NAME, Placement
from ..bundle.plan import Plan, split_library
from ..bundle.plan_rules import check_steps
from ..bundle.signature import TensorSpec
from ..bundle.weights import ALIGNMENT_BYTES, MappedFile, StagedMemory, read_header
from ..drivers import load as load_driver
from ..errors import (
    BundleMalformed,
    DriverFault,
    ProgramClosed,
    WeightsAbsent,
    WeightsMismatch,
    WeightsNotReplaceable,
    environment_fault,
)
from .tensor_files import given

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..bundle.launch_plan import LaunchPlan
    from ..bundle.parameters import FixedTensor, Parameter, WeightsCode
    from .adapters import Change
    from .tensor_files import Given, GivenTensor

    Spans = Mapping[str, tuple[int, int]]

HOST_DEVICE = "cpu"
NAMES_SHOWN = 8
NOT_HELD = (
    "weights that are stored quantised or folded with others, so that no sum can be made of them "
    "(`load_weights` takes sums)"
)


_ALL: weakref.WeakSet[Weights] = weakref.WeakSet()


def _after_fork() -> None:
    """In a child: reset the lock of weight changes, since a thread of the parent that held it does
    not exist here."""
    for each in _ALL:
        each._turn = _thread.allocate_lock()


os.register_at_fork(after_in_child=_after_fork)


class Weights:
    """What a program does to change its weights, one change at a time.

    `loaded`: the program's code and weights, `Loaded` of `program.py`.
    """

    def __init__(self, files: Mapping[str, bytes], path: str) -> None:
        """files: those of the bundle below `refit/`, by name."""
        self._files, self._path = files, path
        self._turn = _thread.allocate_lock()
        self._parameters: Parameters | None = None
        self._placement: Placement | None = None
        self._codes: dict[str, tuple[Any, Plan]] = {}  # what is loaded, by the plan's file
        self._current: StagedMemory | None = None  # what is on a device, where it is not the file's
        self._is_on_device = False  # whether the device alone has the weights
        _ALL.add(self)

    @property
    def parameters(self) -> Parameters:
        """The model's parameters; raises `WeightsNotReplaceable`."""
        if self._parameters is None:
            if PARAMETERS_NAME not in self._files:
                remedy = "build it again with this release of aotc"
                raise WeightsNotReplaceable(reason=f"it has no `{PARAMETERS_NAME}`", remedy=remedy)
            where = f"{self._path}/{PARAMETERS_NAME}"
            self._parameters = Parameters.from_bytes(self._files[PARAMETERS_NAME], where)
        return self._parameters

    @property
    def placement(self) -> Placement | None:
        """Where stored tensors hold parameters as they are; None where the bundle does not say."""
        if self._placement is None and PLACEMENT_NAME in self._files:
            where = f"{self._path}/{PLACEMENT_NAME}"
            found = Placement.from_bytes(self._files[PLACEMENT_NAME], where)
            found.check(self.parameters, where)
            self._placement = found
        return self._placement

    def load(self, source: Any, loaded: Any) -> None:
        """See `Program.load_weights`."""
        with self._turn:
            addresses, _keep = self.match(source)
            staged = StagedMemory(loaded.file.nbytes)
            try:
                if loaded.weights is None and self._load_on_device(addresses, staged, loaded):
                    return
                spans = staged.spans(loaded.spans, loaded.file.address)
                head = min(address for address, _ in loaded.spans.values()) - loaded.file.address
                ctypes.memmove(staged.address, loaded.file.address, head)
                self.compute(addresses, spans, loaded.spans)
                self._exchange(staged, spans, loaded)
            finally:
                if staged is not self._current:
                    staged.close()

    def _load_on_device(self, addresses: Sequence[int], staged: StagedMemory, loaded: Any) -> bool:
        """Copy rows of parameters from where they lie to the device, and what is computed of them
        by way of staged memory; answers False where the bundle does not say which are which."""
        from .device_weights import rows_of

        rows, placement, executable = self.parameters, self.placement, loaded.executable
        if not executable.has_one_copy or placement is None:
            return False
        if not executable.weights.keys() >= rows.made:
            return False
        computed = () if placement.rest is None else placement.rest.outputs
        copied = rows.made.difference(computed)
        if not copied <= {*placement.moved, *(row.stored for row in rows.parameters)}:
            return False
        parts = rows_of(rows, placement, copied, loaded.spans, addresses, executable.weights)
        spans = dict(loaded.spans)
        beside = staged.spans(loaded.spans, loaded.file.address)
        spans |= {name: beside[name] for name in computed}
        if placement.rest is not None:
            self._run(placement.rest, rows.parameters, addresses, spans)
        whole = [(executable.weights[name], *spans[name]) for name in computed]
        loaded.exchange(lambda: executable.copy_in(whole, parts))
        self._keep(None)
        self._is_on_device = True
        return True

    def match(self, source: Any) -> tuple[list[int], Given]:
        """The address of each parameter of a source, and what keeps them alive."""
        rows = self.parameters
        expected: dict[str, Any] = {each.name: None for each in rows.fixed}
        for row in rows.parameters:
            expected |= dict.fromkeys(row.names, (row.dtype, row.shape))
        found = given(source, expected)
        return _checked(rows, found), found

    def reset(self, loaded: Any) -> None:
        """See `Program.reset_weights`."""
        with self._turn:
            self._exchange(None, {}, loaded)

    def compute(self, addresses: Sequence[int], spans: Spans, old: Spans) -> None:
        """Write each tensor that the bundle stores to its span; tables are those of `old`."""
        rows = self.parameters
        made = set() if rows.code is None else set(rows.code.outputs)
        made |= {row.stored for row in rows.parameters}
        for name, (address, nbytes) in spans.items():  # tables, which do not depend on weights
            if name not in made:
                ctypes.memmove(address, old[name][0], nbytes)
        for row, source in zip(rows.parameters, addresses, strict=True):
            if row.stored:
                ctypes.memmove(_span(spans, row.stored, row.nbytes)[0], source, row.nbytes)
        if rows.code is not None:
            self._run(rows.code, rows.parameters, addresses, spans)

    def _run(
        self,
        code: WeightsCode,
        parameters: Sequence[Parameter],
        addresses: Sequence[int],
        spans: Spans,
    ) -> None:
        """One call of the weights program."""
        inputs = [(addresses[number], parameters[number].nbytes) for number in code.inputs]
        self._call(code, inputs, [_span(spans, name) for name in code.outputs], spans)

    def _call(
        self,
        code: Any,
        inputs: Sequence[tuple[int, int]],
        outputs: Sequence[tuple[int, int]],
        spans: Spans,
        dims: tuple[int, ...] = (),
    ) -> None:
        """One call of a program of the bundle's, on memory as (address, bytes)."""
        executable, plan = self._executable(code, len(inputs), len(outputs), spans)
        shaped = plan.at(dims)
        given_bytes, made_bytes = ([nbytes for _, nbytes in each] for each in (inputs, outputs))
        sizes = {name: nbytes for name, (_, nbytes) in spans.items()}
        self.check(shaped, plan.path, given_bytes, made_bytes, sizes)
        executable = executable.at(shaped)
        executable.weights = {name: address for name, (address, _) in spans.items()}
        session = executable.session()
        try:
            session.addresses[:] = [address for address, _ in (*inputs, *outputs)]
            session.run()
        finally:
            session.close()

    def _executable(self, code: Any, inputs: int, outputs: int, spans: Spans) -> tuple[Any, Plan]:
        """The code of a program, loaded once, and its plan; raises `BundleMalformed`."""
        known = self._codes.get(code.plan)
        if known is not None:
            return known
        where = f"{self._path}/{code.plan}"
        plan = Plan.from_msgpack(self._files[code.plan], where)
        library, vouched = split_library(self._files[code.library])
        if plan.code_digest != vouched or plan.states:
            found = "a plan of other code, or of states"
            raise BundleMalformed(path=where, field="kernels", found=found, expected="its own")
        plan.validate([(inputs, outputs)], spans.keys(), where, None)
        sizes = ((0,) * inputs, (0,) * outputs)
        made = load_driver(HOST_DEVICE).Executable(library, plan.fixed or plan, spans, *sizes)
        self._codes[code.plan] = made, plan
        return made, plan

    @staticmethod
    def check(
        plan: LaunchPlan,
        path: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        weights: Mapping[str, int],
    ) -> None:
        """Every launch stays within inputs, outputs and weights of these sizes in bytes."""
        specs = [
            tuple(TensorSpec(f"{role}{index}", "u8", (nbytes,)) for index, nbytes in enumerate(row))
            for role, row in (("input", inputs), ("output", outputs))
        ]
        check_steps(plan, (), (), (specs[0], specs[1]), weights, path)

    # -- adapters ------------------------------------------------------------------------------

    def apply(self, path: Any, scale: float, loaded: Any) -> None:
        """See `Program.apply_lora`."""
        from .adapters import _mismatch, read_adapter

        with self._turn:
            rows = self.parameters
            if not rows.adapters:
                reason = "it was built without `--adapters`, or has no float matrices"
                remedy = "build it again with it"
                raise WeightsNotReplaceable(reason=reason, remedy=remedy)
            changes = read_adapter(path, scale)
            targets = self._targets(changes, os.fsdecode(path))
            if loaded.weights is None and self._apply_on_device(targets, loaded):
                return
            nbytes = loaded.file.nbytes
            blocks = [StagedMemory(nbytes) for _ in range(2)]
            staged, discarded = blocks
            try:
                base = self._base(loaded, blocks)
                old = {
                    name: (base + address - loaded.file.address, size)
                    for name, (address, size) in loaded.spans.items()
                }
                ctypes.memmove(staged.address, base, nbytes)
                spans = staged.spans(loaded.spans, loaded.file.address)
                raw = self._raw(old, blocks)
                lost = [rows.parameters[number].names[0] for number in targets if number not in raw]
                adapted = self._added(targets, raw, blocks, old) if not lost else {}
                affected, beside = self._affected(targets, raw)
                if lost or beside:
                    names = sorted(set(lost or beside))
                    raise _mismatch(os.fsdecode(path), NOT_HELD, names)
                for number, address in adapted.items():
                    row = rows.parameters[number]
                    if row.stored:
                        to, _ = _span(spans, row.stored, row.nbytes)
                        ctypes.memmove(to, address, row.nbytes)
                if rows.code is not None and affected:
                    aside = discarded.spans(loaded.spans, loaded.file.address)
                    places = {**spans, **{name: aside[name] for name in rows.code.outputs}}
                    places |= {name: spans[name] for name in affected}
                    known = {**raw, **adapted}
                    blank = StagedMemory(max(row.nbytes for row in rows.parameters) or 1)
                    blocks.append(blank)
                    count = range(len(rows.parameters))
                    addresses = [known.get(number, blank.address) for number in count]
                    self._run(rows.code, rows.parameters, addresses, places)
                self._exchange(staged, spans, loaded)
            finally:
                for block in blocks:
                    if block is not self._current:
                        block.close()

    def _exchange(self, staged: StagedMemory | None, spans: Spans, loaded: Any) -> None:
        """Put staged memory, or the file's, in place; on a device keep what was copied there."""

        def put() -> None:
            if loaded.weights is None:
                loaded.executable.overwrite(loaded.spans if staged is None else spans)
            elif staged is None:
                loaded.weights.restore()
            else:
                loaded.weights.take(staged)

        loaded.exchange(put)
        self._is_on_device = False
        if loaded.weights is None:
            self._keep(staged)

    def _keep(self, staged: StagedMemory | None) -> None:
        """Keep what was copied to a device, if anything, and drop what was kept before."""
        old, self._current = self._current, staged
        if old is not None:
            old.close()

    def _apply_on_device(self, targets: Mapping[int, Change], loaded: Any) -> bool:
        """Add the changes where the weights lie; answers False where they do not lie there as they
        are, or the memory for their sums is not there."""
        from .device_weights import DeviceSums

        placement, sums = self.placement, None
        if placement is not None:
            sums = DeviceSums.of(self.parameters, placement, self._files, targets, loaded)
        if sums is None:
            return False
        try:
            try:
                sums.compute()
            except DriverFault as error:
                if error.code != "device-memory-full":
                    raise
                return False
            loaded.exchange(sums.put)
            self._keep(None)
            self._is_on_device = True
        finally:
            sums.close()
        return True

    def _base(self, loaded: Any, blocks: list[StagedMemory]) -> int:
        """Where the program's current weights are on the host, laid out as in its file."""
        if not self._is_on_device:
            return loaded.file.address if self._current is None else self._current.address
        blocks.append(StagedMemory(loaded.file.nbytes))
        base = blocks[-1].address
        ctypes.memmove(base, loaded.file.address, loaded.file.nbytes)
        loaded.executable.read_weights(blocks[-1].spans(loaded.spans, loaded.file.address))
        return base

    def _targets(self, changes: Mapping[str, Change], path: str) -> dict[int, Change]:
        """Parameter → what is added to it; raises `AdapterMismatch`."""
        from .adapters import _mismatch

        parameters = self.parameters.parameters
        numbers = {name: number for number, row in enumerate(parameters) for name in row.names}
        dtypes = {each.dtype for each in self.parameters.adapters}
        other = [module for module in changes if f"{module}.weight" not in numbers]
        if other:
            raise _mismatch(path, "modules that the model has not", other)
        found: dict[int, Change] = {}
        for module, change in changes.items():
            row = parameters[numbers[f"{module}.weight"]]
            if row.shape != change.shape or row.dtype not in dtypes:
                rows, columns = change.shape
                sizes = f"{module} ({rows} × {columns}, the weight is {row.dtype}"
                raise _mismatch(path, "other sizes", [f"{sizes}{list(row.shape)})"])
            found[numbers[f"{module}.weight"]] = change
        tied = [row.names for row in map(parameters.__getitem__, found) if len(row.names) > 1]
        if tied:
            names = [" = ".join(each) for each in tied]
            raise _mismatch(path, "weights that other modules share, which would change too", names)
        return found

    def _raw(self, spans: Spans, blocks: list[StagedMemory]) -> dict[int, int]:
        """Address of each parameter that what is stored at `spans` holds as it is."""
        rows, found = self.parameters, {}
        code = rows.recover
        if code is not None:
            sizes = [rows.parameters[number].nbytes for number in code.outputs]
            places = _laid_out(sizes, blocks)
            found = dict(zip(code.outputs, places, strict=True))
            inputs = [_span(spans, name) for name in code.inputs]
            self._call(code, inputs, list(zip(places, sizes, strict=True)), spans)
        for number, row in enumerate(rows.parameters):
            if row.stored:
                found[number] = _span(spans, row.stored, row.nbytes)[0]
        return found

    def _added(
        self,
        targets: Mapping[int, Change],
        raw: Mapping[int, int],
        blocks: list[StagedMemory],
        spans: Spans,
    ) -> dict[int, int]:
        """Address of each changed parameter."""
        rows = self.parameters
        codes = {each.dtype: each for each in rows.adapters}
        sizes = [rows.parameters[number].nbytes for number in targets]
        found = dict(zip(targets, _laid_out(sizes, blocks), strict=True))
        for number, change in targets.items():
            row, (count, inner) = rows.parameters[number], change.shape
            left, right = change.left.singles(), change.right.singles()
            scale = ctypes.c_float(change.left.scale)
            inputs = [
                (raw[number], row.nbytes),
                (buffer_address(right), 4 * change.rank * inner),
                (buffer_address(left), 4 * count * change.rank),
                (ctypes.addressof(scale), 4),
            ]
            dims = (inner, count, change.rank)  # k, n, r: by name
            outputs = [(found[number], row.nbytes)]
            self._call(codes[row.dtype], inputs, outputs, spans, dims)
        return found

    def _affected(
        self, targets: Mapping[int, Any], raw: Mapping[int, int]
    ) -> tuple[list[str], list[str]]:
        """The tensors that depend on targets, and the other parameters that they need and that are
        not known."""
        code, affected, beside = self.parameters.code, [], []
        if code is not None:
            for name, reads in zip(code.outputs, code.reads, strict=True):
                if not targets.keys().isdisjoint(reads):
                    affected.append(name)
                    unknown = (number for number in reads if number not in raw)
                    beside += [self.parameters.parameters[each].names[0] for each in unknown]
        return affected, beside


def _laid_out(sizes: Sequence[int], blocks: list[StagedMemory]) -> list[int]:
    """Addresses for tensors of these sizes in bytes, in one new block."""
    rounded = [-(-max(size, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes]
    blocks.append(StagedMemory(sum(rounded) or 1))
    starts = [sum(rounded[:index]) for index in range(len(rounded))]
    return [blocks[-1].address + start for start in starts]


def _span(spans: Spans, name: str, nbytes: int | None = None) -> tuple[int, int]:
    """Where a tensor of the bundle lies; raises `BundleMalformed`."""
    found = spans.get(name)
    if found is None or nbytes not in (None, found[1]):
        text = "no tensor" if found is None else f"{found[1]} bytes"
        raise BundleMalformed(
            path=PARAMETERS_NAME, field=name, found=text, expected=f"{nbytes or 'its'} bytes"
        )
    return found


def _checked(rows: Parameters, found: Given) -> list[int]:
    """The address of each parameter; raises `WeightsMismatch` for all that does not fit."""
    problems: dict[str, list[str]] = {}
    for row in rows.parameters:
        _check_one(row, found, problems)
    known = {*rows.unread, *(each.name for each in rows.fixed)}
    known.update(name for row in rows.parameters for name in row.names)
    extra = [name for name in found.tensors if name not in known]
    changed = [row.name for row in rows.fixed if not _is_fixed(found.tensors.get(row.name), row)]
    problems |= {kind: names for kind, names in (("extra", extra), ("fixed", changed)) if names}
    if problems:
        raise WeightsMismatch(source=found.source, problems=_text(problems), names=problems)
    return [_address(row, found) for row in rows.parameters]


def _check_one(row: Parameter, found: Given, problems: dict[str, list[str]]) -> None:
    """Note what is wrong with the tensors that are given for a parameter, by each of its names."""

    def note(kind: str, text: str) -> None:
        problems.setdefault(kind, []).append(text)

    tensors = {name: found.tensors[name] for name in row.names if name in found.tensors}
    if not tensors:
        note("missing", row.names[0])
    first = next(iter(tensors.values()), None)
    for name, tensor in tensors.items():
        if tensor.problem:
            note("unfit", f"{name} ({tensor.problem})")
        elif tensor.dtype != row.dtype:
            note("mistyped", f"{name} ({tensor.dtype}, expected {row.dtype})")
        elif tensor.shape != row.shape:
            note("misshapen", f"{name} ({list(tensor.shape)}, expected {list(row.shape)})")
        elif first is not None and not _are_equal(first, tensor):
            note("tied", f"{name} (one tensor with {row.names[0]})")


def _text(problems: Mapping[str, Sequence[str]]) -> str:
    parts = []
    for kind, names in problems.items():
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        parts.append(f"{kind}: {', '.join(names[:NAMES_SHOWN])}{more}")
    return "; ".join(parts)


def _are_equal(left: GivenTensor, right: GivenTensor) -> bool:
    """Whether two tensors have the same bytes; one that cannot be compared is noted elsewhere."""
    nbytes = right.nbytes
    if left.nbytes != nbytes or left.address == right.address or not nbytes:
        return True
    views = [
        memoryview((ctypes.c_char * nbytes).from_address(each.address)) for each in (left, right)
    ]
    return views[0] == views[1]


def _is_fixed(tensor: GivenTensor | None, row: FixedTensor) -> bool:
    """Whether a tensor, if it is given, has the bytes that the program was built with."""
    if tensor is None:
        return True
    if tensor.problem:
        return False
    data = (ctypes.c_char * tensor.nbytes).from_address(tensor.address) if tensor.nbytes else b""
    return hashlib.sha256(data).digest() == row.sha256


def _address(row: Parameter, found: Given) -> int:
    """Where a parameter lies, or a copy where its elements lie across their own multiples."""
    address = next(found.tensors[name].address for name in row.names if name in found.tensors)
    if not row.nbytes or address % DTYPES[row.dtype].itemsize_bytes == 0:
        return address
    copy = ctypes.create_string_buffer(row.nbytes + ALIGNMENT_BYTES)
    found.keep.append(copy)
    start = -(-ctypes.addressof(copy) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    ctypes.memmove(start, address, row.nbytes)
    return start


def weights_outside(files: Mapping[str, bytes], nbytes: int, source: Any, path: str) -> MappedFile:
    """The weights file of a bundle without one, made of the model's own weights in memory.

    nbytes: its size. Raises `WeightsAbsent` where no source is given, and what `load_weights` does.
    """
    if source is None:
        raise WeightsAbsent(path=path)
    descriptor = os.memfd_create("aotc-weights", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, nbytes)
        with mmap.mmap(descriptor, nbytes) as memory:
            head, tables = files[HEAD_NAME], files[TABLES_NAME]
            memory[: len(head)] = head
            base = buffer_address(memory)
            rows = read_header(memory, path)
            spans = {name: (base + row.offset, row.nbytes) for name, row in rows.items()}
            weights = Weights(files, path)
            addresses, _keep = weights.match(source)
            weights.compute(addresses, spans, _tables(weights.parameters, spans, tables))
        return MappedFile(descriptor, nbytes)
    except OSError as error:
        raise environment_fault("write", "the weights in memory", error) from None
    finally:
        os.close(descriptor)


def _tables(rows: Parameters, spans: Spans, data: bytes) -> dict[str, tuple[int, int]]:
    """Where the tensors that do not depend on parameters lie in the bytes of all of them."""
    made = {row.stored for row in rows.parameters}
    made |= set() if rows.code is None else set(rows.code.outputs)
    start, found = buffer_address(data), {}
    end = start + len(data)
    for name, (_, nbytes) in sorted(spans.items(), key=lambda row: row[1]):
        if name not in made:
            found[name] = start, nbytes
            start += nbytes
    if start != end:
        raise BundleMalformed(
            path=TABLES_NAME, field="size", found=f"{len(data)} bytes", expected="its tensors"
        )
    return found


def require(loaded: Any) -> Any:
    """A program's code and weights; raises `ProgramClosed` and `WeightsNotReplaceable`."""
    if loaded is None:
        raise ProgramClosed(what="program")
    if loaded.file is None:
        remedy = "give the bundle of a model with weights"
        raise WeightsNotReplaceable(reason="it stores none", remedy=remedy)
    return loaded
