"""Rules as rows, tables of rules, and the driver that runs a table to its fixed point."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aotc.aot.ir.graph import Graph, Node, made_for, reads_nothing, walk
from aotc.aot.ir.match import Pattern, match, root_ops
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.rounding import is_rounded, of_integer_parts
from aotc.aot.ir.size import UndecidedSize

Answers = tuple[tuple[Node, bool], ...]  # nodes, and whether each is used once
PASS_LIMIT = 64  # a table that is still changing then does not end
MOST_MATCHED = 64  # nodes of one match, or of what replaces it: there are fewer


@dataclass(frozen=True, slots=True)
class Rule:
    """One equation. Its comment in the table is the equation; its filetest shows it at work.

    `replace` and `guard` are called with the names of the pattern that they take as parameters,
    `root` (the matched node), `context` and `bindings` (all of them) among them. `replace` may
    answer None: no match after all. A replacement of another type than the matched node is refused.
    """

    name: str
    pattern: Pattern
    replace: Callable[..., Node | None]
    guard: Callable[..., bool] | None = None
    # Left and right may differ by rounding (never by NaN, infinity or the order of magnitude). Such
    # a rule leaves alone a node of which an integer part is taken.
    is_exact: bool = True


def inexact(
    name: str,
    pattern: Pattern,
    replace: Callable[..., Node | None],
    guard: Callable[..., bool] | None = None,
) -> Rule:
    """A rule that rounds otherwise."""
    return Rule(name, pattern, replace, guard, is_exact=False)


def rule_for(
    ops: Iterable[str], name: str, replace: Callable[..., Node | None], is_exact: bool = True
) -> Rule:
    """A rule that looks at every node of `ops` whatever its operands; `replace` takes `root`."""
    return Rule(name, _Roots(frozenset(ops)), replace, None, is_exact)


@dataclass(frozen=True, slots=True)
class _Roots(Pattern):
    ops: frozenset[str]


@dataclass(slots=True)
class Context:
    """What a rule may know beside the node: how often nodes are read, and what is constant."""

    use_counts: Counter[Node] = field(default_factory=Counter)
    # What holds of a node for good, in every pass:
    constancy: dict[Node, bool] = field(default_factory=dict)
    # By node and `id` of a rule that left it as it was: what it asked about uses to say so. A rule
    # sees the node, what that is made of, and those answers: it says the same while they hold.
    settled: dict[Node, dict[int, Answers]] = field(default_factory=dict)
    asked: list[tuple[Node, bool]] = field(default_factory=list)

    def is_used_once(self, node: Node) -> bool:
        """Whether one operand place or output reads `node`."""
        answer = self.use_counts[node] <= 1
        self.asked.append((node, answer))
        return answer

    def holds(self, answers: Answers) -> bool:
        """Whether what was asked about uses has the same answers now."""
        return all((self.use_counts[other] <= 1) is answer for other, answer in answers)

    def is_shared(self, root: Node, inner: Collection[Node]) -> bool:
        """Whether a 16-bit value among `inner`, which `root` is made of, has readers outside.

        They see it rounded: an equation that computes `root` without it would disagree with them.
        """
        readers = Counter(operand for node in {root, *inner} for operand in node.inputs)
        return any(
            self.use_counts[node] > readers[node] and not is_rounded(node)
            for node in inner
            if node is not root
        )

    def is_constant(self, node: Node) -> bool:
        """Whether `node` depends on constants and literals only, its shape included."""
        for item in walk((node,), self.constancy):
            is_known = item.op != "input" and not OPS[item.op].is_opaque and not item.sizes()
            of_inputs = all(self.constancy[operand] for operand in item.inputs)
            self.constancy[item] = is_known and of_inputs and not reads_nothing(item)
        return self.constancy[node]


@dataclass(slots=True)
class Applied:
    """How often each rule fired, and which replacements were refused for their type."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    images: dict[Node, Node] = field(default_factory=dict)  # what each followed node has become
    stopped: list[str] = field(default_factory=list)  # rules that were left out to come to an end


class EndlessRulesError(RuntimeError):
    """Rules that still fire after as many passes as any table takes."""


