"""Every form of a GPU's kernels of dynamic size gives the reference's numbers.

Each case is one kernel over dims with ranges; each of its forms runs at several sizes, products in
Triton's interpreter, rows as native code: two processes for all cases.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.ir.storage import widen
from aotc.aot.lower import lower
from aotc.aot.lower.lower import MOST_ZEROED_BYTES
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import attention_attrs, graph_of, layer_norm, op, operand, softmax, values, weight
from schedule_runner import Job

pytestmark = [pytest.mark.triton, pytest.mark.slow]
TRAITS = GPUS[90]
THREADS = 24  # more than programs of a row that wait for each other
TOLERANCES = {"f32": 5e-5, "bf16": 2e-2, "f16": 3e-3}


@dataclass(frozen=True)
class Case:
    """A kernel over n and, perhaps, m: its outputs, sizes that are tried, forms that must be."""

    build: Callable[..., Sequence[Node]]
    dims: tuple[Dim, ...]
    sizes: tuple[tuple[int, ...], ...]
    forms: frozenset[str]  # without the letters of axes with a tail
    mode: str = "interpreter"

    def graph(self) -> Graph:
        return graph_of(self.build(*map(size_of, self.dims)))


def rows(low: int, high: int, typical: int) -> tuple[Dim, ...]:
    return (Dim("n", low, high, typical),)


def product(n, m=96, depth=64, dtype="bf16"):
    """GELU(x · wᵀ + bias)."""
    right = weight("w", m, depth, dtype=dtype)
    result = op("matmul", operand("x", n, depth, dtype=dtype), b.permute(right, (1, 0)))
    return [op("gelu", op("add", result, weight("bias", 1, m, dtype=dtype)))]


def few(n):
    """As `product` with few columns: a program each costs the interpreter much."""
    return product(n, 9)


def scores(n, m):
    """x · yᵀ with both outer sizes from the call, one product a batch element."""
    left, right = operand("x", 3, n, 32, dtype="f16"), operand("y", 3, m, 32, dtype="f16")
    return [op("matmul", left, b.permute(right, (0, 2, 1)))]


def coded(n, bits, columns=40, depth=256, group=64):
    """x · (q · scale)ᵀ, of weights in codes of 8 or of 4 bits."""
    if bits == 8:
        numbers = b.cast(weight("q", columns, depth, dtype="i8"), "f32")
    else:
        q = b.reshape(weight("q", columns, depth // 2, dtype="u8"), (columns, depth // 2, 1))
        shifts = b.cast(b.counter(3, 2, 2) * 4, "u8")
        halves = b.pointwise("bitwise_and", make("shift_right", (q, shifts)), 15)
        numbers = b.cast(b.reshape(halves, (columns, depth)), "f32") - 8.0
    numbers = b.reshape(numbers, (columns, depth // group, group))
    scaled = numbers * weight("scale", columns, depth // group, 1)
    right = b.permute(b.cast(b.reshape(scaled, (columns, depth)), "bf16"), (1, 0))
    return [op("relu", op("matmul", operand("x", n, depth, dtype="bf16"), right))]


def batches(n):
    left, right = operand("x", n, 20, 32, dtype="bf16"), operand("y", n, 32, 24, dtype="bf16")
    return [op("matmul", left, right)]


def depth(n):
    """A sum over a dynamic extent."""
    return [op("matmul", operand("x", 18, n), operand("y", n, 24))]


def gated(n):
    result = product(n, 2 * 40)[0].inputs[0]
    gate, up = (b.slice_axis(result, 1, at, 80, 2) for at in (0, 1))
    return [op("mul", op("silu", gate), up)]


def attention(n, m, heads=2, queries=None, **attrs):
    shapes = ((1, heads, n if queries is None else queries, 32), (1, 2, m, 32), (1, 2, m, 32))
    given = [operand(name, *shape, dtype="f16") for name, shape in zip("qkv", shapes, strict=True)]
    row = attention_attrs(0.2) | attrs
    return [make("attention", tuple(given), row)]


N_AND_M = (Dim("m", 1, 200, 80), Dim("n", 1, 200, 90))
TILED = frozenset({"plain", "mapped", "mapped_persistent"})
CASES = {
    "tall": Case(product, rows(1, 300, 200), ((1,), (130,), (300,)), TILED),
    "short": Case(
        product, rows(9, 40, 20), ((9,), (33,)), frozenset({"swapped", "swapped_mapped"})
    ),
    "few": Case(few, rows(1, 8, 3), ((1,), (5,), (8,)), frozenset({"gemv", "gemv_rows"})),
    "few, perhaps more": Case(
        few, rows(1, 15, 4), ((2,), (9,), (15,)), frozenset({"gemv_rows", "swapped"})
    ),
    "split": Case(
        lambda n: product(n, 96, 1000),
        rows(1, 100, 80),
        ((2,), (97,)),
        frozenset({"split", "split_mapped"}),
    ),
    "scores": Case(
        lambda m, n: scores(n, m), N_AND_M, ((7, 33), (200, 1)), frozenset({"plain", "tensor"})
    ),
    "batches": Case(batches, rows(1, 9, 4), ((1,), (9,)), frozenset({"plain", "tensor"})),
    "depth": Case(depth, rows(1, 300, 100), ((1,), (77,), (300,)), frozenset({"plain"})),
    "gated": Case(gated, rows(1, 300, 100), ((1,), (101,)), frozenset({"plain"})),
    "bytes": Case(
        lambda n: coded(n, 8),
        rows(1, 300, 8),
        ((1,), (5,), (8,), (40,)),
        frozenset({"fragments_whole"}),
        "native",
    ),
    "nibbles": Case(
        lambda n: coded(n, 4, 50, 4096),
        rows(1, 64, 12),
        ((1,), (16,), (17,), (64,)),
        frozenset({"fragments"}),
        "native",
    ),
    "tiles of bytes": Case(
        lambda n: coded(n, 8),
        rows(1, 64, 40),
        ((1,), (33,), (64,)),
        frozenset({"swapped_codes"}),
        "native",
    ),
    "attention": Case(
        lambda m, n: attention(n, m),
        (Dim("m", 1, 200, 80), Dim("n", 1, 200, 90)),
        ((1, 70), (150, 1), (65, 128)),
        frozenset({"plain", "descriptor"}),
    ),
    "causal": Case(
        lambda n: attention(n, n, causal=True),
        rows(1, 200, 90),
        ((1,), (67,), (200,)),
        frozenset({"plain"}),
    ),
    "one block of keys": Case(
        lambda m, n: attention(n, m),
        (Dim("m", 1, 15, 4), Dim("n", 1, 30, 20)),
        ((1, 1), (15, 30), (4, 17)),
        frozenset({"plain"}),
    ),
    "one causal block": Case(
        lambda n: attention(n, n, causal=True), rows(1, 15, 3), ((1,), (15,)), frozenset({"plain"})
    ),
    "decoding": Case(
        lambda m: attention(None, m, heads=4, queries=1),
        (Dim("m", 1, 2000, 1000),),
        ((1,), (77,), (600,)),
        frozenset({"split", "plain"}),
    ),
    "softmax": Case(
        lambda n: [softmax(operand("x", 5, n), 1)],
        rows(1, 2000, 300),
        ((1,), (33,), (2000,)),
        frozenset({""}),
        "native",
    ),
    "long softmax": Case(
        lambda n: [softmax(operand("x", 3, n), 1)],
        rows(1, 60000, 20000),
        ((3,), (9001,), (30000,)),
        frozenset({"streamed", "shared_streamed"}),
        "native",
    ),
    "rows of a norm": Case(
        lambda n: [layer_norm(operand("x", n, 300))],
        rows(1, 5000, 40),
        ((1,), (41,)),
        frozenset({""}),
        "native",
    ),
    "few long rows": Case(
        lambda n: [layer_norm(operand("x", n, 20011))],
        rows(1, 40, 3),
        ((1,), (6,)),
        frozenset({"streamed", "shared", "shared_streamed"}),
        "native",
    ),
    "sum of long rows": Case(
        lambda m, n: [b.reduce("sum", operand("x", n, m), [1])],
        (Dim("m", 1, 50000, 30000), Dim("n", 1, 9, 2)),
        ((5, 1), (30001, 9)),
        frozenset({"streamed", "parts"}),
        "native",
    ),
    "search": Case(
        lambda n: [b.reduce("argmax", operand("x", 4, n), [1])],
        rows(1, 30000, 9000),
        ((1,), (30,), (9001,)),
        frozenset({"streamed"}),
        "native",
    ),
    "columns": Case(
        lambda m, n: [b.reduce("max", operand("x", n, m, 40), [1])],
        (Dim("m", 1, 3000, 900), Dim("n", 1, 9, 2)),
        ((1, 1), (1001, 3)),
        frozenset({"streamed", "parts"}),
        "native",
    ),
    "transposed": Case(
        lambda m, n: [op("exp", b.permute(operand("x", n, m), (1, 0)))],
        N_AND_M,
        ((1, 1), (33, 150)),
        frozenset({""}),
        "native",
    ),
}


def forms(case: Case) -> dict[str, str]:
    """A form of each kind, by its name without the letters of axes with a tail."""
    (spec,) = lower(schedule(case.graph(), TRAITS), TRAITS)
    found: dict[str, str] = {}
    for row in spec.candidates:
        *head, last = row.form.split("_")
        plain = "_".join(head) if head and set(last) <= set("mnk") else row.form
        found.setdefault(plain, row.form)
    return found


def inputs_of(graph: Graph, sizes: dict[str, int]) -> list[numpy.ndarray]:
    nodes = at_sizes(graph, sizes).inputs
    return [values(node.type, 100 + number) for number, node in enumerate(nodes)]


@pytest.fixture(scope="module")
def results_of(tmp_path_factory):
    """`results_of(mode)`: what `run_all` gives, once."""
    known = {}

    def run(mode):
        if mode not in known:
            known[mode] = run_all(mode, tmp_path_factory.mktemp(mode))
        return known[mode]

    return run


def run_all(mode, folder):
    """By case, sizes and form the outputs of a kernel, or what its launch raised."""
    job, names, launches = Job(), {}, {}
    for name, case in CASES.items():
        if case.mode != mode:
            continue
        graph, made = case.graph(), forms(case)
        assert case.forms <= made.keys(), name
        for tried in case.sizes:
            job.sizes = sizes_of(case, tried)
            for form in made.values():
                key, inputs = (name, tried, form), inputs_of(graph, job.sizes)
                launches[key] = len(job.launches)
                names[key] = job.add(graph, inputs, form, TRAITS)
    buffers = job.run(folder, mode, THREADS if mode == "native" else 0)
    for buffer, array in buffers.items():
        assert not (buffer.startswith("zeroed") and array.any()), "a kernel leaves its counters set"
    return {
        key: job.errors.get(launches[key])
        or [buffers[buffer].reshape(shape) for buffer, shape in outputs]
        for key, outputs in names.items()
    }


def sizes_of(case: Case, tried: tuple[int, ...]) -> dict[str, int]:
    return dict(zip([dim.name for dim in case.dims], tried, strict=True))


# Cases of a mode stand together: xdist's workers then seldom both run them.
@pytest.mark.parametrize("name", sorted(CASES, key=lambda name: CASES[name].mode))
def test_every_form_at_every_size(name, results_of):
    case = CASES[name]
    graph = case.graph()
    for (of, tried, form), outputs in results_of(case.mode).items():
        if of != name:
            continue
        message = f"{form} at {tried}"
        assert not isinstance(outputs, str), f"{message}: {outputs}"
        sizes = sizes_of(case, tried)
        at = at_sizes(graph, sizes)
        wanted = interpret(at, inputs_of(graph, sizes))
        for node, found, want in zip(at.outputs, outputs, wanted, strict=True):
            found, want = widen(found, node.dtype), widen(want, node.dtype)
            atol = TOLERANCES.get(node.dtype, 0.0) * max(1.0, numpy.abs(want).max())
            numpy.testing.assert_allclose(found, want, rtol=0, atol=atol, err_msg=message)


def test_scratch_is_as_large_as_any_call_needs():
    graph = graph_of(product(size_of(Dim("n", 1, 300, 128)), 96, 2000))
    (spec,) = lower(schedule(graph, TRAITS), TRAITS)
    split = next(row for row in spec.candidates if row.form.startswith("split"))
    partials, counters = split.scratch
    assert isinstance(counters.nbytes, int)  # zeroed: for the most in range
    assert str(partials.nbytes).count("n")


@pytest.mark.parametrize("high", [4096, 2**29])
def test_few_counters_are_kept_between_calls(high):
    """A plan has room for those of the most rows that a call may have (`sorts 202611278100101`)."""
    size = size_of(Dim("n", 1, high, 2))
    many = {
        "row": op("sum", operand("x", size, 60000), axes=(1,)),
        "product": product(size, 96, 20000)[0],
    }
    for kind, result in many.items():
        (spec,) = lower(schedule(graph_of([result]), TRAITS), TRAITS)
        kept = [
            sum(row.nbytes for row in each.scratch if row.is_zeroed) for each in spec.candidates
        ]
        assert max(kept) <= MOST_ZEROED_BYTES, kind
        assert any(kept) == (high == 4096), kind


def test_what_needs_numbers_is_no_candidate():
    """Pieces of a row of dynamic length."""
    assert "shared" not in forms(CASES["long softmax"])
