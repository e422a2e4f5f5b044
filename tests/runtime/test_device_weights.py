"""New weights of programs on a device, over a fake CUDA driver."""

import struct

import device_bundle
import pytest
from device_bundle import NUMBERS, WEIGHT

from aotc.aot.pack import pack
from aotc.runtime import load
from aotc.runtime.bundle.parameters import PARAMETERS_NAME, FixedTensor, Parameter, Parameters
from aotc.runtime.drivers.cuda.errors import CudaError
from aotc.runtime.errors import WeightsMismatch

NEW = struct.pack("<6f", *range(60, 66))


@pytest.fixture
def refit_program(cuda, tmp_path):
    import dataclasses

    rows = (Parameter(("layer.weight", "tied"), "f32", (6,), "layer.weight"),)
    fixed = (FixedTensor("settings", bytes(32)),)
    listing = Parameters(rows, fixed, ("unread",), None, None, ())
    contents = device_bundle.contents()
    contents = dataclasses.replace(contents, refit={PARAMETERS_NAME: listing.to_bytes()})
    pack(contents, tmp_path / "bundle")
    program = load(tmp_path / "bundle")
    yield program
    program.close()
    assert cuda.live() == {}


def given(data):
    return memoryview(data).cast("f")


def test_calls_read_the_new_weights_at_the_old_addresses(refit_program):
    program = refit_program
    session, bound = program.session(), program.bind(NUMBERS)
    addresses = dict(program._loaded.executable.weights)
    assert bytes(program(NUMBERS)[1]) == WEIGHT
    program.load_weights({"layer.weight": given(NEW)})
    for call in (lambda: program(NUMBERS), lambda: session(NUMBERS), bound):
        y, w = call()
        assert (bytes(y), bytes(w)) == (NUMBERS, NEW)
    program.load_weights({"tied": given(WEIGHT[::-1]), "unread": given(NEW)})
    assert bytes(program(NUMBERS)[1]) == WEIGHT[::-1]
    program.reset_weights()
    assert bytes(bound()[1]) == WEIGHT
    assert program._loaded.executable.weights == addresses
    session.close()
    bound.close()


def test_what_does_not_fit_leaves_the_old_weights(refit_program):
    wrong = [
        {},
        {"layer.weight": given(NEW), "more": given(NEW)},
        {"layer.weight": given(NEW)[:3]},
        {"layer.weight": given(NEW), "tied": given(WEIGHT)},
        {"layer.weight": given(NEW), "settings": given(NEW)},
    ]
    for tensors in wrong:
        with pytest.raises(WeightsMismatch):
            refit_program.load_weights(tensors)
        assert bytes(refit_program(NUMBERS)[1]) == WEIGHT


def test_a_device_that_fails_says_so(refit_program, cuda):
    cuda.fail("cuMemcpyHtoD_v2", 719)
    with pytest.raises(CudaError):
        refit_program.load_weights({"layer.weight": given(NEW)})
