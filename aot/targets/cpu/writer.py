"""Writer of LLVM IR text: loops as nested scopes, pure instructions hoisted as they are written.

An instruction without side effects is written into the outermost open scope that has all of its
operands, and the same instruction is written once a scope. So the code that a lazy tensor makes at
every element comes out with its loop invariants hoisted, without an analysis afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias


class Operand(NamedTuple):
    """An LLVM value: its text, its LLVM type, and the depth of the scope that defines it."""

    text: str
    type: str
    depth: int = 0

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def constant(value: float | str, kind: str) -> Operand:
    return Operand(str(value), kind, 0)


@dataclass(slots=True)
class Scope:
    """A straight run of blocks: the function's body, a loop's body or one side of a branch."""

    depth: int
    label: str
    """Label of the block that is open, needed by phi nodes."""
    may_skip: bool = False
    """The scope may run zero times, so nothing that can fault is hoisted out of it."""
    lines: list[str] = field(default_factory=list)
    known: dict[str, Operand] = field(default_factory=dict)
    memory: dict[Hashable, Any] = field(default_factory=dict)
    """Evaluated elements of lazy tensors, by (value, index)."""


@dataclass(slots=True)
class Loop:
    """An open loop: its counter and the phi nodes of its carried values."""

    counter: Operand
    carried: list[Operand]
    results: list[Operand] = field(default_factory=list)
    """What the carried values are after the loop; filled when it closes."""
    next_values: list[Operand] | None = None


WhileLoop: TypeAlias = (
    "tuple[list[Operand], Callable[[Operand, Sequence[Operand]], None],"
    " Callable[[Sequence[Operand]], None], list[Operand]]"
)


class Writer:
    """Text of one LLVM function in the making."""

    def __init__(self) -> None:
        self.scopes = [Scope(0, "entry")]
        self.names = 0
        self.splats: dict[str, Operand] = {}
        """Vectors that hold one scalar in every lane."""
        self.upper_halves: dict[str, Operand] = {}
        """Vectors of 16 bits that are the upper halves of these words."""
        self.functions: set[tuple[str, str, int]] = set()
        """Vector functions that are called: (element, name, lanes)."""

    # ------------------------------------------------------------ instructions

    def fresh(self, prefix: str = "v") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def home(self, operands: Sequence[Operand], *, can_fault: bool = False) -> int:
        """Depth of the outermost scope where an instruction on `operands` may stand."""
        depth = max((x.depth for x in operands), default=0)
        if can_fault:
            depth = max([depth, *(s.depth for s in self.scopes if s.may_skip)])
        return min(depth, self.depth)

    def emit(
        self, text: str, kind: str, operands: Sequence[Operand] = (), *, can_fault: bool = False
    ) -> Operand:
        """Writes a pure instruction (`text` is its right-hand side) and returns its value."""
        home = self.home(operands, can_fault=can_fault)
        for scope in self.scopes[: self.depth + 1]:
            if text in scope.known:
                return scope.known[text]
        made = Operand("%" + self.fresh(), kind, home)
        self.scopes[home].lines.append(f"  {made.text} = {text}")
        self.scopes[home].known[text] = made
        return made

    def load(self, text: str, kind: str, operands: Sequence[Operand], min_depth: int) -> Operand:
        """Writes a read of memory that was last written in the scope at depth `min_depth`.

        It is hoisted no further than that, nor out of a scope that may be skipped.
        """
        home = max(self.home(operands, can_fault=True), min(min_depth, self.depth))
        made = Operand("%" + self.fresh(), kind, home)
        self.scopes[home].lines.append(f"  {made.text} = {text}")
        return made

    def effect(self, text: str, kind: str = "void") -> Operand:
        """Writes an instruction with side effects at the current place."""
        if kind == "void":
            self.scope.lines.append(f"  {text}")
            return Operand("", kind, self.depth)
        made = Operand("%" + self.fresh(), kind, self.depth)
        self.scope.lines.append(f"  {made.text} = {text}")
        return made

    def call(
        self, function: str, kind: str, operands: Sequence[Operand], flags: str = ""
    ) -> Operand:
        """Calls a pure intrinsic; LLVM declares intrinsics by itself."""
        arguments = ", ".join(str(x) for x in operands)
        return self.emit(f"call {flags}{kind} @{function}({arguments})", kind, operands)

    # ------------------------------------------------------------------- loops

    @contextmanager
    def loop(
        self,
        upper: Operand,
        step: int | Operand,
        carried: Sequence[Operand] = (),
        lower: Operand | None = None,
        *,
        may_skip: bool = True,
        hint: str = "",
    ) -> Iterator[Loop]:
        """`for (i = lower; i < upper; i += step)`; the body sets `loop.next_values`.

        `upper` and `lower` have the counter's type; a constant trip count ≥ 1 passes
        `may_skip=False`, which lets loads be hoisted out of the loop. `hint`: metadata of its last
        branch.
        """
        kind = upper.type
        name = self.fresh("loop")
        lower = lower or constant(0, kind)
        parent = self.scope
        body = Scope(parent.depth + 1, f"{name}.body", may_skip)
        opened = Loop(
            Operand(f"%{name}.i", kind, body.depth),
            [Operand(f"%{self.fresh('c')}", x.type, body.depth) for x in carried],
        )
        self.scopes.append(body)
        yield opened
        self.scopes.pop()
        following = opened.next_values or []
        if len(following) != len(carried):
            raise AssertionError(
                f"loop carries {len(carried)} values, its body gave {len(following)}"
            )
        increment = str(step) if isinstance(step, int) else step.text
        advanced = Operand(f"%{name}.next", kind)
        lines = [
            f"  br label %{name}.head",
            f"{name}.head:",
            _phi(opened.counter, lower, parent.label, advanced, body.label),
        ]
        for phi, start, after in zip(opened.carried, carried, following, strict=True):
            lines.append(_phi(phi, start, parent.label, after, body.label))
        lines.append(f"  %{name}.go = icmp slt {kind} {opened.counter.text}, {upper.text}")
        lines.append(f"  br i1 %{name}.go, label %{name}.body, label %{name}.end")
        lines.append(f"{name}.body:")
        lines.extend(body.lines)
        lines.append(f"  %{name}.next = add nsw {kind} {opened.counter.text}, {increment}")
        lines.append(f"  br label %{name}.head{hint}")
        lines.append(f"{name}.end:")
        parent.lines.extend(lines)
        parent.label = f"{name}.end"
        opened.results = [x._replace(depth=parent.depth) for x in opened.carried]

    def branch(
        self, condition: Operand, sides: Sequence[Callable[[], list[Operand]]]
    ) -> list[Operand]:
        """`if`/`else`: each side returns its results; gives the merged ones."""
        name = self.fresh("if")
        parent = self.scope
        made: list[tuple[Scope, list[Operand]]] = []
        for side, word in zip(sides, ("then", "else"), strict=True):
            self.scopes.append(Scope(parent.depth + 1, f"{name}.{word}", may_skip=True))
            results = side()
            made.append((self.scopes.pop(), results))
        parent.lines.append(f"  br i1 {condition.text}, label %{name}.then, label %{name}.else")
        for (scope, _), word in zip(made, ("then", "else"), strict=True):
            parent.lines.append(f"{name}.{word}:")
            parent.lines.extend(scope.lines)
            parent.lines.append(f"  br label %{name}.end")
        parent.lines.append(f"{name}.end:")
        (then, left), (other, right) = made
        parent.label = f"{name}.end"
        merged = []
        for a, b in zip(left, right, strict=True):
            text = f"phi {a.type} [ {a.text}, %{then.label} ], [ {b.text}, %{other.label} ]"
            merged.append(self.effect(text, a.type))
        return merged

    @contextmanager
    def while_loop(self, start: Sequence[Operand], hint: str = "") -> Iterator[WhileLoop]:
        """`while`: gives (phis, test(condition, kept), repeat(next), results after the loop).

        The caller writes the condition's code, calls `test`, writes the body and calls `repeat`.
        `hint`: metadata of the loop's last branch.
        """
        name = self.fresh("while")
        parent = self.scope
        body = Scope(parent.depth + 1, f"{name}.head", may_skip=True)
        phis = [Operand(f"%{self.fresh('c')}", x.type, body.depth) for x in start]
        after: list[Operand] = []
        final: list[Operand] = []

        def test(condition: Operand, kept: Sequence[Operand]) -> None:
            self.effect(f"br i1 {condition.text}, label %{name}.body, label %{name}.end")
            self.scope.lines.append(f"{name}.body:")
            self.scope.label = f"{name}.body"
            final.extend(x._replace(depth=min(x.depth, parent.depth)) for x in kept)

        self.scopes.append(body)
        yield phis, test, after.extend, final
        self.scopes.pop()
        parent.lines += [f"  br label %{name}.head", f"{name}.head:"]
        for phi, first, following in zip(phis, start, after, strict=True):
            parent.lines.append(_phi(phi, first, parent.label, following, body.label))
        parent.lines += [*body.lines, f"  br label %{name}.head{hint}", f"{name}.end:"]
        parent.label = f"{name}.end"

    @contextmanager
    def probe(self, *, may_skip: bool = True) -> Iterator[int]:
        """Everything written inside is thrown away: to look at what an evaluation would give.

        Gives the depth of the probe's own scope, for the index variables to stand for. Reads of
        memory that do not depend on these are in it too, unless `may_skip` is false.
        """
        kept = [(len(s.lines), dict(s.known), dict(s.memory)) for s in self.scopes]
        self.scopes.append(Scope(self.depth + 1, "probe", may_skip=may_skip))
        try:
            yield self.depth
        finally:
            self.scopes.pop()
            for scope, (lines, known, memory) in zip(self.scopes, kept, strict=True):
                del scope.lines[lines:]
                scope.known, scope.memory = known, memory


def _phi(phi: Operand, start: Operand, entry: str, following: Operand, body: str) -> str:
    """A loop's phi node: `start` from the block `entry`, `following` from the block `body`."""
    values = f"[ {start.text}, %{entry} ], [ {following.text}, %{body} ]"
    return f"  {phi.text} = phi {phi.type} {values}"
