"""One caller's memory on the device and its graphs of launches.

A session has an arena of its own and a graph that is built for it once. A call compares the
addresses of inputs and outputs with those of its last call, patches the nodes whose pointers
changed, and launches the graph. If several sets of addresses alternate, it has a graph for each.

Dynamic sizes may occur only once: the first call at given sizes issues the launches one after the
other (`launch_list.py`), and the second one makes the graph.

A step that torch runs or that calls a native function ends a graph. A call then launches the first
graph, has torch or the function add its work to the same stream, launches the next graph, and so
on: the device runs all of it in that order, and the host waits only if an op itself does. A control
step also ends a graph: the host waits for the stream, reads the condition, and launches the branch
or iteration. The first and the last part are graphs, empty ones if need be, since graphs wait for
copies of host arrays, and such copies wait for graphs.
"""

from __future__ import annotations

import ctypes

from ...bundle.control_steps import CONDITION_BYTES, ControlStep
from ...bundle.native_plan import NativeLaunch
from ...bundle.plan_parts import Launch
from ..blocks import in_blocks, unrolled
from .arena import DeviceChecks, DeviceStates
from .call_graphs import CallGraphs, caller
from .graph import Execution, LaunchGraph
from .handles import Arguments, parameters
from .staging import Staging
from .streams import LEGACY, put_off

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ...bundle.launch_plan import Outlined
    from ...bundle.torch_calls import TorchCall
    from ...errors import AotcError
    from .arena import Arena, Shared
    from .blueprint import Blueprint
    from .code import DeviceCode
    from .handles import Event, Pinned


TOGETHER = 256  # launches of turns of a repeated block that are one graph


