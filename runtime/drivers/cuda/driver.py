"""The CUDA driver: a plan, the cubins of its kernels and the weights become graphs on a device."""

from __future__ import annotations

import _thread
import ctypes
from functools import partial

from ...bundle.plan import Plan
from ...errors import DriverFault
from ...settings import read
from . import libcuda
from .arena import Shared
from .code import DeviceCode
from .context import ATTRIBUTES
from .device import Device
from .errors import DeviceForked, PeerUnreachable, size_text
from .group import GroupSession, GroupShared, connect, each_of, of_rank
from .handles import Arguments
from .session import CudaSession
from .streams import LEGACY, current, put_off
from .upload import Copies, Upload, overwrite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ...bundle.plan import LaunchPlan, StateSlot
    from ..protocol import Missing
    from .handles import Function

DEVICE = "cuda"  # as DLPack and torch name where arrays lie
HAS_DEVICE_MEMORY = True
LIBRARY_NAME = "kernels.cubins"

FOR_ANY_MACHINE = "; a bundle for machines without a device needs the target `cpu` too"
ABSENCES = {  # code → hint
    "driver-absent": "install NVIDIA's driver on the host, and start containers with it "
    "(`--gpus all`)" + FOR_ANY_MACHINE,
    "driver-too-old": "update NVIDIA's driver on the host" + FOR_ANY_MACHINE,
    "driver-fails": "`nvidia-smi` and the system's log say more; a process forked from one that "
    "uses CUDA cannot use it: start it with the `spawn` method" + FOR_ANY_MACHINE,
    "device-forked": DeviceForked.hint,
    "device-absent": "`aotc doctor` shows the devices; `CUDA_VISIBLE_DEVICES` and a container's "
    "`--gpus` hide some" + FOR_ANY_MACHINE,
}

# Code for a device of major version 8 runs on later ones of that version. From 9 on, code is built
# for one device exactly (sm_90a …), since only so may it use all of its instructions.
MINORS_OF_8 = (0, 6, 7, 9)


def features(device: int = 0) -> frozenset[str]:
    """The architectures whose code this device runs, for example {"sm_90"}; empty without one."""
    try:
        cuda = libcuda.library()
        major, minor = capability(cuda, device)
    except (libcuda.LibraryAbsent, DriverFault):
        return frozenset()
    if major == 8:
        return frozenset(f"sm_8{each}" for each in MINORS_OF_8 if each <= minor)
    return frozenset((f"sm_{major}{minor}",))


def why_absent(device: int = 0) -> str:
    """What was found where `features` is empty; empty where the device can be used."""
    try:
        cuda = libcuda.library()
        count = libcuda.device_count(cuda)
        if not 0 <= device < count:
            return f"the NVIDIA driver shows {count} devices to this process"
        capability(cuda, device)
    except (libcuda.LibraryAbsent, DriverFault) as error:
        return str(error)
    return ""


def missing(needs: Sequence[str], device: int = 0, ranks: int = 1) -> list[Missing]:
    """What a target with these needs lacks here: the driver, a device, its architecture; of a
    program that is split over `ranks` devices also their reach."""
    for rank in range(1, ranks):
        lacking = missing(needs, device + rank)
        if lacking:
            return lacking
    absent = why_absent(device)
    if absent:
        return [_absence(device, absent)]
    found = sorted(features(device))
    if set(needs) <= set(found):
        return _apart(range(device, device + ranks))
    runs, needed = (", ".join(f"`{name}`" for name in names) for names in (found, needs))
    hint = f"rebuild with `aotc build --target cuda:{found[-1]}`, or with several targets"
    return [("architecture", "architecture", f"{runs} (device {device})", needed, hint)]


def _apart(devices: Sequence[int]) -> list[Missing]:
    """The first device that cannot reach the memory of another."""
    cuda = libcuda.library()
    for device in devices:
        for other in devices:
            if device != other and not cuda.number("cuDeviceCanAccessPeer", device, other):
                row = ("device reach", f"device {device} does not reach device {other}")
                return [("peer-unreachable", *row, "devices that do", PeerUnreachable.hint)]
    return []


def _absence(device: int, found: str) -> Missing:
    code = "device-absent"
    try:
        libcuda.library()
    except libcuda.LibraryAbsent as error:
        code = error.code
    version = libcuda.version_text(libcuda.OLDEST_DRIVER)
    expected = f"device {device} and a driver for CUDA {version} or later"
    return code, "CUDA device", f"absent ({found})", expected, ABSENCES[code]


def capability(cuda: libcuda.Library, device: int) -> tuple[int, int]:
    """Compute capability, read without making a context; raises `CudaError`."""
    rows = ATTRIBUTES["capability_major"], ATTRIBUTES["capability_minor"]
    major, minor = (cuda.number("cuDeviceGetAttribute", row, device) for row in rows)
    return major, minor


