"""Products with quantised weights on a GPU: codes are found however widening is written, and
every form gives the numbers of exact arithmetic."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.float8 import E4M3, E5M2, widened
from aotc.aot.ir.graph import Graph, Node, make, walk
from aotc.aot.ir.storage import widen
from aotc.aot.lower import lower
from aotc.aot.lower.matmul.decoding import Decoding, decoding_of
from aotc.aot.lower.matmul.operands import product_of
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from case_graphs import graph_of, op, operand, values, weight
from schedule_runner import Job

pytestmark = pytest.mark.slow
TRAITS = GPUS[90]


def _pairs(q: Node, columns: int, depth: int) -> Node:
    """Halves of bytes, the low one first, as u8 [columns, depth]."""
    shifts = b.cast(b.counter(3, 2, 2) * 4, "u8")
    pairs = b.reshape(q, (columns, depth // 2, 1))
    halves = b.pointwise("bitwise_and", make("shift_right", (pairs, shifts)), 15)
    return b.reshape(halves, (columns, depth))


def _stacked(q: Node, columns: int, depth: int) -> Node:
    """The same as torch.stack makes them, as numbers of two's complement."""
    halves = (b.pointwise("bitwise_and", q, 15), b.pointwise("shift_right", q, 4))
    parts = [b.reshape(each, (columns, depth // 2, 1)) for each in halves]
    low = b.cast(b.reshape(b.concat(parts, 2), (columns, depth)), "i8")
    return b.where(b.pointwise("gt", low, 7), low - 16, low)


def _int8(columns: int, depth: int) -> Node:
    return b.cast(weight("q", columns, depth, dtype="i8"), "f32")


def _uint8(columns: int, depth: int) -> Node:
    return b.cast(weight("q", columns, depth, dtype="u8"), "f32") - 128.0


def _nibbles(columns: int, depth: int) -> Node:
    q = weight("q", columns, depth // 2, dtype="u8")
    return b.cast(_pairs(q, columns, depth), "f32") - 8.0


def _signed_nibbles(columns: int, depth: int) -> Node:
    return b.cast(_stacked(weight("q", columns, depth // 2, dtype="u8"), columns, depth), "f32")


def _e4m3(columns: int, depth: int) -> Node:
    return widened(weight("q", columns, depth, dtype="u8"), E4M3)


def _e5m2(columns: int, depth: int) -> Node:
    return widened(weight("q", columns, depth, dtype="u8"), E5M2)


KINDS = {
    "i8": _int8, "u8": _uint8, "u4": _nibbles, "i4": _signed_nibbles, "e4m3": _e4m3,
    "e5m2": _e5m2,
}  # fmt: skip


def grouped(kind: str, columns: int, depth: int, group: int, dtype: str, has_zeros: bool) -> Node:
    """(q - zero) · scale of groups of a row, rounded to the type of the product."""
    numbers = b.reshape(KINDS[kind](columns, depth), (columns, depth // group, group))
    if has_zeros:
        zeros = weight("zeros", columns, depth // group, 1, dtype="i32")
        numbers = numbers - b.cast(zeros, "f32")
    scaled = numbers * weight("scale", columns, depth // group, 1)
    return b.cast(b.reshape(scaled, (columns, depth)), dtype)


def product(
    rows: int, kind: str, columns: int, depth: int, group: int, dtype="bf16", has_zeros=False
) -> list[Node]:
    """SiLU(x · wᵀ + bias)."""
    found = grouped(kind, columns, depth, group, dtype, has_zeros)
    result = op("matmul", operand("x", rows, depth, dtype=dtype), b.permute(found, (1, 0)))
    return [op("silu", op("add", result, weight("bias", 1, columns, dtype=dtype)))]


def normed(kind: str, columns: int, depth: int) -> list[Node]:
    """A norm of one row into the product."""
    x = operand("x", 1, depth, dtype="bf16")
    row = b.cast(b.root_mean_square_norm(b.cast(x, "f32"), [1], 1e-5), "bf16")
    found = grouped(kind, columns, depth, 64, "bf16", False)
    return [op("matmul", row, b.permute(found, (1, 0)))]


def of_codes(kind: str, columns: int, depth: int) -> list[Node]:
    """Of a row that is codes too, with factors of groups, as a quantised table has them."""
    codes = b.reshape(operand("x", 1, depth, dtype="i8"), (1, depth // 32, 32))
    row = b.cast(
        b.reshape(b.cast(codes, "f32") * operand("f", 1, depth // 32, 1), (1, depth)), "bf16"
    )
    found = grouped(kind, columns, depth, 64, "bf16", False)
    return [op("matmul", row, b.permute(found, (1, 0)))]


def of_numbers(kind: str, columns: int, depth: int) -> list[Node]:
    """Of a row of whole numbers of 64 bits, of which a thread loads two at once."""
    row = b.cast(operand("x", 1, depth, dtype="i64"), "bf16")
    found = grouped(kind, columns, depth, 64, "bf16", False)
    return [op("matmul", row, b.permute(found, (1, 0)))]


def gated(rows: int, kind: str, columns: int, depth: int) -> list[Node]:
    """SiLU(x · gᵀ) · (x · uᵀ), of weights one behind the other."""
    found = grouped(kind, 2 * columns, depth, 64, "bf16", False)
    both = op("matmul", operand("x", rows, depth, dtype="bf16"), b.permute(found, (1, 0)))
    gate, up = (b.slice_axis(both, 1, at * columns, (at + 1) * columns) for at in range(2))
    return [op("mul", op("silu", gate), up)]


CASES = {
    "i8": lambda: product(1, "i8", 40, 512, 64),
    "i8_of_columns": lambda: product(1, "i8", 24, 96, 96, "f16"),
    "u8_zeros": lambda: product(2, "u8", 40, 160, 32, has_zeros=True),
    "u4": lambda: product(1, "u4", 33, 2048, 128),
    "four_rows": lambda: product(4, "u4", 20, 1056, 32, has_zeros=True),
    "u4_rows": lambda: product(2, "u4", 20, 96, 32, "f16", has_zeros=True),
    "i8_rows": lambda: product(3, "i8", 20, 96, 32, "f32", has_zeros=True),
    "i4": lambda: product(1, "i4", 17, 320, 64, "f32"),
    "e4m3": lambda: product(1, "e4m3", 40, 256, 64),
    "e4m3_rows": lambda: product(2, "e4m3", 7, 80, 80, "f16"),
    "e5m2": lambda: product(1, "e5m2", 9, 240, 48),
    "normed": lambda: normed("u4", 40, 192),
    "of_codes": lambda: of_codes("e4m3", 40, 192),
    "of_codes_in_halves": lambda: of_codes("u4", 40, 256),
    "of_numbers": lambda: of_numbers("u4", 40, 192),
    "some_rows": lambda: product(20, "u4", 40, 192, 64, has_zeros=True),
    "five_rows": lambda: product(5, "i8", 33, 320, 64, "f16"),
    "many_rows": lambda: product(40, "e4m3", 40, 128, 64, has_zeros=True),
    "i4_rows": lambda: product(3, "i4", 48, 256, 32),
    "u4_zero_rows": lambda: product(9, "u4", 17, 1024, 32, "f16", has_zeros=True),
    "u8_long_rows": lambda: product(13, "u8", 40, 4160, 64),
    "e5m2_rows": lambda: product(7, "e5m2", 50, 384, 128),
    "gated": lambda: gated(5, "u4", 48, 512),
    "gated_bytes": lambda: gated(12, "i8", 40, 192),
}


def _graph(name: str) -> Graph:
    """The graph with codes that take every value but those of numbers that are none."""
    graph = graph_of(CASES[name]())
    constants = dict(graph.constants)
    random = numpy.random.default_rng(7)
    q = constants["q"]
    low, high = (-128, 128) if q.type.dtype == "i8" else (0, 256)
    codes = random.integers(low, high, q.type.shape).astype(q.array.dtype)
    if name.startswith(("e4m3", "e5m2", "many", "of_codes")) and q.type.dtype == "u8":
        codes[codes & 127 >= (0x7C if name.startswith("e5m2") else 0x7F)] = 1
    constants["q"] = type(q)(q.name, q.type, codes, q.names)
    return Graph(
        graph.inputs, graph.outputs, graph.input_names, graph.output_names, constants, graph.states
    )


def _exact(graph: Graph, inputs: list) -> numpy.ndarray:
    """The output in f64, no value rounded to a narrower type on the way."""
    from aotc.aot.ir.reference import REFERENCE

    found = {}
    for node, array in zip(graph.inputs, inputs, strict=True):
        found[node] = widen(array, node.dtype).astype(float)
    for node in walk(graph.outputs, found):
        if node.op == "constant":
            array = widen(graph.constants[node.attr("name")].array, node.dtype)
            found[node] = array.astype(float) if array.dtype.kind == "f" else array
            continue
        operands = [found[each] for each in node.inputs]
        attrs = dict(node.attrs)
        if node.op == "cast" and node.type.kind == "float":
            found[node] = operands[0].astype(float)
        elif node.op == "bitcast" and node.type.kind == "float":
            found[node] = REFERENCE[node.op](*operands, **attrs).astype(float)
        else:
            found[node] = REFERENCE[node.op](*operands, **attrs)
    return found[graph.outputs[0]]


def _forms(graph: Graph) -> list[str]:
    (spec,) = lower(schedule(graph, TRAITS), TRAITS)
    return list(dict.fromkeys(row.form for row in spec.candidates))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """For each case and form the output of its kernel, all run in one process; those whose
    numbers are bf16, which the interpreter does not add, as native code."""
    jobs = {"interpreter": Job(), "native": Job()}
    names, launches = {}, {}
    for name in CASES:
        graph = _graph(name)
        inputs = [values(node.type, 100 + number) for number, node in enumerate(graph.inputs)]
        for form in _forms(graph):
            is_bf16 = form.startswith(("fragments", "swapped_codes"))
            mode = "native" if is_bf16 else "interpreter"
            launches[name, form] = mode, len(jobs[mode].launches)
            ((names[name, form], _),) = jobs[mode].add(graph, inputs, form, TRAITS)
    buffers = {mode: job.run(tmp_path_factory.mktemp(mode), mode) for mode, job in jobs.items()}
    found = {}
    for key, (mode, number) in launches.items():
        found[key] = jobs[mode].errors.get(number) or buffers[mode][names[key]]
    return found


TOLERANCES = {"f32": 3e-5, "bf16": 2e-2, "f16": 3e-3}


@pytest.mark.triton
@pytest.mark.parametrize("name", CASES)
def test_every_form_agrees_with_exact_arithmetic(name, results):
    graph = _graph(name)
    (node,) = graph.outputs
    inputs = [values(each.type, 100 + number) for number, each in enumerate(graph.inputs)]
    wanted = _exact(graph, inputs)
    forms = _forms(graph)
    rows = wanted.shape[0]
    has_codes = any(form.startswith(("decoding", "fragments")) for form in forms)
    assert has_codes == (rows <= 16)  # a few rows
    for form in forms:
        found = results[name, form]
        assert not isinstance(found, str), f"{form}: {found}"
        found = widen(found.reshape(node.shape), node.dtype)
        atol = TOLERANCES[node.dtype] * numpy.abs(wanted).max()
        numpy.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=form)


def _decoding(outputs: list[Node]) -> Decoding | None:
    (group,) = schedule(graph_of(outputs), TRAITS).groups
    return decoding_of(product_of(group), TRAITS)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_found_however_they_are_widened(kind):
    found = _decoding(product(1, kind, 32, 128, 64))
    assert (found.code.name, found.zero) == (kind, {"u8": 128, "u4": 8}.get(kind, 0))


def test_what_is_no_code_is_left_as_it_is():
    """Numbers that are no affine function of a code, groups shorter than a chunk, odd depths."""
    q = b.cast(weight("q", 32, 128, dtype="i8"), "bf16")
    squares = op("matmul", operand("x", 1, 128, dtype="bf16"), b.permute(op("mul", q, q), (1, 0)))
    assert _decoding([squares]) is None
    assert _decoding(product(1, "i8", 32, 128, 8)) is None
    assert _decoding(product(1, "i8", 32, 104, 104)) is None


def test_older_devices_have_no_conversion_of_8_bit_floats():
    (group,) = schedule(graph_of(product(1, "e4m3", 32, 128, 64)), GPUS[80]).groups
    assert decoding_of(product_of(group), GPUS[80]) is None


@pytest.mark.parametrize("name", ["i8", "u4", "e4m3", "e5m2"])
def test_chunks_of_codes_are_loaded_at_once(name):
    """One load of 16 bytes a chunk, and no conversion of integers."""
    (spec,) = lower(schedule(_graph(name), TRAITS), TRAITS)
    row = next(row for row in spec.candidates if row.form.startswith("decoding"))
    form = spec.form(row)
    params = [(param.name, param.type) for param in spec.params_of(row)]
    texts = compile_kernel(form.source, form.function, params, row.config, "sm_90").texts
    assert "ld.global.v4.b32" in texts["ptx"]
    assert "cvt.rn.f32" not in texts["ptx"]
    assert "ld.global.b8" not in texts["ptx"]


# Of many rows, of f32, and of groups of 80, which no piece of 32 or more divides.
WITHOUT_FRAGMENTS = {"some_rows", "many_rows", "i8_rows", "e4m3_rows"}


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.endswith("rows") or "gated" in name]
)
def test_codes_go_from_memory_to_the_tensor_cores(name):
    """No element of an operand goes through shared memory, and codes come before the kernel waits
    for others."""
    (spec,) = lower(schedule(_graph(name), TRAITS), TRAITS)
    rows = [row for row in spec.candidates if row.form.startswith("fragments")]
    assert bool(rows) == (name not in WITHOUT_FRAGMENTS)
    for architecture in ("sm_90", "sm_100") if rows else ():
        form = spec.form(rows[0])
        params = [(param.name, param.type) for param in spec.params_of(rows[0])]
        config = rows[0].config
        text = compile_kernel(form.source, form.function, params, config, architecture).texts["ptx"]
        loop, _, end = text.rpartition("mma.sync")
        assert loop
        assert "ld.shared" not in loop
        assert "ld.shared" in end  # the sums of all warps
        if form.waits:
            assert loop.index("ld.global") < loop.index("griddepcontrol.wait")
