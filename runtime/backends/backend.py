"""A native back end as Python uses it: `get_backend("custom_add").add(a, b, n, out=out)`.

A function takes numpy, torch or any array that has DLPack or a buffer. Its first call on arrays of
some element types and shapes learns what they are (`view.py`), holds them against the signature and
lays out a frame. Later ones take the arrays' own pointers, write them into the frame and make one
native call (`prepared.py`).
"""

from __future__ import annotations

import os
from struct import error as StructError

from ..arrays.dlpack import HOST
from ..drivers.cuda import streams
from ..drivers.cuda.errors import StreamForeign
from ..settings import path_text
from . import abi
from .discovery import find
from .errors import (
    BackendClosed,
    BackendConfigured,
    FunctionArguments,
    FunctionDevice,
    FunctionFailed,
    FunctionScalar,
)
from .frame import scalar_bytes
from .library import NativeLibrary, open_file
from .prepared import Frame, check_view
from .view import View, view_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .library import NativeFunction
    from .signature import Signature

NOT_ONE = frozenset((tuple, list, type(None)))  # what is not one output
SHAPES_LIMIT = 64  # sets of shapes whose frames a function keeps, and frames of one


class Function:
    """A function of a back end: `function(a, b, n, out=out)`, or all in the kernel's order.

    `signature` says what it takes; `pointer` is its plain address, an `aotc_kernel`.
    """

    __slots__ = ("_call", "_count", "_is_alone", "_is_plain", "_labels", "_library", "_native",
                 "_ready", "_recent", "_total", "signature")  # fmt: skip

    def __init__(self, native: NativeFunction) -> None:
        self._native = native
        self._library = native.library
        self.signature = signature = native.signature
        self._call: Any = abi.KERNEL(native.address)
        self._labels = [f"{native.name}.{slot.name}" for slot in signature.tensors]
        self._recent: list[Frame] = []  # of the last call; more where threads call at once
        self._ready: dict[tuple[Any, ...], list[Frame]] = {}  # by the arrays' shapes
        self._count = len(signature.tensors)
        self._total = self._count + len(signature.scalars)
        outputs = len(signature.outputs)
        # What a call need not look at: one output, which comes first; neither lock nor workspace.
        self._is_plain = outputs == 1 and signature.tensors[0].role == "output"
        self._is_alone = not signature.is_concurrent or bool(native.workspace_address)

    @property
    def pointer(self) -> int:
        """The address of the kernel, for other code; valid while the process runs."""
        return self._native.address

    def __repr__(self) -> str:
        return f"<native function {self._library.name}::{self.signature}>"

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Inputs, then scalars, by position or name; returns `out`.

        out: the array of the only output, or a tuple of them; every output is given, since the
        back end cannot tell its shape beforehand. stream: on a device, where the work goes; None
        is torch's current stream, or the default one. The call does not wait for it.
        """
        if self._is_plain and not named and type(out) not in NOT_ONE:
            self.execute((out, *arguments), stream)
        else:
            self.execute(self._in_order(self._outputs(out), arguments, named), stream)
        return out

    def _outputs(self, out: Any) -> tuple[Any, ...]:
        outputs = tuple(out) if type(out) in (tuple, list) else () if out is None else (out,)
        expected = len(self.signature.outputs)
        if len(outputs) != expected:
            raise self._refuse(f"{len(outputs)} arrays as `out`", f"{expected}: {self.signature}")
        return outputs

    def _by_name(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        names = [slot.name for slot in self.signature.inputs]
        names += [slot.name for slot in self.signature.scalars]
        found = list(arguments)
        for name in names[len(arguments) :]:
            if name not in named:
                raise self._refuse(f"no `{name}`", str(self.signature))
            found.append(named.pop(name))
        if named:
            unknown = ", ".join(f"`{name}`" for name in named)
            raise self._refuse(unknown, f"each of {', '.join(names)} once")
        return tuple(found)

    def _in_order(
        self, outputs: tuple[Any, ...], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Outputs and inputs where the kernel has them, then the scalars."""
        if named:
            arguments = self._by_name(arguments, named)
        count = self._count - len(outputs)
        if len(arguments) < count:
            raise self._refuse(f"{len(arguments)} arguments", str(self.signature))
        written, read = iter(outputs), iter(arguments[:count])
        slots = self.signature.tensors
        tensors = [next(written if slot.role == "output" else read) for slot in slots]
        return (*tensors, *arguments[count:])

    def _refuse(self, found: str, expected: str) -> FunctionArguments:
        return FunctionArguments(function=self._native.name, found=found, expected=expected)

    def execute(self, arguments: tuple[Any, ...], stream: Any = None) -> None:
        """One call on tensors and scalars in the kernel's order; outputs are written in place.

        Raises the `InputError` family with the names of library, function and argument, and
        `FunctionFailed` with the library's own message where the function returns an error.
        """
        if len(arguments) != self._total:
            raise self._refuse(f"{len(arguments)} arguments", f"{self._total}: {self.signature}")
        if self._library.is_closed:
            raise BackendClosed(name=self._library.name)
        hold: list[Any] = []  # keeps what is borrowed by DLPack
        recent = self._recent
        frame = recent.pop() if recent else None
        if (
            frame is None
            or not frame.rows
            or (frame.stream is not None and not self._is_on_stream(frame, stream))
            or not frame.fill(arguments, hold)
        ):
            if frame is not None:
                self._put_back(frame)
            frame = self._fitting(arguments, stream, hold)
            if frame is None:
                frame = self._prepared(arguments[: self._count], stream, hold)
        try:
            for words, word, place in frame.scalars:
                words[word] = arguments[place]
            status = self._run_alone(frame) if self._is_alone else self._call(*frame.pointers)
            if status:
                detail = frame.take_message()
                raise FunctionFailed(function=self._native.name, detail=detail, status=status)
        except (TypeError, ValueError):  # of the frame's memory, for what is no such number
            self._check_scalars(arguments[self._count :])
            raise
        finally:
            recent.append(frame)

    def _run_alone(self, frame: Frame) -> int:
        """A call with its workspace, and not beside others where the function asks for that."""
        if self._native.workspace_address:
            frame.lend_workspace(self._native)
        if self.signature.is_concurrent:
            return int(self._call(*frame.pointers))
        with self._library.lock:
            return int(self._call(*frame.pointers))

    def _check_scalars(self, scalars: tuple[Any, ...]) -> None:
        """Raise `FunctionScalar` for the one that could not be written."""
        for slot, value in zip(self.signature.scalars, scalars, strict=True):
            is_whole = slot.kind == "whole"
            try:
                scalar_bytes(slot.kind, value)
            except (TypeError, OverflowError, StructError):
                expected = "a whole number of 64 bits" if is_whole else "a number"
                raise FunctionScalar(
                    function=self._native.name, name=slot.name, found=repr(value), expected=expected
                ) from None

    # Arrays of shapes that the last call did not have.

    def _prepared(self, tensors: tuple[Any, ...], stream: Any, hold: list[Any]) -> Frame:
        """A frame with the addresses of these arrays, after every check."""
        slots = self.signature.tensors
        given = stream if type(stream) is int else None
        rows = zip(slots, self._labels, tensors, strict=True)
        views = [view_of(slot, label, value, given) for slot, label, value in rows]
        device = self._device(views)
        for slot, label, view in zip(slots, self._labels, views, strict=True):
            check_view(slot, label, view)
        described = tuple((view.dtype, view.shape, view.strides) for view in views)
        key = (described, device, self._stream(stream, device))
        shapes = tuple(view.shape for view in views)
        frame = self._kept(shapes, lambda frame: frame.key == key) or Frame(self._native, key)
        frame.fill_views(views)
        hold.extend(views)
        return frame

    def _device(self, views: list[View]) -> tuple[str, int]:
        """The one device of all arrays; raises `FunctionDevice`."""
        found = {view.device for view in views} or {(self.signature.devices[0], 0)}
        if len(found) > 1 or next(iter(found))[0] not in self.signature.devices:
            where = ", ".join(f"{name}:{ordinal}" for name, ordinal in sorted(found))
            expected = ", ".join(self.signature.devices)
            raise FunctionDevice(function=self._native.name, found=where, expected=expected)
        return found.pop()

    def _stream(self, stream: Any, device: tuple[str, int]) -> int:
        """The handle of the stream of a call; 0 on the CPU."""
        if device == HOST:
            return 0
        if stream is not None:
            return streams.handle_of(stream, device[1])
        return streams.current(device[1]) or streams.LEGACY

    def _is_on_stream(self, frame: Frame, stream: Any) -> bool:
        """Whether a device's frame is of the stream of this call."""
        try:
            return frame.stream == self._stream(stream, frame.key[1])
        except StreamForeign:  # of another device than the frame's
            return False

    def _fitting(self, arguments: tuple[Any, ...], stream: Any, hold: list[Any]) -> Frame | None:
        """A frame of an earlier call on arrays like these, filled; None where there is none."""

        def fits(frame: Frame) -> bool:
            is_here = frame.stream is None or self._is_on_stream(frame, stream)
            return is_here and bool(frame.rows) and frame.fill(arguments, hold)

        try:
            shapes = tuple([each.shape for each in arguments[: self._count]])
            return self._kept(shapes, fits)
        except (AttributeError, TypeError):  # not every array has a shape
            return None

    def _kept(self, shapes: Any, fits: Callable[[Frame], Any]) -> Frame | None:
        """A frame for arrays of these shapes that was put back and fits, taken out; or None."""
        frames = self._ready.get(shapes) or []
        for _ in range(len(frames)):
            try:
                frame = frames.pop(0)
            except IndexError:  # another thread was faster
                break
            if fits(frame):
                return frame
            frames.append(frame)
        return None

    def _put_back(self, frame: Frame) -> None:
        if len(self._ready) >= SHAPES_LIMIT:
            self._ready.clear()
        frames = self._ready.setdefault(frame.shapes, [])
        del frames[SHAPES_LIMIT:]  # of many streams
        frames.append(frame)


