"""How exact products of f32 are on a GPU: ours as three products of TF32 and as multiply-adds, and
cuBLAS's, against f64.

`python -m benchmarks.gpu.precision` prints, for each shape, the largest and the mean error of an
element as a share of Σ|x·x′|, of numbers drawn from a normal distribution; then those of operands
of all sizes that f32 has, each with operands near 1.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import torch

from aotc.aot.lower.matmul.gpu_source import lower_matmul_gpu
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from benchmarks.gpu.launching import compile_source
from benchmarks.gpu.matmul import CAPABILITY, FORWARD, Case, Runner, Shape, case_of, graph

SHAPES: tuple[Shape, ...] = ((4096, 256, 2816), (20000, 128, 128), (512, 2048, 8192), (64, 64, 64))
SIZES = (1e38, 1e30, 1.0, 1e-30, 1e-33, 1e-36, 1e-38, 1e-41)  # of the left operand's numbers


def ours(case: Case, has_tf32x3: bool) -> torch.Tensor:
    """The product by the untuned choice of either form."""
    traits = replace(GPUS[CAPABILITY], has_tf32x3=has_tf32x3)
    plan = schedule(graph(case.shape, False, FORWARD, "f32"), traits)
    spec = lower_matmul_gpu(plan.groups[0], traits, 1)
    chosen = spec.candidates[0]
    form = spec.form(chosen)
    params = tuple((param.name, param.type) for param in spec.params_of(chosen))
    compiled = compile_source(
        form.source, form.function, params, chosen.constexprs, chosen.options, CAPABILITY
    )
    runner = Runner(case, spec, chosen, compiled, False)
    runner.check(case.reference)
    return case.results[0].clone()


def errors(case: Case, found: torch.Tensor) -> str:
    """The largest and the mean error, as shares of the sums of the products' sizes."""
    sizes = case.first.double().abs() @ case.second(0).double().abs()
    shares = (found.double() - case.reference).abs() / sizes
    return f"{shares.max():.1e} | {shares.mean():.1e}"


def row(name: str, case: Case) -> str:
    """A line of the table."""
    library = torch.mm(case.first, case.second(0))
    found = (ours(case, True), ours(case, False), library)
    return f"| {name} | {' | '.join(errors(case, each) for each in found)} |"


def scaled(case: Case, size: float) -> Case:
    """The case with a left operand of another size."""
    left = (case.left.double() * size).to(torch.float32)
    return replace(case, left=left, reference=left.double() @ case.second(0).double())


def main() -> None:
    """Print the tables."""
    heads = ("tf32x3", "multiply-adds", "cuBLAS")
    columns = " | ".join(f"{head}, largest | {head}, mean" for head in heads)
    print(f"| M×N×K | {columns} |\n|{'---|' * 7}")
    for shape in SHAPES:
        print(row("×".join(map(str, shape)), case_of(shape, FORWARD, "f32")))
    for size in SIZES:
        case = case_of((64, 64, 64), FORWARD, "f32")
        print(row(f"64×64×64, left of {size:.0e}", scaled(case, size / 8)))


if __name__ == "__main__":
    sys.exit(main())
