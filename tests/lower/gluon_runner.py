"""Runs a Gluon source of attention with numpy and threads: barriers, copies, products of sm_90.

Asynchronous work happens as late as the source allows: a product reads its operands when it is
waited for, a copy out of shared memory when its wait comes; a copy into it happens at once. So a
block that is given back too early, or read too early, gives wrong numbers, and a barrier that is
never completed an error instead of a hang.
"""

from __future__ import annotations

import ast
import threading
from types import SimpleNamespace

import numpy

PATIENCE_S = 20.0  # of one wait at a barrier


class Tensor(numpy.ndarray):
    """An array with the few methods of Gluon's tensors; layouts mean nothing here."""

    def to(self, dtype, bitcast=False):
        return self.view(dtype) if bitcast else self.astype(dtype)

    @property
    def type(self):
        return SimpleNamespace(layout=None)


def tensor(value):
    return numpy.asarray(value).view(Tensor)


class Shared:
    """A view of shared memory."""

    def __init__(self, array):
        self.array = array
        self.dtype = array.dtype.type

    def index(self, at):
        return Shared(self.array[int(at)])

    def reshape(self, shape):
        return Shared(self.array.reshape(shape))

    def permute(self, order):
        return Shared(self.array.transpose(order))

    def store(self, value):
        self.array[...] = value


class Barrier:
    """Counts arrivals and bytes of one phase after another."""

    def __init__(self):
        self.changed = threading.Condition()
        self.count = self.pending = self.bytes = self.phase = 0

    def init(self, count):
        self.count = self.pending = count

    def arrive(self, arrivals=1, nbytes=0):
        with self.changed:
            self.pending -= arrivals
            self.bytes += nbytes
            assert self.pending >= 0, "more arrivals than the barrier was made for"
            if self.pending == 0 and self.bytes == 0:
                self.phase, self.pending = self.phase + 1, self.count
                self.changed.notify_all()

    def wait(self, parity):
        with self.changed:
            done = self.changed.wait_for(lambda: self.phase % 2 != int(parity), PATIENCE_S)
        if not done:
            raise TimeoutError("a barrier was never completed")


class Barriers(list):
    """Barriers in a row; `index` is shared memory's, not a list's."""

    def index(self, at):
        return self[int(at)]


class Pointer:
    """A flat array from an element on."""

    def __init__(self, array, start=0):
        self.array, self.start = array, start
        self.dtype = SimpleNamespace(element_ty=array.dtype.type)

    def __add__(self, offset):
        return Pointer(self.array, self.start + offset)


class Descriptor:
    """A tensor in global memory, moved block by block; beyond its shape it reads as zero."""

    def __init__(self, base, shape, strides, block, layout):
        self.base, self.shape, self.strides, self.block = base, shape, strides, block
        nbytes = int(numpy.prod(block)) * base.array.itemsize
        self.block_type = SimpleNamespace(nbytes=nbytes)

    def places(self, coordinates):
        """(element numbers, which of them are there) of a block."""
        index, is_there = numpy.array(self.base.start), numpy.array(True)
        for axis, (at, extent) in enumerate(zip(coordinates, self.block, strict=True)):
            shape = [extent if axis == other else 1 for other in range(len(self.block))]
            place = (int(at) + numpy.arange(extent)).reshape(shape)
            is_there = is_there & (place >= 0) & (place < self.shape[axis])
            index = index + place * self.strides[axis]
        return index, is_there

    def load(self, coordinates):
        index, is_there = self.places(coordinates)
        return numpy.where(is_there, self.base.array[numpy.where(is_there, index, 0)], 0)

    def store(self, coordinates, block):
        index, is_there = self.places(coordinates)
        self.base.array[index[is_there]] = block[is_there]


