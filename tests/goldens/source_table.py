"""The table of kernels whose Triton source is expected, and their text with what does not matter
left out."""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from case_graphs import graph_of

from aotc.aot.ir.graph import Node
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.lower.matmul.gpu_source import lower_matmul_gpu
from aotc.aot.schedule import Group, schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.traits import TargetTraits
from aotc.kernels import templates

TARGETS: dict[str, TargetTraits] = {
    "cpu": CPU,
    "sm_90": GPUS[90],
    "sm_80": GPUS[80],
}
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

    @functools.cached_property
    def group(self) -> Group:
        """What the kernel computes."""
        return schedule(graph_of(self.outputs()), TARGETS[self.target]).launched[self.kernel]

    @functools.cached_property
    def spec(self) -> KernelSpec:
        """The kernel with every form that fits, whatever the cost model says of it."""
        traits, plan = (
            TARGETS[self.target],
            schedule(graph_of(self.outputs()), TARGETS[self.target]),
        )
        group, spec = plan.launched[self.kernel], lower(plan, traits)[self.kernel]
        is_ranked = group.kind == "matmul" and traits.is_gpu
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
        name = f"{function.__name__}_{target}".replace(" ", "_")
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
    if case.group.kind == "call":  # not the cost model's: they stand in the graph
        head += [str(row).strip() for row in spec.candidates if row.form == name]
    head = [f"# {line}\n".replace("'", "") for line in head]
    return "".join(head) + "\n" + normalised(form.source, form.function)


def normalised(source: str, function: str) -> str:
    """The text of a kernel without title, without copies of what stands in a template, the kernel
    called `kernel` and values numbered as they come."""
    if source.lstrip().startswith("{"):
        return source  # a call of a native function: no Triton text
    blocks: list[str] = []
    copied: list[str] = []
    plain: list[str] = []
    for node, text in statements(source):
        is_block = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if isinstance(node, ast.Expr):  # the title
            continue
        if not isinstance(node, ast.Import | ast.ImportFrom) and text in _template_parts():
            copied.append(_name(node))
        elif is_block:
            is_kernel = isinstance(node, ast.FunctionDef) and node.name == function
            blocks.append(_with_signature(text, node) if is_kernel else text)
        else:
            plain.append(text)
    if copied:
        names = textwrap.fill(f"As in the template: {', '.join(copied)}.", 96)
        blocks.insert(0, textwrap.indent(names, "# "))
    found = "\n\n\n".join(["\n".join(plain), *blocks])
    return _renumbered(re.sub(rf"\b{re.escape(function)}\b", "kernel", found)) + "\n"


def statements(source: str) -> Iterator[tuple[ast.stmt, str]]:
    """The top-level statements of a file with their text, decorators included."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        decorators = getattr(node, "decorator_list", [])
        first = decorators[0].lineno if decorators else node.lineno
        yield node, "\n".join(lines[first - 1 : node.end_lineno])


def _with_signature(text: str, node: ast.FunctionDef) -> str:
    """The function with its parameters in lines whose ends do not depend on its name."""
    given = [ast.unparse(each).replace(" ", "\0") for each in node.args.args]
    lines = textwrap.indent(textwrap.fill(", ".join(given), 92), " " * 4).replace("\0", " ")
    body = text.splitlines()[node.body[0].lineno - node.decorator_list[0].lineno :]
    decorators = [f"@{ast.unparse(each)}" for each in node.decorator_list]
    return "\n".join([*decorators, f"def {node.name}(", lines, "):", *body])


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
    files = Path(templates.__file__).parent.rglob("*.py")
    texts = (path.read_text(encoding="utf-8") for path in files)
    return frozenset(text for file in texts for _, text in statements(file))
