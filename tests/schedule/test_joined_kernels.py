"""Kernels that become one, a value that one of them both reads and stores among what they share."""

from __future__ import annotations

from aotc.aot.ir.text import parse_graph
from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU

STORED_AND_JOINED = """\
%x = input(name='x') : f32[2, 5, 5, 1]
%mask = input(name='mask') : bool[2, 5, 5, 1]
%2 = scalar(dtype='f32', value=-2.0) : f32[]
%3 = where(%mask, %x, %2) : f32[2, 5, 5, 1]
%4 = scalar(dtype='f32', value=0.5) : f32[]
%5 = add(%3, %4) : f32[2, 5, 5, 1]
%6 = div(%x, %5) : f32[2, 5, 5, 1]
%7 = flip(%6, axes=(2,)) : f32[2, 5, 5, 1]
%8 = sign(%3) : f32[2, 5, 5, 1]
return output_0=%7, output_1=%5, output_2=%6, output_3=%8
"""


def test_a_kernel_stores_what_it_reads_and_becomes_part_of_another():
    graph = parse_graph(STORED_AND_JOINED)
    found = schedule(graph, CPU)
    stored = [root.node for group in found.groups for root in group.roots]
    assert len(stored) == len(set(stored))
    assert set(found.stored) <= set(stored)
    assert all(spec.forms for spec in lower(found, CPU))
