"""Functions of native back ends, called with arrays of several libraries and with wrong ones."""

from __future__ import annotations

import threading
from array import array

import numpy
import pytest
import torch

from aotc import runtime
from aotc.runtime import backends
from aotc.runtime.backends import errors
from aotc.runtime.errors import (
    InputDevice,
    InputDtype,
    InputGradient,
    InputMisaligned,
    InputRank,
    InputStrided,
    InputUnreadable,
    OutputUnusable,
)


@pytest.fixture
def adder(example):
    return runtime.get_backend(example("custom_add"))


@pytest.fixture
def many(compile_library):
    return runtime.get_backend(compile_library("many.cpp", "many"))


def arrays(*dtypes):
    return [numpy.arange(6, dtype=dtype) for dtype in dtypes]


class Capsule:
    """An array of a library that has DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **named):
        return self.array.__dlpack__(**named)


def test_by_attribute_and_in_the_kernels_order(adder):
    a, b, out = arrays("f4", "f4", "f4")
    assert adder.add(a, b, 6, out=out) is out
    assert (out == a + b).all()
    adder.add(b=b, a=out, n=3, out=out)
    assert out.tolist() == [0.0, 3.0, 6.0, 6.0, 8.0, 10.0]
    adder.execute_kernel("add", out, a, a, 6)
    assert (out == 2 * a).all()


@pytest.mark.parametrize("wrap", [numpy.asarray, torch.from_numpy, Capsule, memoryview])
def test_every_kind_of_array(adder, wrap):
    a, b, out = arrays("f8", "f8", "f8")
    for _ in range(3):  # the slow way in, then the fast one
        out[:] = 0
        adder.add(wrap(a), wrap(b), 6, out=wrap(out))
        assert (out == a + b).all()


def test_kinds_mix_and_read_only_inputs_are_taken(adder):
    a, b, out = arrays("f4", "f4", "f4")
    a.flags.writeable = False
    for _ in range(2):
        adder.add(a, torch.from_numpy(b), 6, out=memoryview(out))
        assert (out == a + b).all()


def test_shapes_and_dtypes_may_change_from_call_to_call(adder):
    for _ in range(2):
        for shape, dtype in (((2, 3), "f4"), ((6,), "f8"), ((0,), "f4"), ((), "f8")):
            a, b = numpy.ones(shape, dtype), numpy.full(shape, 2, dtype)
            out = numpy.zeros(shape, dtype)
            adder.add(a, b, a.size, out=out)
            assert (out == 3).all()


def test_bytes_do_not_stand_for_arrays(adder):
    a, b, out = arrays("f4", "f4", "f4")
    adder.add(a, b, 6, out=out)
    with pytest.raises(InputDtype, match=r"custom_add::add\.a` has dtype u8"):
        adder.add(a.tobytes(), b, 6, out=out)


def test_buffers_of_the_standard_library(adder):
    out = array("d", bytes(16))
    adder.add(array("d", [1.0, 2.0]), array("d", [0.5, 0.5]), 2, out=out)
    assert list(out) == [1.5, 2.5]


def test_strides_are_given_where_they_are_declared(many):
    x = numpy.arange(12.0).reshape(3, 4)[:, ::2]
    out = numpy.zeros((2, 3))
    many.transpose(x, out=out)
    assert (out == x.T).all()
    many.transpose(torch.from_numpy(x), out=torch.from_numpy(out).flip(0).flip(0))
    assert (out == x.T).all()


def test_workspace(many):
    for size in (5, 1000, 3):
        x = numpy.random.default_rng(size).integers(0, 99, size, numpy.int32)
        out = numpy.empty_like(x)
        many.sorted(x, out=out)
        assert (out == numpy.sort(x)).all()
    with pytest.raises(errors.FunctionFailed, match="a scalar has no order"):
        many.sorted(numpy.zeros((), "i4"), out=numpy.zeros((), "i4"))


def test_several_outputs_after_the_inputs(many):
    x = numpy.array([True, False])
    found = numpy.zeros(2, "u1"), numpy.zeros(2, "i1")
    assert many.split(x, 5, out=found) is found
    assert [each.tolist() for each in found] == [[5, 0], [0, -5]]
    many.execute_kernel("split", x, *found, 1)
    assert [each.tolist() for each in found] == [[1, 0], [0, -1]]


def test_bfloat16_by_torch_and_by_its_bits(many):
    x, out = torch.tensor([1.0, -2.0], dtype=torch.bfloat16), numpy.zeros(2, "i4")
    many.bits(x, out=out)
    assert out.tolist() == [0x3F80, 0xC000]
    many.bits(numpy.array([0x3F80, 1], numpy.uint16), out=out)
    assert out.tolist() == [0x3F80, 1]


def test_the_pointer_is_the_kernels_own(adder):
    a, b, out = arrays("f4", "f4", "f4")
    adder.add(a, b, 6, out=out)
    kernel = backends.abi.KERNEL(adder.get_function_ptr("add"))
    frame = adder["add"]._recent[-1]
    out[:] = 0
    assert kernel(*frame.pointers) == 0
    assert (out == a + b).all()


def test_functions_that_are_not_concurrent_run_one_by_one(many):
    out = [numpy.zeros(2, "i8") for _ in range(8)]

    def work(mine):
        for _ in range(500):
            many.count(out=mine)

    before = numpy.zeros(2, "i8")
    many.count(out=before)
    threads = [threading.Thread(target=work, args=(each,)) for each in out]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = numpy.zeros(2, "i8")
    many.count(out=after)
    assert after[0] - before[0] == 8 * 500 + 1


def test_threads_share_a_function(adder):
    def work(value):
        a, out = numpy.full(100, value), numpy.zeros(100)
        for _ in range(300):
            adder.add(a, a, 100, out=out)
            if not (out == 2 * value).all():
                wrong.append(value)

    wrong: list[float] = []
    threads = [threading.Thread(target=work, args=(float(value),)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


WRONG = {
    "too few": (lambda a: ((a, a), a), errors.FunctionArguments, "3 arguments, expected 4"),
    "too many": (lambda a: ((a, a, 6, 7), a), errors.FunctionArguments, "5 arguments"),
    "no out": (lambda a: ((a, a, 6), None), errors.FunctionArguments, "0 arrays as `out`"),
    "two outs": (lambda a: ((a, a, 6), (a, a)), errors.FunctionArguments, "2 arrays as `out`"),
    "dtype": (lambda a: ((a.astype("i4"), a, 6), a), InputDtype, "i32, expected f64 or f32"),
    "gaps": (lambda a: ((a[::2], a, 3), a), InputStrided, "is not contiguous"),
    "gaps in torch": (
        lambda a: ((torch.from_numpy(a)[::2], a, 3), a),
        InputStrided,
        "is not contiguous",
    ),
    "no array": (lambda a: ((None, a, 6), a), InputUnreadable, "of type `NoneType`"),
    "device": (
        lambda a: ((torch.empty(6, device="meta"), a, 6), a),
        InputDevice,
        "on device meta",
    ),
    "gradient": (
        lambda a: ((torch.ones(6, requires_grad=True), a, 6), a),
        InputGradient,
        "requires a gradient",
    ),
    "real number": (lambda a: ((a, a, 1.5), a), errors.FunctionScalar, "`n` is 1.5"),
    "huge number": (lambda a: ((a, a, 1 << 64), a), errors.FunctionScalar, "of 64 bits"),
    "text": (lambda a: ((a, a, "6"), a), errors.FunctionScalar, "`n` is '6'"),
    "size": (lambda a: ((a, a, 7), a), errors.FunctionFailed, "n is 7, expected 0 to 6"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("is_first", [True, False])
def test_wrong_arguments(adder, case, is_first):
    arguments, kind, text = WRONG[case]
    a = numpy.ones(6, "f4")
    given, out = arguments(a)
    if not is_first:
        adder.add(a, a, 6, out=numpy.zeros(6, "f4"))
    with pytest.raises(kind, match=text) as caught:
        adder.add(*given, out=out)
    assert "custom_add::add" in str(caught.value)
    good = numpy.zeros(6, "f4")
    adder.add(a, a, 6, out=good)  # nothing is left of the failure
    assert (good == 2).all()


def test_unknown_keywords_are_named(adder):
    a = numpy.ones(6, "f4")
    with pytest.raises(errors.FunctionArguments, match="`m`"):
        adder.add(a, a, 6, m=1, out=a)
    with pytest.raises(errors.FunctionArguments, match="no `b`"):
        adder.add(a, n=1, out=a)


def test_read_only_outputs(adder):
    a, out = numpy.ones(6, "f4"), numpy.ones(6, "f4")
    adder.add(a, a, 6, out=out)
    out.flags.writeable = False
    with pytest.raises(OutputUnusable, match=r"custom_add::add\.out` is read-only"):
        adder.add(a, a, 6, out=out)


def test_rank(example):
    filters = runtime.get_backend(example("image_filter"))
    flat = numpy.zeros((4, 4), "u1")
    with pytest.raises(InputRank, match=r"image_filter::box_blur\.out` has rank 2"):
        filters.box_blur(flat, 1, out=flat)


def test_misaligned_memory(adder):
    block = numpy.zeros(64, "u1")
    a = block[1:25].view("f4")
    with pytest.raises(InputMisaligned, match=r"custom_add::add\.a` starts at .* multiple of 4"):
        adder.add(a, a, 6, out=numpy.zeros(6, "f4"))


def test_alignment_that_the_signature_asks_for(compile_library):
    odd = runtime.get_backend(compile_library("odd.c", "odd", "-DALIGNMENT=64"))
    block = numpy.zeros(64, "f4")
    start = -block.ctypes.data % 64 // 4
    odd.fill(2.0, out=block[start : start + 8])
    for out in (block[start + 1 : start + 9], block[start + 2 : start + 10]):
        with pytest.raises(InputMisaligned, match="multiple of 64 bytes"):
            odd.fill(2.0, out=out)


def test_what_a_function_says_of_its_failure(compile_library):
    odd = runtime.get_backend(compile_library("odd.c", "odd"))
    out = numpy.zeros(4, "f4")
    with pytest.raises(errors.FunctionFailed, match=r"odd::fill` failed: -1 is below 0 \(sta"):
        odd.fill(-1, out=out)
    with pytest.raises(errors.FunctionFailed, match=r"it gave no message \(status 7\)"):
        odd.fill(-2, out=out)
    odd.fill(numpy.float32(3), out=out)
    assert (out == 3).all()


def test_exceptions_end_at_the_border(many):
    out = numpy.zeros(1, "f4")
    with pytest.raises(errors.FunctionFailed, match="`many::throws` failed: thrown across"):
        many.throws(out=out)
    with pytest.raises(errors.FunctionFailed, match="an exception that is no std::exception"):
        many.throws_a_number(out=out)


def test_two_devices_in_one_call(many):
    class Elsewhere(Capsule):
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, stream=None, **named):
            return super().__dlpack__(**named)

    x = numpy.zeros((2, 2))
    with pytest.raises(errors.FunctionDevice, match="cpu:0, cuda:0, expected all on one of: cpu"):
        many.transpose(Elsewhere(x), out=x)
