"""A call's launches on a stream that its owner records as a CUDA graph.

A session's own graph would be recorded with the session's arena, which calls on other streams use
at the same time as a replay. So the launches are issued one after the other, on memory that belongs
to the recorded graph. Code and weights must stay for as long as that may be replayed.
"""

from __future__ import annotations

from ...errors import DriverFault
from .arena import ALIGNMENT_BYTES

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

    def address_of(space: str, number: int) -> int:
        return addresses[number if space == "input" else len(code.inputs) + number]

    if plan.zeroed_bytes:
        device.fill(base, 0, plan.zeroed_bytes, stream)
    outlined = plan.outlined
    if outlined is None:
        blueprint, values = code.blueprint(0, plan.launches), []
    else:
        blueprint, values = code.blueprint_of(outlined.outline), outlined.values
    takes = {"arena": lambda offset: base + offset, "scratch": lambda _: base + arena_bytes}
    blueprint.issue(blueprint.table(values, takes), address_of, stream)
