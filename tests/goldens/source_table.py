"""The table of kernels whose Triton source is expected, and their text with what does not matter
left out."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from case_graphs import graph_of

from aotc.aot.ir.graph import Node
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.lower.matmul_gpu import lower_matmul_gpu
from aotc.aot.schedule import CPU, Group, TargetTraits, schedule
from aotc.aot.schedule.traits import GPUS
from aotc.kernels import templates

TARGETS: dict[str, TargetTraits] = {"cpu": CPU, "sm_90": GPUS[90], "sm_80": GPUS[80]}
_NUMBERED = re.compile(r"\b(v|inside)(\d+)\b")


@dataclass(frozen=True)
class Case:
    """One kernel of a small graph, in the forms named; `kernel` counts the groups that are
    launched."""

    name: str
    outputs: Callable[[], Sequence[Node]]
    target: str
    forms: tuple[str, ...]
    kernel: int = 0

    def group(self) -> Group:
        return schedule(graph_of(self.outputs()), TARGETS[self.target]).launched[self.kernel]

    @functools.cached_property
    def spec(self) -> KernelSpec:
        """The kernel with every form that fits, whatever the cost model says of it."""
        traits, plan = (
            TARGETS[self.target],
            schedule(graph_of(self.outputs()), TARGETS[self.target]),
        )
        group, spec = plan.launched[self.kernel], lower(plan, traits)[self.kernel]
        is_ranked = group.kind == "matmul" and traits.device == "cuda"
        if is_ranked and not any(form.name.startswith("windows") for form in spec.forms):
            return lower_matmul_gpu(group, traits, limit=None)
        return spec

    def files(self) -> Iterator[tuple[str, str]]:
        """Name of the golden file and form, one for each form."""
        for form in self.forms:
            yield ".".join(filter(None, (self.name, form))), form


CASES: dict[str, Case] = {}


def case(
    target: str, *forms: str, kernel: int = 0
) -> Callable[[Callable[[], Sequence[Node]]], Callable[[], Sequence[Node]]]:
    """Register a function that builds the outputs of a graph; its name is the case's."""

    def register(function: Callable[[], Sequence[Node]]) -> Callable[[], Sequence[Node]]:
        name = f"{function.__name__}_{target}"
        assert name not in CASES, name
        CASES[name] = Case(name, function, target, forms or ("",), kernel)
        return function

    return register


def golden_text(case: Case, name: str) -> str:
    """What is expected of a form: parameters, then its source."""
    spec = case.spec
    form = next((form for form in spec.forms if form.name == name), None)
    known = ", ".join(repr(form.name) for form in spec.forms)
    assert form is not None, f"{case.name} has no form {name!r}, only {known}"
    candidate = next(row for row in spec.candidates if row.form == name)
    head = [f"{row.name}: {row.type}" for row in spec.params_of(candidate)]
    for row in candidate.scratch:
        head.append(f"scratch {row.name}: {'zeroed' if row.is_zeroed else 'any'}")
    for row in candidate.maps:
        shape, strides = (list(map(str, each)) for each in (row.shape, row.strides))
        head.append(f"map {row.name} of parameter {row.param} at {row.start}: {shape} {strides}")
    head = [line.replace("'", "") for line in head]
    return "".join(f"# {line}\n" for line in head) + "\n" + normalised(form.source, form.function)


def normalised(source: str, function: str) -> str:
    """The text of a kernel without title, without copies of functions that stand in a template, the
    kernel called `kernel` and values numbered as they come."""
    if not source.lstrip().startswith(('"""', "import", "from", "@")):
        return source  # a call of a native function: no Triton text
    lines, parts = source.splitlines(), []
    for node in ast.parse(source).body:
        decorators = getattr(node, "decorator_list", [])
        first = decorators[0].lineno if decorators else node.lineno
        text = "\n".join(lines[first - 1 : node.end_lineno])
        is_title = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_title:
            continue
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if not is_import and text in _template_parts():
            text = f"# as its template has it: {_name(node)}"
        parts.append((type(node), text))
    found = ""
    for place, (kind, text) in enumerate(parts):
        is_block = ast.FunctionDef in (kind, parts[place - 1][0])
        found += ("" if not place else "\n\n\n" if is_block else "\n") + text
    return _renumbered(re.sub(rf"\b{re.escape(function)}\b", "kernel", found)) + "\n"


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return getattr(node, "name", ast.unparse(node))


def _renumbered(text: str) -> str:
    """Values numbered in the order in which they first stand."""
    numbers: dict[tuple[str, str], str] = {}
    count: dict[str, int] = {}

    def name(match: re.Match[str]) -> str:
        key = (match[1], match[2])
        if key not in numbers:
            numbers[key] = f"{match[1]}{count.get(match[1], 0)}"
            count[match[1]] = count.get(match[1], 0) + 1
        return numbers[key]

    return _NUMBERED.sub(name, text)


@functools.cache
def _template_parts() -> frozenset[str]:
    """Texts of the top-level statements of all template files."""
    found = set()
    for path in Path(templates.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            decorators = getattr(node, "decorator_list", [])
            first = decorators[0].lineno if decorators else node.lineno
            found.add("\n".join(lines[first - 1 : node.end_lineno]))
    return frozenset(found)
