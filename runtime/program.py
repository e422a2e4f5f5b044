"""Loaded bundles: `Program` is what `load` returns, `Session` serves one thread, `Bound` one call.

    load: directory → manifest → fits this machine? → digests → plan → driver → Program

A call fills the addresses of inputs and outputs and makes one call into the driver. Nothing is
compiled, measured or written here.
"""

from __future__ import annotations

import _thread
import sys

from .dlpack import Array
from .errors import (
    InputCount,
    InputMissing,
    InputNotContiguous,
    InputUnknown,
    OutputCount,
    OutputUnusable,
    ProgramClosed,
)
from .exchange import BUFFER, KINDS, kind_of
from .port import Port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

    from .exchange import Kind
    from .manifest import Manifest, Target, TensorSpec
    from .plan import LaunchPlan
    from .port import Copy
    from .weights import MappedFile

COPY_RANK_LIMIT = 8


class Loaded:
    """Code and weights in memory; freed when neither program nor session refers to it any more."""

    __slots__ = ("executable", "weights")

    def __init__(self, executable: Any, weights: MappedFile | None) -> None:
        self.executable = executable
        self.weights = weights

    def __del__(self) -> None:
        # At the interpreter's end the process goes away, and so may what closing needs.
        if not sys.is_finalizing():
            self.executable.close()


class Program:
    """A bundle ready to run; safe to call from several threads at once.

    inputs, outputs: tuples of `TensorSpec` (name, dtype, shape); target: name of the target in
    use; identity: hex SHA-256 of the bundle; threads: threads that share the work of one call.

    Calling it takes arrays in the order of `inputs` or by name, on the CPU, as torch tensors,
    numpy arrays, DLPack producers or plain buffers. The outputs are new arrays of the kind of the
    first input, one array or a tuple; `out=` gives the arrays to write to instead. Raises the
    `InputError` family.
    """

    def __init__(
        self, manifest: Manifest, target: Target, identity: str, plan: LaunchPlan, loaded: Loaded
    ) -> None:
        """Made by `load` only."""
        self.manifest = manifest
        self.inputs: tuple[TensorSpec, ...] = manifest.inputs
        self.outputs: tuple[TensorSpec, ...] = manifest.outputs
        self.target: str = target.name
        self.identity = identity
        self.plan = plan
        copy = copier(loaded.executable)
        self._input_ports = tuple(Port(spec, "input", copy) for spec in self.inputs)
        self._output_ports = tuple(Port(spec, "output", copy) for spec in self.outputs)
        self._loaded: Loaded | None = loaded
        # Made now, so that a machine with too little memory says so at load.
        self._free: list[Session] = [Session(self)]
        self.threads: int = loaded.executable.threads

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run once; see the class."""
        try:
            session = self._free.pop()  # one atomic step, so that threads never share a session
        except IndexError:
            session = Session(self)
        try:
            return session(*arrays, out=out, **named)
        finally:
            if self._loaded is not None:
                self._free.append(session)

    def session(self) -> Session:
        """A session of one's own: a thread that keeps one never meets another's arena."""
        return Session(self)

    def bind(self, *arrays: Any, out: Any = None, **named: Any) -> Bound:
        """Fix the memory of inputs and outputs: the result is called without arguments.

        Each call reads what is then in the arrays given here and writes the same outputs. Raises
        `OutputUnusable` for an array that is not contiguous, since a copy would go stale.
        """
        return Bound(Session(self), arrays, named, out)

    def close(self) -> None:
        """End the program; may be called again. Calls that run in other threads finish."""
        self._loaded = None
        self._free.clear()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._loaded is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.inputs)
        outputs = ", ".join(f"{spec.name}: {spec}" for spec in self.outputs)
        return f"<aotc program ({inputs}) -> ({outputs}) on {self.target}>"


class Session:
    """One caller's arena and addresses; for one thread at a time. Called like the program."""

    __slots__ = (
        "_addresses",
        "_inputs",
        "_last",
        "_loaded",
        "_native",
        "_outputs",
        "_program",
        "_run",
    )

    def __init__(self, program: Program) -> None:
        loaded = program._loaded
        if loaded is None:
            raise ProgramClosed()
        self._loaded: Loaded | None = loaded
        self._program = program
        self._native = loaded.executable.session()
        self._addresses = self._native.addresses
        self._run: Callable[[], Any] = self._native.run
        self._inputs = program._input_ports
        self._outputs = program._output_ports
        self._last: list[int] = []  # what the driver's addresses hold

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run once; see `Program`."""
        if self._program._loaded is None or self._loaded is None:
            raise ProgramClosed()
        hold: list[Any] = []  # copies of arrays that are not contiguous, alive during the call
        result = self._fill(arrays, named, out, hold)
        self._run()
        return result

    def _fill(
        self, arrays: Sequence[Any], named: Mapping[str, Any], out: Any, hold: list[Any]
    ) -> Any:
        """Write the addresses of all arrays; returns the outputs."""
        ports = self._inputs
        if named or len(arrays) != len(ports):
            arrays = arrange(self._program.inputs, arrays, named)
        addresses: list[int] = []
        first: Kind | None = None
        for value in arrays:
            port = ports[len(addresses)]
            kind = KINDS.get(type(value)) or kind_of(port, value)
            addresses.append(kind.address(port, value, hold))
            if first is None:
                first = kind
        result = self._make(first or BUFFER, addresses) if out is None else out
        if out is not None:
            self._place(out, addresses)
        if addresses != self._last:  # a caller that keeps its arrays pays for this once
            self._refuse_overlap(addresses)
            self._addresses[:] = addresses
            self._last = addresses
        return result

    def _make(self, kind: Kind, addresses: list[int]) -> Any:
        """Fresh outputs of a kind: one array, or a tuple; appends their addresses."""
        values = []
        for port in self._outputs:
            value, address = kind.make(port)
            values.append(value)
            addresses.append(address)
        return values[0] if len(values) == 1 else tuple(values)

    def _place(self, out: Any, addresses: list[int]) -> None:
        """Append the addresses of the caller's outputs."""
        ports = self._outputs
        values = out if type(out) is tuple or type(out) is list else (out,)
        if len(values) != len(ports):
            raise OutputCount(found=len(values), expected=len(ports))
        for index, value in enumerate(values):
            port = ports[index]
            kind = KINDS.get(type(value)) or kind_of(port, value)
            addresses.append(kind.place(port, value))

    def _refuse_overlap(self, addresses: list[int]) -> None:
        """Kernels read inputs after they began to write outputs, so the two must not meet."""
        ports = self._inputs + self._outputs
        for index in range(len(self._inputs), len(ports)):
            begin, port = addresses[index], ports[index]
            for other, start in zip(ports[:index], addresses, strict=False):
                if start < begin + port.nbytes and begin < start + other.nbytes:
                    raise OutputUnusable(
                        role="output",
                        name=port.name,
                        found=f"in the memory of {other.role} `{other.name}`",
                        expected="memory of its own",
                    )

    def close(self) -> None:
        """Free the arena; may be called again."""
        if self._loaded is not None:
            self._native.close()
            self._loaded = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing() and getattr(self, "_native", None) is not None:
            self.close()


