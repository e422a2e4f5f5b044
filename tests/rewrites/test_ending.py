"""Rewriting comes to an end: every replacement that a rule of a table makes measures less.

`measure.py` says what is measured, and why no sequence of such replacements goes on for ever.
Instances come from the rules' filetests, and from random graphs that all steps rewrite.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy
import pytest

from aotc.aot.errors import TypeRuleError
from aotc.aot.ir import build
from aotc.aot.ir import rules as engine
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.ir.match import any_node, call
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.rules import Rule, apply_rules
from aotc.aot.ir.text import parse_graph
from aotc.aot.ir.types import TensorType
from aotc.aot.rewrites import rewrite as stages
from aotc.aot.rewrites.rewrite import TABLES, EndlessRulesWarning, Stage, rewrite
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS
from tests.rewrites.measure import Measuring

Fill = Callable[[str, TensorType], Constant]
HERE = Path(__file__).parent
GRAPHS = 120  # random ones
NODES = 40  # of each


@pytest.fixture
def replaced(monkeypatch):
    """Every replacement that the rules of a test make: rule, before, after."""
    seen: list[tuple[str, Node, Node]] = []
    plain = engine._replacement

    def note(rule, node, context):
        result = plain(rule, node, context)
        if result is not None and result is not node and result.type == node.type:
            seen.append((rule.name, node, result))
        return result

    monkeypatch.setattr(engine, "_replacement", note)
    return seen


def refuse_what_does_not_fall(replaced: Iterable[tuple[str, Node, Node]]) -> None:
    measuring = Measuring()
    for name, before, after in replaced:
        left, right = measuring.measure(before), measuring.measure(after)
        assert left > right, f"`{name}` makes {after!r} of {before!r}: {left} → {right}"


@pytest.mark.parametrize("table", TABLES)
def test_every_rule_lowers_the_measure(table, fill, replaced):
    for rule in TABLES[table]:
        text = (HERE / table / f"{rule.name}.txt").read_text().partition("---\n")[0]
        replaced.clear()
        apply_rules(parse_graph(text, fill=fill), (rule,))
        assert replaced, f"`{rule.name}` does nothing"
        refuse_what_does_not_fall(replaced)


SHAPES = ((4, 6, 8), (6, 4, 8), (1, 6, 8), (4, 1, 8), (4, 6, 1), (8,), (48, 8), (1, 4, 1, 48), ())


class Growing:
    """A random graph: each node of those before it, many of them constant or of equal shapes."""

    def __init__(self, seed: int, fill: Fill) -> None:
        self.fill = fill
        self.generator = numpy.random.default_rng(seed)
        self.nodes: list[Node] = []
        for number, shape in enumerate(SHAPES[:-1]):
            kind = {"dtype": "f32", "shape": shape}
            op = "constant" if number % 2 else "input"
            self.nodes.append(make(op, (), {"name": f"{op}{number}", **kind}))
            self.nodes.append(make("constant", (), {"name": f"second{number}", **kind}))
        image = {"dtype": "f32", "shape": (2, 3, 6, 6)}
        self.nodes.append(make("input", (), {"name": "image", **image}))
        self.nodes += [build.scalar(value, "f32") for value in (0.0, 1.0, -1.0, 0.5, 2.0)]

    def graph(self) -> Graph:
        leaves = len(self.nodes)
        while len(self.nodes) < leaves + NODES:
            try:
                node = self._node()
            except (TypeRuleError, ValueError, IndexError):
                continue
            if 0 < node.type.numel <= 4096 and node.type.rank <= 6 and node.dtype == "f32":
                self.nodes.append(node)
        made = self.nodes[leaves:]
        outputs = tuple(dict.fromkeys(made[-6:]))
        inputs = tuple(node for node in self.nodes[:leaves] if node.op == "input")
        constants = {
            node.attr("name"): self.fill(node.attr("name"), node.type)
            for node in self.nodes[:leaves]
            if node.op == "constant"
        }
        names = tuple(node.attr("name") for node in inputs)
        ends = tuple(f"out{number}" for number in range(len(outputs)))
        return Graph(inputs, outputs, names, ends, constants).with_outputs(outputs)

    def _any(self) -> Node:
        return self.nodes[int(self.generator.integers(len(self.nodes)))]

    def _like(self, shape: tuple[int, ...]) -> Node:
        """An operand that broadcasts with `shape`."""
        fitting = [node for node in self.nodes if node.type.rank in (0, len(shape))]
        return fitting[int(self.generator.integers(len(fitting)))]

    def _node(self) -> Node:
        kinds = (self._moved, self._moved, self._unary, self._binary, self._binary, self._other)
        return kinds[int(self.generator.integers(len(kinds)))]()

    def _moved(self) -> Node:
        data = self._any()
        rank, choice = data.type.rank, int(self.generator.integers(6))
        if choice < 2:
            return build.permute(data, tuple(map(int, self.generator.permutation(rank))))
        if choice == 2:
            other = self._any().shape
            ones = [dim for dim in data.shape if dim != 1]
            return build.reshape(data, ones if numpy.prod(other) != data.type.numel else other)
        axis = int(self.generator.integers(rank))
        if choice == 3:
            return build.slice_axis(data, axis, 1, data.shape[axis])
        if choice == 4:
            widths = [int(at == axis) for at in range(rank)]
            return build.pad(data, widths, widths, 0.0)
        shape = [5 if dim == 1 else dim for dim in data.shape]
        return build.expand(data, shape)

    def _unary(self) -> Node:
        ops = ("neg", "exp", "sin", "abs", "relu", "reciprocal", "sqrt", "tanh")
        return build.unary(ops[int(self.generator.integers(len(ops)))], self._any())

    def _binary(self) -> Node:
        ops = ("add", "sub", "mul", "div", "maximum", "pow")
        first = self._any()
        operands = (first, self._like(first.shape))
        order = operands if self.generator.integers(2) else operands[::-1]
        return make(ops[int(self.generator.integers(len(ops)))], order)

    def _other(self) -> Node:
        choice, data = int(self.generator.integers(4)), self._any()
        if choice == 0:
            return build.reduce("sum", data, (int(self.generator.integers(data.type.rank)),))
        if choice == 1:
            return build.concat([data, self._like(data.shape)], data.type.rank - 1)
        if choice == 2:
            return build.matmul(data, build.transpose(self._like(data.shape)))
        weight = make("constant", (), {"name": "filters", "dtype": "f32", "shape": (3, 3, 3, 3)})
        images = [node for node in self.nodes if node.shape == (2, 3, 6, 6)]
        if weight not in self.nodes:
            self.nodes.insert(0, weight)
            raise ValueError
        pairs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
        return make(
            "convolution", (images[int(self.generator.integers(len(images)))], weight), pairs
        )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_replacements_in_random_graphs_lower_the_measure(device, fill, replaced):
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("error", EndlessRulesWarning)
        for seed in range(GRAPHS):
            rewrite(Growing(seed, fill).graph(), traits={"cpu": CPU, "cuda": GPUS[90]}[device])
    fired = {name for name, _, _ in replaced}
    assert len(fired) > 30
    refuse_what_does_not_fall(replaced)


# What a shifted window adds to its scores: two constants, of which one is permuted.
TWO_CONSTANTS = """
%x = input(name='x') : f32[4, 2, 7, 7]
%table = constant(name='table') : f32[1, 7, 7, 2]
%mask = constant(name='mask') : f32[4, 1, 1, 7, 7]
%bias = permute(%table, dims=(0, 3, 1, 2)) : f32[1, 2, 7, 7]
%wide = expand(%mask, shape=(4, 1, 2, 7, 7)) : f32[4, 1, 2, 7, 7]
%masks = reshape(%wide, shape=(4, 2, 7, 7)) : f32[4, 2, 7, 7]
%both = add(%bias, %masks) : f32[4, 2, 7, 7]
%scores = add(%x, %both) : f32[4, 2, 7, 7]
return out=%scores
"""
# Neither the shift nor its sign may go back and forth.
SHIFTED_PRODUCT = """
%x = input(name='x') : f32[4, 6]
%w = constant(name='w') : f32[6, 5]
%t = constant(name='t') : f32[1, 5]
%product = matmul(%x, %w) : f32[4, 5]
%shifted = sub(%product, %t) : f32[4, 5]
return out=%shifted
"""
# Two operands that are small beside the result, and alike.
OUTER_SUM = """
%x = input(name='x') : f32[8, 9, 1]
%y = input(name='y') : f32[9, 1, 8]
%left = permute(%x, dims=(1, 0, 2)) : f32[9, 8, 1]
%sum = add(%left, %y) : f32[9, 8, 8]
return out=%sum
"""
# A large constant that is permuted, and what is computed small: each would give it to the other.
SMALL_BESIDE_CONSTANT = """
%x = input(name='x') : f32[1, 4, 6]
%w = constant(name='w') : f32[6, 4, 8]
%turned = permute(%w, dims=(2, 1, 0)) : f32[8, 4, 6]
%product = mul(%x, %turned) : f32[8, 4, 6]
return out=%product
"""


@pytest.mark.parametrize("text", [TWO_CONSTANTS, SHIFTED_PRODUCT, OUTER_SUM, SMALL_BESIDE_CONSTANT])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_operands_do_not_hand_work_to_each_other(text, device, fill, random_inputs, replaced):
    graph = parse_graph(text, fill=fill)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EndlessRulesWarning)
        result, _ = rewrite(graph, traits={"cpu": CPU, "cuda": GPUS[90]}[device])
    refuse_what_does_not_fall(replaced)
    inputs = random_inputs(graph, 1, has_specials=False)
    for before, after in zip(interpret(graph, inputs), interpret(result, inputs), strict=True):
        numpy.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-5)


def test_rules_that_do_not_end_are_stopped_and_named(monkeypatch, fill):
    x, y = any_node("x"), any_node("y")
    there = Rule("there", call("maximum", x, y), lambda x, y: make("minimum", (y, x)))
    back = Rule("back", call("minimum", x, y), lambda x, y: make("maximum", (y, x)))
    ending = Rule("ending", call("sub", x, x), lambda x: x * 0.0)
    endless = Stage("endless", (there, back, ending))
    monkeypatch.setattr(stages, "STAGES", (endless, *stages.STAGES))
    text = TWO_CONSTANTS.replace("add(%x, %both)", "maximum(%x, %both)")
    with pytest.warns(EndlessRulesWarning, match="`endless` do not come to an end.*`there`|`back`"):
        result, log = rewrite(parse_graph(text, fill=fill))
    assert [row.name for row in log.stages][1:] == [
        stage.name for stage in stages.STAGES[1:] if stage.wants(CPU)
    ]
    assert result.nodes()
