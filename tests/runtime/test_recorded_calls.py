"""Launches of a call on a stream that its owner records, over a fake CUDA driver."""

from __future__ import annotations

import ctypes

import pytest
from device_bundle import NUMBERS, WEIGHT, DeviceBlock
from test_dynamic_device import data
from test_dynamic_device import write as write_dynamic

from aotc.runtime import load
from aotc.runtime.drivers.cuda import recording
from aotc.runtime.errors import DriverFault, ProgramClosed


class Memory:
    """Gives blocks of the device and keeps them, as the allocator of a recorded graph does."""

    def __init__(self):
        self.blocks = []

    def take(self, nbytes):
        self.blocks.append(DeviceBlock(b"\xff" * nbytes))
        return self.blocks[-1].address


def recorded(program, cuda, content, shapes=()):
    """What a recorded call leaves in its outputs, and the memory between."""
    x, y, w = (DeviceBlock(each) for each in (content, bytes(len(content)), bytes(24)))
    memory = Memory()
    graphs = cuda.calls["cuGraphLaunch"]
    program.record_at([x.address, y.address, w.address], memory.take, shapes)
    cuda.settle()
    assert cuda.calls["cuGraphLaunch"] == graphs
    assert w.read() == WEIGHT
    return y.read(), memory


def test_a_call_is_launched_kernel_by_kernel_on_memory_of_its_own(program, cuda):
    sessions_bytes = sum(block.nbytes for block in cuda.blocks.values())
    found, memory = recorded(program, cuda, NUMBERS)
    assert found == NUMBERS
    (between,) = memory.blocks
    assert between.read()[: len(NUMBERS)] == NUMBERS
    del between, memory
    assert sum(block.nbytes for block in cuda.blocks.values()) == sessions_bytes


def test_a_call_of_a_shape_that_no_session_has_met(tmp_path, cuda):
    with load(write_dynamic(tmp_path / "bundle")) as program:
        for rows in (3, 7):
            found, memory = recorded(program, cuda, data(rows, rows), (((rows, 6)),))
            assert found == data(rows, rows)
            (between,) = memory.blocks
            assert not any(between.read()[:256])  # what the plan asks to be zero
            del between, memory
    with pytest.raises(ProgramClosed):
        program.record_at([0, 0, 0], ctypes.c_int, ((3, 6),))


def test_a_plan_with_steps_that_are_not_kernels_is_refused():
    class Plan:
        states, checks, is_of_launches = (), (), False

    class Code:
        plan, gpu = Plan, None

    with pytest.raises(DriverFault, match="cannot be recorded"):
        recording.record(Code, [], 0, ctypes.c_int)
