"""Launches a candidate of a kernel on the device, each buffer in memory of its own."""

from __future__ import annotations

from contextlib import ExitStack

import numpy

from aotc.runtime.drivers.cuda.handles import Arguments

REPEATS = 2  # launches: what one leaves in zeroed scratch must serve the next


def launched(device, binary, candidate, inputs, output):
    """What the candidate stores, each buffer in memory of its own, `output` beforehand."""
    with ExitStack() as stack:

        def memory(nbytes):
            address = device.allocate(max(nbytes, 16))
            stack.callback(device.free, address)
            return address

        addresses = []
        for array in (*inputs, output):
            addresses.append(memory(array.nbytes))
            device.copy_to_device(addresses[-1], array.ctypes.data, array.nbytes)
        for row in candidate.scratch:
            addresses.append(memory(row.nbytes))
            device.fill(addresses[-1], 0 if row.is_zeroed else 0xFF, row.nbytes)
        programs = numpy.prod(candidate.grid)
        own = memory(int(programs) * binary.scratch_bytes) if binary.scratch_bytes else 0
        module = device.load(binary.code)
        stack.callback(module.close)
        function = device.function(module, binary.symbol, binary.shared_bytes)
        arguments = Arguments([*addresses, own, 0])
        for _ in range(REPEATS):
            device.launch(function, candidate.grid, binary.threads, arguments)
        device.synchronize()
        found = numpy.empty_like(output)
        address = addresses[len(inputs)]
        device.copy_to_host(found.ctypes.data, address, found.nbytes)
        return found
