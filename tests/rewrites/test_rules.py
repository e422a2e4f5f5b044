"""Every rule of every table: its filetest, and its equation on random inputs.

A filetest `TABLE/RULE.txt` is a graph, a line `---`, and the graph that the rule alone makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from rewrites.conftest import random_array

from aotc.aot.ir.build import cast, reshape
from aotc.aot.ir.graph import Constant, Graph, IllegalNodeError, make
from aotc.aot.ir.legal import violations
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.rules import Applied, Rule, apply_rules
from aotc.aot.ir.storage import widen
from aotc.aot.ir.text import GraphTextError, parse_graph, print_graph
from aotc.aot.ir.types import DTYPES, TensorType
from aotc.aot.rewrites.rewrite import TABLES

Fill = Callable[[str, TensorType], Constant]
HERE = Path(__file__).parent
ALL_RULES = [(table, rule) for table, rules in TABLES.items() for rule in rules]
NAMES = [f"{table}/{rule.name}" for table, rule in ALL_RULES]

# The sign of a zero that these give is nobody's promise.
UNSIGNED_ZERO = {
    "matmul-depth-one",
    "maximum-literal-second",
    "maximum-zero",
    "minimum-literal-second",
    "reduce-nothing",
    "reduce-ones",
    "relu-relu",
}
PASSES = 40


def read_filetest(table: str, rule: Rule, fill: Fill) -> tuple[Graph, str, Path]:
    path = HERE / table / f"{rule.name}.txt"
    assert path.is_file(), f"rule `{rule.name}` has no filetest {path}"
    before, separator, _ = path.read_text().partition("---\n")
    assert separator, f"{path} has no line `---`"
    return parse_graph(before, fill=fill), before, path


def rewritten(graph: Graph, rule: Rule) -> tuple[Graph, Applied]:
    return apply_rules(graph, (rule,))


def test_names_are_distinct():
    names = [rule.name for _, rule in ALL_RULES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("table", "rule"), ALL_RULES, ids=NAMES)
def test_rule_gives_the_expected_graph(table, rule, fill, is_blessing, expect_text):
    graph, given, path = read_filetest(table, rule, fill)
    result, applied = rewritten(graph, rule)
    assert applied.counts[rule.name] > 0
    assert not applied.refused
    assert violations(result) == []
    given = print_graph(graph) if is_blessing else given
    expect_text(path, f"{given}---\n{print_graph(result)}")


def test_rules_that_round_otherwise_leave_what_an_integer_part_is_taken_of(fill):
    tried = 0
    for table, rule in ALL_RULES:
        if rule.is_exact:
            continue
        graph, _, path = read_filetest(table, rule, fill)
        if any(node.kind != "pointwise" for node in graph.outputs):
            continue
        moved = [reshape(node, node.shape[::-1]) for node in graph.outputs]
        for read in (lambda node: make("floor", (node,)), lambda node: cast(node, "i64")):
            ends = tuple(map(read, moved))
            _, applied = rewritten(graph.with_outputs(ends), rule)
            _, beside = rewritten(graph.with_outputs((*ends, *graph.outputs)), rule)
            assert not applied.counts, path
            assert not beside.counts, path
        tried += 1
    assert tried > 10


@pytest.mark.parametrize(("table", "rule"), ALL_RULES, ids=NAMES)
def test_rule_keeps_the_meaning(table, rule, fill, random_inputs):
    graph, _, _ = read_filetest(table, rule, fill)
    result, _ = rewritten(graph, rule)
    for seed in range(PASSES):
        # Half of the passes without special values, so that sums are not all NaN.
        inputs = random_inputs(graph, seed, has_specials=seed % 2 == 0)
        before, after = interpret(graph, inputs), interpret(result, inputs)
        is_small = any(node.dtype in ("bf16", "f16") for node in graph.nodes())
        tolerance = 2e-2 if is_small else 1e-5
        for node, left, right in zip(graph.outputs, before, after, strict=True):
            compare(rule, widen(left, node.dtype), widen(right, node.dtype), tolerance)


@pytest.mark.parametrize(("table", "rule"), ALL_RULES, ids=NAMES)
def test_rule_keeps_the_meaning_in_every_type(table, rule):
    """Its filetest with one type replaced by each other one, where that is a graph."""
    given = (HERE / table / f"{rule.name}.txt").read_text().partition("---\n")[0]
    for present in filter(lambda name: re.search(rf"\b{name}\b", given), DTYPES):
        for other in DTYPES.keys() - {present}:
            text = re.sub(rf"\b{present}\b", other, given)
            try:
                graph = parse_graph(text, fill=constant_at_limits)
                result, applied = rewritten(graph, rule)
            except (GraphTextError, IllegalNodeError):
                continue
            if not applied.counts.get(rule.name):
                continue
            tolerance = (
                2e-2 if any(node.dtype in ("bf16", "f16") for node in graph.nodes()) else 1e-5
            )
            for seed in range(8):
                generator = numpy.random.default_rng(seed)
                inputs = [array_at_limits(node.type, generator) for node in graph.inputs]
                with numpy.errstate(all="ignore"):
                    before, after = interpret(graph, inputs), interpret(result, inputs)
                for node, left, right in zip(graph.outputs, before, after, strict=True):
                    compare(rule, widen(left, node.dtype), widen(right, node.dtype), tolerance)


def array_at_limits(kind: TensorType, generator: numpy.random.Generator) -> numpy.ndarray:
    """A random array; of integers two in five are limits of the type, 0 or 1."""
    if kind.kind != "int":
        return random_array(kind, generator, has_specials=False)
    limits = numpy.iinfo(DTYPES[kind.dtype].numpy)
    special = generator.choice([limits.min, limits.max, 0, 1, limits.max // 2], kind.shape)
    plain = generator.integers(max(limits.min, -9), 9, kind.shape)
    return numpy.where(generator.random(kind.shape) < 0.4, special, plain).astype(limits.dtype)


def constant_at_limits(name: str, kind: TensorType) -> Constant:
    return Constant(name, kind, array_at_limits(kind, numpy.random.default_rng(len(name))))


def compare(rule: Rule, before: numpy.ndarray, after: numpy.ndarray, tolerance: float) -> None:
    if before.dtype.kind != "f":
        numpy.testing.assert_array_equal(before, after)
        return
    if not rule.is_exact:
        # Relative to what cancels on the way; passes without special values keep that near one.
        largest = numpy.max(numpy.abs(before[numpy.isfinite(before)]), initial=1.0)
        atol = tolerance * largest / 5 if tolerance < 1e-3 else tolerance * largest
        numpy.testing.assert_allclose(before, after, rtol=tolerance, atol=atol)
        return
    numpy.testing.assert_array_equal(before, after)
    if rule.name not in UNSIGNED_ZERO:
        numbers = ~numpy.isnan(before)
        assert (numpy.signbit(before) == numpy.signbit(after))[numbers].all()
