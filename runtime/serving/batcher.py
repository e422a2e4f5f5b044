"""Requests of several callers as one call, along a dynamic first dim.

    batcher = Batcher(program, max_batch=32, max_wait_ms=2)
    y = batcher(x)                       in any thread
    y = await batcher.call_async(x)      in asyncio

One thread makes the calls. It takes what waits, as soon as that fills a batch or the oldest request
has waited long enough, copies the rows of all requests behind each other, calls the program once,
and gives each caller arrays of its own with its rows. Requests are checked when they come, by the
caller's thread, so that a wrong one raises there and never meets the others. The thread begins with
the first request, also in a process that was forked after the batcher was made.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from operator import attrgetter
from time import monotonic

from ..arrays.buffers import buffer_address, copy_strided
from ..arrays.dtypes import DTYPES
from ..arrays.exchange import BUFFER, KINDS, kind_of, shape_of
from ..arrays.port import ports
from ..arrays.strided import copier
from ..bundle.extent import Extent
from ..bundle.manifest import find_entry
from ..errors import BatcherClosed, BatcherOption, DeadlinePassed, NotBatched, Overloaded
from ..programs.arguments import places
from ..programs.session import refuse_copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self

    from ..arrays.port import Port
    from ..bundle.manifest import TensorSpec
    from ..programs.entry import LoadedEntry
    from ..programs.program import Program
    from ..programs.statistics import Stats
    from .deployment import Deployment

    Ports = tuple[tuple[Port, ...], tuple[Port, ...]]

MAX_WAIT_MS = 2.0
MAX_QUEUE = 1024
SHAPES_KEPT = 256
LONGEST = 1e6  # milliseconds or seconds of a wait: threads cannot wait without limit


class Turn(threading.Condition):
    """A condition whose `with` takes its lock by C code alone: a signal's handler, which may raise,
    runs between two steps of Python, and so never where the lock is taken and not noted."""

    __enter__: Any = property(attrgetter("_lock.__enter__"))
    __exit__: Any = property(attrgetter("_lock.__exit__"))


class Answer(Future):  # type: ignore[type-arg]  # `Any` is there for checkers alone
    """A future whose waiting caller a signal may interrupt without the lock staying taken."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = Turn()


class Request:
    """Arrays of one caller, checked.

    key: the sizes beside the batch, which are equal in a batch; rows: its part of the batch;
    addresses: of the inputs, which `hold` keeps alive; make: gives a fresh output of the caller's
    kind; came_s: when, by the clock `monotonic`; ready_s: when its batch begins at the latest;
    timeout_s: how long after `came_s` its batch may begin, None for any time.
    """

    __slots__ = ("addresses", "arrays", "came_s", "future", "hold", "key", "make", "ports",
                 "ready_s", "rows", "timeout_s")  # fmt: skip

    def __init__(self, arrays: list[Any], key: tuple[int, ...], rows: int, ports: Ports) -> None:
        """Raises the `InputError` family."""
        self.arrays = arrays
        self.key = key
        self.rows = rows
        self.ports = ports
        self.hold: list[Any] = []
        self.addresses: list[int] = []
        self.make = BUFFER.make
        for port, value in zip(ports[0], arrays, strict=True):
            kind = KINDS.get(type(value)) or kind_of(port, value)
            self.addresses.append(kind.address(port, value, self.hold))
            if not port.index:
                self.make = kind.make
        self.future: Future[Any] = Answer()
        self.came_s = self.ready_s = monotonic()
        self.timeout_s: float | None = None

    def wait(self, longest_s: float, timeout_s: float | None) -> None:
        """Set how long it waits for others: half its timeout at most."""
        self.timeout_s = timeout_s
        self.ready_s += longest_s if timeout_s is None else min(longest_s, timeout_s / 2)

    def is_late(self) -> bool:
        """Whether its timeout has passed; it fails then."""
        waited_s = monotonic() - self.came_s
        if self.timeout_s is None or waited_s <= self.timeout_s:
            return False
        self.future.set_exception(_late(waited_s, self.timeout_s))
        return True


