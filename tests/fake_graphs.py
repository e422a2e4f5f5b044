"""What the graph functions of the fake driver do; see `fake_functions.py`."""

import ctypes

from fake_books import Event, Execution
from fake_functions import INVALID_VALUE, Fault, Functions, find, put

from aotc.runtime.drivers.cuda.libcuda import Edge, KernelNode, MemsetNode


class GraphFunctions(Functions):
    """All functions, those of graphs among them."""

    def _cuGraphCreate(self, to, flags):
        self._context()
        handle = next(self._numbers)
        self.graphs[handle] = {}
        put(to, handle)

    def _cuGraphDestroy(self, handle):
        find(self.graphs, handle)
        del self.graphs[handle]

    def _add_node(self, to, graph, before, count, work):
        nodes = find(self.graphs, graph)
        expected = list(nodes)[-1:]  # the chain: each waits for the one before it
        found = [ctypes.c_uint64.from_address(before + 8 * at).value for at in range(count)]
        handle = next(self._numbers)
        if expected and not found:
            self.loose.add(handle)  # an early edge is to come
        elif found != expected:
            self.hazards.append(f"a node waits for {found}, the last one is {expected}")
        nodes[handle] = work
        put(to, handle)

    def _cuGraphAddDependencies_v2(self, graph, first, then, edge, count):
        """The chain's one edge that is no full one: from the last kernel but one to the last."""
        nodes, edge = find(self.graphs, graph), Edge.from_address(edge)
        ends = [ctypes.c_uint64.from_address(each).value for each in (first, then)]
        if ends != list(nodes)[-2:] or count != 1 or (edge.from_port, edge.type) != (1, 1):
            self.hazards.append(f"an early edge from and to {ends} among {list(nodes)}")
        self.loose.discard(ends[1])

    def _kernel_node(self, address):
        row = KernelNode.from_address(address)
        grid, block = (row.grid_x, row.grid_y, row.grid_z), (
            row.threads_x, row.threads_y, row.threads_z
        )  # fmt: skip
        if self._device_of(row.context) is None:
            raise Fault(201)
        return self._launch(row.function, grid, block, row.shared_bytes, row.arguments, -1)

    def _cuGraphAddKernelNode_v2(self, to, graph, before, count, row):
        self._context()
        self._add_node(to, graph, before, count, self._kernel_node(row))

    def _cuGraphAddMemsetNode(self, to, graph, before, count, row, context):
        row = MemsetNode.from_address(row)
        address, value, nbytes = row.address, row.value, row.width
        self._device_range(address, nbytes)
        work = lambda: ctypes.memset(address, value, nbytes)  # noqa: E731
        self._add_node(to, graph, before, count, work)

    def _cuGraphAddEventRecordNode(self, to, graph, before, count, event):
        event = find(self.events, event)

        def work():
            event.stream, event.position = self._legacy[0], 0

        self._add_node(to, graph, before, count, work)

    def _cuGraphInstantiateWithFlags(self, to, graph, flags):
        self._context()
        handle = next(self._numbers)
        self.executions[handle] = Execution(dict(find(self.graphs, graph)))
        put(to, handle)

    def _cuGraphExecDestroy(self, handle):
        execution = find(self.executions, handle)
        if execution.last.stream is not None:
            self._finish(execution.last.stream, execution.last.position)
        del self.executions[handle]

    def _cuGraphKernelNodeSetParams_v2(self, node, row):
        self._context()
        graph = next((each for each in self.graphs.values() if node in each), None)
        if graph is None:
            raise Fault(INVALID_VALUE)
        graph[node] = self._kernel_node(row)

    def _cuGraphExecKernelNodeSetParams_v2(self, handle, node, row):
        nodes = find(self.executions, handle).nodes
        find(nodes, node)
        nodes[node] = self._kernel_node(row)

    def _cuTensorMapEncodeTiled(self, to, kind, rank, address, shape, strides, box, steps, *modes):
        """A map that a fake kernel reads: address, rank, then shape, strides and box."""
        self._context()
        numbers = [ctypes.c_uint64.from_address(shape + 8 * at).value for at in range(rank)]
        numbers += [ctypes.c_uint64.from_address(strides + 8 * at).value for at in range(rank - 1)]
        numbers += [ctypes.c_uint32.from_address(box + 4 * at).value for at in range(rank)]
        is_wrong = not 1 <= rank <= 5 or any(each % 16 for each in numbers[rank : 2 * rank - 1])
        if to % 64 or (address or 0) % 16 or is_wrong or max(numbers[2 * rank - 1 :]) > 256:
            raise Fault(INVALID_VALUE)
        ctypes.memset(to, 0, 128)
        for place, number in enumerate((address or 0, rank, *numbers)):
            ctypes.c_uint64.from_address(to + 8 * place).value = number

    def _cuGraphUpload(self, handle, stream):
        find(self.executions, handle)
        self._stream(stream)

    def _cuGraphLaunch(self, handle, stream):
        execution, stream = find(self.executions, handle), self._stream(stream)
        last = execution.last
        if last.stream is not None and last.stream is not stream:
            self._add(stream, self._after(last.stream, last.position))
        for work in list(execution.nodes.values()):
            self._add(stream, work)
        execution.last = Event(stream, stream.added)
