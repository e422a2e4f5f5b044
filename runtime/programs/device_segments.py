"""Plans on a device that call torch or native functions: a graph for each run of launches, and
torch's ops and native functions between them on the stream.

A call launches the first graph, has torch or the function add its work to the same stream, launches
the next graph, and so on: the device runs all of it in that order, and the host waits for nothing
but what an op itself waits for. A graph stands at either end, if need be an empty one, since graphs
are what waits for copies of host arrays and what such copies wait for.
"""

from __future__ import annotations

from ..bundle.plan import LaunchPlan
from ..errors import SettingInvalid
from .fallback import Contexts, Step, without_modes
from .session import close_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from ..bundle.plan import Launch
    from ..drivers.native import BoundNative
    from .fallback import Fallback

    Place = Callable[[str, int | str], int | None]
    # (first launch that it comes before, first one after it, what runs)
    Cut = tuple[int, int, Callable[[Callable[[str, int], int], int], None]]

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
    """A driver's executable with what runs between its launches: torch's ops, native functions."""

    def __init__(
        self, executable: Any, fallback: Fallback | None, natives: Sequence[BoundNative] = ()
    ) -> None:
        """`executable` is the driver's; it is closed with this one. `natives` are the plan's."""
        self.executable = executable
        self.fallback = fallback
        self.natives = tuple(natives)
        self.host = fallback and OnDevice(fallback.torch, executable.device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)

    def session(self) -> DeviceSegmentsSession:
        """A session with memory of its own; raises `DeviceMemoryFull`."""
        return DeviceSegmentsSession(self)

    def part(self, launches: tuple[Launch, ...]) -> Any:
        """The driver's executable for some of the launches."""
        driver, plan = self.executable, self.executable.plan
        rest = plan.buffers, plan.kernels, launches, plan.zeroed_bytes
        piece = LaunchPlan(
            plan.abi, plan.arena_bytes, plan.scratch_bytes, *rest, checks=plan.checks
        )
        return driver.at(piece, driver.inputs, driver.outputs)


def _torch_steps(segments: DeviceSegments, place: Place) -> Iterator[Cut]:
    """The ops that torch runs, each between two launches."""
    fallback, host = segments.fallback, segments.host
    if fallback is not None and host is not None:
        for call in segments.executable.plan.calls:
            yield call.after, call.after, Step(fallback, host, call, place)


def _native_steps(segments: DeviceSegments, place: Place) -> Iterator[Cut]:
    """The native functions, each in the place of a launch."""
    if not segments.natives:
        return
    from ..drivers.native import DeviceStep

    launches = segments.executable.plan.launches
    for native in segments.natives:
        number = native.launch.launch
        yield number, number + 1, DeviceStep(native, launches[number].args, place)


class DeviceSegmentsSession:
    """The memory of one call at a time, and a graph for each run of launches.

    addresses, run, stage, copy_in, copy_out, mark …: as a driver's session has them.
    """

    def __init__(self, segments: DeviceSegments) -> None:
        """Allocate and build; raises `DeviceMemoryFull`, with nothing left behind."""
        driver = segments.executable
        if driver.has_separate_buffers:
            name = "AOTC_SEPARATE_BUFFERS"
            expected = "off: the bundle runs ops through torch, or native functions"
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

        steps = [*_torch_steps(segments, place), *_native_steps(segments, place)]
        for first, end, step in sorted(steps, key=lambda row: row[:2]):
            launches = plan.launches[done:first]
            if launches or not self._sessions:
                self._add_launches(segments, launches)
            done = end
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
        try:
            close_each(self._sessions)
        finally:
            self._shared.close()
