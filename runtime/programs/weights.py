"""New weights for a loaded program: all computed aside, then put in place of the old ones at once.

    given tensors → the bundle's weights program on the host → tensors as the bundle stores them
    → every session between two calls → the same addresses

What is computed is what a build with these parameters stores, bit by bit: the build ran the same
code.
"""

from __future__ import annotations

import _thread
import ctypes
import hashlib

from ..arrays.dtypes import DTYPES
from ..bundle.parameters import PARAMETERS_NAME, Parameters
from ..bundle.plan import Plan, split_library
from ..bundle.weights import ALIGNMENT_BYTES, StagedMemory
from ..drivers import load as load_driver
from ..errors import BundleMalformed, ProgramClosed, WeightsMismatch, WeightsNotReplaceable
from .tensor_files import given

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..bundle.parameters import FixedTensor, Parameter, WeightsCode
    from .tensor_files import Given, GivenTensor

    Spans = Mapping[str, tuple[int, int]]

HOST_DEVICE = "cpu"
NAMES_SHOWN = 8


class Weights:
    """What a program does to change its weights, one change at a time.

    `loaded`: the program's code and weights, `Loaded` of `program.py`.
    """

    def __init__(self, files: Mapping[str, bytes], path: str) -> None:
        """files: those of the bundle below `refit/`, by name."""
        self._files, self._path = files, path
        self._turn = _thread.allocate_lock()
        self._parameters: Parameters | None = None
        self._code: Any = None  # the driver's executable of the weights program

    @property
    def parameters(self) -> Parameters:
        """The model's parameters; raises `WeightsNotReplaceable`."""
        if self._parameters is None:
            if PARAMETERS_NAME not in self._files:
                raise WeightsNotReplaceable(reason=f"it has no `{PARAMETERS_NAME}`")
            where = f"{self._path}/{PARAMETERS_NAME}"
            self._parameters = Parameters.from_bytes(self._files[PARAMETERS_NAME], where)
        return self._parameters

    def load(self, source: Any, loaded: Any) -> None:
        """See `Program.load_weights`."""
        with self._turn:
            rows = self.parameters
            expected: dict[str, Any] = {each.name: None for each in rows.fixed}
            for row in rows.parameters:
                expected |= dict.fromkeys(row.names, (row.dtype, row.shape))
            found = given(source, expected)
            addresses = _checked(rows, found)
            staged = StagedMemory(loaded.file.nbytes)
            try:
                spans = staged.spans(loaded.spans, loaded.file.address)
                head = min(address for address, _ in loaded.spans.values()) - loaded.file.address
                ctypes.memmove(staged.address, loaded.file.address, head)
                self._compute(addresses, spans, loaded)
                loaded.exchange(staged, spans)
            finally:
                staged.close()

    def reset(self, loaded: Any) -> None:
        """See `Program.reset_weights`."""
        with self._turn:
            loaded.exchange(None, {})

    def _compute(self, addresses: Sequence[int], spans: Spans, loaded: Any) -> None:
        """Write each tensor that the bundle stores to its span."""
        rows = self.parameters
        made = set() if rows.code is None else set(rows.code.outputs)
        made |= {row.stored for row in rows.parameters}
        for name, (address, nbytes) in spans.items():  # tables, which do not depend on weights
            if name not in made:
                ctypes.memmove(address, loaded.spans[name][0], nbytes)
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
        executable = self._executable(code, parameters, spans)
        executable.weights = {name: address for name, (address, _) in spans.items()}
        session = executable.session()
        try:
            outputs = [spans[name][0] for name in code.outputs]
            session.addresses[:] = [*(addresses[number] for number in code.inputs), *outputs]
            session.run()
        finally:
            session.close()

    def _executable(self, code: WeightsCode, parameters: Sequence[Parameter], spans: Spans) -> Any:
        """The code of the weights program, loaded once; raises `BundleMalformed`."""
        if self._code is not None:
            return self._code
        where = f"{self._path}/{code.plan}"
        plan = Plan.from_msgpack(self._files[code.plan], where)
        library, vouched = split_library(self._files[code.library])
        fits = plan.fixed is not None and plan.code_digest == vouched and not plan.states
        if not fits:
            found = "a plan of other code, of dynamic sizes or of states"
            raise BundleMalformed(path=where, field="kernels", found=found, expected="its own")
        inputs = tuple(parameters[number].nbytes for number in code.inputs)
        outputs = tuple(_span(spans, name)[1] for name in code.outputs)
        plan.validate(len(inputs), len(outputs), spans.keys(), where, None)
        self.check(plan, inputs, outputs, {name: nbytes for name, (_, nbytes) in spans.items()})
        driver = load_driver(HOST_DEVICE)
        self._code = driver.Executable(library, plan.fixed, spans, inputs, outputs)
        return self._code

    @staticmethod
    def check(
        plan: Plan, inputs: Sequence[int], outputs: Sequence[int], weights: Mapping[str, int]
    ) -> None:
        """Every launch stays within inputs, outputs and weights of these sizes in bytes."""
        from ..bundle.plan_rules import check_steps
        from ..bundle.signature import TensorSpec

        specs = [
            tuple(TensorSpec(f"{role}{index}", "u8", (nbytes,)) for index, nbytes in enumerate(row))
            for role, row in (("input", inputs), ("output", outputs))
        ]
        check_steps(plan.fixed, (), (), (specs[0], specs[1]), weights, plan.path)


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


def require(loaded: Any) -> Any:
    """A program's code and weights; raises `ProgramClosed` and `WeightsNotReplaceable`."""
    if loaded is None:
        raise ProgramClosed()
    if loaded.file is None:
        raise WeightsNotReplaceable(reason="it stores none")
    return loaded
