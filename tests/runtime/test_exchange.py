"""Arrays in and out: every dtype as torch, numpy, DLPack and buffers."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import sys

import pytest
import small_bundle

from aotc.aot.pack import pack
from aotc.runtime import load
from aotc.runtime.arrays import dlpack
from aotc.runtime.arrays.dlpack import Array, Borrowed, borrow
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.arrays.exchange import TORCH_DTYPES, shape_of
from aotc.runtime.errors import (
    InputDevice,
    InputDtype,
    InputError,
    InputGradient,
    InputRank,
    InputShape,
    InputUnreadable,
    OutputCount,
    OutputUnusable,
)

SHAPE = (4, 6)
CODES = {"f64": "d", "f32": "f", "i64": "q", "i32": "i", "i16": "h", "i8": "b", "u8": "B"}


@pytest.fixture
def program_for(tmp_path):
    """Programs that copy `x` to `y`, by dtype and shape."""
    opened = []

    def make(dtype: str = "f32", shape: tuple[int, ...] = SHAPE):
        path = tmp_path / f"bundle{len(opened)}"
        pack(small_bundle.contents(dtype=dtype, shape=shape), path)
        opened.append(load(path))
        return opened[-1]

    yield make
    for program in opened:
        program.close()


def torch_array(dtype: str, shape: tuple[int, ...] = SHAPE):
    torch = pytest.importorskip("torch")
    count = 1
    for extent in shape:
        count *= extent
    numbers = torch.arange(count) % (2 if dtype == "bool" else 100)
    return numbers.reshape(shape).to(getattr(torch, TORCH_DTYPES[dtype]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [SHAPE, (), (0, 3), (2, 1, 3)], ids=str)
def test_torch(program_for, dtype, shape):
    torch = pytest.importorskip("torch")
    given = torch_array(dtype, shape)
    found, weight = program_for(dtype, shape)(given)
    assert (found.dtype, tuple(found.shape)) == (given.dtype, shape)
    assert torch.equal(found, given)
    assert isinstance(weight, torch.Tensor)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [SHAPE, (), (0, 3), (2, 1, 3)], ids=str)
def test_numpy(program_for, dtype, shape):
    numpy = pytest.importorskip("numpy")
    count = int(numpy.prod(shape))
    given = (numpy.arange(count) % 2).reshape(shape).astype(DTYPES[dtype].numpy)
    found, weight = program_for(dtype, shape)(given)
    assert type(found) is type(weight) is numpy.ndarray
    assert (found.dtype, found.shape) == (given.dtype, shape)
    assert (found == given).all()


@pytest.mark.parametrize("dtype", CODES)
def test_plain_buffers(program_for, dtype):
    program = program_for(dtype)
    flat = array.array(CODES[dtype], range(24))
    shaped = memoryview(flat.tobytes()).cast(CODES[dtype], list(SHAPE))
    for given in (flat, shaped, bytes(shaped), bytearray(shaped), memoryview(bytes(shaped))):
        found, _ = program(given)
        assert isinstance(found, memoryview)
        assert (found.shape, found.format) == (SHAPE, CODES[dtype])
        assert found.tolist() == shaped.tolist()


def test_half_floats_leave_as_bits_in_buffers(program_for):
    for dtype in ("f16", "bf16"):
        bits = array.array("H", range(24))
        found, _ = program_for(dtype)(bits)
        assert (found.format, found.shape) == ("H", SHAPE)
        assert bytes(found) == bits.tobytes()


class Lender:
    """A library of its own that knows nothing but DLPack."""

    def __init__(self, tensor, versioned: bool = True) -> None:
        self.tensor = tensor
        self.versioned = versioned

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **named):
        if not self.versioned and named:
            raise TypeError("no such keyword")
        return self.tensor.__dlpack__(**named)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack(program_for, dtype, versioned):
    torch = pytest.importorskip("torch")
    given = torch_array(dtype)
    found, _ = program_for(dtype)(Lender(given, versioned))
    assert isinstance(found, Array)
    assert torch.equal(torch.from_dlpack(found), given)
    transposed = torch_array(dtype, (6, 4)).t()
    found, _ = program_for(dtype)(Lender(transposed, versioned))
    assert torch.equal(torch.from_dlpack(found), transposed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exported_arrays_reach_torch_and_numpy(dtype):
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")
    ours = Array(dtype, (3, 5))
    assert ours.address % 64 == 0
    tensor = torch.from_dlpack(ours)
    assert (tensor.data_ptr(), tuple(tensor.shape)) == (ours.address, (3, 5))
    with pytest.raises(BufferError):
        ours.__dlpack__()
    if dtype != "bf16":
        assert numpy.from_dlpack(Array(dtype, (3, 5))).shape == (3, 5)
    tensor.zero_()
    del tensor, ours
    gc.collect()


def test_capsules_nobody_takes_and_borrowed_arrays_are_released():
    torch = pytest.importorskip("torch")
    for _ in range(1000):
        Array("f32", (1 << 18,)).__dlpack__(max_version=(1, 0))  # 1 MiB each: a leak would be seen
        Array("f32", (1 << 18,)).__dlpack__()
    tensor = torch.zeros(8)
    borrowed = borrow(tensor)
    assert isinstance(borrowed, Borrowed)
    assert (borrowed.address, borrowed.shape, borrowed.strides) == (tensor.data_ptr(), (8,), (4,))
    with pytest.raises(BufferError):
        borrow(torch.zeros(2, requires_grad=True))


def test_subclasses_are_answered_as_their_library(program_for, tmp_path):
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")

    class Tagged(torch.Tensor):
        pass

    program, given = program_for(), torch_array("f32")
    found, _ = program(given.as_subclass(Tagged))
    assert type(found) is torch.Tensor
    assert torch.equal(found, given)
    numpy.save(tmp_path / "x.npy", given.numpy())
    found, _ = program(numpy.load(tmp_path / "x.npy", mmap_mode="r"))
    assert type(found) is numpy.ndarray
    assert (found == given.numpy()).all()


STRIDED = {
    "transposed": lambda x: x.permute(1, 0),
    "every second": lambda x: x[::2, 1::3],
    "broadcast": lambda x: x[:1].expand(7, x.shape[1]),
    "column": lambda x: x[:, 3],
    "offset": lambda x: x[1:, 2:],
}


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "u8", "bool"])
@pytest.mark.parametrize("name", STRIDED)
def test_arrays_that_are_not_contiguous(program_for, dtype, name):
    torch = pytest.importorskip("torch")
    given = STRIDED[name](torch_array(dtype, (8, 9)))
    program = program_for(dtype, tuple(given.shape))
    found, _ = program(given)
    assert torch.equal(found, given)
    if dtype != "bf16":
        as_numpy = given.numpy()
        found, _ = program(as_numpy)
        assert (found == as_numpy).all()
        found, _ = program(memoryview(as_numpy))
        assert found.tolist() == as_numpy.tolist()


def test_negative_strides_and_many_dims(program_for):
    numpy = pytest.importorskip("numpy")
    base = numpy.arange(1 << 11, dtype="f4").reshape((2,) * 11)
    flipped = base[::-1, :, ::-1].transpose(*reversed(range(11)))
    found, _ = program_for("f32", (2,) * 11)(flipped)
    assert (found == flipped).all()


def test_lazily_negated_and_conjugated_views(program_for):
    torch = pytest.importorskip("torch")
    complex_numbers = torch.complex(torch.ones(4, 6), torch.arange(24.0).reshape(4, 6))
    imaginary = complex_numbers.conj().imag
    assert imaginary.is_neg()
    found, _ = program_for()(imaginary)
    assert torch.equal(found, imaginary)


def test_read_only_inputs(program_for):
    numpy = pytest.importorskip("numpy")
    given = numpy.arange(24, dtype="f4").reshape(SHAPE)
    given.flags.writeable = False
    found, _ = program_for()(given)
    assert (found == given).all()


def test_gradients(program_for):
    torch = pytest.importorskip("torch")
    program, given = program_for(), torch.ones(SHAPE, requires_grad=True)
    with pytest.raises(InputGradient, match="`x`"):
        program(given)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert torch.equal(program(given)[0], given)
    parameter = torch.nn.Parameter(torch.ones(SHAPE), requires_grad=False)
    assert torch.equal(program(parameter)[0], parameter)


def test_output_kind_survives_a_default_device(program_for):
    torch = pytest.importorskip("torch")
    given, program = torch.ones(SHAPE), program_for()
    with torch.device("meta"):
        found, _ = program(given)
    assert found.device.type == "cpu"
    assert torch.equal(found, given)


def refusals():
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")
    return {
        "torch dtype": (torch.zeros(SHAPE, dtype=torch.float64), InputDtype, "f64, expected f32"),
        "torch complex": (torch.zeros(SHAPE, dtype=torch.complex64), InputDtype, "complex64"),
        "torch rank": (torch.zeros(4), InputRank, "rank 1"),
        "torch shape": (torch.zeros(3, 6), InputShape, r"\[3, 6\], expected \[4, 6\]"),
        "torch device": (torch.zeros(SHAPE, device="meta"), InputDevice, "meta, expected cpu"),
        "torch sparse": (torch.zeros(SHAPE).to_sparse(), InputUnreadable, "sparse"),
        "numpy dtype": (numpy.zeros(SHAPE), InputDtype, "f64, expected f32"),
        "numpy order": (numpy.zeros(SHAPE, ">f4"), InputDtype, ">f4"),
        "numpy uint16": (numpy.zeros(SHAPE, "u2"), InputDtype, "uint16"),
        "numpy text": (numpy.zeros(SHAPE, "U4"), InputDtype, "str"),
        "numpy shape": (numpy.zeros((4, 7), "f4"), InputShape, r"\[4, 7\]"),
        "numpy scalar": (numpy.float32(1), InputError, "rank 0"),
        "buffer dtype": (array.array("i", range(24)), InputDtype, "i32"),
        "buffer size": (array.array("f", range(23)), InputError, "23"),
        "too few bytes": (bytes(95), InputError, "95"),
        "dlpack device": (Lender(torch.zeros(SHAPE, device="meta")), InputError, "x"),
        "list": ([[1.0] * 6] * 4, InputUnreadable, "`list`"),
        "number": (1.0, InputUnreadable, "`float`"),
        "nothing": (None, InputUnreadable, "`NoneType`"),
        "text": ("x", InputUnreadable, "`str`"),
    }


@pytest.mark.parametrize("name", refusals())
def test_refusals_name_the_input(program_for, name):
    value, kind, text = refusals()[name]
    program = program_for()
    for _ in range(2):  # the second time by the kind found before
        with pytest.raises(kind, match=text) as caught:
            program(value)
        assert "`x`" in str(caught.value)
        assert caught.value.exit_code == 2


def test_out_is_written_in_place_and_returned(program_for):
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")
    given, program = torch_array("f32"), program_for()
    block = bytearray(24)
    for first in (torch.empty(SHAPE), numpy.empty(SHAPE, "f4"), bytearray(96)):
        out = (first, block)
        assert program(given, out=out) is out
        assert bytes(memoryview(first if type(first) is bytearray else numpy.asarray(first))) == (
            given.numpy().tobytes()
        )
        assert memoryview(block).cast("f").tolist() == [1.0] * 6


def test_out_refusals(program_for):
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")
    given, program, weight = torch_array("f32"), program_for(), bytearray(24)
    read_only = numpy.zeros(SHAPE, "f4")
    read_only.flags.writeable = False
    shared = torch.zeros(4 * 6 + 6)
    cases = [
        (torch.empty(6, 4).t(), OutputUnusable, "not contiguous"),
        (torch.empty(SHAPE, requires_grad=True), OutputUnusable, "gradient"),
        (read_only, OutputUnusable, "read-only"),
        (numpy.zeros((6, 4), "f4").T, OutputUnusable, "not contiguous"),
        (bytes(96), OutputUnusable, "read-only"),
        (torch.empty(4, 5), InputShape, r"output `y` has shape \[4, 5\]"),
        (torch.empty(SHAPE, dtype=torch.int32), InputDtype, "i32"),
        (given, OutputUnusable, "in the memory of input `x`"),
        (given.numpy(), OutputUnusable, "in the memory of input `x`"),
    ]
    for first, kind, text in cases:
        with pytest.raises(kind, match=text):
            program(given, out=(first, weight))
    with pytest.raises(OutputUnusable, match="in the memory of output `y`"):
        program(given, out=(shared[:24].reshape(SHAPE), shared[20:26]))
    for wrong in (torch.empty(SHAPE), (torch.empty(SHAPE),), (weight,) * 3):
        with pytest.raises(OutputCount):
            program(given, out=wrong)


class Raising:
    """An object that raises what it likes where it is asked whether it is an array."""

    def __getattr__(self, name):
        raise RuntimeError(f"no `{name}` today")


def released_view():
    view = memoryview(bytes(96))
    view.release()
    return view


def closed_map():
    memory = mmap.mmap(-1, 96)
    memory.close()
    return memory


def scattered_rows():
    module = pytest.importorskip("_testbuffer")
    return module.ndarray(list(range(24)), shape=[4, 6], format="f", flags=module.ND_PIL)


@pytest.mark.parametrize("make", [Raising, released_view, closed_map, scattered_rows])
def test_what_raises_where_it_is_read_is_refused_by_name(program_for, tmp_path, make):
    program, value = program_for(), make()
    for call in (
        lambda: program(value),
        lambda: program(x=value),
        lambda: program.bind(value),
        lambda: program(bytes(96), out=(value, bytearray(24))),
        lambda: shape_of(program._entries[0].ports[0][0], value),
    ):
        try:
            call()
        except InputError as error:
            assert error.name in ("x", "y")  # noqa: PT017
        else:
            assert make is scattered_rows  # it tells a shape


@pytest.mark.parametrize("shape", [7, ("n",), (4, None)], ids=str)
def test_a_shape_that_is_none_is_refused_by_name(program_for, shape):
    value = type("Odd", (), {"shape": shape})()
    with pytest.raises(InputUnreadable, match=r"input `x`.*whose shape cannot be read"):
        shape_of(program_for()._entries[0].ports[0][0], value)


class Lying:
    """A producer whose capsule says what the test tells it to say."""

    def __init__(self, change, versioned):
        self.change, self.versioned = change, versioned
        self.memory = (ctypes.c_float * 24)()

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, max_version=None):
        block = dlpack.allocate_block(dlpack.header_bytes((4, 6)))
        address = ctypes.addressof(self.memory)
        managed = dlpack.describe(block, self.versioned, "f32", (4, 6), address, (1, 0))
        self.change(managed)
        return dlpack.export_capsule(block, self.versioned)


def newer(managed):
    managed.major = 2


def no_sizes(managed):
    managed.tensor.shape = None


def negative_rank(managed):
    managed.tensor.ndim = -1


def endless_rank(managed):
    managed.tensor.ndim = 1 << 30


def no_memory(managed):
    managed.tensor.data = None


def elsewhere(managed):
    managed.tensor.device_type = 2


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    "change", [newer, no_sizes, negative_rank, endless_rank, no_memory, elsewhere]
)
def test_capsules_that_cannot_be_arrays_are_refused(program_for, change, versioned):
    if change is newer and not versioned:
        pytest.skip("capsules of 0.x have no version")
    program, value = program_for(), Lying(change, versioned)
    kind = InputDevice if change is elsewhere else InputUnreadable
    with pytest.raises(kind, match="input `x`"):
        program(value)
    with pytest.raises(kind, match="output `y`"):
        program(bytes(96), out=(value, bytearray(24)))
    assert program(Lying(lambda managed: None, versioned))[0].shape == (4, 6)


def test_what_is_no_capsule_leaves_no_warning(program_for, monkeypatch):
    """Once a capsule was taken, another library marks it as used."""
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    producer = Lying(lambda managed: None, True)
    capsule = producer.__dlpack__()
    producer.__dlpack__ = lambda **options: capsule
    program = program_for()
    program(producer)
    with pytest.raises(InputUnreadable):
        program(producer)
    gc.collect()
    assert not seen
