"""Attention kernels on a real device: every candidate of every case against the reference."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from attention_cases import CASES, MORE, Case, arrays_of, graph_of
from launched import launched

TOLERANCES = {"f32": 2e-5, "bf16": 2e-2, "f16": 3e-3}
WORKERS = 14
LARGE = {
    "large": Case(1, 2, 2, 1024, 1024, 64, 64, "bf16"),
    "large-wide": Case(1, 2, 1, 1152, 1024, 128, 128, "f16"),
    "large-odd": Case(2, 2, 1, 1111, 1500, 128, 128, "bf16"),
    "large-padded": Case(1, 2, 2, 1030, 1025, 96, 72, "bf16"),
    "large-causal": Case(1, 3, 1, 1300, 1300, 128, 128, "bf16", causal=True),
    "large-causal-offset": Case(1, 2, 2, 1024, 1500, 64, 64, "bf16", causal=True, offset=476),
    "large-causal-none": Case(
        1, 2, 2, 1500, 1024, 64, 64, "f16", causal=True, offset=-600, is_safe=True
    ),
    "large-window": Case(1, 4, 2, 2100, 2100, 128, 128, "bf16", causal=True, window=500),
    "large-window-both-ways": Case(
        1, 2, 2, 1500, 1500, 64, 64, "f16", causal=True, offset=64, window=129
    ),
    "large-window-none": Case(
        1, 2, 2, 1500, 1024, 64, 64, "f16", causal=True, offset=100, window=400, is_safe=True
    ),
    "large-packed": Case(2, 4, 2, 1100, 1100, 64, 64, "bf16", causal=True, is_packed=True),
    "large-cap": Case(1, 4, 2, 1111, 1500, 128, 128, "bf16", softcap=0.5, times=3.0),
    "large-cap-window": Case(
        1, 2, 1, 1400, 1400, 64, 64, "f16", causal=True, window=500, softcap=0.5, times=3.0
    ),
    "large-sinks": Case(
        1, 8, 2, 1200, 1200, 64, 64, "bf16", causal=True, window=128, sinks=("bf16", (1, 8, 1, 1))
    ),
    "decode-sinks": Case(
        2, 16, 2, 1, 5000, 64, 64, "bf16", ends=(2, 1, 1, 1), sinks=("bf16", (1, 16, 1, 1))
    ),
    "decode-cap": Case(2, 8, 4, 1, 3000, 256, 256, "bf16", ends=(2, 1, 1, 1), softcap=0.5),
    "many-tiles": Case(4, 40, 8, 1088, 1024, 64, 64, "bf16", causal=True),
    "decode": Case(2, 8, 2, 1, 5000, 128, 128, "bf16"),
    "decode-long": Case(1, 8, 8, 1, 20011, 64, 64, "f16"),
    "wide-few": Case(1, 6, 2, 3, 999, 256, 256, "bf16"),
}
SIZES = {
    f"size-{size}-{dtype}": Case(1, 2, 1, 150, 170, size, size, dtype, causal=True, offset=20)
    for size in (32, 48, 64, 80, 96, 128, 160, 192, 256)
    for dtype in ("bf16", "f16", "f32")
}
# Of f32 and of wide heads, whose picks may spill a little: they are faster than those that do not.
LONG = {
    "wide-cap": Case(1, 4, 2, 600, 600, 256, 256, "bf16", causal=True, softcap=0.5),
    "long": Case(2, 2, 2, 515, 530, 40, 40),
    "long-pieces": Case(1, 2, 1, 1030, 1025, 80, 80),
    "long-pieces-causal": Case(1, 2, 2, 700, 700, 160, 160, causal=True),
    "long-pieces-bias": Case(1, 2, 2, 300, 333, 128, 100, mask=("f32", (1, 2, 300, 333))),
}
ALL = {**CASES, **MORE, **LARGE, **LONG, **SIZES}


def spec_of(name, capability):
    traits = GPUS[capability]
    (spec,) = lower(schedule(graph_of(ALL[name]), traits), traits)
    return spec


def compiled(name, number, capability):
    """A candidate's binary, or why there is none; in a worker process."""
    spec = spec_of(name, capability)
    candidate = spec.candidates[number]
    form = spec.form(candidate)
    params = [(param.name, param.type) for param in spec.params_of(candidate)]
    try:
        return compile_kernel(
            form.source, form.function, params, candidate.config, f"sm_{capability}"
        )
    except Exception as error:
        return f"{candidate}: {error}"


def tried(name, capability):
    """Of each form the first and the last candidate; all of the one that is written by hand."""
    found = {}
    for number, candidate in enumerate(spec_of(name, capability).candidates):
        found.setdefault(candidate.form, []).append(number)
    chosen = {form: {rows[0], rows[-1]} for form, rows in found.items()}
    return sorted({0}.union(*chosen.values(), found.get("overlapped", ())))


@pytest.fixture(scope="module")
def capability():
    from aotc.runtime.drivers.cuda.device import Device

    device = Device()
    major, minor = device.capability
    device.close()
    return 10 * major + minor


@pytest.fixture(scope="module")
def binaries(capability):
    """(name, number) → binary or reason, compiled side by side."""
    keys = [(name, number) for name in ALL for number in tried(name, capability)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=spawn) as pool:
        found = pool.map(compiled, *zip(*keys, strict=True), [capability] * len(keys))
        return dict(zip(keys, found, strict=True))


@pytest.mark.parametrize("name", ALL)
def test_every_form_agrees_with_the_reference(name, binaries, capability, device):
    graph = graph_of(ALL[name])
    (group,) = schedule(graph, GPUS[capability]).groups
    arrays = arrays_of(graph)
    (expected,) = interpret(graph, arrays)
    wanted = widen(expected, graph.outputs[0].dtype)
    inputs = [numpy.ascontiguousarray(arrays[graph.inputs.index(node)]) for node in group.reads]
    stored = group.roots[0].node
    spec = spec_of(name, capability)
    for number in tried(name, capability):
        binary, candidate = binaries[name, number], spec.candidates[number]
        assert not isinstance(binary, str), binary
        output = numpy.empty(stored.shape, DTYPES[stored.dtype].numpy)
        output.view(numpy.uint8)[...] = 0xFF
        found = launched(device, binary, candidate, inputs, output).reshape(expected.shape)
        array = widen(found, graph.outputs[0].dtype)
        tolerance = TOLERANCES[ALL[name].dtype]
        numpy.testing.assert_allclose(
            array, wanted, rtol=0, atol=tolerance, err_msg=f"candidate {candidate}"
        )


def test_the_pick_has_no_spills(binaries):
    for (name, number), binary in binaries.items():
        if number == 0 and name in LARGE and not isinstance(binary, str):
            assert binary.spill_bytes == 0, name
