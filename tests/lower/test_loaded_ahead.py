"""What kernels load while those before them still run, compiled for sm_90."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import make
from aotc.aot.lower import lower
from aotc.aot.rewrites.memory import place_ops
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import attention_attrs, graph_of, op, operand, weight

pytestmark = pytest.mark.triton


def kernels(graph, capability=90):
    traits = GPUS[capability]
    return lower(schedule(place_ops(graph)[0], traits), traits)


def text_of(graph, capability=90):
    """The Triton source and the PTX of the last kernel's first candidate."""
    from aotc.aot.targets.cuda.compile import compile_kernel

    spec = kernels(graph, capability)[-1]
    candidate = spec.candidates[0]
    form = spec.form(candidate)
    params = [(param.name, param.type) for param in spec.params_of(candidate)]
    code = compile_kernel(form.source, form.function, params, candidate.config, f"sm_{capability}")
    return form.source, code.texts["ptx"]


def product(rows=1, depth=896, columns=1152, made=weight):
    """`x · W + bias + residual`."""
    x = operand("x", rows, depth, dtype="bf16")
    right = made("w", columns, depth, dtype="bf16")
    found = op("matmul", x, b.permute(right, (1, 0)))
    biased = op("add", found, weight("bias", 1, columns, dtype="bf16"))
    return graph_of([op("add", biased, operand("residual", rows, columns, dtype="bf16"))])


def loads(ptx):
    """Loads before the wait, and those behind it."""
    before, behind = re.split(r"griddepcontrol\.wait", ptx)
    return before.count("ld.global"), behind.count("ld.global")


def barriers(spec, candidate):
    """How often the warps of a program of a candidate meet."""
    from aotc.aot.targets.cuda.compile import compile_kernel

    form = spec.form(candidate)
    params = [(param.name, param.type) for param in spec.params_of(candidate)]
    code = compile_kernel(form.source, form.function, params, candidate.config, "sm_90")
    return code.texts["ptx"].count("bar.sync")


def test_constants_are_loaded_before_the_wait_and_nothing_else():
    source, ptx = text_of(product())
    before, behind = loads(ptx)
    assert before == 5  # four of a column of 896 weights, one of the bias
    assert behind == 5  # as many of the row, one of the residual
    head, loop = source.split("wait_for_kernels()\n    ")[1].split("for place in")
    assert "tl.load" in head  # the residual
    assert "tl.load(in" in loop


ROWS = {"axis": 0}


def rows_of(name, count, width, places, made=weight):
    """A row of a table for each place."""
    return make("take", (made(name, count, width, dtype="bf16"), places), ROWS)


def looked_up(rows, width, dtype="i64", made=weight):
    """A row of a table for each place, `[1, rows · width]`, which a call gives."""
    places = operand("places", rows, dtype=dtype)
    found = rows_of("table", 3000, width, places, made)
    return b.reshape(found, (1, rows * width))


def product_of(left, residual=None, columns=1152):
    """`left · W + residual`."""
    right = weight("w", columns, left.shape[1], dtype="bf16")
    found = op("matmul", left, b.permute(right, (1, 0)))
    return graph_of([found if residual is None else op("add", found, residual)])


