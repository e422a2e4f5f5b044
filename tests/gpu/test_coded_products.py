"""Products with quantised weights on a real device: every form of every case against f64."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.storage import widen
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS
from aotc.runtime.drivers.cuda.device import Device

sys.path.insert(0, str(Path(__file__).parents[1] / "quantised"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from case_graphs import values
from launched import launched
from test_products import CASES, TOLERANCES, _exact, _graph

WORKERS = 14


def plan_of(name, capability):
    plan = schedule(_graph(name), GPUS[capability])
    (spec,) = lower(plan, GPUS[capability])
    rows = [row for row in reversed(spec.candidates) if not row.maps]
    return plan, spec, list({row.form: row for row in rows}.values())


def compiled(name, number, capability):
    _, spec, rows = plan_of(name, capability)
    row = rows[number]
    form = spec.form(row)
    params = [(param.name, param.type) for param in spec.params_of(row)]
    return compile_kernel(form.source, form.function, params, row.config, f"sm_{capability}")


@pytest.fixture(scope="module")
def capability():
    device = Device()
    found = int("".join(map(str, device.capability)))
    device.close()
    return found


@pytest.fixture(scope="module")
def binaries(capability):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, context) as pool:
        pending = {
            (name, number): pool.submit(compiled, name, number, capability)
            for name in CASES
            for number in range(len(plan_of(name, capability)[2]))
        }
        return {key: future.result() for key, future in pending.items()}


@pytest.mark.parametrize("name", CASES)
def test_every_form_agrees_with_exact_arithmetic(name, binaries, capability, device):
    plan, _, rows = plan_of(name, capability)
    (group,) = plan.groups
    inputs = [values(each.type, 100 + at) for at, each in enumerate(plan.graph.inputs)]
    wanted = _exact(_graph(name), inputs)
    given = dict(zip(plan.graph.inputs, inputs, strict=True))
    arrays = [
        numpy.ascontiguousarray(
            given[node] if node in given else plan.graph.constants[node.attr("name")].array
        )
        for node in group.reads
    ]
    stored = group.roots[0].node
    atol = TOLERANCES[stored.dtype] * numpy.abs(wanted).max()
    if name == "i4":  # products of f32 with nibbles, which are added to 2048: four bits less
        atol *= 2
    for number, row in enumerate(rows):
        output = numpy.empty(stored.shape, DTYPES[stored.dtype].numpy)
        output.view(numpy.uint8)[...] = 0xFF
        found = launched(device, binaries[name, number], row, arrays, output)
        found = widen(found, stored.dtype).reshape(wanted.shape)
        numpy.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=f"{name} {row}")
