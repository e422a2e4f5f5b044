"""The words of a session's checks on a device: host memory that its kernels write to.

A kernel writes only where data is wrong, so that a call costs nothing more, and its graph needs no
node for it. The host reads the words after it has waited for the device, and before each run, when
it sees what has come by then.
"""

from __future__ import annotations

from ..checks import WORD_BYTES, Checks, check_addresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...bundle.plan import LaunchPlan
    from ...errors import InputError
    from .device import Device
    from .handles import Pinned


class DeviceChecks:
    """The words of one session; none where no launch of its plan marks one.

    addresses: those of the words, by the number of the check.
    """

    __slots__ = ("_checks", "_memory", "addresses")

    def __init__(self, device: Device, plan: LaunchPlan) -> None:
        """Raises `DeviceMemoryFull`."""
        self._memory: Pinned | None = None
        self._checks: Checks | None = None
        self.addresses: list[int] = []
        spaces = {space for launch in plan.launches for space, _ in launch.args}
        if "check" in spaces:
            nbytes = WORD_BYTES * len(plan.checks)
            self._memory = device.pinned(nbytes, "the words of a session's checks", is_mapped=True)
            self._checks = Checks(plan.checks, self._memory.address)
            self.addresses = check_addresses(plan.checks, self._memory.address)

    def __bool__(self) -> bool:
        return self._checks is not None

    def verify(self) -> None:
        """Raise what the device has found in the data of earlier calls, once."""
        if self._checks is not None:
            self._checks.verify()

    def close(self) -> InputError | None:
        """Give the memory back; returns the error that was not raised yet, if any. Idempotent."""
        checks, self._checks = self._checks, None
        memory, self._memory = self._memory, None
        if checks is None or memory is None:
            return None
        found = checks.found()
        memory.close()
        return found