PLAIN = operand("x", 1, 896, dtype="bf16")
# Name → what `product_of` is of.
LOOKED_UP = {
    "left": (looked_up(1, 896),),
    "left, normed": (
        op("mul", row := looked_up(1, 896), b.reshape(op("sum", row, axes=(1,)), (1, 1))),
    ),
    "left, of several rows": (looked_up(7, 128),),
    "left, i32": (looked_up(1, 896, "i32"),),
    "left, of a computed table": (looked_up(1, 896, made=operand),),
    "left, of a constant place": (
        b.reshape(rows_of("table", 9, 896, weight("place", 1, dtype="i64")), (1, 896)),
    ),
    "residual": (PLAIN, looked_up(1, 1152)),
    "residual, of several rows": (PLAIN, looked_up(9, 128)),
    "both": (looked_up(1, 896), looked_up(1, 1152)),
    "left, of a place that is looked up": (
        b.reshape(
            rows_of(
                "table", 3000, 896,
                make("take", (weight("t", 9, dtype="i64"), operand("p", 1, dtype="i64")), ROWS),
            ),
            (1, 896),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKED_UP)
@pytest.mark.parametrize("capability", [80, 90])
def test_a_row_of_a_table_is_read_when_its_place_is_known(name, capability):
    """Each form is a program, and the cost model takes the product for what it is."""
    from aotc.aot.targets.cuda.compile import compile_kernel

    for spec in kernels(product_of(*LOOKED_UP[name]), capability):
        firsts = {each.form: each for each in reversed(spec.candidates)}
        for each in firsts.values():
            form = spec.form(each)
            params = [(param.name, param.type) for param in spec.params_of(each)]
            compile_kernel(form.source, form.function, params, each.config, f"sm_{capability}")
        if "matmul" in spec.name:
            assert spec.bytes < 3_000_000
            is_whole = name != "left, of several rows"  # a step takes one of them
            assert spec.candidates[0].form.startswith("gemv") == is_whole


@pytest.mark.parametrize(
    "how",
    [{"made": operand}, {"rows": 64}],
    ids=["computed operand", "many rows"],
)
def test_other_products_wait_first(how):
    for spec in kernels(product(**how)):
        assert "wait_for_kernels" not in spec.form(spec.candidates[0]).source


def test_programs_that_walk_over_columns_load_their_first_ones_before_the_wait():
    source, ptx = text_of(product(columns=16384))
    before, behind = loads(ptx)
    assert before == 4  # 16 bytes of each of four columns of 896 weights
    assert behind == 4 + 1 + 2  # of the next ones, the row once, bias and residual
    assert source.index("wait_for_kernels()\n    ") < source.index("for block in")
    forms = [form for spec in kernels(product(columns=16384)) for form in spec.forms]
    assert all(form.waits == ("walk" in form.name) for form in forms)


@pytest.mark.parametrize(("style", "early"), [("mapped", 2), ("split_mapped", 1)])
def test_a_tile_loads_what_it_adds_before_its_loop(style, early):
    """But for the parts of a split tile, of which only one adds a residual."""
    from aotc.aot.targets.cuda.compile import compile_kernel

    (spec,) = kernels(product(rows=512, columns=512, depth=1024))
    found = next(row for row in spec.candidates if row.form == style and _area(row) <= 8192)
    source = spec.form(found).source
    loop = source.index("for s", source.index("acc = "))
    assert source[:loop].count("tl.load(in") == early
    params = [(param.name, param.type) for param in spec.params_of(found)]
    text = spec.form(found)
    ptx = compile_kernel(text.source, text.function, params, found.config, "sm_90").texts["ptx"]
    before = ptx[: ptx.index("wgmma.mma_async")]
    assert before.count("ld.global") >= early
    assert "ld.shared" not in before  # elements that have come are rearranged behind the loop


def _area(candidate):
    config = dict(candidate.config)
    return config["BM"] * config["BN"]


def quantised(rows=1, depth=1024, columns=512, made=weight):
    """`x · W` with W in 4 bits and a scale for 64 of them."""
    q = b.reshape(made("q", columns, depth // 2, dtype="u8"), (columns, depth // 2, 1))
    shifts = b.cast(b.counter(3, 2, 2) * 4, "u8")
    halves = b.pointwise("bitwise_and", make("shift_right", (q, shifts)), 15)
    numbers = b.cast(b.reshape(halves, (columns, depth // 64, 64)), "f32") - 8.0
    scaled = b.reshape(numbers * weight("scale", columns, depth // 64, 1), (columns, depth))
    right = b.permute(b.cast(scaled, "bf16"), (1, 0))
    return graph_of([op("matmul", operand("x", rows, depth, dtype="bf16"), right)])


def test_codes_and_their_scales_are_loaded_before_the_wait():
    _, ptx = text_of(quantised())
    before, behind = loads(ptx)
    columns = int(re.search(r"BN=(\d+)", str(kernels(quantised())[-1].candidates[0]))[1])
    assert before == 2 * columns  # a chunk of codes, and its scale, of each column
    assert behind == 4  # 32 elements of the row, 16 bytes at once


def test_codes_that_a_kernel_before_computes_are_not():
    (spec,) = kernels(quantised(made=operand))
    assert not any(form.waits for form in spec.forms)


@pytest.mark.parametrize("rows", [1, 2])
def test_threads_exchange_nothing_of_the_row(rows):
    """The warps of a program meet for the sums alone."""
    for spec in kernels(quantised(rows)):
        for candidate in [row for row in spec.candidates if row.form == "decoding"][:4]:
            assert barriers(spec, candidate) <= 4 * (dict(candidate.config)["num_warps"] > 1)


def test_no_kernel_waits_by_itself_where_none_is_launched_early():
    for spec in kernels(product(), 80):
        assert not any("griddepcontrol" in form.source for form in spec.forms)


def attention(writes):
    """One query for each of 14 heads; rows are written into keys and values, or they are sums."""
    places, how = (
        operand("places", 2, 1, dtype="i32"),
        {"axis": 0, "merge": "replace", "distinct": 2},
    )
    found = []
    for name in ("key", "value"):
        data = operand(name, 2 * 576, 64, dtype="bf16")
        if writes:
            rows = operand(f"{name}_rows", 2, 64, dtype="bf16")
            data = make("scatter_rows", (data, places, rows), how)
        else:
            data = op("add", data, 1.0)
        found.append(b.reshape(data, (1, 2, 576, 64)))
    query = operand("query", 1, 14, 1, 64, dtype="bf16")
    mask = operand("mask", 1, 1, 1, 576, dtype="bool")
    attrs = attention_attrs(0.125, is_safe=True)
    return graph_of([make("attention", (query, *found, mask), attrs)])


def test_keys_and_values_that_rows_are_written_into_are_asked_for_before_the_wait():
    source, ptx = text_of(attention(writes=True))
    before, behind = re.split(r"griddepcontrol\.wait", ptx)
    assert before.count("prefetch.global.L2") == 2
    assert "prefetch" not in behind
    assert "ld.global" not in before
    assert source.count("ask_for(in") == 2


def test_what_a_kernel_before_computes_is_not_asked_for():
    source, ptx = text_of(attention(writes=False))
    assert "prefetch" not in ptx
    assert "wait_for_kernels" not in source
