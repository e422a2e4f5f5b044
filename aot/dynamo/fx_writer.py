"""An FX graph on its way to other calls: which of its nodes may stand for others.

Replacements are run on the fake tensors of the graph: element type, shape and strides must be those
of what they replace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aotc.aot.dynamo.fx_import import VALUE_KEYS, Reading, fake_mode, function_of, is_like, value_of
from aotc.aot.dynamo.fx_lowering import ARITHMETIC, FxCall, composites_of, fx_call_of
from aotc.aot.ir.graph import Node

REPEATED, FREE = "common subexpressions", "identities"


@dataclass
class Writer:
    """A graph on its way to other calls."""

    module: torch.fx.GraphModule
    found: Reading
    images: Mapping[Node, Node]
    wanted: Mapping[Node, FxCall | str]
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.order = list(self.module.graph.nodes)
        self.places = {node: place for place, node in enumerate(self.order)}
        self.spoken: dict[tuple[int, Node], torch.fx.Node] = {}
        for node in self.order:  # the first that has a value in its region
            if node in self.found.values:
                self.spoken.setdefault((self.found.regions[node], self.value(node)), node)
        self.fake_mode = fake_mode(self.order)
        self.fresh: set[torch.fx.Node] = set()
        self.gone: set[torch.fx.Node] = set()
        self.stands_in: dict[torch.fx.Node, torch.fx.Node] = {}
        self.escaping = _escaping(self.order, self.found.written)

    def value(self, node: torch.fx.Node) -> Node:
        """What the node computes, as the rewrites left it."""
        own = self.found.values[node]
        return self.images.get(own, own)

    def first(self, value: Node, node: torch.fx.Node) -> torch.fx.Node | None:
        """The first node before `node`, in its region, that has the value."""
        found = self.found.leaves.get(value) or self.spoken.get((self.found.regions[node], value))
        while found in self.gone:  # a leaf is often a value of the region before
            found = self.stands_in.get(found)
        is_before = found is not None and self.places[found] < self.places[node]
        return found if is_before else None

    def share(self, node: torch.fx.Node) -> None:
        """Have an earlier node of the same value read in place of this one, which dies of it."""
        first = self.first(self.value(node), node) if node in self.found.values else None
        if first is not None and self._stands_for(first, node):
            self.done[FREE if first in node.all_input_nodes else REPEATED] += 1
            node.replace_all_uses_with(first)
            self.stands_in[node] = first
            self.sweep(node)

    def sweep(self, node: torch.fx.Node) -> None:
        """Take out a node that nothing reads."""
        if not node.users and node not in self.gone:
            self.module.graph.erase_node(node)
            self.gone.add(node)

    def shorten(self, node: torch.fx.Node) -> None:
        """Replace a node by a shorter call of its value, if there is one."""
        if not node.users or node not in self.found.values:
            return
        value = self.value(node)
        if value in self.wanted and value is not self.found.values[node]:
            fx_call = self._wanted(value)
            if fx_call is not None and self._replace(node, value, fx_call, is_wanted=True):
                return
        for fx_call in (*composites_of(value), fx_call_of(value)):
            if fx_call is None or (fx_call.is_for_gradients and not _has_gradient(node)):
                continue
            if self._replace(node, value, fx_call):
                return

    def _wanted(self, value: Node) -> FxCall | None:
        """The call of a value that a rewrite of the user's made."""
        wanted = self.wanted[value]
        if isinstance(wanted, FxCall):
            return wanted
        plain = fx_call_of(value)
        return None if plain is None else replace(plain, label=wanted)

    def _stands_for(self, first: torch.fx.Node, node: torch.fx.Node) -> bool:
        """Whether an earlier node may be read in place of this one, memory included."""
        memories = {_memory(value_of(first)), _memory(value_of(node))}
        return is_like(value_of(first), value_of(node)) and (
            len(memories) == 1 or not self.escaping & memories
        )

    def _replace(
        self, node: torch.fx.Node, value: Node, fx_call: FxCall, is_wanted: bool = False
    ) -> bool:
        """Put `fx_call` in place of a node, if that is shorter and gives the same tensor."""
        plan = self._plan(value, fx_call, node)
        if plan is None or not plan.may_replace(node):
            return False
        stays = set(plan.operands.values())
        dying = self._dying(node, stays)
        saved = sum(map(_weight, dying))
        # A call that torch has by name is worth the views around it; other arithmetic is not.
        is_short = plan.label != ARITHMETIC or len(dying) > len(plan.steps)
        is_shorter = saved > plan.weight and is_short
        if not (is_wanted or is_shorter) or not self._is_own_memory(node):
            return False
        fresh = self._write(plan, node)
        if self._is_alias(fresh[-1], node, plan.operands.values()) or not self.put(fresh[-1], node):
            for each in reversed(fresh):
                self.module.graph.erase_node(each)
            return False
        self.done[plan.label] += 1
        self.fresh.update(fresh)
        return True

    def fits(self, new: torch.fx.Node, node: torch.fx.Node) -> bool:
        """Whether `new` may be read in place of a node: what leaves the graph is the same."""
        return self._restrided(node, value_of(new)) is not None

    def put(self, new: torch.fx.Node, node: torch.fx.Node) -> bool:
        """Have `new` read in place of a node, whatever its strides; not if that shows outside."""
        values = self._restrided(node, value_of(new))
        for each, value in (values or {}).items():
            each.meta[key_of(each)] = value
        if values is not None:
            node.replace_all_uses_with(new)
        return values is not None

    def _is_alias(
        self, new: torch.fx.Node, node: torch.fx.Node, operands: Iterable[torch.fx.Node]
    ) -> bool:
        """Whether `new` shares its operands' memory, and the node's memory is seen outside."""
        own = _memory(value_of(new))
        is_view = any(_memory(value_of(each)) == own for each in operands)
        return is_view and _memory(value_of(node)) in self.escaping

    def _restrided(self, node: torch.fx.Node, new: Any) -> dict[torch.fx.Node, Any] | None:
        """The values behind `node` that differ when its tensor lies otherwise in memory.

        None where one cannot be computed any more, or what leaves the graph would differ.
        """
        old = value_of(node)
        if (new.dtype, new.shape, new.device) != (old.dtype, old.shape, old.device):
            return None
        changed = {node: new}
        waiting = set() if is_like(new, old) else set(node.users)
        while waiting:
            each = min(waiting, key=lambda each: self.places.get(each, 0))
            waiting.remove(each)
            value = self._rerun(each, changed)
            if value is None:
                return None
            if not is_like(value, value_of(each)):
                changed[each] = value
                waiting |= set(each.users)
        return changed

    def _rerun(self, node: torch.fx.Node, changed: Mapping[torch.fx.Node, Any]) -> Any:
        """The node's value from changed operands; None where it may be seen or does not run."""
        is_seen = node not in self.found.values and node not in self.fresh
        if is_seen or _memory(value_of(node)) in self.escaping:
            return None
        args, kwargs = torch.fx.map_arg(
            (node.args, node.kwargs), lambda each: changed.get(each, value_of(each))
        )
        try:
            return function_of(node)(*args, **kwargs)
        except RuntimeError:  # a view that the other strides do not allow
            return None

    def _is_own_memory(self, node: torch.fx.Node) -> bool:
        """Whether the result is a tensor of its own, or nobody can tell."""
        memory = _memory(value_of(node))
        if memory not in self.escaping:
            return True
        shared = (each for each in node.all_input_nodes if _memory(value_of(each)) == memory)
        return next(shared, None) is None

    def _plan(self, value: Node, fx_call: FxCall, node: torch.fx.Node) -> _Plan | None:
        """All calls that are needed to compute `value`, operands first."""
        steps: dict[Node, FxCall] = {}
        operands: dict[Node, torch.fx.Node] = {}
        if not self._needs(value, fx_call, node, steps, operands):
            return None
        labels = (step.label for step in (fx_call, *steps.values()) if step.label != ARITHMETIC)
        return _Plan(next(labels, ARITHMETIC), steps, operands)

    def _needs(
        self,
        value: Node,
        fx_call: FxCall,
        node: torch.fx.Node,
        steps: dict[Node, FxCall],
        operands: dict[Node, torch.fx.Node],
    ) -> bool:
        for operand in fx_call.operands():
            first = self.first(operand, node)
            if first is not None:
                operands[operand] = first
            if first is not None or operand in steps:
                continue
            inner = fx_call_of(operand)
            if inner is None or not self._needs(operand, inner, node, steps, operands):
                return False
        steps[value] = fx_call
        return True

    def _dying(self, node: torch.fx.Node, stays: set[torch.fx.Node]) -> set[torch.fx.Node]:
        """The node, and those before it that nobody needs once it is computed from `stays`."""
        dying = {node}
        behind = dict.fromkeys(node.all_input_nodes)
        while behind:
            each = max(behind, key=self.places.__getitem__)  # its users have been looked at
            del behind[each]
            is_needed = each in stays or each not in self.found.values
            if not is_needed and dying.issuperset(each.users):
                dying.add(each)
                behind |= dict.fromkeys(each.all_input_nodes)
        return dying

    def _write(self, plan: _Plan, node: torch.fx.Node) -> list[torch.fx.Node]:
        """The plan's calls before `node`; the last is its value."""
        made: dict[Node, torch.fx.Node] = dict(plan.operands)
        fresh: list[torch.fx.Node] = []
        with self.module.graph.inserting_before(node), torch.no_grad():
            for value, fx_call in plan.steps.items():
                args, kwargs = _with_nodes(fx_call, made)
                each = self.module.graph.call_function(fx_call.target, args, kwargs)
                each.meta = {name: item for name, item in node.meta.items() if name in _KEPT_META}
                fake_args, fake_kwargs = torch.fx.map_arg((args, kwargs), value_of)
                with self.fake_mode:  # numbers among the operands become tensors inside
                    each.meta[key_of(node)] = fx_call.target(*fake_args, **fake_kwargs)
                made[value] = each
                fresh.append(each)
        return fresh


