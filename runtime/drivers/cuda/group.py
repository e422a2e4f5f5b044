"""A program that is split over several GPUs of one host: the same plan on each of them.

Each rank has the code, its own weights, arena and states on a device of its own; rank 0's device is
the program's. A call runs the plan on all of them at once: the others' streams follow the caller's,
read its inputs where they lie, and the caller's stream goes on once all have ended. So the calls of
a session never overlap, and whatever ranks set on each other is clear when one begins.

While a plan runs, kernels of the op `exchange` store into the arenas of the other ranks, at the
places where these have the same tensor. Its parameters say how far those arenas lie from its own.
"""

from __future__ import annotations

from functools import partial

from ...bundle.plan_parts import name_of_rank
from .arena import Shared
from .device import Device
from .errors import CallEndedHalfWay, PeerUnreachable, RankSilent, StateInParts
from .libcuda import PEER_ACCESS_ENABLED
from .session import CudaSession
from .streams import LEGACY, put_off

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from ...errors import AotcError
    from .graph import LaunchGraph
    from .handles import Event, Stream


def of_rank(weights: Mapping[str, tuple[int, int]], rank: int) -> dict[str, tuple[int, int]]:
    """The weights of a rank by the names of the plan: its own parts, and what all ranks have."""
    return {name: weights.get(name_of_rank(name, rank), where) for name, where in weights.items()}


class GroupShared:
    """What the graphs of a caller share on every rank; see `Shared`.

    Calls of all shapes follow each other on all devices, from stream to stream too: kernels of one
    call store into the memory of all ranks. failure: what ended a call on some of them only, with
    which no later one would be right.
    """

    __slots__ = ("_done", "_stream", "failure", "rows", "states")

    def __init__(self, rows: Sequence[Shared]) -> None:
        self.rows = tuple(rows)
        for row in self.rows:
            row.peers = self.rows
        self.states = GroupStates([row.states for row in self.rows])
        self.failure: AotcError | None = None
        self._done: Event | None = None
        self._stream: int | None = None  # of the last call

    def before_run(self, device: Device, stream: int) -> None:
        """Before anything of a call is launched: raise what is wrong with those before it, and have
        the stream follow them."""
        if self.failure is not None:
            raise type(self.failure)(**self.failure.fields)
        self.verify()
        if stream != self._stream:
            device.check_stream(stream)
            if self._done is not None:
                with device.current():
                    device.call("cuStreamWaitEvent", stream, self._done.handle, 0)

    def after_run(self, device: Device, stream: int) -> None:
        """Note the end of a call on every rank."""
        if self._done is None:
            self._done = device.event(is_timed=False)
        self._done.record(stream)
        self._stream = stream

    def fits(self, code: Any) -> bool:
        """Whether the code's plan has room on every rank."""
        return all(row.fits(each) for row, each in zip(self.rows, code.ranks, strict=True))

    def grow(self, code: Any) -> None:
        """Have room for the code's plan too; raises `DeviceMemoryFull`."""
        for row, each in zip(self.rows, code.ranks, strict=True):
            row.grow(each)

    def synchronize(self) -> None:
        """Wait for the last run and the copies of every rank; raises what went wrong in them."""
        each_of([*(row.settle for row in self.rows), self.verify])

    def verify(self) -> None:
        """Raise what the devices have found in the data of earlier calls, once; a rank that did not
        come ends them all."""
        try:
            each_of(row.verify for row in self.rows)
        except RankSilent as error:
            self.failure = error
            raise

    def mark(self, stream: int) -> None:
        """See `Shared`: the caller's stream follows all ranks."""
        self.rows[0].mark(stream)

    def reach_mark(self) -> None:
        """See `Shared`."""
        self.rows[0].reach_mark()

    def close(self) -> None:
        """Give everything back, once all ranks have ended what they do."""
        if put_off(self.close):
            return
        done, self._done = self._done, None
        ends = [] if done is None else [done.close]
        each_of([*(row.settle for row in self.rows), *ends, *(row.close for row in self.rows)])