class Bound:
    """A call with fixed memory: `bound()` runs it and returns `bound.outputs`.

    It keeps its arrays alive. Two threads that call it at once take turns.
    """

    __slots__ = ("_arrays", "_lock", "_program", "_run", "_session", "outputs")

    def __init__(
        self, session: Session, arrays: tuple[Any, ...], named: dict[str, Any], out: Any
    ) -> None:
        """Made by `Program.bind` only."""
        hold: list[Any] = []
        self.outputs: Any = session._fill(arrays, named, out, hold)
        if any(isinstance(each, Array) for each in hold):
            raise InputNotContiguous()
        self._arrays = (arrays, named, hold)
        self._program = session._program
        self._session = session
        self._run = session._run
        self._lock = _thread.allocate_lock()

    def __call__(self) -> Any:
        """Run on the bound memory."""
        if self._program._loaded is None:
            raise ProgramClosed()
        with self._lock:
            self._run()
        return self.outputs


def arrange(
    specs: tuple[TensorSpec, ...], arrays: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """Positional and named arguments in the order of `specs`.

    Raises `InputCount`, `InputUnknown` or `InputMissing`.
    """
    names = [spec.name for spec in specs]
    listing = ", ".join(f"`{name}`" for name in names) or "none"
    if len(arrays) > len(names):
        raise InputCount(found=len(arrays), expected=len(names), names=listing)
    rest = names[len(arrays) :]
    for name in named:
        if name not in rest:
            detail = "was given by position too" if name in names else "is not known"
            raise InputUnknown(name=name, detail=detail, names=listing)
    for spec in specs[len(arrays) :]:
        if spec.name not in named:
            raise InputMissing(name=spec.name, expected=str(spec))
    return [*arrays, *(named[name] for name in rest)]


def copier(executable: Any) -> Copy:
    """A function that copies a strided array into an `Array` of bytes by the driver's code."""

    def copy(source: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        nbytes = itemsize
        for extent in shape:
            nbytes *= extent
        array = Array("u8", (nbytes,))
        if nbytes:
            merged = merge_dims(itemsize, shape, strides)
            _copy_outer(executable.copy_strided, array.address, source, itemsize, *merged)
        return array

    return copy


def merge_dims(
    itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same elements in the same order with as few dims as possible; strides in bytes."""
    dims: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if dims and dims[-1][1] == extent * stride:
            dims[-1] = (dims[-1][0] * extent, stride)
        else:
            dims.append((extent, stride))
    dims = dims or [(1, itemsize)]
    return tuple(extent for extent, _ in dims), tuple(stride for _, stride in dims)


def _copy_outer(
    copy_strided: Callable[..., Any],
    to: int,
    source: int,
    itemsize: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> None:
    """Loop over the outer dims that are more than native code takes."""
    if len(shape) <= COPY_RANK_LIMIT:
        copy_strided(to, source, itemsize, shape, strides)
        return
    step = itemsize
    for extent in shape[1:]:
        step *= extent
    for index in range(shape[0]):
        begin = source + index * strides[0]
        _copy_outer(copy_strided, to + index * step, begin, itemsize, shape[1:], strides[1:])
