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

from ...bundle.plan_parts import RANKS_LIMIT
from .arena import Shared
from .device import Device
from .driver import Executable
from .errors import PeerUnreachable, StateInParts
from .libcuda import PEER_ACCESS_ENABLED
from .session import LEGACY_STREAM, CudaSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from ...bundle.launch_plan import LaunchPlan
    from ...bundle.plan import Plan, StateSlot
    from .handles import Event, Stream

    Weights = Mapping[str, tuple[int, int]]  # (address, bytes) by name


def of_rank(weights: Weights, rank: int) -> dict[str, tuple[int, int]]:
    """The weights of a rank by the names of the plan: `name@rank` where that is there."""
    return {name: weights.get(f"{name}@{rank}", where) for name, where in weights.items()}


class Group(Executable):
    """The code of every rank; what it says of itself is of rank 0.

    others: the code of ranks 1 and on, each on the device behind the one before. For the rest see
    `Executable`.
    """

    has_one_copy = False

    __slots__ = ("others",)

    def __init__(
        self,
        ranks: int,
        library: bytes | memoryview,
        plan: LaunchPlan | Plan,
        weights: Weights,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        device: int = 0,
        *rest: Any,
    ) -> None:
        """Load code and weights on `ranks` devices from `device` on, and let each reach the others.

        Raises what `Executable` does, with nothing left behind.
        """
        assert 1 < ranks <= RANKS_LIMIT
        self.others: tuple[Executable, ...] = ()
        super().__init__(library, plan, of_rank(weights, 0), inputs, outputs, device, *rest)
        self.has_separate_buffers = False  # peers' buffers lie as far apart as the arenas do
        found: list[Executable] = []
        try:
            for rank in range(1, ranks):
                own = of_rank(weights, rank)
                found.append(Executable(library, plan, own, inputs, outputs, device + rank, *rest))
                found[-1].has_separate_buffers = False
            self.others = tuple(found)
            _connect([self.gpu, *(each.gpu for each in found)])
        except BaseException:
            self.others = tuple(found)
            self.close()
            raise

    @property
    def ranks(self) -> tuple[Executable, ...]:
        """The code of every rank, this one's first."""
        return (self, *self.others)

    def overwrite(self, weights: Weights) -> None:
        """Copy other weights over those of every rank, which nothing reads meanwhile."""
        super().overwrite(of_rank(weights, 0))
        for rank, each in enumerate(self.others, 1):
            each.overwrite(of_rank(weights, rank))

    def read_weights(self, weights: Weights) -> None:
        """Copy the weights of every rank to the host, (address, bytes) by name."""
        super().read_weights(of_rank(weights, 0))
        for rank, each in enumerate(self.others, 1):
            own = {name for name in weights if f"{name}@{rank}" in weights}
            each.read_weights({name: weights[f"{name}@{rank}"] for name in own})

    def at(self, plan: LaunchPlan, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Group:
        """The same code and weights with a plan for given sizes; it needs no closing."""
        found = Group.__new__(Group)
        self._become(found, plan, inputs, outputs)
        found.others = tuple(each.at(plan, inputs, outputs) for each in self.others)
        return found

    def shared(
        self, states: Sequence[StateSlot] | None = None, is_growing: bool = False
    ) -> GroupShared:
        """Memory of every rank for the sessions of one caller; raises `DeviceMemoryFull`."""
        rows: list[Shared] = [super().shared(states, is_growing)]
        try:
            rows += [each.shared(states, is_growing) for each in self.others]
        except BaseException:
            for row in rows:
                row.close()
            raise
        return GroupShared(rows)

    def session(self, shared: Any = None) -> GroupSession:
        """A session with memory of its own, or with what it shares with those of other shapes.

        Raises `DeviceMemoryFull`.
        """
        own = None if shared is not None else self.shared()
        try:
            with self.gpu.current():
                return GroupSession(self, own or shared, own)
        except BaseException:
            if own is not None:
                own.close()
            raise

    def close(self) -> None:
        """Give code, weights and contexts of every rank back; idempotent."""
        try:
            super().close()
        finally:
            each_of(each.close for each in self.others)


class GroupShared:
    """What the graphs of a caller share on every rank; see `Shared`."""

    __slots__ = ("rows", "states")

    def __init__(self, rows: Sequence[Shared]) -> None:
        self.rows = tuple(rows)
        for row in self.rows:
            row.peers = self.rows
        self.states = GroupStates([row.states for row in self.rows])

    def fits(self, code: Group) -> bool:
        """Whether the code's plan has room on every rank."""
        return all(row.fits(each) for row, each in zip(self.rows, code.ranks, strict=True))

    def grow(self, code: Group) -> None:
        """Have room for the code's plan too; raises `DeviceMemoryFull`."""
        for row, each in zip(self.rows, code.ranks, strict=True):
            row.grow(each)

    def synchronize(self) -> None:
        """Wait for the last run and the copies of every rank; raises what went wrong in them."""
        each_of(row.synchronize for row in self.rows)

    def mark(self, stream: int) -> None:
        """See `Shared`: the caller's stream follows all ranks."""
        self.rows[0].mark(stream)

    def reach_mark(self) -> None:
        """See `Shared`."""
        self.rows[0].reach_mark()

    def close(self) -> None:
        """Give everything back."""
        each_of(row.close for row in self.rows)


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

    __slots__ = ("_begin", "_ends", "_memory", "_others", "_shared_own", "_streams")

    def __init__(self, code: Group, shared: GroupShared, own: GroupShared | None) -> None:
        """own: what goes with the session. Raises `DeviceMemoryFull`."""
        self._others: list[CudaSession] = []
        self._streams: list[Stream] = []
        self._ends: list[Event] = []
        self._memory: list[tuple[Device, int]] = []  # outputs of the other ranks, which none reads
        self._begin: Event | None = None
        self._shared_own = own
        super().__init__(code, shared.rows[0])
        try:
            self._begin = code.gpu.event(is_timed=False)
            for each, row in zip(code.others, shared.rows[1:], strict=True):
                self._others.append(each.session(row))
                self._streams.append(each.gpu.stream())
                self._ends.append(each.gpu.event(is_timed=False))
                self._give_outputs(each, self._others[-1])
        except BaseException:
            self._shared_own = None
            self.close()
            raise
        self.run = self._runner(code, self.run)

    def _give_outputs(self, code: Executable, session: CudaSession) -> None:
        for index, nbytes in enumerate(code.outputs):
            if nbytes:
                address = code.gpu.pool.allocate(nbytes, "outputs of a rank")
                self._memory.append((code.gpu, address))
                session.addresses[len(code.inputs) + index] = address

    def _runner(self, code: Group, first: Callable[..., None]) -> Callable[..., None]:
        """The function that runs all ranks, in the order of a stream of rank 0's device."""
        assert self._begin is not None
        begin, count, addresses = self._begin, len(code.inputs), self.addresses
        others = list(zip(self._others, self._streams, self._ends, strict=True))

        def run(stream: int = LEGACY_STREAM) -> None:
            begin.record(stream)
            for session, own, end in others:
                session.addresses[:count] = addresses[:count]  # type: ignore[assignment]
                own.wait(begin)
                session.run(own.handle)
                end.record(own.handle)
            first(stream)
            device = code.gpu
            with device.current():
                for _, _, end in others:
                    device.call("cuStreamWaitEvent", stream, end.handle, 0)

        return run

    def synchronize(self) -> None:
        """Wait for the last run and the copies; raises what went wrong in them or their data."""
        each_of([super().synchronize, *(each.synchronize for each in self._others)])

    def verify(self) -> None:
        """Raise what a device has found in the data of earlier calls, once."""
        each_of([super().verify, *(each.verify for each in self._others)])

    def close(self) -> None:
        """Give the memory of every rank back; idempotent."""
        events = [] if self._begin is None else [self._begin]
        owned: list[Any] = [*self._others, *self._ends, *self._streams, *events]
        memory, self._memory = self._memory, []
        own, self._shared_own = self._shared_own, None
        frees = [partial(device.pool.free, address) for device, address in memory]
        ends = [] if own is None else [own.close]
        each_of([super().close, *(each.close for each in owned), *frees, *ends])


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


def _connect(devices: Sequence[Device]) -> None:
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
