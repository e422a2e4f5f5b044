"""A chain of launches as a CUDA graph: built node by node, launched with one call.

Each node waits for the one before it. A launch of the graph waits for its own last launch too, on
whatever stream that was, so that two launches never share memory at the same time.
"""

from __future__ import annotations

import ctypes

from .libcuda import Edge, KernelNode, MemsetNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .context import DeviceContext
    from .handles import Arguments, Event, Function

DEPENDENCIES, SET_NODE = "cuGraphAddDependencies_v2", "cuGraphKernelNodeSetParams_v2"
# CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
_PROGRAMMATIC = ctypes.byref(Edge(from_port=1, type=1))


class Execution:
    """An instantiated graph. pointer: the CUgraphExec, 0 until there is one; is_closed: whether
    `close` began."""

    __slots__ = ("_device", "is_closed", "pointer")

    def __init__(self, device: DeviceContext, execution: int = 0) -> None:
        self._device = device
        self.pointer = ctypes.c_void_p(execution)
        self.is_closed = False

    def close(self) -> None:
        """Give it back; a launch that still runs finishes first."""
        self.is_closed = True
        if self.pointer:
            self._device.destroy("cuGraphExecDestroy", self.pointer.value or 0)


class LaunchGraph:
    """Launches in the order in which they were added.

    kernel, fill, record: add a node; kernel returns its number for `patch`. instantiate: after the
    last node, once. execution: the CUgraphExec, 0 before. is_closed: whether `close` began.
    Arguments are read when a node is added or patched, never later.
    """

    __slots__ = ("_current", "_device", "_follows_kernel", "_handle", "_last", "_nodes",
                 "execution", "is_closed")  # fmt: skip

    def __init__(self, device: DeviceContext) -> None:
        self._device = device
        self._current: Any = None
        with device.current():
            self._handle = device.handle("cuGraphCreate", 0)
        device.own("cuGraphDestroy", self._handle)
        self._last: Any = None  # the node that the next one waits for
        self._follows_kernel = False  # whether that is a kernel
        self._nodes: list[tuple[ctypes.c_void_p, KernelNode, Arguments]] = []
        self.execution = 0
        self.is_closed = False

    def __enter__(self) -> None:
        """`with graph:` makes the context current once for all nodes that are added."""
        current = self._device.current()
        current.__enter__()
        self._current = current

    def __exit__(self, *error: object) -> None:
        current, self._current = self._current, None
        current.__exit__(*error)

    def kernel(
        self,
        function: Function,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Arguments,
        is_programmatic: bool = False,
    ) -> int:
        """Add a launch of programs of `threads` threads each; returns its number.

        is_programmatic: programmatic dependent launch; it may start while the kernel before it
        still runs, as soon as all programs of that one have begun and said so
        (`gdc_launch_dependents`) or ended. It must wait by itself (`gdc_wait`) before it touches
        memory.
        """
        shared_bytes, context = function.shared_bytes, self._device.context
        x, y, z = grid
        row = KernelNode(
            function.handle, x, y, z, threads, 1, 1, shared_bytes, arguments.address, None, None,
            context,
        )  # fmt: skip
        self._nodes.append((self.add_kernel(ctypes.byref(row), is_programmatic), row, arguments))
        return len(self._nodes) - 1

    def add_kernel(self, reference: Any, is_programmatic: bool = False) -> ctypes.c_void_p:
        """Add a launch, given a reference to its `KernelNode`; returns the node's handle."""
        node = self._add("cuGraphAddKernelNode_v2", reference, is_programmatic=is_programmatic)
        self._follows_kernel = True
        return node

    def update(self, nodes: Sequence[ctypes.c_void_p], references: Sequence[Any]) -> None:
        """Have launches be as these rows say in what is instantiated from now on; for callers that
        have made the context current."""
        device = self._device
        for result in map(device.functions[SET_NODE], nodes, references):
            if result:
                device.fail(SET_NODE, result)

    def fill(self, address: int, value: int, nbytes: int) -> None:
        """Add a node that sets every byte of device memory to `value`."""
        row = MemsetNode(address, 0, value, 1, nbytes, 1)
        self._add("cuGraphAddMemsetNode", ctypes.byref(row), self._device.context)

    def record(self, event: Event) -> None:
        """Add a node that records an event."""
        self._add("cuGraphAddEventRecordNode", event.handle)

    def _add(self, name: str, *arguments: Any, is_programmatic: bool = False) -> ctypes.c_void_p:
        """Add a node behind the last one; an early one behind the beginning of a kernel."""
        if self._current is None:
            with self:
                return self._add(name, *arguments, is_programmatic=is_programmatic)
        node, device = ctypes.c_void_p(), self._device
        if not self._follows_kernel or DEPENDENCIES not in device.functions:
            is_programmatic = False
        last, to_node = self._last, ctypes.byref(node)
        if last is None or is_programmatic:
            device.call(name, to_node, self._handle, None, 0, *arguments)
        else:
            device.call(name, to_node, self._handle, ctypes.byref(last), 1, *arguments)
        if is_programmatic:
            device.call(DEPENDENCIES, self._handle, ctypes.byref(last), to_node, _PROGRAMMATIC, 1)
        self._last, self._follows_kernel = node, False
        return node

    def instantiate(self) -> None:
        """Make it ready to launch."""
        self.execution = self.instance()

    def instance(self) -> int:
        """A CUgraphExec of its launches as they are now; the caller's to destroy."""
        device = self._device
        with device.current():
            found = device.handle(
                "cuGraphInstantiateWithFlags", self._handle, 0, purpose="a graph of launches"
            )
        device.own("cuGraphExecDestroy", found)
        return found

    def patch(self, number: int) -> None:
        """Have later launches of the graph use what the node's arguments hold now."""
        node, row, _ = self._nodes[number]
        with self._device.current():
            self._device.call(
                "cuGraphExecKernelNodeSetParams_v2", self.execution, node, ctypes.byref(row)
            )

    def upload(self, stream: int = 0) -> None:
        """Bring it to the device now, so that the first launch takes no longer than others."""
        with self._device.current():
            self._device.call("cuGraphUpload", self.execution, stream)

    def launch(self, stream: int = 0) -> None:
        """Run all nodes in the order of the stream; asynchronous."""
        with self._device.current():
            self._device.call("cuGraphLaunch", self.execution, stream)

    def close(self) -> None:
        """Give it back; a launch that still runs finishes first."""
        self.is_closed = True
        if self.execution:
            self._device.destroy("cuGraphExecDestroy", self.execution)
        self._device.destroy("cuGraphDestroy", self._handle)
