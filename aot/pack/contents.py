"""What goes into a bundle, as plain values in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.bundle.extent import Row
from aotc.runtime.bundle.manifest import Entry, TensorSpec
from aotc.runtime.bundle.native_plan import BackendEntry
from aotc.runtime.bundle.plan import Plan
from aotc.runtime.bundle.signature import SessionDim


@dataclass(frozen=True, slots=True)
class TensorData:
    """A constant: dtype name, shape, and its contiguous little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    def __post_init__(self) -> None:
        expected = DTYPES[self.dtype].itemsize_bytes
        for extent in self.shape:
            expected *= extent
        if self.nbytes != expected:
            found = f"{self.nbytes} bytes for {self.dtype}{list(self.shape)}"
            raise ValueError(f"{found}, expected {expected}")

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return memoryview(self.data).nbytes


@dataclass(frozen=True, slots=True)
class TargetContents:
    """Code for one kind of machine: target name, device family, instruction sets, plan, library."""

    name: str
    device: str
    needs: tuple[str, ...]
    plan: Plan
    library: bytes


@dataclass(frozen=True, slots=True)
class BackendContents:
    """A native back end that the plans call. library: its file's bytes, to be kept in the bundle;
    None for one that is found on the machine."""

    entry: BackendEntry
    library: bytes | None = None


@dataclass(frozen=True, slots=True)
class Golden:
    """An input and the exported model's output, in the order of the signature.

    tolerances: for each output the difference allowed, relative to the output's largest absolute
    value; 0 asks for equality, as integers need it.
    """

    inputs: tuple[TensorData, ...]
    outputs: tuple[TensorData, ...]
    tolerances: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BundleContents:
    """Everything of one bundle.

    entries: the ways to call it. targets: best first. golden: by the entry's name. weights: in the
    order of use, which is their order in the file. extras: file name → bytes of what `load` does
    not need (`sources/…`, `provenance.json`, `debug/…`). refit: file name → bytes of the weights
    program and the list of parameters.
    """

    entries: tuple[Entry, ...]
    targets: tuple[TargetContents, ...]
    weights: Mapping[str, TensorData] = field(default_factory=dict)
    golden: Mapping[str, Golden] = field(default_factory=dict)
    extras: Mapping[str, bytes] = field(default_factory=dict)
    refit: Mapping[str, bytes] = field(default_factory=dict)
    has_weights: bool = True  # whether the bundle holds them, else whoever loads it gives them
    backends: tuple[BackendContents, ...] = ()
    states: tuple[TensorSpec, ...] = ()
    session_dims: tuple[SessionDim, ...] = ()
    session_sizes: tuple[Row, ...] = ()
    ranks: int = 1  # devices that each call runs on

    @property
    def torch(self) -> tuple[str, ...]:
        """Names of the ops that torch runs for some target."""
        names = (name for each in self.targets for name in each.plan.named("torch", "op"))
        return tuple(sorted(set(names)))