class Batcher:
    """Joins requests to a program, or to a deployment, into calls of up to `max_batch` rows.

    Requests are arrays in host memory as the program takes them, with one row or more each; the
    results are what a call by itself gives, those of joined calls contiguous. Requests whose other
    sizes differ are not joined. Arrays must not change until the result is there. Where a call
    raises, each of its requests is called by itself, so that only those that raise there fail.

    requests, batches, overloads, timeouts: how many there were, of timeouts those that were in the
    queue; waiting: requests in the queue now.
    """

    __reduce_ex__ = refuse_copy

    def __init__(
        self,
        program: Program | Deployment,
        max_batch: int = 32,
        max_wait_ms: float = MAX_WAIT_MS,
        max_queue: int = MAX_QUEUE,
        entry: str | None = None,
    ) -> None:
        """max_batch: rows of a call; max_wait_ms: how long a request waits for others; max_queue:
        requests that may wait, more raise `Overloaded`; entry: the entry point, by name.

        Raises `NotBatched` where the entry point has no dim that is the first of every input and
        output or the program has states, `EntryUnknown`, `EntryNotNamed`, `BatcherOption` and
        `ProgramClosed`.
        """
        current: Any = getattr(program, "program", program)
        if not hasattr(current, "_entries"):
            expected = "a program or a deployment"
            raise BatcherOption(name="program", found=type(program).__name__, expected=expected)
        current._open()
        _check_count("max_batch", max_batch)
        _check_seconds("max_wait_ms", max_wait_ms, is_zero_allowed=True)
        _check_count("max_queue", max_queue)
        self._entry: LoadedEntry = find_entry(current._entries, entry)
        self._batch = _batch_dim(self._entry, bool(current.states))
        self._program = program
        self._call: Callable[..., Any] = program if entry is None else program.entry(entry)
        self._max_rows = min(max_batch, self._entry.dims[self._batch].high)
        self._max_wait_s = max_wait_ms / 1e3
        self._max_queue = max_queue
        self._ports: dict[tuple[int, ...], Ports] = {}
        self._copy = copier(copy_strided)
        self.requests = self.batches = self.overloads = self.timeouts = 0
        self._is_closed = False
        self._begin_alone()
        _ALL.add(self)

    def _begin_alone(self) -> None:
        """With no thread and no requests, as at first; in a forked process too."""
        self._queues: dict[tuple[int, ...], deque[Request]] = {}
        self._changed = Turn()
        self._thread: threading.Thread | None = None

    def submit(self, *arrays: Any, timeout_s: float | None = None, **named: Any) -> Future[Any]:
        """Have a request wait for its batch; the future gives what a call gives, or raises it. One
        that is cancelled before its batch begins leaves the queue at once.

        timeout_s: the longest time until its batch begins, in seconds; later it is not run, and the
        future raises `DeadlinePassed`. Raises what a call raises for arrays that do not fit,
        `Overloaded`, `BatcherClosed` and `BatcherOption`.
        """
        if timeout_s is not None:
            _check_seconds("timeout_s", timeout_s)
        request = self._checked(arrays, named)
        request.wait(self._max_wait_s, timeout_s)
        with self._changed:
            if self._is_closed:
                raise BatcherClosed()
            if self.waiting >= self._max_queue:
                self.overloads += 1
                raise Overloaded(found=self.waiting, limit=self._max_queue)
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="aotc-batcher", daemon=True)
                thread.start()
                self._thread = thread
            self.requests += 1
            queue = self._queues.get(request.key)
            if queue is None:
                self._queues[request.key] = deque([request])  # none is ever empty
            else:
                queue.append(request)
            self._changed.notify_all()  # `notify` may meet a waiter that an interrupted one left
        request.future.add_done_callback(lambda future: self._cancelled(request, future))
        return request.future

    def __call__(self, *arrays: Any, timeout_s: float | None = None, **named: Any) -> Any:
        """The result of one request; waits for it.

        timeout_s: the longest wait in seconds, after which it raises `DeadlinePassed`. Raises what
        `submit` raises. In the batcher's own thread, a callback of a future, it is a plain call.
        """
        if threading.current_thread() is self._thread:
            return self._call(*arrays, **named)
        future = self.submit(*arrays, timeout_s=timeout_s, **named)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done() and not future.cancelled():  # it is the program's
                raise
            raise _late(timeout_s, timeout_s) from None
        finally:  # late, or interrupted
            future.cancel()

    async def call_async(self, *arrays: Any, timeout_s: float | None = None, **named: Any) -> Any:
        """The same in asyncio, whose cancellation takes the request out of the queue."""
        import asyncio

        future = asyncio.wrap_future(self.submit(*arrays, timeout_s=timeout_s, **named))
        try:
            await asyncio.wait([future], timeout=timeout_s)
            if not future.done():
                raise _late(timeout_s, timeout_s)
            return future.result()
        finally:  # late, or cancelled: `wait` cancels nothing
            future.cancel()

    @property
    def waiting(self) -> int:
        """Requests in the queue now."""
        return sum(map(len, list(self._queues.values())))

    def stats(self) -> Stats:
        """Those of the program; its calls are batches."""
        return self._program.stats()

    def close(self) -> None:
        """Take no more requests, and wait for those that are there. The program stays open."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checked(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> Request:
        """A request of these arguments; raises the `InputError` family."""
        entry = self._entry
        given = list(entry.arrange(arrays, named))
        shapes = [shape_of(*pair) for pair in zip(entry.ports[0], given, strict=True)]
        values = tuple(entry.signature.bind(shapes))
        sizes = values[: len(entry.dims)]
        found = self._ports.get(sizes)
        if found is None:
            inputs, outputs = entry.signature.at(values)
            found = ports(_contiguous(inputs), _contiguous(outputs), self._copy)
            if len(self._ports) >= SHAPES_KEPT:
                self._ports.clear()
            self._ports[sizes] = found
        key = sizes[: self._batch] + sizes[self._batch + 1 :]
        return Request(given, key, sizes[self._batch], found)

    def _cancelled(self, request: Request, future: Future[Any]) -> None:
        if future.cancelled():
            with self._changed:
                queue = self._queues.get(request.key)
                if queue is not None and request in queue:
                    queue.remove(request)
                    self._left(request.key)

    def _left(self, key: tuple[int, ...]) -> None:
        if not self._queues[key]:
            del self._queues[key]

    def _work(self) -> None:
        while True:
            batch = self._next()
            if not batch:
                return
            self._run(batch)

    def _next(self) -> list[Request]:
        """The requests of the next call; none once the batcher is closed and all are answered."""
        with self._changed:
            while True:
                if not self._queues:
                    if self._is_closed:
                        return []
                    self._changed.wait()
                    continue
                queue = min(self._queues.values(), key=_ready_s)
                left_s = _ready_s(queue) - monotonic()
                is_full = sum(each.rows for each in queue) >= self._max_rows
                if not is_full and left_s > 0 and not self._is_closed:
                    self._changed.wait(left_s)
                    continue
                batch = self._take(queue)
                if batch:
                    return batch

    def _take(self, queue: deque[Request]) -> list[Request]:
        """Requests that fit into one call, the oldest first; at least one."""
        batch: list[Request] = []
        rows, count, key = 0, 0, queue[0].key
        while queue and (not count or rows + queue[0].rows <= self._max_rows):
            request = queue.popleft()
            count += 1
            if not request.future.set_running_or_notify_cancel():
                continue
            if request.is_late():
                self.timeouts += 1
            else:
                batch.append(request)
                rows += request.rows
        self._left(key)
        return batch

    def _run(self, batch: list[Request]) -> None:
        self.batches += 1
        try:
            if len(batch) == 1:
                batch[0].future.set_result(self._call(*batch[0].arrays))
                return
            results = self._joined(batch)
        except BaseException as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
                return
            for request in batch:  # which of them it was
                self._run([request])
            return
        for request, result in zip(batch, results, strict=True):
            request.future.set_result(result)

    def _joined(self, batch: list[Request]) -> list[Any]:
        """The results of several requests by one call."""
        rows = sum(request.rows for request in batch)
        arrays = []
        for index, port in enumerate(batch[0].ports[0]):
            joined = bytearray(sum(request.ports[0][index].nbytes for request in batch))
            address = buffer_address(joined) if joined else 0
            for request in batch:
                nbytes = request.ports[0][index].nbytes
                ctypes.memmove(address, request.addresses[index], nbytes)
                address += nbytes
            shape = (rows, *port.shape[1:])
            arrays.append(_as_array(joined, port.dtype, shape))
        result = self._call(*arrays)
        entry = self._entry
        outputs = list(places(entry.structure.outputs, entry.outputs, result))
        _check_outputs(entry, batch, outputs)
        values: list[list[Any]] = [[] for _ in batch]
        for index, output in enumerate(outputs):
            has_bytes = any(request.ports[1][index].nbytes for request in batch)
            source = buffer_address(output) if has_bytes else 0
            for request, own in zip(batch, values, strict=True):
                port = request.ports[1][index]
                value, address = request.make(port)
                ctypes.memmove(address, source, port.nbytes)
                source += port.nbytes
                own.append(value)
        return [entry.give(own) for own in values]


_ALL: weakref.WeakSet[Batcher] = weakref.WeakSet()


def _after_fork() -> None:
    """The forked process has neither the threads of the other one nor its callers."""
    for each in _ALL:
        each._begin_alone()


os.register_at_fork(after_in_child=_after_fork)


def _ready_s(queue: deque[Request]) -> float:
    """When the next batch of a queue begins at the latest."""
    return min(each.ready_s for each in queue)


def _late(waited_s: float | None, limit_s: float | None) -> DeadlinePassed:
    return DeadlinePassed(found=f"{waited_s:.3g}", limit=f"{limit_s:.3g}")


def _check_count(name: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise BatcherOption(name=name, found=repr(value), expected="a whole number from 1 on")


def _check_seconds(name: str, value: Any, is_zero_allowed: bool = False) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (0 < value < LONGEST or (is_zero_allowed and value == 0)):
        least = "from 0" if is_zero_allowed else "above 0 and"
        expected = f"a number {least} below {LONGEST:.0g}"
        raise BatcherOption(name=name, found=repr(value), expected=expected)


def _as_array(joined: bytearray, dtype: str, shape: tuple[int, ...]) -> Any:
    """The bytes as an array that a program takes."""
    letter: Any = DTYPES[dtype].buffer
    return memoryview(joined).cast(letter, shape) if joined else joined


def _batch_dim(entry: LoadedEntry, has_states: bool) -> int:
    """The number of the dim along which calls are joined; raises `NotBatched`."""
    if has_states:
        raise NotBatched(what="the program", found="one with states", expected="one without")
    specs: Sequence[TensorSpec] = (*entry.inputs, *entry.outputs)
    firsts = {_first(spec) for spec in specs}
    for spec in specs:
        first = _first(spec)
        if first is None or first >= len(entry.dims) or len(firsts) > 1:
            expected = "the batch, one dim of the program, as the first of every input and output"
            found = f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
            raise NotBatched(what=f"`{spec.name}`", found=found, expected=expected)
    return firsts.pop() or 0


def _contiguous(specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """The same inputs or outputs, contiguous as the buffers of joined calls are."""
    return [spec.replace(order=()) if spec.order else spec for spec in specs]


def _check_outputs(entry: LoadedEntry, batch: list[Request], outputs: list[Any]) -> None:
    """Raise `NotBatched` where a call gave other sizes than those of its requests together: the
    bundle may have been swapped for one with other outputs. Nothing is copied then."""
    sizes = [sum(request.ports[1][at].nbytes for request in batch)
             for at in range(len(entry.outputs))]  # fmt: skip
    found = [memoryview(output).nbytes for output in outputs]
    if found != sizes:
        expected = f"{sizes} bytes in its outputs"
        raise NotBatched(what="the call", found=f"{found} bytes", expected=expected)


def _first(spec: TensorSpec) -> int | None:
    """The number of the size that is the first of a shape, None for one that is fixed."""
    first = spec.shape[0] if spec.shape else None
    return first.index if isinstance(first, Extent) else None
