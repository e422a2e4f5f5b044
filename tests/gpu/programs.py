"""Programs of a few kernels on a real device, and arrays to call them with."""

import numpy
from triton_kernels import compiled

from aotc.runtime.bundle.plan import Buffer, Kernel, Launch, LaunchPlan
from aotc.runtime.drivers.cuda.driver import Executable

COUNT = 1 << 16  # float32 elements of every array
NBYTES = 4 * COUNT


def capability(device):
    """As Triton counts: 90 for (9, 0)."""
    major, minor = device.capability
    return 10 * major + minor


def join(kernels):
    """(library, rows of the plan) of compiled kernels."""
    library, rows = b"", []
    for kernel in kernels:
        library += b"\0" * (-len(library) % 64)
        rows.append(Kernel(kernel.symbol, kernel.symbol, kernel.image(len(library))))
        library += kernel.code
    return library, tuple(rows)


def sum_program(arch, additions=1, device=0, scale=1.0):
    """(executable, weight): output = tally(input + w) + w + …, float32 of COUNT elements."""
    library, kernels = join([compiled("add", arch), compiled("tally", arch)])
    grid, n = (COUNT // 1024, 1, 1), ("int", COUNT)
    arena = [256 + at * NBYTES for at in range(additions + 2)]
    launches = [
        Launch(0, grid, (("input", 0), ("weight", "w"), ("arena", arena[0]), n)),
        Launch(1, grid, (("arena", 0), ("arena", arena[0]), ("arena", arena[1]), n)),
    ]
    for at in range(1, additions + 1):
        to = ("output", 0) if at == additions else ("arena", arena[at + 1])
        launches.append(Launch(0, grid, (("arena", arena[at]), ("weight", "w"), to, n)))
    buffers = [Buffer("counter", 0, 4)] + [Buffer(f"b{at}", at, NBYTES) for at in arena]
    nbytes = arena[-1] + NBYTES
    plan = LaunchPlan(nbytes, 0, tuple(buffers), kernels, tuple(launches), 256)
    weight = numpy.linspace(0, scale, COUNT, dtype=numpy.float32)
    table = {"w": (weight.ctypes.data, NBYTES)}
    return Executable(library, plan, table, (NBYTES,), (NBYTES,), device), weight


def filled(device, array):
    """Device memory with the elements of a numpy array."""
    address = device.allocate(array.nbytes)
    device.copy_to_device(address, array.ctypes.data, array.nbytes)
    return address


def fetched(device, address, like):
    """Device memory as a numpy array of the shape and dtype of another one."""
    found = numpy.empty_like(like)
    device.copy_to_host(found.ctypes.data, address, found.nbytes)
    return found