def describe() -> list[tuple[int, str, str, int]]:
    """(ordinal, name, architecture, bytes of memory) of every device; makes no context.

    Empty without a driver.
    """
    rows = []
    try:
        cuda = libcuda.library()
        for ordinal in range(libcuda.device_count(cuda)):
            name, total = ctypes.create_string_buffer(256), ctypes.c_size_t()
            cuda.call("cuDeviceGetName", name, len(name), ordinal)
            cuda.call("cuDeviceTotalMem_v2", ctypes.byref(total), ordinal)
            major, minor = capability(cuda, ordinal)
            text = name.value.decode("utf-8", "replace")
            rows.append((ordinal, text, f"sm_{major}{minor}", total.value))
    except (libcuda.LibraryAbsent, DriverFault):
        pass
    return rows


class Executable(DeviceCode):
    """The loaded code and weights of one target on one device; shared by sessions and threads.

    threads: 1, since the host only launches; steps_kept: nodes of the graphs of all shapes that a
    session keeps; for the rest see `DeviceCode`.
    """

    steps_kept = 1 << 14
    has_one_copy = True  # of the weights: of a `Group` each rank has its own

    __slots__ = ("_library", "fallback", "natives", "threads")

    def __init__(
        self,
        library: bytes | memoryview,
        plan: LaunchPlan | Plan,
        weights: Mapping[str, tuple[int, int]],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        device: int = 0,
        threads: int = 0,
        natives: Any = None,
        fallback: Any = None,
    ) -> None:
        """Upload the weights that the plan uses and load its kernels, both at once.

        library: the images, one after the other; `weights`: (host address, bytes) by name, read
        until this returns; `inputs` and `outputs`: bytes of each. Raises `DeviceAbsent`,
        `DeviceMemoryFull`, `ImageRefused` and `CudaError`, with nothing left behind.
        """
        super().__init__(plan, inputs, outputs, device)
        self._library = memoryview(library)
        self.natives = natives
        self.fallback = fallback
        self.threads = 1
        self.gpu = Device(device)
        try:
            with self.gpu.current():
                self.weights, self.functions = self._bring(weights)
        except BaseException:
            self.gpu.close()
            raise

    def _bring(
        self, weights: Mapping[str, tuple[int, int]]
    ) -> tuple[dict[str, int], dict[int, Function]]:
        """Weights and kernels to the device: threads copy while this one loads."""
        used = used_weights(self.plan, weights)
        purpose = "the weights"
        if not isinstance(self.plan, Plan) or not self.grows():
            session_text = size_text(self.arena_bytes + self.scratch_bytes)
            purpose += f", beside {session_text} for each session"
        upload = Upload(self.gpu, used, self.has_separate_buffers, purpose)
        try:
            functions = {number: self._load(number) for number in range(len(self.plan.kernels))}
        finally:
            upload.finish()
        return upload.addresses, functions

    def overwrite(self, weights: Mapping[str, tuple[int, int]]) -> None:
        """Copy other weights over those on the device, which nothing reads meanwhile."""
        used = used_weights(self.plan, weights)
        with self.gpu.current():
            overwrite(self.gpu, self.weights, used)

    def read_weights(self, weights: Mapping[str, tuple[int, int]]) -> None:
        """Copy the weights of the plan from the device to the host, (address, bytes) by name."""
        for name, (address, nbytes) in used_weights(self.plan, weights).items():
            self.gpu.copy_to_host(address, self.weights[name], nbytes)

    def runs(self, device: str, needs: Sequence[str]) -> bool:
        """Whether code of a family that needs this runs on the device."""
        return device == DEVICE and set(needs) <= features(self.device)

    def copy_in(
        self,
        copies: list[tuple[int, int, int]],
        rows: Sequence[tuple[int, int, int, int, int]] = (),
    ) -> None:
        """Copy host memory to the device and wait; see `Copies`."""
        with self.gpu.current():
            Copies(self.gpu, copies, rows).finish()

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        threads: int,
        values: Sequence[int],
        stream: int,
    ) -> None:
        """Launch a kernel that is no part of the plan; values: its parameters in order."""
        self.gpu.launch(function, grid, threads, Arguments(values), stream)

    def record(self, addresses: Sequence[int], take: Callable[[int], int]) -> None:
        """Add a call's launches to torch's current stream, which is being recorded; see
        `recording.py`."""
        from .recording import record

        record(self, addresses, current(self.device) or LEGACY, take)

    def at(self, plan: LaunchPlan, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Executable:
        """The same code and weights with a plan for given sizes; it needs no closing."""
        found = Executable.__new__(Executable)
        self._become(found, plan, inputs, outputs)
        return found

    def _become(
        self,
        found: Executable,
        plan: LaunchPlan,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
    ) -> None:
        """Have `found` be this code with a plan for given sizes."""
        for name in (*DeviceCode.__slots__, *Executable.__slots__):
            setattr(found, name, getattr(self, name))
        found.is_of_sizes = True
        found.take(plan, inputs, outputs)

    def shared(self, states: Sequence[StateSlot] | None = None, is_growing: bool = False) -> Any:
        """Memory for the sessions of several shapes of one caller, or of several graphs.

        states: of the sizes that the caller has; else those of the plan.

        It is what the hungriest shape needs, or it grows with the shapes that come (see `grows`).
        Raises `DeviceMemoryFull`.
        """
        if isinstance(self.plan, Plan):
            is_growing = self.grows()
        is_growing = is_growing or self.has_separate_buffers
        sizes = (0, 0) if is_growing else (self.arena_bytes, self.scratch_bytes)
        slots = tuple(self.plan.states if states is None else states)
        return Shared(self.gpu, *sizes, self.plan.zeroed_bytes, slots, self.weights)

    def grows(self) -> bool:
        """Whether a session opened now takes memory as shapes come, and not that of the hungriest
        one: where the plan has no such shape, or where it would take most of what is free.

        The ends of ranges are often torch's own, no sizes that anybody means to use. Inputs,
        outputs and other sessions need room as well.
        """
        choice = read("AOTC_DYNAMIC_ARENA").value
        if choice == "grow" or not self.plan.has_ends:  # type: ignore[attr-defined]
            return True
        most_bytes = self.arena_bytes + self.scratch_bytes
        return bool(choice == "auto" and most_bytes > self.gpu.memory()[0] // 2)

    def _load(self, number: int) -> Function:
        """The function of a kernel, from its part of the library."""
        kernel, image = self.plan.kernels[number], self.image(number)
        code = self._library[image.offset : image.offset + image.nbytes]
        if len(code) != image.nbytes or not image.nbytes:
            detail = f"the image of kernel `{kernel.name}` lies outside the library"
            raise DriverFault(driver=DEVICE, detail=detail)
        module = self.gpu.load(code)
        return self.gpu.function(module, kernel.symbol, image.shared_bytes)

    def session(self, shared: Shared | None = None) -> CudaSession:
        """A session with memory of its own, or with what it shares with those of other shapes.

        Raises `DeviceMemoryFull`.
        """
        with self.gpu.current():
            return CudaSession(self, shared)

    def close(self) -> None:
        """Give code, weights and the context back, and sessions that are still open; idempotent.

        While torch records a CUDA graph it is put off to the next such call behind that.
        """
        if not put_off(self.close):
            self.gpu.close()


class Group(Executable):
    """The code of a program that is split over several devices; what it says is of rank 0.

    others: the code of ranks 1 and on, each on the device behind the one before; launching: a lock,
    so that sessions launch their calls in one order on all devices. For the rest see `Executable`.
    """

    has_one_copy = False

    __slots__ = ("launching", "others")

    def __init__(
        self,
        ranks: int,
        library: bytes | memoryview,
        plan: LaunchPlan | Plan,
        weights: Mapping[str, tuple[int, int]],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        device: int = 0,
        *rest: Any,
        **options: Any,
    ) -> None:
        """Load code and weights on `ranks` devices from `device` on, and let each reach the others.

        Raises what `Executable` does, with nothing left behind.
        """
        self.others: tuple[Executable, ...] = ()
        self.launching = _thread.RLock()  # held while a call is launched on every device
        code = library, plan
        super().__init__(*code, of_rank(weights, 0), inputs, outputs, device, *rest, **options)
        self.has_separate_buffers = False  # peers' buffers lie as far apart as the arenas do
        found: list[Executable] = []
        try:
            for rank in range(1, ranks):
                own = of_rank(weights, rank)
                ends = inputs, outputs
                found.append(Executable(*code, own, *ends, device + rank, *rest, **options))
                found[-1].has_separate_buffers = False
            self.others = tuple(found)
            connect([self.gpu, *(each.gpu for each in found)])
        except BaseException:
            self.others = tuple(found)
            self.close()
            raise

    @property
    def ranks(self) -> tuple[Executable, ...]:
        """The code of every rank, this one's first."""
        return (self, *self.others)

    def overwrite(self, weights: Mapping[str, tuple[int, int]]) -> None:
        """Copy other weights over those of every rank, which nothing reads meanwhile."""
        super().overwrite(of_rank(weights, 0))
        for rank, each in enumerate(self.others, 1):
            each.overwrite(of_rank(weights, rank))

    def read_weights(self, weights: Mapping[str, tuple[int, int]]) -> None:
        """Copy the weights of every rank to the host, (address, bytes) by name."""
        super().read_weights(of_rank(weights, 0))
        for rank, each in enumerate(self.others, 1):
            each.read_weights(of_rank(weights, rank))

    def at(self, plan: LaunchPlan, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Group:
        """The same code and weights with a plan for given sizes; it needs no closing."""
        found = Group.__new__(Group)
        self._become(found, plan, inputs, outputs)
        found.launching = self.launching
        found.others = tuple(each.at(plan, inputs, outputs) for each in self.others)
        return found

    def shared(self, states: Sequence[StateSlot] | None = None, is_growing: bool = False) -> Any:
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


def group(ranks: int) -> Callable[..., Executable]:
    """What loads a program that is split over so many devices: a `Group`."""
    return partial(Group, ranks)


def used_weights(
    plan: LaunchPlan | Plan, weights: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """The tensors that the plan names; a bundle holds those of all its targets."""
    names = {str(value) for space, value in plan.arguments() if space == "weight"}
    return {name: weights[name] for name in names}
