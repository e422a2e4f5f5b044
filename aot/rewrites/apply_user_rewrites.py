"""Applies rewrites of the user's, and checks what they promise: type, legality, an end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from aotc.aot.ir.graph import Graph, Node, make, walk
from aotc.aot.ir.legal import violations
from aotc.aot.ir.match import Literal, any_node
from aotc.aot.ir.rules import Rule, apply_rules
from aotc.aot.ir.size import UndecidedSize
from aotc.aot.ir.text import print_graph
from aotc.aot.rewrites.registry import UserRewrite
from aotc.aot.rewrites.user_rewrites import UserRewriteEndless, UserRewriteRejected, instantiate

FIRINGS = 10_000  # of one rewrite beyond those that every node of the graph may take
NOTHING = "(nothing)\n"  # where there is no text of what a rewrite made
# Nodes of operands → the node that a function over torch's tensors makes of them.
Trace = Callable[[Callable[..., Any], Sequence[Node]], Node]


@dataclass(slots=True)
class UserRewriteLog:
    """What rewrites of the user's did."""

    counts: dict[str, int] = field(default_factory=dict)
    # What a right side over tensors made, and of which operands.
    made: dict[Node, tuple[UserRewrite, tuple[Node, ...]]] = field(default_factory=dict)
    results: dict[Node, str] = field(default_factory=dict)  # what right sides made, by name
    images: dict[Node, Node] = field(default_factory=dict)  # as in `Applied`

    def add(self, later: UserRewriteLog) -> None:
        """Count in what was done afterwards; images are the later ones."""
        for name, count in later.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.made |= later.made
        self.results |= later.results
        self.images = later.images


def apply_user_rewrites(
    graph: Graph,
    rewrites: Sequence[UserRewrite],
    trace: Trace | None = None,
    follow: Sequence[Node] = (),
) -> tuple[Graph, UserRewriteLog]:
    """`graph` with the user's rewrites, each to its fixed point, and what they did.

    Those over torch's tensors need `trace`, and are left out without it. Raises
    `UserRewriteRejected` and `UserRewriteEndless`.
    """
    log = UserRewriteLog(images={node: node for node in follow})
    for own in rewrites:
        if own.pattern is None:
            graph = _run_function(own, graph, log)
        elif trace is not None or not own.with_torch:
            graph = _run_equation(own, graph, log, trace)
    return graph, log


def _run_equation(
    own: UserRewrite, graph: Graph, log: UserRewriteLog, trace: Trace | None
) -> Graph:
    attempt = _Attempt(own, trace, log, FIRINGS + len(graph.nodes()))
    assert own.pattern is not None
    guard = None if own.when is None else attempt.is_asked_for
    rule = Rule(own.name, own.pattern, attempt.replace, guard)
    try:
        result, applied = apply_rules(graph, (rule,), follow=set(log.images.values()))
    except RuntimeError as error:
        attempt.refuse_endless(error)
    log.images = {node: applied.images[image] for node, image in log.images.items()}
    if attempt.count:
        log.counts[own.name] = attempt.count
    return result


