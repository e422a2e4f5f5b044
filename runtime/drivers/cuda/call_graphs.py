"""The CUDA graphs of a session's launches, and the call that launches one of them."""

from __future__ import annotations

import ctypes

from .context import adopt
from .errors import AddressMissing, DeviceClosed, DeviceMemoryFull
from .graph import Execution
from .run_order import RunOrder
from .streams import LEGACY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .blueprint import Blueprint
    from .code import DeviceCode
    from .device import Device
    from .staging import Staging

# Graphs of one session for addresses that come back, and the nodes that all of them have.
GRAPHS_LIMIT, GRAPH_NODES_LIMIT = 32, 2048
SEEN_LIMIT = 64  # sets of addresses that are remembered
STALE_ROUNDS = 8  # of all graphs, after which one that was not used serves others


class _Graph:
    """patch: brings the session's addresses into the nodes; used: the number of its last call."""

    __slots__ = ("execution", "patch", "used")

    def __init__(self, execution: Execution, patch: Callable[[], None]) -> None:
        self.execution, self.patch, self.used = execution, patch, 0


class CallGraphs:
    """The graphs of a session's launches, the first of which may be made at the second run.

    One serves all addresses, and is patched where they change. Addresses that come back, as those
    of layers that share a program do at each step of training, get graphs of their own.

    execution: that of the graph of the last call; order: of the runs, where there are other graphs
    over the same memory; addresses: of inputs and outputs, as a call has them.
    """

    __slots__ = ("_blueprint", "_by_addresses", "_calls", "_code", "_current", "_executions",
                 "_graphs", "_has_own_order", "_is_issued", "_limit", "_seen", "_table",
                 "addresses", "execution", "order")  # fmt: skip

    def __init__(
        self,
        code: DeviceCode,
        blueprint: Blueprint,
        table: list[int],
        addresses: Any,
        executions: list[Execution],
        order: RunOrder | None,
        has_several: bool,
    ) -> None:
        """executions: gets those that are made, which the session closes; order: of several
        sessions that share memory."""
        self._code, self._blueprint, self._table = code, blueprint, table
        self.addresses, self._executions, self.order = addresses, executions, order
        self.execution = Execution(code.gpu)
        executions.append(self.execution)
        self._is_issued, self._has_own_order = False, order is None
        self._current: _Graph | None = None
        self._graphs: list[_Graph] = []
        self._by_addresses: dict[bytes, _Graph] = {}
        self._seen: dict[bytes, None] = {}  # addresses of calls that no graph was made for
        self._calls = 0
        nodes_limit = GRAPH_NODES_LIMIT // max(blueprint.count, 1)
        self._limit = max(1, min(GRAPHS_LIMIT, nodes_limit)) if has_several else 1

    def make(self) -> None:
        """Make the first graph."""
        self._current = self._made(self.execution)

    def _made(self, execution: Execution) -> _Graph:
        if not execution.pointer:  # else what follows has failed before
            self._blueprint.instantiate(execution, self._table)
        found = _Graph(execution, self._patcher(execution))
        self._graphs.append(found)
        return found

    def patched(self, addresses: memoryview) -> bytes | None:
        """The session's addresses, which the graph of `execution` has now; None where `issue` is to
        be called, once."""
        if self._current is None:
            if not self._is_issued:
                return None
            self.make()
        wanted = bytes(addresses)
        self._calls += 1
        found = self._chosen(wanted)
        assert found is not None  # `make` has made one
        found.used = self._calls
        known = self._by_addresses
        if known.get(wanted) is not found:
            for key in [each for each, graph in known.items() if graph is found]:
                del known[key]
            found.patch()
            if self._limit > 1:
                known[wanted] = found
        self._current, self.execution = found, found.execution
        return wanted

    def _chosen(self, wanted: bytes) -> _Graph | None:
        """The graph for these addresses: one that has them, a new one, or one to update."""
        known, seen = self._by_addresses, self._seen
        found = known.get(wanted)
        if found is not None or self._limit == 1:
            return found or self._current
        if wanted not in seen:
            seen[wanted] = None
            if len(seen) > SEEN_LIMIT:
                del seen[next(iter(seen))]
            return self._current
        if self.order is None:  # runs are noted from this one on, which has the graph of all before
            self.order = RunOrder(self._code.gpu)
            return self._current
        if len(self._graphs) < self._limit:
            execution = Execution(self._code.gpu)
            try:
                made = self._made(execution)
            except DeviceMemoryFull:  # the graphs that there are serve as well
                execution.close()
                self._limit = len(self._graphs)
                return self._current
            del seen[wanted]
            self._executions.append(execution)
            return made
        oldest = min(self._graphs, key=lambda graph: graph.used)
        # Of more sets than graphs, all graphs but one stay as they are.
        is_gone = self._calls - oldest.used > STALE_ROUNDS * self._limit
        return oldest if is_gone else self._current

    def close(self) -> None:
        """Give its own order back, once all runs have ended."""
        if self.order is not None and self._has_own_order:
            self.order.close()

    def issue(self, stream: int) -> int:
        """Launch one after the other; 0, as of a launch that succeeds. Raises `AddressMissing`."""
        code, addresses = self._code, self.addresses

        def address_of(space: str, number: int) -> int:
            index = code.address_index(space, number)
            assert index is not None  # it is of what a call brings
            address = int(addresses[index])
            _check_address(address, index, code.sizes)
            return address

        self._blueprint.issue(list(self._table), address_of, stream)
        self._is_issued = True
        return 0

    def _patcher(self, execution: Execution) -> Callable[[], None]:
        """See `_Graph.patch`; the context has to be current."""
        device, blueprint = self._code.gpu, self._blueprint
        set_node = device.functions["cuGraphExecKernelNodeSetParams_v2"]
        addresses, sizes = self.addresses, self._code.sizes
        pointer = execution.pointer
        frame, handles = blueprint.moving_frame(self._table)
        calls = list(zip(handles, frame.references, strict=True))
        patches: Any = [((), ())] * len(sizes)
        for (space, number), found in blueprint.patches.items():
            patches[self._code.address_index(space, number)] = found
        known = [-1] * len(sizes)  # what the nodes hold; −1 where that is not certain

        def patch() -> None:
            nodes: dict[int, None] = {}
            changed = []
            for index, address in enumerate(addresses):
                if address != known[index]:
                    if patches[index][0]:
                        _check_address(address, index, sizes)
                    changed.append(index)
            for index in changed:
                known[index] = -1
                placed, aimed = patches[index]
                for slot, node in placed:
                    frame.slots[slot] = addresses[index]
                    nodes[node] = None
                for number in aimed:
                    frame.maps[number].aim(addresses[index])
            for node in nodes:
                result = set_node(pointer, *calls[node])
                if result:
                    device.fail("cuGraphExecKernelNodeSetParams_v2", result)
            for index in changed:
                known[index] = addresses[index]

        return patch


