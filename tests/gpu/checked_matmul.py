"""Runs the forms of one matmul on the device: python checked_matmul.py ROWS COLUMNS DEPTH.

GELU(x · wᵀ + bias) in bf16, the first candidate of every form, each buffer and each scratch an
allocation of its own. Graphs of many launches are replayed, as the tuner does. No torch in the
process, whose allocator would hide overruns from a memory checker.
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from case_graphs import graph_of, op, operand

from aotc.aot.ir import build
from aotc.aot.lower import lower
from aotc.aot.measure.program import Buffer, Program
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.targets.cuda.measure import Bench
from aotc.runtime.drivers.cuda.device import Device

EXPECTED_US = 20.0


def spec_of(rows, columns, depth, traits):
    """The kernel of the product with its epilogue."""
    x, w = operand("x", rows, depth, dtype="bf16"), operand("w", columns, depth, dtype="bf16")
    total = op(
        "add", op("matmul", x, build.permute(w, (1, 0))), operand("b", 1, columns, dtype="bf16")
    )
    graph = graph_of([op("gelu", total)])
    (group,), (spec,) = (plan := schedule(graph, traits)).groups, lower(plan, traits)
    sizes = [node.type.nbytes for node in (*group.reads, *(root.node for root in group.roots))]
    return spec, sizes


def program_of(spec, chosen, architecture):
    """A candidate, compiled."""
    form = spec.form(chosen)
    params = [(row.name, row.type) for row in spec.params_of(chosen)]
    made = compile_kernel(form.source, form.function, params, chosen.config, architecture)
    scratch = tuple((row.nbytes, row.is_zeroed) for row in chosen.scratch)
    launch = (chosen.grid, made.threads, made.shared_bytes, made.scratch_bytes)
    maps = tuple(row.placed() for row in chosen.maps)
    return Program(made.symbol, made.code, *launch, scratch, maps=maps)


def main(rows, columns, depth):
    device = Device()
    number = int("".join(map(str, device.capability)))
    spec, sizes = spec_of(rows, columns, depth, GPUS[number])
    firsts = {row.form: row for row in reversed(spec.candidates)}
    roles = ["read"] * (len(sizes) - 1) + ["stored"]
    buffers = [Buffer("bf16", size, role) for size, role in zip(sizes, roles, strict=True)]
    programs = [program_of(spec, row, f"sm_{number}") for row in firsts.values()]
    with Bench(device, buffers, EXPECTED_US) as bench:
        outcomes = bench.measure(programs)
    for form, (time_us, refused) in zip(firsts, outcomes, strict=True):
        assert time_us < math.inf, f"{form}: {refused}"
        print("right", form)
    device.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
