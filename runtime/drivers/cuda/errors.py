"""Errors of the CUDA driver: CUDA's own name, number and description in one class each.

A *sticky* error ends the CUDA context: every later call of the process on that device gives it
again, and only a new process helps. It is raised as `DeviceLost`.
"""

from __future__ import annotations

from ...errors import DriverFault, EnvironmentFault, IncompatibleError, InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CUDA_SUCCESS = 0
OUT_OF_MEMORY = 2
# No code for this device, an image of another format, or PTX that this driver cannot read.
IMAGE_REFUSALS = frozenset((200, 209, 218, 221, 222, 223, 300))
STICKY = frozenset(
    (
        4,  # DEINITIALIZED
        46,  # DEVICE_UNAVAILABLE
        214,  # ECC_UNCORRECTABLE
        220,  # NVLINK_UNCORRECTABLE
        226,  # CONTAINED
        700,  # ILLEGAL_ADDRESS
        702,  # LAUNCH_TIMEOUT
        709,  # CONTEXT_IS_DESTROYED
        710,  # ASSERT
        714,  # HARDWARE_STACK_ERROR
        715,  # ILLEGAL_INSTRUCTION
        716,  # MISALIGNED_ADDRESS
        717,  # INVALID_ADDRESS_SPACE
        718,  # INVALID_PC
        719,  # LAUNCH_FAILED
        721,  # TENSOR_MEMORY_LEAK
        810,  # MPS_CLIENT_TERMINATED
        911,  # EXTERNAL_DEVICE
        999,  # UNKNOWN
    )
)


class CudaError(DriverFault):
    """A CUDA call failed; the device can still be used. `number` is the CUresult."""

    code = "cuda"
    template = "{function} failed with {name} ({number}): {description}"
    hint = "`aotc doctor` shows the device and its driver"


class DeviceLost(CudaError):
    """A sticky error: this process cannot use the device any more."""

    template = "the CUDA device is lost: {function} gave {name} ({number}): {description}"
    hint = "restart the process; `compute-sanitizer` names a kernel that is at fault"


class DeviceMemoryFull(CudaError):
    """Device memory does not suffice; sizes in bytes. Nothing changed; it may be tried again."""

    template = (
        "no device memory for {purpose}: needs {needed_text}, "
        "device {ordinal} has {free_text} of {total_text} free"
    )
    hint = "close programs and sessions that are not in use, or other processes on the device"


class PinnedMemoryFull(CudaError):
    """The system refused pinned host memory; sizes in bytes."""

    template = "no pinned host memory for {purpose}: needs {needed_text} ({name}, {number})"
    hint = "free host memory, or raise the container's limit of locked memory"


class ImageRefused(CudaError, IncompatibleError):
    """The driver refuses a kernel's image: built for another device, or damaged."""

    exit_code = 5
    template = (
        "device {ordinal} ({device}, sm_{capability}) refuses the kernels: "
        "{name} ({number}): {description}"
    )
    hint = "rebuild with `--target cuda:sm_{capability}`, or update the NVIDIA driver"


class DeviceForked(DriverFault):
    """CUDA does not survive a fork: the child may not use what its parent loaded."""

    template = "this process was forked from one that uses CUDA, and CUDA does not survive a fork"
    hint = "load bundles in the child only, or start workers with the `spawn` method"


class StreamForeign(InputError):
    """A stream that does not belong to the device's primary context."""

    template = "stream {found} {detail}, expected a stream of device {ordinal}'s primary context"
    hint = "make the stream on the device that the program was loaded on"


class AddressMissing(InputError):
    """A run without the address of an input or output."""

    template = "address {index} of the session is 0, expected device memory of {nbytes} bytes"
    hint = "give the session addresses of device memory that lives as long as it"


class PeerUnreachable(IncompatibleError):
    """The kernels of one device cannot reach the memory of another, as a split program needs."""

    template = "CUDA device {ordinal} cannot reach the memory of device {other}: {detail}"
    hint = "`nvidia-smi topo -p2p r` shows which devices can; load on others, or rebuild for one"


class RankSilent(EnvironmentFault):
    """A device of a program that is split did not take part in a call within the time for it.

    rank: its number among the devices of the program. The outputs of the call are undefined.
    """

    template = "device {rank} of the program gave nothing for the other devices' work, expected it"
    hint = "`nvidia-smi` and the system's log say whether the device is lost; load the bundle anew"


class CallEndedHalfWay(EnvironmentFault):
    """An earlier call was launched on some devices of a program that is split, and not on all."""

    template = "an earlier call of the session was launched on some of its devices only"
    hint = "open a new session; the error of that call says what was wrong"


class StateInParts(InputError):
    """A state lies in parts on the devices of a program that is split: no one part is the state."""

    template = "the states lie in parts on {ranks} devices, expected a program on one device"
    hint = "`session.reset()` and `session.fork()` work; others need a bundle for one device"


class DeviceAbsent(IncompatibleError):
    """There is no such CUDA device here."""

    template = "CUDA device {ordinal} cannot be used: {detail}"
    hint = "`aotc doctor` shows the devices and the driver of this machine"


class DeviceClosed(InputError):
    """A device, graph or session was closed before the call."""

    template = "the {what} was closed"
    hint = "load the bundle again, and close a program after its last call"


def sizes(**nbytes: int | str) -> dict[str, int | str]:
    """Fields of sizes in bytes, each with its text; a size that is not known is a word already."""
    return nbytes | {f"{name}_text": size_text(value) for name, value in nbytes.items()}


def size_text(nbytes: int | str) -> str:
    """`4096 bytes`, or `2.50 GiB (2684354560 bytes)` where that is easier to read."""
    if isinstance(nbytes, str):
        return nbytes
    exact = f"{nbytes} bytes"
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.2f} {name} ({exact})"
    return exact


def cuda_error(function: str, number: int, name: str, description: str) -> CudaError:
    """The error of a CUresult other than success, where nothing more is known."""
    fields: dict[str, Any] = {"function": function, "number": number, "name": name}
    kind = DeviceLost if number in STICKY else CudaError
    return kind(driver="cuda", description=description, **fields)
