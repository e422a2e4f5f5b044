"""A plan's code on a device: what its sessions are built from."""

from __future__ import annotations

from ...bundle.plan import Plan
from ...errors import DriverFault
from ...settings import read
from .arena import Arena
from .blueprint import Blueprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...bundle.outline import Outline
    from ...bundle.plan import Image, Launch, LaunchPlan
    from .arena import DeviceStates
    from .device import Device
    from .handles import Function


class DeviceCode:
    """A plan of one device, and where its kernels and weights are there.

    device: its ordinal; sizes: bytes of each input, then of each output; scratch_bytes: what the
    hungriest launch needs for all its programs; is_of_sizes: whether the plan is one of several of
    this code; blueprints: of the launches, by a variant's outline or the number of a stretch. Set
    once they are on the device: gpu, the `Device`; weights, the device address of each tensor;
    functions, by the number of a kernel.
    """

    __slots__ = ("arena_bytes", "blueprints", "device", "functions", "gpu",
                 "has_programmatic_launch", "has_separate_buffers", "inputs", "is_of_sizes",
                 "outputs", "plan", "scratch_bytes", "sizes", "weights")  # fmt: skip
    gpu: Device
    weights: dict[str, int]
    functions: dict[int, Function]

    def __init__(
        self,
        plan: LaunchPlan | Plan,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        device: int,
    ) -> None:
        """`inputs` and `outputs`: bytes of each. Raises `DriverFault` for a kernel without code."""
        self.device = device
        self.is_of_sizes = False
        self.blueprints: dict[Any, Blueprint] = {}
        self.has_separate_buffers: bool = read("AOTC_SEPARATE_BUFFERS").value
        self.has_programmatic_launch: bool = read("AOTC_PROGRAMMATIC_LAUNCH").value
        self.take(plan, inputs, outputs)

    def take(
        self, plan: LaunchPlan | Plan, inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> None:
        """Be the code of this plan, and of arrays of these sizes in bytes."""
        self.plan: LaunchPlan = plan  # type: ignore[assignment]  # that of sizes is for `at` only
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.sizes = self.inputs + self.outputs
        self.arena_bytes, self.scratch_bytes = self._needs(plan)

    def _needs(self, plan: LaunchPlan | Plan) -> tuple[int, int]:
        """Bytes of the arena and of the scratch of the hungriest launch, at most at any sizes."""
        if isinstance(plan, Plan):
            return plan.most_bytes()
        outlined = plan.outlined
        if outlined is not None:
            table = outlined.table
            rows = [
                table[x] * table[y] * table[z] * scratch_bytes
                for (x, y, z), scratch_bytes in outlined.outline.scratch
            ]
        else:
            rows = [self._scratch_of(launch.kernel, launch.grid) for launch in plan.launches]
        return plan.arena_bytes, max(rows, default=0)

    def _scratch_of(self, kernel: int, grid: tuple[int, int, int]) -> int:
        return grid[0] * grid[1] * grid[2] * self.image(kernel).scratch_bytes

    def image(self, kernel: int) -> Image:
        """The image of a kernel; raises `DriverFault` where the plan has none."""
        image = self.plan.kernels[kernel].image
        if image is None:
            name = self.plan.kernels[kernel].name
            raise DriverFault(driver="cuda", detail=f"kernel `{name}` has no image for a device")
        return image

    def arena(self) -> Arena:
        """An arena as a plan of fixed shapes asks for; raises `DeviceMemoryFull`."""
        plan = self.plan
        buffers = plan.buffers if self.has_separate_buffers else None
        sizes = plan.arena_bytes, self.scratch_bytes, plan.zeroed_bytes
        return Arena(self.gpu, *sizes, buffers)

    def blueprint(self, number: int, launches: Sequence[Launch]) -> Blueprint:
        """That of launches whose numbers are written out, the stretch `number` of the plan."""
        if self.is_of_sizes:  # the plan goes, and others like it may come
            return Blueprint(self, launches, is_kept=False)
        found = self.blueprints.get(number)
        return found or self.blueprints.setdefault(number, Blueprint(self, launches))

    def blueprint_of(self, outline: Outline) -> Blueprint:
        """That of a variant, at whatever sizes."""
        found = self.blueprints.get(outline)
        if found is None:
            made = Blueprint(self, outline.launches, outline.count)
            found = self.blueprints.setdefault(outline, made)
        return found

    def address_index(self, space: str, value: int | str) -> int | None:
        """The index into a session's addresses of an argument that changes from call to call."""
        if space == "input":
            return int(value)
        return len(self.inputs) + int(value) if space == "output" else None

    def fixed_value(self, space: str, value: int | str, arena: Arena, states: DeviceStates) -> int:
        """An argument that stays; 0 for the address of an input or output."""
        if space == "state":
            return states.addresses[int(value)]
        if space == "weight":
            return self.weights[str(value)]
        if space == "arena":
            return arena.address(int(value))
        return int(value) if space == "int" else 0
