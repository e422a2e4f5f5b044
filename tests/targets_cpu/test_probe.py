"""A probe shows what an evaluation would give, and leaves a kernel as it was."""

from __future__ import annotations

from typing import cast

import pytest

from aotc.aot.targets.cpu.evaluate import Kernel, Pending
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.memory import Buffer
from aotc.aot.targets.cpu.ttir import Value
from aotc.aot.targets.cpu.writer import constant

pytestmark = pytest.mark.triton


def test_what_a_probe_computes_is_not_known_afterwards():
    """`convolutions 202611264000343`: a tensor that was computed into memory while a probe lowered
    the loop of a product was read afterwards from memory that nothing had written."""
    kernel = Kernel(isa=ISAS["x86-64-v4"], no_alias=True)
    waiting, other = cast(Value, "waiting"), cast(Value, "other")
    buffer = Buffer(kernel.allocate(256), (64,), "i32", 0)
    pending = kernel.pending[waiting] = Pending(kernel, buffer)
    before = kernel.scratch_bytes, list(kernel.writer.scope.lines)
    with kernel.probe() as depth:
        assert depth == kernel.writer.depth == 1
        del kernel.pending[waiting]
        pending.written = True
        kernel.buffers[waiting] = buffer
        kernel.scalars[other] = constant(1, "i32")
        kernel.in_place[other] = buffer
        kernel.facts[other, ()] = True
        kernel.bin()
    assert kernel.pending == {waiting: pending}
    assert not pending.written
    assert not any((kernel.buffers, kernel.scalars, kernel.in_place, kernel.facts))
    assert (kernel.scratch_bytes, kernel.writer.scope.lines) == before
    scrap = kernel.bin()  # of stores that are masked off: its address is computed now
    assert any(line.startswith(f"  {scrap.text} = ") for line in kernel.writer.scope.lines)
