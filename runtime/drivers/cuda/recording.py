"""A call's launches on a stream that its owner records as a CUDA graph.

A session's own graph would be recorded with the session's arena, which calls on other streams use
at the same time as a replay. So each launch is recorded by itself, on memory that belongs to the
recorded graph. Code and weights must stay for as long as that may be replayed.
"""

from __future__ import annotations

from ...errors import DriverFault
from .arena import ALIGNMENT_BYTES
from .handles import Arguments, parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .code import DeviceCode


def record(
    code: DeviceCode, addresses: Sequence[int], stream: int, take: Callable[[int], int]
) -> None:
    """Add the launches of a plan of given sizes to a stream that is being recorded.

    addresses: of inputs, then of outputs; take: gives device memory of so many bytes, whose
    address is a multiple of 256, for intermediates and scratch. Raises `DriverFault` for a plan
    with states, checks or steps that are not kernels: they are of a session.
    """
    plan, device = code.plan, code.gpu
    if plan.states or plan.checks or not plan.is_of_launches:
        detail = "a plan with states, checks or steps that are not kernels cannot be recorded"
        raise DriverFault(driver="cuda", detail=detail)
    arena_bytes = -(-plan.arena_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    nbytes = arena_bytes + code.scratch_bytes
    base = take(nbytes) if nbytes else 0

    def address(space: str, value: int | str) -> int:
        index = code.address_index(space, value)
        if index is not None:
            return addresses[index]
        if space == "weight":
            return code.weights[str(value)]
        return base + int(value) if space == "arena" else int(value)

    with device.current():
        if plan.zeroed_bytes:
            device.fill(base, 0, plan.zeroed_bytes, stream)
        for launch in plan.launches:
            values = [address(*argument) for argument in launch.args]
            maps = parameters(device, launch.maps, values)
            arguments = Arguments([*values, *maps, base + arena_bytes, 0])
            function, threads = code.functions[launch.kernel], code.image(launch.kernel).threads
            device.launch(function, launch.grid, threads, arguments, stream)
