"""Matmul kernels of GPUs: every form gives the reference's numbers, and only legal configs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Node
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, Extent, size_of, typical
from aotc.aot.ir.storage import widen
from aotc.aot.lower import lower
from aotc.aot.lower.matmul.choice import STYLES, Choice, Problem
from aotc.aot.lower.matmul.gpu_candidates import LEAST_DEPTH, MOST_WORK, choices, surest
from aotc.aot.lower.matmul.gpu_cost import machine_of, nanoseconds
from aotc.aot.lower.matmul.gpu_source import problem_of
from aotc.aot.lower.matmul.operands import product_of
from aotc.aot.schedule import schedule
from aotc.aot.schedule.cost import function_operations
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS
from aotc.runtime.bundle.plan_rules import MAP_ITEMSIZES

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, op, operand, values, weight
from schedule_runner import Job

pytestmark = pytest.mark.slow
TRAITS = GPUS[90]
TOLERANCES = {"f64": 1e-14, "f32": 3e-5, "bf16": 2e-2, "f16": 3e-3}


def product(rows: int, columns: int, depth: int, dtype: str = "bf16") -> Node:
    """x · wᵀ, the weights along k."""
    left, right = operand("x", rows, depth, dtype=dtype), weight("w", columns, depth, dtype=dtype)
    return op("matmul", left, b.permute(right, (1, 0)))


def biased(rows: int, columns: int, depth: int, dtype: str = "bf16") -> list[Node]:
    """GELU(x · wᵀ + bias)."""
    bias = weight("bias", 1, columns, dtype=dtype)
    return [op("gelu", op("add", product(rows, columns, depth, dtype), bias))]


def gated(rows: int, columns: int, depth: int, is_halved: bool = False) -> list[Node]:
    """SiLU(even columns) * odd columns, perhaps of a result seen as two halves of its rows."""
    result = product(rows, 2 * columns, depth)
    result = op("add", result, weight("bias", 1, 2 * columns, dtype="bf16"))
    if is_halved:
        result = b.reshape(result, (2, rows // 2, 2 * columns))
    axis = result.type.rank - 1
    gate, up = (b.slice_axis(result, axis, at, 2 * columns, 2) for at in (0, 1))
    return [op("mul", op("silu", gate), up)]


def into_heads() -> list[Node]:
    """A residual, then a store as [batch, heads, rows, width]."""
    total = op("add", product(34, 64, 48), operand("residual", 34, 64, dtype="bf16"))
    return [b.permute(b.reshape(total, (2, 17, 4, 16)), (0, 2, 1, 3))]


def batched() -> list[Node]:
    """A batch of products whose right operand lies along its columns."""
    left = operand("a", 3, 33, 40, dtype="f16")
    return [op("mul", op("matmul", left, operand("b", 3, 40, 72, dtype="f16")), 0.5)]


def of_parts() -> list[Node]:
    """Operands that are parts of larger tensors, one of them with a computed value."""
    left = b.slice_axis(operand("x", 40, 96, dtype="bf16"), 1, 32, 96)
    right = op("exp", operand("y", 64, 50, dtype="bf16"))
    return [op("matmul", left, right)]


def normed(depth: int, columns: int, dtype: str, is_centred: bool) -> list[Node]:
    """A norm of one row into a product: one kernel."""
    x = operand("x", 1, depth, dtype=dtype) + weight("shift", 1, depth, dtype=dtype)
    wide = b.cast(x, "f32")
    norm = b.standardize if is_centred else b.root_mean_square_norm
    row = b.cast(norm(wide, [1], 1e-5), dtype) * weight("scale", 1, depth, dtype=dtype)
    right = weight("w", columns, depth, dtype=dtype)
    return [op("gelu", op("matmul", row, b.permute(right, (1, 0))))]


def narrow(kind: str, rows: int = 40) -> list[Node]:
    """A product of f64 whose left operand is chosen by elements of a narrower type."""
    mask, x = operand("mask", rows, 70, dtype=kind), operand("x", rows, 70, dtype="f64")
    is_kept = mask if kind == "bool" else op("lt", b.cast(mask, "f64"), 2.0)
    chosen = b.where(is_kept, x, op("mul", x, -0.5))
    return [op("matmul", chosen, weight("w", 70, 36, dtype="f64"))]


def beside(rows: int, columns: int, depth: int) -> list[Node]:
    """A product with bias that is a result, and so is what is computed of it."""
    bias = weight("bias", 1, columns, dtype="bf16")
    total = op("add", product(rows, columns, depth), bias)
    return [total, op("gelu", total)]


def of_a_gradient(rows: int, columns: int, depth: int) -> list[Node]:
    """(x · wᵀ) ∘ the derivative of GELU: much is computed of each element of a tile."""
    v = b.cast(operand("u", rows, columns, dtype="bf16"), "f32")
    share = op("mul", op("add", op("erf", op("mul", v, 0.70710678)), 1.0), 0.5)
    density = op("mul", op("exp", op("mul", op("mul", v, v), -0.5)), 0.39894228)
    slope = op("add", share, op("mul", v, density))
    wide = b.cast(product(rows, columns, depth), "f32")
    return [b.cast(op("mul", wide, slope), "bf16")]


CASES = {
    "beside": lambda: beside(40, 72, 64),
    "beside_one_row": lambda: beside(1, 72, 128),
    "of_a_gradient": lambda: of_a_gradient(40, 96, 64),
    "of_a_gradient_of_odd_sizes": lambda: of_a_gradient(33, 90, 70),
    "of_a_gradient_of_one_row": lambda: of_a_gradient(1, 130, 128),
    "double_by_mask": lambda: narrow("bool"),
    "rms_norm_of_a_row": lambda: normed(100, 40, "bf16", is_centred=False),
    "layer_norm_of_a_row": lambda: normed(128, 40, "f32", is_centred=True),
    "odd_sizes": lambda: biased(33, 90, 70),
    "even_sizes": lambda: biased(64, 64, 256),
    "one_row": lambda: biased(1, 90, 100),
    "few_rows": lambda: biased(5, 72, 512),
    "one_column": lambda: biased(96, 1, 300, "f32"),
    "some_rows": lambda: biased(20, 100, 600),
    "half": lambda: biased(48, 80, 64, "f16"),
    "single": lambda: biased(40, 40, 200, "f32"),
    "gated": lambda: gated(33, 40, 64),
    "gated_halves": lambda: gated(20, 100, 600, is_halved=True),
    "gated_row": lambda: gated(1, 30, 128),
    "into_heads": into_heads,
    "batched": batched,
    "of_parts": of_parts,
}


def _forms(name: str) -> list[str]:
    (spec,) = lower(schedule(graph_of(CASES[name]()), TRAITS), TRAITS)
    return list(dict.fromkeys(row.form for row in spec.candidates))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """For each case and form the outputs of its kernel, all run in one process."""
    job, names, launches = Job(), {}, {}
    for name, build in CASES.items():
        graph = graph_of(build())
        inputs = [values(node.type, 100 + number) for number, node in enumerate(graph.inputs)]
        for form in _forms(name):
            launches[name, form] = len(job.launches)
            names[name, form] = [each for each, _ in job.add(graph, inputs, form, TRAITS)]
    buffers = job.run(tmp_path_factory.mktemp("matmuls"))
    for name, array in buffers.items():
        assert not (name.startswith("zeroed") and array.any()), "a kernel leaves its counters set"
    return {
        key: job.errors.get(launches[key]) or [buffers[each] for each in found]
        for key, found in names.items()
    }


@pytest.mark.triton
@pytest.mark.parametrize("name", CASES)
def test_every_form_agrees_with_the_reference(name, results):
    graph = graph_of(CASES[name]())
    inputs = [values(each.type, 100 + number) for number, each in enumerate(graph.inputs)]
    for form in _forms(name):
        outputs = results[name, form]
        assert not isinstance(outputs, str), f"{form}: {outputs}"
        rows = zip(graph.outputs, outputs, interpret(graph, inputs), strict=True)
        for node, found, array in rows:
            wanted = widen(array, node.dtype)
            found = widen(found.reshape(node.shape), node.dtype)
            atol = TOLERANCES[node.dtype] * numpy.abs(wanted).max()
            numpy.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=form)


def test_much_that_is_computed_of_a_tile_is_computed_in_parts():
    """Triton computes each value of a whole tile before the next; registers hold few such tiles."""
    for case, count in (("of_a_gradient", 4), ("even_sizes", 1)):
        (spec,) = lower(schedule(graph_of(CASES[case]()), TRAITS), TRAITS)
        form = spec.form(next(row for row in spec.candidates if row.form.startswith("mapped")))
        assert form.source.count("tl.store(") == count


@pytest.mark.parametrize(
    ("build", "sizes", "count"),
    [
        (of_a_gradient, (8192, 3072, 768), 2),
        (of_a_gradient, (64, 3072, 768), 1),
        (biased, (8192, 3072, 768), 1),
        (beside, (8192, 3072, 768), 1),
    ],
)
def test_long_arithmetic_of_a_large_result_is_a_kernel_of_its_own(build, sizes, count):
    """It waits for nothing there: a program that has a tile multiplies none meanwhile."""
    assert len(schedule(graph_of(build(*sizes)), TRAITS).groups) == count


def test_gate_and_up_share_one_kernel():
    plan = schedule(graph_of(gated(64, 64, 64)), TRAITS)
    assert [group.kind for group in plan.groups] == ["matmul"]
    assert plan.groups[0].domain.lanes.extent == 64


SHAPES = ((1024, 768, 3072), (8, 2048, 8192), (1, 300, 100), (4096, 4096, 4096), (100, 90, 70))


@pytest.mark.parametrize("shape", SHAPES)
def test_candidates_are_few_and_fit_the_machine(shape):
    (spec,) = lower(schedule(graph_of([product(*shape)]), TRAITS), TRAITS)
    assert 0 < len(spec.candidates) <= 40
    for row in spec.candidates:
        config = dict(row.config)
        stages = config["num_stages"] * (config["BM"] + config["BN"]) * config["BK"] * 2
        assert stages <= TRAITS.shared_bytes or row.form.startswith("gemv")
        accumulator = config["BM"] * config["BN"] // (32 * config["num_warps"])
        assert accumulator <= 128
        assert {each.name for each in row.scratch} in (set(), {"partials", "counters"})


def varying(rows: Extent, columns: int, depth: int) -> Problem:
    """A product of bf16 whose rows vary, with the bytes of typical ones."""
    count = typical(rows)
    moved = 2 * (count * depth + depth * columns + count * columns)
    extents = (1, rows, columns, depth)
    return Problem(extents, "bf16", has_descriptors=True, is_right_constant=True, bytes=moved)


@pytest.mark.parametrize("columns", [384, 2048, 5120, 16384])
@pytest.mark.parametrize("depth", [256, 2048])
@pytest.mark.parametrize("low", [17, 65, 257])
def test_the_choice_of_a_range_suits_calls_beside_the_typical_one(low, columns, depth):
    dim = Dim("n", low, 4 * low - 4, 2 * low - 2)
    problem = varying(size_of(dim), columns, depth)
    (best,), machine = choices(problem, TRAITS, 1), machine_of(TRAITS)

    def worst_of(choice: Choice) -> float:
        """Its time over the least one, at the call of three where that is most."""
        return max(
            nanoseconds(replace(choice, problem=call), machine)
            / nanoseconds(choices(call, TRAITS, None)[0], machine)
            for rows in (low, dim.typical, dim.high)
            for call in [varying(rows, columns, depth)]
        )

    assert worst_of(best) < 1.4


def test_parts_of_a_split_matmul_cover_all_of_k():
    (spec,) = lower(schedule(graph_of([product(64, 96, 1000)]), TRAITS), TRAITS)
    split = [row for row in spec.candidates if row.form.startswith("split")]
    assert split
    for row in split:
        config = dict(row.config)
        step = config["BK"] * config["SPLIT"]
        assert -(-1000 // step) * step >= 1000
        assert row.grid[1] == config["SPLIT"]
        partials, counters = row.scratch
        assert partials.nbytes == row.grid[0] * row.grid[1] * config["BM"] * config["BN"] * 4
        assert (counters.nbytes, counters.is_zeroed) == (row.grid[0] * 4, True)


def test_a_row_that_is_read_again_and_again_has_no_descriptor():
    row = b.expand(operand("x", 1, 64, dtype="bf16"), (64, 64))
    result = op("matmul", row, b.permute(weight("w", 96, 64, dtype="bf16"), (1, 0)))
    (spec,) = lower(schedule(graph_of([result]), TRAITS), TRAITS)
    assert not any(row.maps for row in spec.candidates)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_maps_are_of_types_that_a_plan_holds(dtype):
    found = schedule(graph_of([product(256, 512, 256, dtype), product(8, 64, 64, dtype)]), TRAITS)
    maps = [each for spec in lower(found, TRAITS) for row in spec.candidates for each in row.maps]
    assert bool(maps) == (dtype in MAP_ITEMSIZES)


def test_the_cases_use_every_form():
    styles = {form.rstrip("mnk").rstrip("_") for name in CASES for form in _forms(name)}
    made_by_kernels = {"tensor", "persistent", "split_tensor"}  # descriptors, where no launch can
    of_varying_rows = {"gemv_rows"}  # see test_dynamic_sizes.py
    of_many_columns = {"gemv_walk"}  # see below
    of_codes = {
        "decoding",
        "swapped_codes",
        "swapped_codes_split",
        "fragments",
        "fragments_whole",
    }  # see tests/quantised/test_products.py
    others = made_by_kernels | of_varying_rows | of_many_columns | of_codes
    assert set(STYLES) - others <= styles


WALKS = {
    "one_row": lambda: biased(1, 1030, 200),
    "few_rows": lambda: biased(3, 2100, 256),
    "normed": lambda: normed(200, 1024, "bf16", is_centred=False),
    "gated": lambda: gated(1, 1024, 256),
    "single": lambda: biased(1, 1100, 128, "f32"),
}


@pytest.mark.triton
@pytest.mark.parametrize("name", WALKS)
def test_programs_that_walk_over_columns_agree_with_the_reference(name, tmp_path):
    """On a device of two multiprocessors, so that few columns are many."""
    traits, graph, job = replace(TRAITS, multiprocessors=2), graph_of(WALKS[name]()), Job()
    inputs = [values(each.type, 100 + number) for number, each in enumerate(graph.inputs)]
    (spec,) = lower(schedule(graph, traits), traits)
    forms = list(dict.fromkeys(row.form for row in spec.candidates if "walk" in row.form))
    names = {form: job.add(graph, inputs, form, traits)[0][0] for form in forms}
    buffers = job.run(tmp_path)
    assert forms
    assert not job.errors
    (wanted,) = (widen(each, graph.outputs[0].dtype) for each in interpret(graph, inputs))
    for form in forms:
        found = widen(buffers[names[form]].reshape(wanted.shape), graph.outputs[0].dtype)
        atol = TOLERANCES[graph.outputs[0].dtype] * numpy.abs(wanted).max()
        numpy.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=form)


def many_loads(parts: int = 4) -> Node:
    """A product whose left operand is chosen among several buffers for each element."""
    rows = [
        operand(f"part{number}", 4, 512, dtype="f32") for number in range(parts)
    ]  # few: not stored
    return op("matmul", b.concat(rows, 0), weight("w", 512, 1024, dtype="f32"))


def test_what_its_loads_would_stage_fits_or_is_no_candidate():
    """Triton stages each load of a tile by itself."""
    (spec,) = lower(schedule(graph_of([many_loads()]), TRAITS), TRAITS)
    *others, last = spec.candidates
    for candidate in others:
        config = dict(candidate.config)
        # Four loads for a tile of the left operand, one for the right.
        sides = (config["BM"], config["BN"])
        left, right = sides[::-1] if candidate.form.startswith("swapped") else sides
        staged = 4 * left + right
        bytes_of = 4 * config["num_stages"] * staged * config["BK"]
        assert config["num_stages"] == 1 or bytes_of <= TRAITS.shared_bytes
    assert dict(last.config)["num_stages"] == 1


@pytest.mark.parametrize("kind", ["bool", "u8", "i16", "bf16", "i32", "f32"])
def test_products_of_doubles_read_narrow_types(kind):
    """Triton has no fragments of f64 as wide as those of narrow types; one case each way."""
    found = schedule(graph_of(narrow(kind)), TRAITS)
    (spec,) = lower(found, TRAITS)
    form = spec.form(spec.candidates[0])
    params = [(param.name, param.type) for param in spec.params_of(spec.candidates[0])]
    compile_kernel(form.source, form.function, params, spec.candidates[0].config, "sm_90")
    is_reduced = "tl.sum(" in form.source
    assert is_reduced == (kind not in ("i32", "f32"))


def test_every_matmul_has_a_form_that_always_fits():
    found = schedule(graph_of([many_loads(4)]), TRAITS)
    (spec,) = lower(found, TRAITS)
    last = spec.candidates[-1]
    params = [(param.name, param.type) for param in spec.params_of(last)]
    form = spec.form(last)
    binary = compile_kernel(form.source, form.function, params, last.config, "sm_90")
    assert binary.shared_bytes <= 48 << 10  # what every device has


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_a_thread_computes_of_operands_at_once_is_bounded(side):
    """Sines at 512 places a step took a minute to compile and left 250 KB to local memory."""
    phase = op("mul", operand("x", 2, 300, dtype="f32"), 0.5)
    for _ in range(4):
        phase = op("sin", op("add", op("cos", phase), phase))
    other = operand("a", 8, 300)
    pair = (
        (other, b.permute(phase, (1, 0))) if side == "right" else (phase, b.permute(other, (1, 0)))
    )
    found = schedule(graph_of([op("matmul", *pair)]), TRAITS)
    group = found.groups[-1]
    problem = problem_of(product_of(group), TRAITS)
    assert max(problem.work) > 50
    assert all(choice.loading_work <= MOST_WORK for choice in choices(problem, TRAITS))
    spec = lower(found, TRAITS)[-1]
    first, form = spec.candidates[0], spec.form(spec.candidates[0])
    params = [(param.name, param.type) for param in spec.params_of(first)]
    binary = compile_kernel(form.source, form.function, params, first.config, "sm_90")
    assert binary.spill_bytes < 4096


@pytest.mark.parametrize("work", [(0, 360), (360, 0), (100, 100), (3000, 0)])
@pytest.mark.parametrize("rows", [1, 40, 5000])
@pytest.mark.parametrize(
    ("dtype", "precision"), [("f32", "tf32x3"), ("f32", "ieee"), ("f16", "ieee")]
)
def test_tiles_of_costly_operands_are_shallow(work, rows, dtype, precision):
    """`fourier 202611279000198`: in each step 5,760 operations of a thread, 4.7 KB of spills."""
    problem = Problem((1, rows, 257, 512), dtype, precision=precision, work=work, is_plain=False)
    found = choices(problem, TRAITS, None)
    assert found
    assert len(set(found)) == len(found)
    for choice in (*found, surest(problem)):
        is_shallow = choice.tile.depth == LEAST_DEPTH or choice.style.is_flat
        assert is_shallow or choice.loading_work <= MOST_WORK


@pytest.mark.parametrize("work", [(40, 0), (100, 0), (1000, 0)])
@pytest.mark.parametrize("rows", [1, 4, 40, 64])
def test_tiles_of_codes_are_of_whole_chunks_whatever_the_other_operand_costs(work, rows):
    problem = Problem((1, rows, 4096, 4096), "f16", work=work, chunk=32, step=128, code_bits=4)
    for choice in choices(problem, TRAITS, None):
        is_by_codes = choice.style.is_decoding or not choice.style.is_flat
        assert not is_by_codes or choice.tile.depth % problem.chunk == 0


@pytest.mark.parametrize(("kind", "times"), [("f32", 3), ("f64", 8)])
def test_sines_count_as_what_is_written_of_them(kind, times):
    """Two of a thread left 5 KB to local memory in each kernel of a Fourier transform of any
    length (`fourier 202611278300142`), and its candidates took 110 s."""
    phase = op("sin", operand("x", 2, 300, dtype=kind))
    phase = b.cast(phase, "f32") if kind == "f64" else phase
    graph = graph_of([op("matmul", operand("a", 7, 2, dtype="f32"), phase)])
    problem = problem_of(product_of(schedule(graph, TRAITS).groups[-1]), TRAITS)
    assert max(problem.work) >= times * OPS["sin"].cost


def test_functions_behind_a_product_have_a_price():
    """25,088 × 384 × 96 with GELU takes 17 µs by tiles of 64 × 128, for 25 of 128 × 256 (H200)."""

    def found(outputs: list[Node]):
        (group,) = schedule(graph_of(outputs), TRAITS).groups
        return group, choices(problem_of(product_of(group), TRAITS), TRAITS)

    plain, gelu = found([product(25088, 384, 96)]), found(biased(25088, 384, 96))
    assert function_operations(plain[0]) == 0.0
    assert function_operations(gelu[0]) == 8.0
    assert function_operations(gelu[0], approximates=False) > 16.0
    machine = machine_of(TRAITS)
    for choice in gelu[1]:
        bare = replace(choice, problem=replace(choice.problem, function_work=0.0))
        assert nanoseconds(choice, machine) > nanoseconds(bare, machine)
    areas = [first.tile.rows * first.tile.columns for _, (first, *_) in (plain, gelu)]
    assert areas[1] < areas[0]
