"""One input or output of a program: what an array given for it must be, and how to say so."""

from __future__ import annotations

from ..errors import InputDtype, InputRank, InputShape, InputUnreadable, MemoryFull, OutputUnusable
from .dlpack import is_contiguous, ordered_strides

WITHOUT_GAPS = "elements row by row without gaps"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..bundle.manifest import TensorSpec
    from .dlpack import Array

    Copy = Callable[[int, int, tuple[int, ...], tuple[int, ...]], Array]


class Port:
    """One input or output of a program, with what the kinds derive from its spec once.

    index: its place among the addresses of a call, inputs first. `copy(address, itemsize, shape,
    strides)` returns an object with `.address` that holds the elements contiguously. ordinal: the
    number of the device that the program runs on, None in host memory. order, strides: where its
    dims lie in another order than the shape has them: the dims as memory has them, outermost first,
    and how many elements each steps over; else None. contiguous: the same port without an order.
    """

    __slots__ = ("contiguous", "copy", "device_template", "dtype", "index", "is_fixed", "name",
                 "nbytes", "numpy_dtype", "order", "ordinal", "role", "shape", "strides",
                 "torch_dtype", "torch_template")  # fmt: skip

    def __init__(
        self, spec: TensorSpec, role: str, index: int, copy: Copy, ordinal: int | None = None
    ) -> None:
        self.index = index
        self.ordinal = ordinal
        self.name = spec.name
        self.role = role
        self.dtype = spec.dtype
        self.shape = spec.shape
        self.is_fixed = spec.is_fixed
        self.nbytes = spec.nbytes if spec.is_fixed else 0
        self.order = spec.order or None
        self.strides: tuple[int, ...] | None = None
        self.contiguous: Port = self
        if spec.order:
            self.contiguous = Port(spec.replace(order=()), role, index, copy, ordinal)
            if spec.is_fixed:
                self.strides = ordered_strides(spec.shape, spec.order)
        self.copy = copy
        self.torch_dtype: Any = None
        self.numpy_dtype: Any = None
        self.torch_template: Any = None
        self.device_template: Any = None

    def check(self, dtype: str, shape: tuple[int, ...]) -> None:
        """Raise `InputDtype`, `InputRank` or `InputShape` unless both fit."""
        if dtype != self.dtype:
            raise InputDtype(role=self.role, name=self.name, found=dtype, expected=self.dtype)
        if len(shape) != len(self.shape):
            raise InputRank(
                role=self.role,
                name=self.name,
                found=len(shape),
                shape=list(shape),
                rank=len(self.shape),
                expected=f"(shape {list(self.shape)})",
            )
        if shape != self.shape:
            raise InputShape(
                role=self.role, name=self.name, found=list(shape), expected=list(self.shape)
            )

    def in_memory(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each dim, in the order in which the dims lie in memory."""
        return numbers if self.order is None else tuple([numbers[axis] for axis in self.order])

    def is_laid(self, strides: tuple[int, ...], itemsize: int) -> bool:
        """Whether an array of the port's shape lies as the program reads and writes it."""
        return is_contiguous(self.in_memory(self.shape), self.in_memory(strides), itemsize)

    def copied(self, address: int, strides: tuple[int, ...], itemsize: int) -> Array:
        """A copy of an array of the port's shape that does."""
        return self.copy(address, itemsize, self.in_memory(self.shape), self.in_memory(strides))

    def refuse_layout(self) -> OutputUnusable:
        """The error for an output that does not lie as the program writes it."""
        if self.order is None:
            return self.refuse_memory("not contiguous")
        expected = f"writable memory without gaps, the dims in the order {list(self.order)}"
        return OutputUnusable(
            role=self.role, name=self.name, found="in another order", expected=expected
        )

    def refuse_memory(self, found: str) -> OutputUnusable:
        """The error for an array that cannot be used where it lies."""
        expected = "contiguous, writable memory"
        return OutputUnusable(role=self.role, name=self.name, found=found, expected=expected)

    def no_memory(self) -> MemoryFull:
        """The error for an array that memory does not suffice for."""
        purpose = f"{self.role} `{self.name}` {self.dtype}{list(self.shape)}"
        return MemoryFull(purpose=purpose, nbytes=self.nbytes)

    def unreadable(self, found: str, expected: str) -> InputUnreadable:
        """The error for an argument that cannot be read as an array."""
        return InputUnreadable(role=self.role, name=self.name, found=found, expected=expected)

    def no_array(self, value: Any) -> InputUnreadable:
        """The error for an argument that is not an array at all."""
        expected = f"an array {self.dtype}{list(self.shape)}"
        return self.unreadable(f"of type `{type(value).__name__}`", expected)

    def no_answer(self, value: Any, what: str, error: Exception) -> InputUnreadable:
        """The error for an argument that raises where it is asked for what an array has."""
        found = f"of type `{type(value).__name__}`, whose {what} cannot be read ({error})"
        return self.unreadable(found, f"an array {self.dtype}{list(self.shape)}")

    def no_capsule(self, error: Exception) -> InputUnreadable:
        """The error for an array whose library does not export it by DLPack."""
        found = f"an array that gives no DLPack capsule ({error})"
        return self.unreadable(found, f"{self.dtype}{list(self.shape)}")


def ports(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    copy: Copy,
    ordinal: int | None = None,
) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """The ports of inputs and of outputs."""
    count = len(inputs)
    return (
        tuple(Port(spec, "input", at, copy, ordinal) for at, spec in enumerate(inputs)),
        tuple(Port(spec, "output", count + at, copy, ordinal) for at, spec in enumerate(outputs)),
    )
