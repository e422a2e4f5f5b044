"""Plans on a device that call torch: a graph for each run of launches, torch's ops on the stream.

A call launches the first graph, has torch add its op to the same stream, launches the next graph,
and so on: the device runs all of it in that order, and the host waits for nothing but what an op
itself waits for. A graph stands at either end, if need be an empty one, since graphs are what waits
for copies of host arrays and what such copies wait for.
"""

from __future__ import annotations

from .errors import SettingInvalid
from .fallback import Contexts, Step, without_modes
from .plan import LaunchPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .fallback import Fallback
    from .plan import Launch

DEFAULT_STREAMS = (0, 1)  # CUstream handles of the legacy default stream


class OnDevice:
    """Where torch's ops run for programs on a CUDA device; stands in the place of `Host`."""

    __slots__ = ("_ordinal", "_streams", "_torch", "device")

    def __init__(self, torch: Any, ordinal: int) -> None:
        self._torch = torch
        self._ordinal = ordinal
        self._streams: dict[int, Any] = {}  # CUstream handle → torch's object
        self.device = f"cuda:{ordinal}"

    def bytes_at(self, address: int, nbytes: int) -> Any:
        """A tensor of bytes on memory of the device, which must outlive it; no copy."""
        return self._torch.as_tensor(_Span(address, nbytes), device=self.device)

    def running(self, stream: int) -> Contexts:
        """The contexts in which an op is added to a stream, given by its CUstream handle."""
        known = self._streams.get(stream)
        if known is None:
            cuda = self._torch.cuda
            if stream in DEFAULT_STREAMS:
                known = cuda.default_stream(self._ordinal)
            else:
                known = cuda.ExternalStream(stream, device=self.device)
            self._streams = {stream: known}  # a handle may be another stream's later
        return Contexts([self._torch.cuda.stream(known), *without_modes(self._torch, "cuda")])


class _Span:
    """Bytes of a device's memory, as CUDA's array interface shows them."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "strides": None,
            "typestr": "|u1",
            "version": 2,
        }


class DeviceSegments:
    """A driver's executable with the ops that torch runs between its launches."""

    def __init__(self, executable: Any, fallback: Fallback) -> None:
        """`executable` is the driver's; it is closed with this one."""
        self.executable = executable
        self.fallback = fallback
        self.host = OnDevice(fallback.torch, executable.device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)

    def session(self) -> DeviceSegmentsSession:
        """A session with memory of its own; raises `DeviceMemoryFull`."""
        return DeviceSegmentsSession(self)

    def part(self, launches: tuple[Launch, ...]) -> Any:
        """The driver's executable for some of the launches."""
        driver, plan = self.executable, self.executable.plan
        rest = plan.buffers, plan.kernels, launches, plan.zeroed_bytes
        piece = LaunchPlan(plan.abi, plan.arena_bytes, plan.scratch_bytes, *rest)
        return driver.at(piece, driver.inputs, driver.outputs)


class DeviceSegmentsSession:
    """The memory of one call at a time, and a graph for each run of launches.

    addresses, run, stage, copy_in, copy_out, mark …: as a driver's session has them.
    """

    def __init__(self, segments: DeviceSegments) -> None:
        """Allocate and build; raises `DeviceMemoryFull`, with nothing left behind."""
        driver = segments.executable
        if driver.has_separate_buffers:
            name, expected = "AOTC_SEPARATE_BUFFERS", "off: the bundle runs ops through torch"
            raise SettingInvalid(name=name, found=True, origin="environment", expected=expected)
        self._inputs = len(driver.inputs)
        self._sessions: list[Any] = []
        self._steps: list[Callable[[int], None]] = []
        self._shared = driver.shared(driver.arena_bytes, driver.scratch_bytes)
        try:
            self._fill(segments)
        except BaseException:
            self.close()
            raise
        first = self._sessions[0]
        self.addresses = first.addresses
        self.stage = first.stage
        self.copy_in = first.copy_in
        self.copy_out = first.copy_out
        self.mark = first.mark
        self.reach_mark = first.reach_mark
        self.synchronize = first.synchronize

    def _fill(self, segments: DeviceSegments) -> None:
        plan, done = segments.executable.plan, 0
        arena, weights = self._shared.arena, segments.executable.weights

        def place(space: str, value: int | str) -> int | None:
            if space == "arena":
                return int(arena.address(int(value)))
            return int(weights[str(value)]) if space == "weight" else None

        for call in plan.calls:
            launches = plan.launches[done : call.after]
            if launches or not self._sessions:
                self._add_launches(segments, launches)
            done = call.after
            step = Step(segments.fallback, segments.host, call, place)
            self._steps.append(lambda stream, step=step: step(self._address_of, stream))  # type: ignore[misc]
        self._add_launches(segments, plan.launches[done:])

    def _add_launches(self, segments: DeviceSegments, launches: tuple[Launch, ...]) -> None:
        session = segments.part(launches).session(self._shared)
        self._sessions.append(session)
        self._steps.append(session.run)

    def _address_of(self, space: str, index: int) -> int:
        """The address of this call's input or output."""
        return int(self.addresses[index if space == "input" else self._inputs + index])

    @property
    def stream(self) -> int:
        """The session's own stream (its CUstream handle), on which host buffers are copied."""
        return int(self._shared.staging.stream)

    @property
    def nbytes(self) -> int:
        """Device memory of this session: arena, scratch and copies of host buffers."""
        return int(self._shared.arena.nbytes + self._shared.staging.nbytes)

    def run(self, stream: int = 0) -> None:
        """One call on these addresses, asynchronous but for what torch's ops wait for."""
        addresses = self.addresses[:]
        for session in self._sessions[1:]:
            session.addresses[:] = addresses
        for step in self._steps:
            step(stream)

    def close(self) -> None:
        """Give the memory back; idempotent. A call that still runs on the device ends first."""
        self._steps.clear()
        while self._sessions:
            self._sessions.pop().close()
        self._shared.close()
