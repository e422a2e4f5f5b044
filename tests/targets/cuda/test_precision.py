"""How products of f32 are computed on each GPU, and that Triton compiles it."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aotc.aot.contents import product_rate
from aotc.aot.ir import build
from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import FAST_TF32, GPUS
from aotc.aot.traits import TargetTraits

sys.path.insert(0, str(Path(__file__).parents[2] / "lower"))

from case_graphs import graph_of, op, operand, weight

pytest.importorskip("triton")
# What a kernel multiplies by, in PTX.
ON_TENSOR_CORES = {80: r"mma\.sync.*tf32", 90: r"wgmma.*tf32", 100: r"tcgen05\.mma.*tf32"}


def product(dtype):
    return op("matmul", operand("x", 256, 192, dtype=dtype), weight("w", 192, 128, dtype=dtype))


def attention(dtype):
    q, k, v = (operand(name, 1, 32, 512, 64, dtype=dtype) for name in "qkv")
    return op(
        "attention",
        q,
        k,
        v,
        scale=0.125,
        causal=False,
        offset=0,
        window=0,
        softcap=0.0,
        is_safe=True,
    )


def convolution(dtype):
    data = build.pad(operand("x", 4, 14, 14, 64, dtype=dtype), (0, 1, 1, 0), (0, 1, 1, 0), 0.0)
    windows = op("window", data, axes=(1, 2), sizes=(3, 3), strides=(1, 1), dilations=(1, 1))
    rows = build.reshape(build.permute(windows, (0, 1, 2, 4, 5, 3)), (4 * 14 * 14, 9 * 64))
    return op("matmul", rows, build.transpose(weight("w", 64, 9 * 64, dtype=dtype)))


def precisions(node, traits):
    """What the kernels' dots ask for."""
    specs = lower(schedule(graph_of([node]), traits), traits)
    sources = [spec.form(spec.candidates[0]).source for spec in specs]
    named = re.compile(r'input_precision="(\w+)"|PRECISION: tl\.constexpr = "(\w+)"')
    return {first or second for source in sources for first, second in named.findall(source)}, specs


@pytest.mark.parametrize("make", [product, convolution, attention])
@pytest.mark.parametrize("number", GPUS)
def test_f32_is_split_where_that_is_faster(make, number):
    found, _ = precisions(make("f32"), GPUS[number])
    assert found == {"tf32x3" if number in FAST_TF32 else "ieee"}


def test_products_by_small_matrices_are_multiply_adds():
    """Those of Fourier transforms; they are no faster split."""
    small = op("matmul", operand("x", 4096, 32, dtype="f32"), weight("w", 32, 32, dtype="f32"))
    assert precisions(small, GPUS[90])[0] == {"ieee"}


@pytest.mark.parametrize("make", [product, convolution, attention])
def test_a_switch_asks_for_less_and_other_types_for_none(make):
    traits = replace(GPUS[90], dot_precision="tf32")
    assert precisions(make("f32"), traits)[0] == {"tf32"}
    assert precisions(make("f16"), traits)[0] <= {"ieee"}


@pytest.mark.parametrize("make", [product, convolution, attention])
def test_a_limit_is_that_of_the_precision(make):
    def rates(dtype, traits):
        return {
            product_rate(each, traits) for each in schedule(graph_of([make(dtype)]), traits).groups
        }

    assert rates("f32", GPUS[90]) == {1 / 6}
    assert rates("f32", replace(GPUS[90], dot_precision="tf32")) == {1 / 2}
    assert rates("f32", GPUS[86]) == {1 / 15}
    assert rates("bf16", GPUS[90]) == rates("f32", TargetTraits()) == {1.0}


@pytest.mark.parametrize("make", [product, convolution, attention])
@pytest.mark.parametrize("number", ON_TENSOR_CORES)
def test_it_runs_on_tensor_cores(make, number):
    found = ""
    for spec in precisions(make("f32"), GPUS[number])[1]:
        chosen = spec.candidates[0]
        form, params = spec.form(chosen), [(row.name, row.type) for row in spec.params_of(chosen)]
        how = (form.source, form.function, params, chosen.config, f"sm_{number}")
        found += compile_kernel(*how).texts["ptx"]
    assert re.search(ON_TENSOR_CORES[number], found)


def test_no_candidate_of_split_attention_needs_more_shared_memory_than_it_says():
    """One of causal attention needed 256 KiB."""
    given = [operand(name, 1, 2, 150, 80, dtype="f32") for name in "qkv"]
    node = op(
        "attention",
        *given,
        scale=0.1,
        causal=True,
        offset=0,
        window=0,
        softcap=0.0,
        has_sinks=False,
        is_safe=True,
    )
    (spec,) = precisions(node, GPUS[90])[1]
    for chosen in spec.candidates:
        form, params = spec.form(chosen), [(row.name, row.type) for row in spec.params_of(chosen)]
        compile_kernel(form.source, form.function, params, chosen.config, "sm_90")