class CudaSession:
    """The memory of one call at a time: arena, scratch, graph, staging of host buffers.

    addresses: ctypes c_int64 array, device addresses of all inputs, then of all outputs, which the
    caller fills. run(stream=0): one call on them, asynchronous, in the order of a stream (a
    CUstream handle of this device's primary context; 0 is the legacy default stream). The memory
    that they name must stay until the stream has passed the call. Calls of one session must not
    overlap on the host; on the device they follow each other, also from stream to stream.

    What a call's data was refused for is raised by the next `run` that sees it, by `synchronize`
    and at the latest by `close`.
    """

    __slots__ = ("_arena", "_blueprints", "_byte", "_call_graphs", "_code", "_graphs", "_is_closed",
                 "_mark", "_own", "_shared", "_workspaces", "addresses", "checks", "run",
                 "staging", "states")  # fmt: skip

    def __init__(self, code: DeviceCode, shared: Shared | None = None) -> None:
        """Allocate what is not `shared`, and build.

        Raises `DeviceMemoryFull`, with nothing left behind.
        """
        device = code.gpu
        self._code = code
        self._own: Shared | None = None  # what its graphs share, where there are several
        if shared is None and not code.plan.is_of_launches:
            self._own = shared = code.shared()  # type: ignore[attr-defined]
        self._shared = shared
        self.addresses = (ctypes.c_int64 * len(code.sizes))()
        self.staging = Staging(device) if shared is None else shared.staging
        has_arena = shared is None or code.has_separate_buffers
        self._arena: Arena | None = None if shared is None else shared.arena
        self._graphs: list[Execution] = []
        self._call_graphs: list[CallGraphs] = []
        self._blueprints: list[Blueprint] = []  # those that no other session uses
        self._workspaces: list[int] = []  # workspaces that the plan has no place for
        self._byte: Pinned | None = None  # of the last condition that was read
        self._is_closed = False
        self._mark: Event | None = None
        self.states: DeviceStates | None = None if shared is None else shared.states
        self.checks: DeviceChecks | None = None
        try:
            if has_arena:
                self._arena = code.arena()
            self.checks = DeviceChecks(device, code.plan)
            if shared is not None and self.checks:
                shared.checks.append(self.checks)
            if self.states is None:
                self.states = DeviceStates(
                    device, code.plan.states, code.weights, self.staging, self.synchronize
                )
            if has_arena:
                self._open_arena.clear(self.staging)
            self.run: Callable[..., None] = self._joined(self._runs())
        except BaseException:
            device.settle()  # what was begun may still use the memory
            self._abandon()
            raise

    @property
    def _open_arena(self) -> Arena:
        assert self._arena is not None  # an open session has one
        return self._arena

    def _joined(self, parts: Sequence[Callable[..., None] | ControlStep]) -> Callable[..., None]:
        """One run of all parts."""
        if len(parts) == 1 and not isinstance(parts[0], ControlStep):
            return parts[0]
        # What waits reads the words of the checks by itself (`_is_set`).
        return in_blocks(parts, in_turn, self._is_set, lambda run: run)

    def _is_set(self, control: ControlStep) -> Callable[..., bool]:
        """A test that waits for the stream and reads the condition of a control step; it raises
        what is wrong with the data of the call."""
        assert control.condition is not None
        space, value = control.condition
        device, fixed = self._code.gpu, self._fixed_address(space, value)
        if self._byte is None:
            self._byte = device.pinned(CONDITION_BYTES, "a condition")
        host_address = self._byte.address
        byte = ctypes.c_uint8.from_address(host_address)

        def read(stream: int = LEGACY) -> bool:
            address = self._address_of(space, int(value)) if fixed is None else fixed
            device.copy_to_host(host_address, address, CONDITION_BYTES, stream)
            with device.current():
                device.call("cuStreamSynchronize", stream)
            self.verify()
            return byte.value != 0

        return read

    def _runs(self) -> list[Callable[..., None] | ControlStep]:
        """A run for each graph, and between them those of torch, of native functions, and control
        steps."""
        outlined = self._code.plan.outlined
        if outlined is not None:
            return [self._graph_of((), outlined)]
        runs: list[Callable[..., None] | ControlStep] = []
        launches: list[Launch] = []
        plan = self._code.plan
        for step in unrolled(plan.steps, TOGETHER) if plan.has_blocks else plan.steps:
            if isinstance(step, Launch):
                launches.append(step)
                continue
            if launches or not self._graphs:
                runs.append(self._graph_of(launches))
                launches = []
            runs.append(step if isinstance(step, ControlStep) else self._between(step))
        runs.append(self._graph_of(launches))
        return runs

    def _graph_of(
        self, launches: Sequence[Launch], outlined: Outlined | None = None
    ) -> Callable[..., None]:
        """A run of the launches as a graph; the first one looks at the data of earlier calls."""
        code, number = self._code, len(self._graphs)
        if outlined is None:
            blueprint, values = code.blueprint(number, launches), []
        else:
            blueprint, values = code.blueprint_of(outlined.outline), outlined.values
        if not blueprint.is_kept:
            self._blueprints.append(blueprint)
        table = blueprint.table(values, self._takes())
        order = None if self._shared is None else self._shared.order
        is_alone = self._shared is None or not self._shared.peers
        graphs = CallGraphs(
            code, blueprint, table, self.addresses, self._graphs, order, has_several=is_alone
        )
        self._call_graphs.append(graphs)
        if outlined is None or not is_alone:
            graphs.make()
        # Ranks look at the data of all of them at once.
        verify = self.verify if not number and is_alone and code.plan.checks else None
        return caller(code.gpu, graphs, self.staging, verify)

    def _between(self, step: TorchCall | NativeLaunch) -> Callable[..., None]:
        """A run of a step that is not a kernel, on the stream of the call."""
        code: Any = self._code
        if isinstance(step, NativeLaunch):
            native = code.natives.bound(step, ("cuda", code.device))
            workspace = 0
            if step.workspace is None and native.needed_bytes:
                workspace = code.gpu.allocate(native.needed_bytes, "a native function's workspace")
                self._workspaces.append(workspace)
            made: Any = code.natives.step(native, self._fixed_address, workspace)
        else:
            made = code.fallback.step(step, self._fixed_address, ("cuda", code.device))
        return lambda stream=LEGACY: made(self._address_of, stream)

    def _fixed_address(self, space: str, value: int | str) -> int | None:
        """The address of memory that stays, None for memory of one call."""
        if self._code.address_index(space, value) is not None:
            return None
        return self._fixed_value(space, value)

    def _address_of(self, space: str, index: int) -> int:
        """The address of this call's input or output."""
        return int(self.addresses[index if space == "input" else len(self._code.inputs) + index])

    def _fixed_value(self, space: str, value: int | str) -> int:
        """An argument that stays; 0 for the address of an input or output."""
        if space == "check":
            assert self.checks is not None
            return self.checks.addresses[int(value)]
        if space == "peer":
            assert self._shared is not None
            return self._shared.distance(int(value))
        return self._code.fixed_value(space, value, self._open_arena, self._open_states)

    def _takes(self) -> dict[str, Callable[[Any], int]]:
        """For each space of memory of the session's what gives the addresses there."""
        checks: Sequence[int] = () if self.checks is None else self.checks.addresses
        arena, shared = self._open_arena, self._shared
        found: dict[str, Callable[[Any], int]] = {} if shared is None else {"peer": shared.distance}
        return found | {
            "arena": arena.address,
            "check": checks.__getitem__,
            "scratch": lambda _: arena.scratch,
            "state": self._open_states.addresses.__getitem__,
        }

    def timeline(self) -> tuple[LaunchGraph, list[Event]]:
        """The launches on what `addresses` holds now, in a graph of their own with an event before
        each and two after the last, whose distance is what an event itself takes.

        Both are the caller's to close; the memory is the session's.
        """
        code, device = self._code, self._code.gpu
        graph, events = LaunchGraph(device), [device.event()]
        graph.record(events[0])
        for launch in code.plan.launches:
            values = []
            for space, value in launch.args:
                number = code.address_index(space, value)
                if number is None:
                    values.append(self._fixed_value(space, value))
                else:
                    values.append(self.addresses[number])
            function, image = code.functions[launch.kernel], code.image(launch.kernel)
            maps = parameters(device, launch.maps, values)
            arguments = Arguments([*values, *maps, self._open_arena.scratch, 0])
            graph.kernel(function, launch.grid, image.threads, arguments)
            events.append(device.event())
            graph.record(events[-1])
        events.append(device.event())
        graph.record(events[-1])
        graph.instantiate()
        return graph, events

    @property
    def nbytes(self) -> int:
        """Device memory of this session: arena, scratch, states and copies of host buffers."""
        return self._open_arena.nbytes + self._open_states.nbytes + self.staging.nbytes

    @property
    def _open_states(self) -> DeviceStates:
        assert self.states is not None  # an open session has some, if only none in number
        return self.states

    @property
    def stream(self) -> int:
        """The session's own stream (its CUstream handle), on which host buffers are copied."""
        return self.staging.stream

    def stage(self, index: int) -> int:
        """Have `addresses[index]` name device memory of the session's own; its address."""
        self.addresses[index] = address = self.staging.part(index, self._code.sizes[index])
        return address

    def copy_in(self, index: int, host_address: int) -> None:
        """Copy a host buffer to `stage(index)`; the buffer may change as soon as this returns.

        A run on whatever stream comes after the copy; on `stream` it needs no wait.
        """
        self.stage(index)
        self.staging.copy_in(index, host_address, self._code.sizes[index])

    def copy_out(self, index: int, host_address: int) -> None:
        """Copy `stage(index)` to a host buffer after the last run; `synchronize` completes it."""
        self.staging.copy_out(index, host_address, self._code.sizes[index])

    def mark(self, stream: int) -> None:
        """Have `reach_mark` wait for all runs up to now, the last of which was on this stream."""
        if self._shared is not None:
            self._shared.mark(stream)
            return
        if self._mark is None:
            self._mark = self._code.gpu.event(is_timed=False)
        self._mark.record(stream)

    def reach_mark(self) -> None:
        """Wait for the runs before the last `mark`, and for no later ones."""
        if self._shared is not None:
            self._shared.reach_mark()
        elif self._mark is not None:
            self._mark.synchronize()

    def synchronize(self) -> None:
        """Wait for the last run and the copies; raises what went wrong in them, or in their data.

        Where no host buffer was ever used this waits for all work of the device, since the stream
        of the last run may be gone by now.
        """
        if self.staging.is_used:
            self.staging.synchronize()
        else:
            self._code.gpu.synchronize()
        self.verify()

    def verify(self) -> None:
        """Raise what the device has found in the data of earlier calls, once."""
        if self._shared is not None:
            self._shared.verify()
        elif self.checks is not None:
            self.checks.verify()

    def close(self) -> None:
        """Give the memory back; idempotent. A call that still runs on the device ends first, and
        while torch records a CUDA graph it is put off.

        Raises `CudaError` where that wait fails: the memory then goes with the code. After all that
        it raises what the data of a call was refused for, if that was not raised yet.
        """
        if self._is_closed or put_off(self.close):
            return
        self._is_closed = True
        for graph in self._graphs:
            graph.is_closed = True
        self._code.gpu.settle()  # the stream of the last call may be gone by now
        found = self._abandon()
        if found is not None:
            raise found

    def _abandon(self) -> AotcError | None:
        """Give everything back; answers what was wrong with the data of a call."""
        device, shared = self._code.gpu, self._shared
        for graph in self._graphs:
            graph.close()
        for each in self._call_graphs:
            each.close()
        for blueprint in self._blueprints:
            blueprint.close()
        for workspace in self._workspaces:
            device.free(workspace)
        for own in filter(None, (self._mark, self._byte)):
            own.close()
        if shared is None:
            self.staging.close()
            if self.states is not None:
                self.states.close()
        if self._arena is not None and (shared is None or self._arena is not shared.arena):
            self._arena.close()
        found = None
        if self.checks is not None:
            if shared is not None and self.checks in shared.checks:
                shared.checks.remove(self.checks)
            found = self.checks.close()
        if self._own is not None:
            self._own.close()
        return found


def in_turn(runs: Sequence[Callable[..., None]]) -> Callable[..., None]:
    """A run that is several on one stream, one after the other."""
    parts = tuple(runs)

    def run(stream: int = LEGACY) -> None:
        for part in parts:
            part(stream)

    return run