@dataclass(frozen=True, slots=True)
class _Plan:
    label: str
    steps: Mapping[Node, FxCall]
    operands: Mapping[Node, torch.fx.Node]  # values that nodes before have

    @property
    def weight(self) -> int:
        """Calls that do work."""
        return sum(value.kind != "view" for value in self.steps)

    def may_replace(self, node: torch.fx.Node) -> bool:
        """Whether gradients stay what they are, where one may be taken."""
        is_asked = bool(value_of(node).requires_grad)
        return not is_asked or all(step.keeps_gradients for step in self.steps.values())


_KEPT_META = ("stack_trace", "nn_module_stack", "source_fn_stack", "fwd_nn_module_stack")


def _with_nodes(
    fx_call: FxCall, made: Mapping[Node, torch.fx.Node]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def written(item: Any) -> Any:
        return made[item] if isinstance(item, Node) else item

    args, kwargs = torch.utils._pytree.tree_map(written, (fx_call.args, dict(fx_call.kwargs)))
    return args, kwargs


def key_of(node: torch.fx.Node) -> str:
    """Where the node's value is kept."""
    return next(key for key in VALUE_KEYS if key in node.meta)


def _weight(node: torch.fx.Node) -> int:
    """1 for a node that does work, 0 for a view of its operand."""
    own = _memory(value_of(node))
    return int(all(_memory(value_of(each)) != own for each in node.all_input_nodes))


def _has_gradient(node: torch.fx.Node) -> bool:
    """Whether a gradient may be taken of the node, or it lies on another device than the CPU."""
    value = value_of(node)
    return bool(value.requires_grad) or not value.is_cpu


def _memory(value: Any) -> int | None:
    """What tensors that share memory have in common."""
    if not isinstance(value, torch.Tensor):
        return None
    return int(value.untyped_storage()._cdata)


def _escaping(
    order: Iterable[torch.fx.Node], written: Iterable[torch.fx.Node]
) -> frozenset[int | None]:
    """Memory that outlives the graph or is written to in it: whose it is, must not change."""
    readers = [node for node in order if node.op == "output"]
    touched = [each for node in (*readers, *written) for each in node.all_input_nodes]
    return frozenset(_memory(value) for node in touched for value in _tensors(node))


def _tensors(node: torch.fx.Node) -> Iterator[Any]:
    value = value_of(node)
    yield from value if isinstance(value, list | tuple) else (value,)