class Machine:
    """The names that a Gluon source uses, for one program after another."""

    def __init__(self, programs):
        self.programs, self.program = programs, 0
        self.local = threading.local()
        self.failures = []

    def waiting(self, kind):
        """This warp group's work that was begun and not waited for."""
        if not hasattr(self.local, kind):
            setattr(self.local, kind, [])
        return getattr(self.local, kind)

    def product(self, a, b, acc, use_acc=True, is_async=False):
        """A token whose value is computed when it is waited for."""
        assert is_async
        token = SimpleNamespace(value=None)

        def compute():
            left = a.array if isinstance(a, Shared) else a
            value = left.astype(numpy.float32) @ b.array.astype(numpy.float32)
            token.value = tensor(value + acc if use_acc else value).astype(numpy.float32)

        self.waiting("products").append(compute)
        return token

    def wait_products(self, outstanding, deps):
        waiting = self.waiting("products")
        while len(waiting) > outstanding:
            waiting.pop(0)()
        found = [item.value if isinstance(item, SimpleNamespace) else item for item in deps]
        return found[0] if len(found) == 1 else tuple(found)

    def bring(self, descriptor, coordinates, barrier, result):
        result.array[...] = descriptor.load(coordinates)
        barrier.arrive(0, -descriptor.block_type.nbytes)

    def send(self, descriptor, coordinates, source):
        self.waiting("stores").append(lambda: descriptor.store(coordinates, source.array))

    def wait_stores(self, outstanding):
        waiting = self.waiting("stores")
        while len(waiting) > outstanding:
            waiting.pop(0)()

    def specialize(self, partitions, warps, registers):
        def work(function, arguments):
            try:
                function(*arguments)
                self.wait_stores(0)
                assert not self.waiting("products"), "a product that nothing waits for"
            except BaseException as error:
                self.failures.append(error)

        threads = [threading.Thread(target=work, args=row, daemon=True) for row in partitions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
        if self.failures:
            raise self.failures[0]

    def allocate(self, dtype, shape, layout):
        if layout == "barrier":
            return Barriers(Barrier() for _ in range(shape[0]))
        return Shared(numpy.full(shape, numpy.nan, dtype))

    def names(self):
        """What the imports of a source would bring."""
        layouts = dict.fromkeys(
            ("NVMMADistributedLayout", "SliceLayout", "DotOperandLayout"), lambda *_: None
        )
        gl = SimpleNamespace(
            constexpr=None, static_range=range, int32=numpy.int32, int64=numpy.int64,
            float32=numpy.float32, minimum=numpy.minimum, maximum=numpy.maximum,
            where=lambda *row: tensor(numpy.where(*row)), exp2=numpy.exp2,
            cdiv=lambda a, b: -(-a // b), max=lambda x, axis: x.max(axis),
            sum=lambda x, axis: x.sum(axis), convert_layout=lambda x, _: x,
            arange=lambda first, last, _: tensor(numpy.arange(first, last)),
            full=lambda shape, value, dtype, _=None: tensor(numpy.full(shape, value, dtype)),
            abs=numpy.abs,
            zeros=lambda shape, dtype, _: tensor(numpy.zeros(shape, dtype)),
            program_id=lambda _: tensor(self.program), num_programs=lambda _: tensor(self.programs),
            allocate_shared_memory=self.allocate, warp_specialize=self.specialize,
            thread_barrier=lambda: None,
            NVMMASharedLayout=SimpleNamespace(get_default_for=lambda *_: "tile"), **layouts,
        )  # fmt: skip
        mbarrier = SimpleNamespace(
            MBarrierLayout=lambda: "barrier",
            init=lambda barrier, count: barrier.init(count),
            expect=lambda barrier, nbytes: barrier.arrive(1, nbytes),
            arrive=lambda barrier: barrier.arrive(),
            wait=lambda barrier, parity, pred=True: barrier.wait(parity) if pred else None,
        )
        tma = SimpleNamespace(
            make_tensor_descriptor=Descriptor, async_copy_global_to_shared=self.bring,
            async_copy_shared_to_global=self.send, store_wait=self.wait_stores,
        )  # fmt: skip
        return {
            "gluon": SimpleNamespace(jit=lambda function: function), "gl": gl, "tma": tma,
            "mbarrier": mbarrier, "fence_async_shared": lambda: None,
            "warpgroup_mma": self.product, "warpgroup_mma_wait": self.wait_products,
        }  # fmt: skip


def run(source, function, grid, config, arrays):
    """Run all programs of a source one after another on flat numpy arrays."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    machine = Machine(grid[0])
    names = machine.names()
    exec(compile(tree, function, "exec"), names)
    pointers = [Pointer(array.reshape(-1)) for array in arrays]
    for program in range(grid[0]):
        machine.program = program
        names[function](*pointers, **config)