def _check_address(address: int, index: int, sizes: Sequence[int]) -> None:
    if not address and sizes[index]:
        raise AddressMissing(index=index, nbytes=sizes[index])


def caller(
    device: Device,
    graphs: CallGraphs,
    staging: Staging,
    verify: Callable[[], None] | None,
) -> Callable[..., None]:
    """The function that runs a graph; a closure over ready-made arguments, for its speed.
    verify: looks at the data of earlier calls first."""
    get_current, launch = device.functions["cuCtxGetCurrent"], device.functions["cuGraphLaunch"]
    context = device.context
    view = memoryview(graphs.addresses).cast("B")
    graph = graphs.execution
    execution, pointer = graph.pointer, ctypes.c_void_p(0)
    found = ctypes.c_void_p()
    to_found = ctypes.byref(found)
    known: Any = None  # the addresses that the graph holds, as bytes
    last_stream = -1

    def run(stream: int = LEGACY) -> None:
        nonlocal execution, graph, known, last_stream
        if device.lost is not None or graph.is_closed:
            refuse(device)
        if (get_current(to_found) or found.value != context) and not adopt(device):
            with device.current():
                run(stream)
            return
        if verify is not None:
            verify()
        if view != known:
            known = None
            known = graphs.patched(view)
            graph = graphs.execution
            execution = graph.pointer
        if stream != last_stream:
            device.check_stream(stream)
            pointer.value = last_stream = stream
        if staging.is_used:
            staging.before_run(stream)
        order = graphs.order
        if order is not None:
            order.before_run(graph, stream)
        result = graphs.issue(stream) if known is None else launch(execution, pointer)
        if result:
            device.fail("cuGraphLaunch", result)
        if order is not None:
            order.after_run(graph, stream)
        if staging.is_used:
            staging.after_run(stream)

    return run


def refuse(device: Device) -> None:
    """Raise why a session cannot run: its device is lost, or it was closed."""
    if device.lost is not None:
        device.refuse()
    raise DeviceClosed(what="session")