@dataclass
class _Attempt:
    """One rewrite on its way to the fixed point."""

    own: UserRewrite
    trace: Trace | None
    log: UserRewriteLog
    limit: int
    count: int = 0
    last: tuple[Node, Node] | None = None

    def is_asked_for(self, root: Node, bindings: Mapping[str, Any]) -> bool:
        """The condition `when` of a match; raises `UserRewriteRejected` where it raises."""
        assert self.own.when is not None
        known = {**bindings, "root": root}
        try:
            return bool(self.own.when(*map(known.get, signature(self.own.when).parameters)))
        except UndecidedSize:
            raise
        except Exception as error:  # the user's own
            reason = f"its `when` raises {type(error).__name__}: {error}"
            raise self._refusal(root, None, bindings, reason) from error

    def replace(self, root: Node, bindings: Mapping[str, Any]) -> Node | None:
        """What the right side makes of a match; checked."""
        try:
            result = self._made(bindings)
        except UndecidedSize:  # tensors of torch have sizes: at another call, perhaps
            return None
        except Exception as error:  # the user's own, or of what `make` refuses
            reason = f"{type(error).__name__}: {error}"
            raise self._refusal(root, None, bindings, reason) from error
        if result.type != root.type:
            reason = f"it gives {result.type}, expected {root.type}"
            raise self._refusal(root, result, bindings, reason)
        if result is root:
            return None
        self.count += 1
        self.last = root, result
        self.log.results[result] = self.own.name
        if self.count > self.limit:
            raise RuntimeError("too many replacements")
        return result

    def _made(self, bindings: Mapping[str, Any]) -> Node:
        known = {name: bindings[name] for name in signature(self.own.function).parameters}
        if not self.own.with_torch:
            sides = {name: self._side(name, value) for name, value in known.items()}
            return instantiate(self.own.function(**sides), bindings)
        assert self.trace is not None
        operands = tuple(known.values())
        result = self.trace(self.own.function, operands)
        self.log.made[result] = self.own, operands
        return result

    def _side(self, name: str, value: Any) -> Any:
        """What a name stands for when the right side is called: a pattern, or an attribute."""
        if isinstance(value, Node):
            return any_node(name)
        return Literal(value) if name in self.own.literals else value

    def _refusal(
        self, root: Node, result: Node | None, bindings: Mapping[str, Any], reason: str
    ) -> UserRewriteRejected:
        leaves = {name: value for name, value in bindings.items() if isinstance(value, Node)}
        leaves.pop("root", None)
        after = NOTHING if result is None else fragment(result, leaves)
        where = {"rule": self.own.name, "source": self.own.source, "reason": reason}
        return UserRewriteRejected(**where, before=fragment(root, leaves), after=after)

    def refuse_endless(self, error: RuntimeError) -> None:
        """Raise `UserRewriteEndless` with the last replacement."""
        if self.last is None:
            raise error
        before, after = (fragment(each, {}) for each in self.last)
        where = {"rule": self.own.name, "source": self.own.source, "count": self.count}
        raise UserRewriteEndless(**where, before=before, after=after) from error


def _run_function(own: UserRewrite, graph: Graph, log: UserRewriteLog) -> Graph:
    before = print_graph(graph)
    where = {"rule": own.name, "source": own.source, "before": before}
    try:
        result = own.function(graph)
    except Exception as error:  # the user's own, or of what `make` refuses
        reason = f"{type(error).__name__}: {error}"
        raise UserRewriteRejected(**where, reason=reason, after=NOTHING) from error
    if not isinstance(result, Graph):
        reason = f"it gives `{type(result).__name__}`, expected a `Graph`"
        raise UserRewriteRejected(**where, reason=reason, after=NOTHING)
    wrong = list(_other_signature(graph, result)) or violations(result)
    if wrong:
        is_whole = len(result.outputs) == len(result.output_names)
        after = print_graph(result) if is_whole else NOTHING
        raise UserRewriteRejected(**where, reason="; ".join(wrong), after=after)
    if result.outputs != graph.outputs:
        log.counts[own.name] = log.counts.get(own.name, 0) + 1
        new = dict(zip(graph.outputs, result.outputs, strict=True))
        log.images = {node: new.get(image, image) for node, image in log.images.items()}
    return result


def _other_signature(before: Graph, after: Graph) -> Iterator[str]:
    """How the signatures of two graphs differ."""
    if after.inputs != before.inputs or after.input_names != before.input_names:
        yield "its inputs are others"
    if after.output_names != before.output_names:
        yield f"its outputs are {after.output_names}, expected {before.output_names}"
        return
    if len(after.outputs) != len(before.outputs):
        yield f"it has {len(after.outputs)} outputs, expected {len(before.outputs)}"
        return
    for name, old, new in zip(before.output_names, before.outputs, after.outputs, strict=True):
        if old.type != new.type:
            yield f"output `{name}` is {new.type}, expected {old.type}"


def fragment(root: Node, leaves: Mapping[str, Node]) -> str:
    """The text of an expression with the nodes of `leaves` as its inputs, by name."""
    new = {
        node: make("input", (), {"name": name, "dtype": node.dtype, "shape": node.shape})
        for name, node in leaves.items()
    }
    inputs = tuple(new.values())
    inner = [node for node in walk((root,)) if node not in new]
    for node in inner:
        new[node] = node.on(tuple(new[operand] for operand in node.inputs))
    known = set(inputs)
    found = (new[node] for node in inner if node.op == "input")
    everything = tuple(dict.fromkeys((*inputs, *found)))
    needed = set(walk((new[root],)))
    kept = tuple(node for node in everything if node in needed or node in known)
    names = tuple(node.attr("name") for node in kept)
    return print_graph(Graph(kept, (new[root],), names, ("result",), {}))