def apply_rules(
    graph: Graph,
    rules: Sequence[Rule],
    skip: frozenset[str] = frozenset(),
    follow: Iterable[Node] = (),
    must_end: bool = True,
    context: Context | None = None,
) -> tuple[Graph, Applied]:
    """`graph` with `rules` applied until none fires; rules named in `skip` are left out.

    `images` of the answer says what each node of `follow` is now; one that the graph does not need
    any more stays what it was last. Rules that do not come to an end raise `EndlessRulesError`; or,
    unless they `must_end`, are left out from there on and named in `stopped`: the graph is as right
    after any number of replacements. `context` keeps what is known of nodes from one table to the
    next; its rules must live as long.
    """
    applied = Applied(images={node: node for node in follow})
    table = _by_root(rules, skip)
    context = context or Context()
    while True:
        before = Counter[str]()
        for _ in range(PASS_LIMIT):
            before = applied.counts.copy()
            new = _one_pass(graph.outputs, table, context, applied)
            applied.images = {node: new.get(image, image) for node, image in applied.images.items()}
            outputs = tuple(new[node] for node in graph.outputs)
            if outputs == graph.outputs:
                return graph.with_outputs(outputs), applied
            graph = graph.with_outputs(outputs)
        last = applied.counts - before
        if must_end:
            raise EndlessRulesError(f"rules do not come to an end: {last.most_common(3)}")
        applied.stopped += sorted(last)
        table = _by_root(rules, skip | frozenset(applied.stopped))


def _by_root(rules: Sequence[Rule], skip: frozenset[str]) -> dict[str, list[Rule]]:
    """The rules that begin with each op, without those of `skip`."""
    table: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.name in skip:
            continue
        ops = rule.pattern.ops if isinstance(rule.pattern, _Roots) else root_ops(rule.pattern)
        for op in ops:
            table.setdefault(op, []).append(rule)
    return table


def _one_pass(
    outputs: tuple[Node, ...], table: dict[str, list[Rule]], context: Context, applied: Applied
) -> dict[Node, Node]:
    """What each node that the outputs need becomes when every rule has had one look at it."""
    order = list(walk(outputs))
    context.use_counts = Counter(operand for node in order for operand in node.inputs)
    context.use_counts.update(outputs)
    exact = of_integer_parts(order)
    new: dict[Node, Node] = {}
    for node in order:
        current = new[node] = node.on(tuple(new[operand] for operand in node.inputs))
        if current is not node:
            context.use_counts[current] += context.use_counts[node]
        rules = table.get(current.op)
        if rules:
            with made_for(current.source):
                chosen = [rule for rule in rules if rule.is_exact] if node in exact else rules
                new[node] = _rewrite_node(current, chosen, context, applied)
    return new


def _rewrite_node(node: Node, rules: Sequence[Rule], context: Context, applied: Applied) -> Node:
    settled = context.settled.setdefault(node, {})
    for rule in rules:
        answers = settled.get(id(rule))
        if answers is not None and (not answers or context.holds(answers)):
            continue
        context.asked.clear()
        replacement = _replacement(rule, node, context)
        if replacement is None or replacement is node:
            settled[id(rule)] = tuple(context.asked)
            continue
        if replacement.type != node.type:
            applied.refused[rule.name] += 1
            continue
        applied.counts[rule.name] += 1
        context.use_counts[replacement] += context.use_counts[node]
        return replacement
    return node


def _replacement(rule: Rule, node: Node, context: Context) -> Node | None:
    bindings: dict[str, Any] | None = {}
    if not isinstance(rule.pattern, _Roots):
        bindings = match(rule.pattern, node)
    if bindings is None:
        return None
    known = bindings | {"root": node, "context": context, "bindings": bindings}
    try:
        if rule.guard is not None and not _call(rule.guard, known):
            return None
        result: Node | None = _call(rule.replace, known)
    except UndecidedSize:  # what holds at some calls only is not an equation
        return None
    moves = bool(bindings) and not rule.is_exact
    if moves and result is not None and _bypasses_shared(node, result, bindings, context):
        return None
    return result


def _bypasses_shared(
    root: Node, result: Node, bindings: Mapping[str, Any], context: Context
) -> bool:
    """Whether the result is computed without a 16-bit value that others read too."""
    ends = {bound for bound in bindings.values() if isinstance(bound, Node)}
    return context.is_shared(root, behind(root, ends) - behind(result, ends))


def behind(root: Node, ends: Container[Node]) -> set[Node]:
    """The root and what it is made of, as far as `ends`; no leaves."""
    found: set[Node] = set()
    waiting = [root]
    while waiting and len(found) < MOST_MATCHED:
        node = waiting.pop()
        if node not in ends and node not in found and node.inputs:
            found.add(node)
            waiting += node.inputs
    return found


def _call(function: Callable[..., Any], known: dict[str, Any]) -> Any:
    return function(*[known[name] for name in _parameters(function)])


@functools.lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