class GroupStates:
    """The states of every rank: parts of them, or whole ones, as the build has split them."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows

    def reset(self) -> None:
        """Back to the initial values, on every rank."""
        for row in self._rows:
            row.reset()

    def take(self, other: GroupStates) -> None:
        """Have what the states of another session of the same sizes hold, on every rank."""
        for row, theirs in zip(self._rows, other._rows, strict=True):
            row.take(theirs)

    def read(self, index: int, host_address: int) -> None:
        """Raises `StateInParts`, as `write` and `view` do."""
        raise StateInParts(ranks=len(self._rows))

    write = view = read


class GroupSession(CudaSession):
    """One call at a time on every rank; to its caller it is the session of rank 0."""

    __slots__ = ("_begin", "_ends", "_group", "_memory", "_others", "_shared_own", "_streams")

    def __init__(self, code: Any, shared: GroupShared, own: GroupShared | None) -> None:
        """code: a `Group` of `driver.py`; own: what goes with the session.

        Raises `DeviceMemoryFull`.
        """
        self._others: list[CudaSession] = []
        self._streams: list[Stream] = []
        self._ends: list[Event] = []
        self._memory: list[tuple[Device, int]] = []  # outputs of the other ranks, which none reads
        self._begin: Event | None = None
        self._shared_own, self._group = own, shared
        super().__init__(code, shared.rows[0])
        try:
            self._begin = code.gpu.event(is_timed=False)
            for each, row in zip(code.ranks[1:], shared.rows[1:], strict=True):
                self._others.append(each.session(row))
                self._streams.append(each.gpu.stream())
                self._ends.append(each.gpu.event(is_timed=False))
                self._give_outputs(each, self._others[-1])
        except BaseException:
            self._shared_own = None
            self.close()
            raise
        self.run = self._together(code, self.run)

    def _give_outputs(self, code: Any, session: CudaSession) -> None:
        for index, nbytes in enumerate(code.outputs):
            if nbytes:
                address = code.gpu.pool.allocate(nbytes, "outputs of a rank")
                self._memory.append((code.gpu, address))
                session.addresses[len(code.inputs) + index] = address

    def _together(self, code: Any, first: Callable[..., None]) -> Callable[..., None]:
        """What runs all ranks in the order of a stream of rank 0's device; `first`: rank 0's.

        Calls of other sessions are launched before or after all of it, on every device.
        """
        assert self._begin is not None
        begin, count, addresses = self._begin, len(code.inputs), self.addresses
        others = list(zip(self._others, self._streams, self._ends, strict=True))
        device, group, staging = code.gpu, self._group, self.staging

        def launch(stream: int) -> None:
            begin.record(stream)
            for session, own, end in others:
                session.addresses[:count] = addresses[:count]  # type: ignore[assignment]
                own.wait(begin)
                session.run(own.handle)
                end.record(own.handle)
            first(stream)
            with device.current():
                for _, _, end in others:
                    device.call("cuStreamWaitEvent", stream, end.handle, 0)
            group.after_run(device, stream)

        def run(stream: int = LEGACY) -> None:
            with code.launching:
                group.before_run(device, stream)
                if staging.is_used:
                    staging.before_run(stream)
                try:
                    launch(stream)
                except BaseException:  # some ranks run it, and wait for the others in vain
                    group.failure = CallEndedHalfWay()
                    raise

        return run

    def timeline(self) -> tuple[Any, list[Event]]:
        """Rank 0's launches with events between them; the others run as in a call."""
        graph, events = super().timeline()
        return GroupTimeline(graph, self._together(self._code, graph.launch)), events

    def synchronize(self) -> None:
        """Wait for the last run and the copies; raises what went wrong in them or their data."""
        self._group.synchronize()

    def verify(self) -> None:
        """Raise what a device has found in the data of earlier calls, once."""
        self._group.verify()

    def close(self) -> None:
        """Give the memory of every rank back; idempotent."""
        if put_off(self.close):
            return
        events = [] if self._begin is None else [self._begin]
        owned: list[Any] = [*self._others, *self._ends, *self._streams, *events]
        memory, self._memory = self._memory, []
        own, self._shared_own = self._shared_own, None
        frees = [partial(device.pool.free, address) for device, address in memory]
        ends = [] if own is None else [own.close]
        settles = [each.gpu.settle for each in self._code.ranks]  # type: ignore[attr-defined]
        closes = [super().close, *(each.close for each in owned)]
        each_of([*settles, *closes, *frees, *ends])


class GroupTimeline:
    """A graph of rank 0's that is launched with the calls of the other ranks beside it."""

    __slots__ = ("_graph", "launch")

    def __init__(self, graph: LaunchGraph, launch: Callable[..., None]) -> None:
        self._graph, self.launch = graph, launch

    def close(self) -> None:
        """Give the graph back."""
        self._graph.close()


def each_of(actions: Iterable[Callable[..., Any]]) -> None:
    """Do all of them; raises the first error after the last one is done."""
    first: BaseException | None = None
    for act in actions:
        try:
            act()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


def connect(devices: Sequence[Device]) -> None:
    """Let the kernels of each device reach the memory of the others; raises `PeerUnreachable`."""
    for device in devices:
        for other in devices:
            if device is other:
                continue
            with device.current():
                result = device.functions["cuCtxEnablePeerAccess"](other.context, 0)
            if result not in (0, PEER_ACCESS_ENABLED):
                detail = ": ".join(device.describe(result))
                raise PeerUnreachable(ordinal=device.ordinal, other=other.ordinal, detail=detail)