def get_backend(name: str | os.PathLike[str], configs: Mapping[str, str] | None = None) -> Backend:
    """The native back end of that name, loaded once in a process.

    name: looked up on AOTC_BACKEND_PATH, then among the entry points `aotc.backends` of installed
    packages. A path, which is whatever has a `/`, is that file. configs: what the library's
    `initialize` gets, at the first call on each device. Raises the `BackendError` family: not
    found, not loadable, no back end, another ABI, another name, other configs.
    """
    text = path_text("name", name)
    if "/" in text:
        library = open_file(os.path.abspath(text))
    else:
        library = open_file(find(text).path, text)
    if configs is not None and not library.configure(configs):
        raise BackendConfigured(name=library.name, found=library.configs, expected=dict(configs))
    return Backend(library)


class Backend:
    """A loaded library; its functions are methods, and items with signature and pointer.

    name, version: the library's own; path: the file that was loaded, absolute; devices: where it
    has functions, of `cpu` and `cuda`.
    """

    __slots__ = ("__dict__", "_functions", "_library", "devices", "name", "path", "version")

    def __init__(self, library: NativeLibrary) -> None:
        self._library = library
        self._functions: dict[str, Function] = {}
        self.name, self.version, self.path = library.name, library.version, library.path
        self.devices = library.devices

    @property
    def functions(self) -> dict[str, Signature]:
        """Name → signature of every function."""
        return {name: self[name].signature for name in self._library.function_names}

    def get_function_ptr(self, name: str) -> int:
        """The address of a function's `aotc_kernel`, for other code; raises `FunctionUnknown`."""
        return self[name].pointer

    def execute_kernel(self, name: str, *arguments: Any, stream: Any = None) -> None:
        """One call with tensors, then scalars, in the kernel's own order; writes its outputs."""
        self[name].execute(arguments, stream)

    def __getitem__(self, name: str) -> Function:
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = Function(self._library.function(name))
        return function

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):  # Python's own questions about the object
            raise AttributeError(name)
        # From here on it is found without this method; and a method is called for less than an
        # object with `__call__`.
        call = self.__dict__[name] = self[name].__call__
        return call

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._library.function_names})

    def __repr__(self) -> str:
        return f"<native back end {self.name} {self.version} from {self.path}>"

    def close(self) -> None:
        """Give back what the library holds on its devices; otherwise the process's end does.

        Its functions cannot be called afterwards, by whomever; none may be running.
        """
        self._library.close()
