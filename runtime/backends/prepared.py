"""Frames (memory of native calls) for arrays of given types and shapes: made after all checks, then
reused.

`fill` is the fast path: it reads the arrays' own pointers, which is all that later calls on arrays
of the same element types and shapes need.
"""

from __future__ import annotations

import ctypes
import sys

from ..arrays.dlpack import HOST, is_contiguous
from ..arrays.dtypes import DTYPES
from ..arrays.exchange import BUFFER, KINDS, TORCH, TORCH_DTYPES, kind_of
from ..arrays.numpy_fields import CONTIGUOUS, WRITABLE, numpy_fields
from ..arrays.port import WITHOUT_GAPS, Port
from ..arrays.torch_guard import guard_of
from ..bundle.manifest import TensorSpec
from ..drivers.cpu.executor_abi import CONTEXT_WORKSPACE, FRAME_CONTEXT, FRAME_MESSAGE
from ..errors import (
    InputDtype,
    InputError,
    InputMisaligned,
    InputRank,
    InputStrided,
    OutputUnusable,
)
from . import abi
from .errors import FunctionFailed
from .frame import (
    FrameLayout,
    message_at,
    write_frame,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .library import NativeFunction
    from .signature import TensorSlot
    from .view import View

    # its place, shape, numpy's and torch's element type, word in the frame, bits of an address
    # that must be 0, flags of a numpy array that must be set, port
    Row = tuple[int, tuple[int, ...], Any, Any, int, int, int, Port]


class Frame:
    """What calls on arrays of certain shapes are made with; one call at a time.

    words: the frame as 8-byte numbers; rows: one a tensor, none where every call needs views; key:
    (element type, shape and strides of each array; device; stream); shapes: of the arrays; stream:
    the handle, None on the host; scalars: (where each number goes, its word, its argument);
    pointers: what the kernel gets.
    """

    __slots__ = ("_block", "_fields", "_guard", "_is_guarded", "_tensor_type", "_workspace",
                 "base", "key", "layout", "pointers", "rows", "scalars", "shapes", "stream",
                 "words")  # fmt: skip

    def __init__(self, native: NativeFunction, key: Any) -> None:
        described, device, stream = key
        signature = native.signature
        self.key = key
        self.shapes = tuple(shape for _, shape, _ in described)
        ranks = list(map(len, self.shapes))
        self.layout = layout = FrameLayout(ranks, len(signature.scalars))
        self._block = (ctypes.c_int64 * (layout.nbytes // 8))()
        self._workspace: Any = None
        self.base = ctypes.addressof(self._block)
        context, tensors = self.base + FRAME_CONTEXT, self.base + layout.tensors
        self.pointers = (context, tensors, self.base + layout.scalars)
        self.words: Any = memoryview(self._block).cast("B").cast("q")
        reals = self.words.cast("B").cast("d")
        self.scalars = tuple(
            (
                self.words if slot.kind == "whole" else reals,
                layout.scalar(place) >> 3,
                len(ranks) + place,
            )
            for place, slot in enumerate(signature.scalars)
        )
        has_gaps = any(slot.is_strided for slot in signature.tensors)
        self.stream = None if device == HOST else stream
        self.rows: tuple[Row, ...] = ()
        self._guard: Any = None
        self._is_guarded = False  # whether the guard was asked for
        if not has_gaps:
            pairs = enumerate(zip(signature.tensors, described, strict=True))
            self.rows = tuple(self._row(native, place, *pair) for place, pair in pairs)
        self._fields = numpy_fields()
        self._tensor_type = getattr(sys.modules.get("torch"), "Tensor", None)
        state = native.library.state(*device)
        place = (abi.DEVICE_TYPES[device[0]], device[1])
        write_frame(self.base, layout, native.address, described, place, state, stream)

    def _row(self, native: NativeFunction, place: int, slot: TensorSlot, described: Any) -> Row:
        dtype, shape, _ = described
        label = f"{native.name}.{slot.name}"
        port = Port(TensorSpec(label, dtype, shape), slot.role, place, _refuse_gaps)
        mask = slot.alignment_of(dtype) - 1
        flags = CONTIGUOUS | WRITABLE if slot.role == "output" else CONTIGUOUS
        return place, shape, *_own_dtypes(dtype), self.layout.data(place) >> 3, mask, flags, port

    def fill(self, arguments: Sequence[Any], hold: list[Any]) -> bool:
        """Write the arrays' addresses; False where one is not as the frame has it.

        What `exchange.py` does for arrays of numpy and torch is written out: calls would cost as
        much as what they do.
        """
        words, tensor_type = self.words, self._tensor_type
        is_torch = type(arguments[0]) is tensor_type
        if is_torch and self._guard is not None and self._fill_guarded(arguments):
            return True
        if self.stream is not None:  # the attributes below are those of host memory
            return False
        kind, data, array_flags = self._fields
        try:
            for place, shape, numpy_dtype, torch_dtype, word, mask, flags, port in self.rows:
                value = arguments[place]
                dtype = value.dtype
                if value.shape != shape:
                    return False
                if dtype is numpy_dtype and type(value) is kind:
                    at = id(value) >> 3
                    if array_flags[at] & flags != flags:  # read-only or with gaps
                        return False
                    address = data[at]
                elif (
                    dtype is torch_dtype
                    and type(value) is tensor_type
                    and value.is_cpu
                    and value.is_contiguous()
                    and not value.requires_grad
                    and not value.is_neg()
                ):
                    address = value.data_ptr()
                else:
                    address = _address(port, value, hold)
                if address & mask or not address:
                    return False
                words[word] = address
        except (InputError, TypeError, AttributeError):  # not as the frame has it; no dtype
            return False
        if is_torch and not self._is_guarded:
            self._guard_by(arguments[: len(self.rows)])
        return True

    def _fill_guarded(self, arguments: Sequence[Any]) -> bool:
        """`fill` for torch's tensors, looked at all at once."""
        if not self._guard(*arguments[: len(self.rows)]):
            return False
        words = self.words
        for place, _, _, _, word, mask, _, _ in self.rows:
            address = arguments[place].data_ptr()
            if address & mask or not address:
                return False
            words[word] = address
        return True

    def _guard_by(self, arrays: Sequence[Any]) -> None:
        """Have torch look at the next call's tensors, where all are like these plain ones."""
        kind = self._tensor_type
        self._is_guarded = True
        if kind and all(type(each) is kind and not each.requires_grad for each in arrays):
            self._guard = guard_of(arrays)

    def fill_views(self, views: Sequence[View]) -> None:
        """The slow way: the addresses of arrays that were looked at."""
        for place, view in enumerate(views):
            self.words[self.layout.data(place) >> 3] = view.address
        if self.stream is not None and self.rows and not self._is_guarded:
            self._guard_by([view.owner for view in views])

    def lend_workspace(self, native: NativeFunction) -> None:
        """Memory for this call; the function is asked each time, since it may read the scalars."""
        nbytes = workspace_bytes(native, self.base, self.layout)
        if self._workspace is None or self._workspace[2] < nbytes:
            self._workspace = _workspace(self.key[1], self.key[2], nbytes)
        at = (FRAME_CONTEXT + CONTEXT_WORKSPACE) >> 3
        self.words[at], self.words[at + 1] = self._workspace[1:]

    def take_message(self) -> str:
        """What the function said of its failure; the next call begins without it."""
        text = message_at(self.base)
        self.words[FRAME_MESSAGE >> 3] = 0
        return text


def _own_dtypes(dtype: str) -> tuple[Any, Any]:
    """numpy's and torch's objects for an element type; None for a library that is not there."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (
        None if numpy is None or dtype == "bf16" else numpy.dtype(DTYPES[dtype].numpy),
        None if torch is None else getattr(torch, TORCH_DTYPES[dtype]),
    )


def _address(port: Port, value: Any, hold: list[Any]) -> int:
    """The address of an array of another kind."""
    kind = KINDS.get(type(value)) or kind_of(port, value)
    if kind is BUFFER or (kind is TORCH and value.is_neg()):
        raise TypeError  # bytes stand for arrays of any shape; what is lazy would be copied
    return kind.output(port, value) if port.role == "output" else kind.address(port, value, hold)


def workspace_bytes(native: NativeFunction, base: int, layout: FrameLayout) -> int:
    """What a function asks for beside its tensors, in bytes; raises `FunctionFailed`."""
    if not native.workspace_address:
        return 0
    ask = abi.WORKSPACE(native.workspace_address)
    nbytes: int = ask(base + FRAME_CONTEXT, base + layout.tensors, base + layout.scalars)
    if nbytes < 0:
        raise FunctionFailed(function=native.name, detail=message_at(base), status=nbytes)
    return nbytes


def _workspace(device: tuple[str, int], stream: int, nbytes: int) -> tuple[Any, int, int]:
    """(what owns it, address, bytes) of memory on the device."""
    if device == HOST:
        from ..drivers.memory import Memory

        memory = Memory(nbytes)
        return memory, memory.address, nbytes
    from ..drivers.cuda.device_array import DeviceArray, DeviceMemory

    array = DeviceArray("u8", (max(nbytes, 1),), DeviceMemory(device[1]), stream)
    return array, array.address, nbytes


def _refuse_gaps(
    address: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Any:
    """In place of a copy: a native function gets the caller's memory or none."""
    raise InputStrided(role="input", name="", found="not contiguous", expected=WITHOUT_GAPS)


def check_view(slot: TensorSlot, label: str, view: View) -> None:
    """Raise the typed error for an array that the signature does not admit."""
    if view.dtype not in slot.dtypes:
        expected = " or ".join(slot.dtypes)
        raise InputDtype(role=slot.role, name=label, found=view.dtype, expected=expected)
    if slot.rank is not None and len(view.shape) != slot.rank:
        found, shape = len(view.shape), list(view.shape)
        raise InputRank(
            role=slot.role, name=label, found=found, shape=shape, rank=slot.rank, expected="here"
        )
    if slot.role == "output" and view.is_read_only:
        expected = "writable memory"
        raise OutputUnusable(role=slot.role, name=label, found="read-only", expected=expected)
    if not slot.is_strided and not is_contiguous(view.shape, view.strides, 1):
        gaps = "not contiguous"
        raise InputStrided(role=slot.role, name=label, found=gaps, expected=WITHOUT_GAPS)
    alignment = slot.alignment_of(view.dtype)
    if view.address % alignment and 0 not in view.shape:
        raise InputMisaligned(
            role=slot.role, name=label, found=hex(view.address), expected=alignment
        )
