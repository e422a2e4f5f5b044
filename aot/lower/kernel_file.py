"""Assembles the text of a kernel file, and writes what all kinds of kernels share."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.rounding import computed_apart
from aotc.aot.ir.size import KERNEL_PREFIX, Dim, bounds, kernel_text
from aotc.aot.lower.emit import INDENT, Body, Emitter, Moment, Position, Value, bare, pointer
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param
from aotc.aot.schedule.group import Group, Root, WrittenRows
from aotc.aot.schedule.trace import Access
from aotc.kernels.templates.registry import Template, called_functions

WAIT = "wait_for_kernels()"
GLUON_IMPORTS = (
    "from triton.experimental import gluon",
    "from triton.experimental.gluon import language as gl",
    "from triton.experimental.gluon.language.nvidia.ampere import mma_v2",
)
PROGRAM_SYMBOLS = frozenset({"z", "image", "panel", "kernel_offset"})  # numbers, not blocks
_WORD, _ASSIGNED = re.compile(r"\w+"), re.compile(r" *(\w+) = ")


@dataclass(frozen=True, slots=True)
class Draft:
    """A form before its file is written; its candidates say what parameters are its own."""

    name: str
    lines: Sequence[str]
    functions: str = ""  # what stands before the kernel, which calls them
    waits: bool = False  # by itself, for the kernels before it
    is_gluon: bool = False  # it says which thread has which elements


def buffer_names(group: Group) -> dict[Node, str]:
    """Names of the pointer parameters of what the group reads."""
    return {node: f"in{place}" for place, node in enumerate(group.reads)}


def emitter_of(
    group: Group,
    body: Body,
    masks: dict[Symbol, str],
    stops: Callable[[Node, Position], Value | None] = lambda node, index: None,
    is_of_gpu: bool = False,
    approximates: bool = True,
) -> Emitter:
    """What writes the values of a group into `body`; see `Emitter`."""
    buffers, starts = buffer_names(group), dict(group.starts)
    return Emitter(
        body,
        buffers,
        masks,
        stops,
        rounded=group.rounded,
        starts=starts,
        is_of_gpu=is_of_gpu,
        approximates=is_of_gpu and approximates,
        apart=products_apart(group) if is_of_gpu else frozenset(),
    )


def products_apart(group: Group) -> frozenset[Node]:
    """Products of a kernel that must be rounded by themselves instead of fused into a multiply-add;
    each of its sums is then rounded by itself, too."""
    return computed_apart(group.nodes) if group.kind in ("pointwise", "row") else frozenset()


def moments_of(group: Group) -> Callable[[Node], Moment]:
    """The earliest point at which a kernel of the group can compute each node (programmatic
    dependent launch)."""
    known = {
        node: Moment.CONSTANTS if node.op == "constant" else Moment.MEMORY for node in group.reads
    }

    def moment_of(node: Node) -> Moment:
        if node is group.root_op:
            return Moment.SUMS
        if node not in known:
            known[node] = max(map(moment_of, node.inputs), default=Moment.START)
        return known[node]

    return moment_of


def parameters(group: Group) -> tuple[Param, ...]:
    """Pointer parameters: reads, then stores."""
    reads = [Param(f"in{at}", pointer(node.dtype)) for at, node in enumerate(group.reads)]
    stores = [Param(f"out{at}", pointer(row.node.dtype)) for at, row in enumerate(group.roots)]
    return (*reads, *stores)


def function_name(group: Group) -> str:
    """Name of the kernel: what it is like and its sizes."""
    sizes = re.sub(r"\W+", "_", str(group.domain).replace("×", "x")).strip("_")
    return f"{group.label}_{sizes}"


def sizes_of(group: Group, text: str) -> tuple[Dim, ...]:
    """The dims that a kernel's text reads, each of them a parameter."""
    inner = (*group.nodes, *(root.node for root in group.roots))
    nodes = {*inner, *group.reads, *(leaf for node in inner for leaf in node.inputs)}
    dims = {dim for node in nodes for size in node.sizes() for dim in size.dims()}
    words = set(re.findall(rf"\b{KERNEL_PREFIX}\w+", text))
    found = (dim for dim in dims if KERNEL_PREFIX + dim.name in words)
    return tuple(sorted(found, key=lambda dim: dim.name))


def assemble(group: Group, draft: Draft, candidate: Candidate, sizes: Sequence[Dim]) -> str:
    """The complete file of a form, of which `candidate` is one; it takes `sizes` as numbers."""
    text, functions = "\n".join(draft.lines), draft.functions
    decorator = "@triton.jit"
    functions = "\n\n\n".join(filter(None, (functions, *_called(text))))
    title = textwrap.fill(f'"""{group}."""', 96, subsequent_indent=INDENT)
    imports = ["import triton", "import triton.language as tl"]
    if draft.is_gluon:
        text, decorator = re.sub(r"\btl\.(arange|full)\(", r"gl.\1(", text), "@gluon.jit"
        imports += GLUON_IMPORTS
    if "libdevice." in text + functions:
        imports.append("from triton.language.extra import libdevice")
    arguments = [param.name for param in parameters(group)]
    arguments += [KERNEL_PREFIX + dim.name for dim in sizes]
    arguments += [each.name for each in candidate.scratch]
    arguments += [each.name for each in candidate.maps]
    arguments += [f"{name}: tl.constexpr" for name, _ in candidate.constexprs]
    signature = f"def {function_name(group)}({', '.join(arguments)}):"
    if len(signature) > 96:
        inner = textwrap.fill(", ".join(arguments), 92)
        signature = "\n".join(
            [f"def {function_name(group)}(", textwrap.indent(inner, INDENT), "):"]
        )
    extra = "".join(map(_combination, sorted(set(re.findall(r"combine_fn=(\w+)", text)))))
    if functions:
        extra = f"{extra}\n\n{functions}\n\n"
    head = "\n".join([title, "", *imports, extra, "", decorator, signature])
    return f"{head}\n{textwrap.indent(text, INDENT)}\n"


_CALL = re.compile(r"(?<!def )\b(\w+)\(")


def _called(text: str) -> list[str]:
    """The functions that a text calls, and those that they call."""
    found, size = set[str](), -1
    while len(found) != size:
        size = len(found)
        whole = "\n".join((text, *(called_functions()[name] for name in found)))
        found = called_functions().keys() & set(_CALL.findall(whole))
    return [code for name, code in called_functions().items() if name in found]


def _combination(name: str) -> str:
    """The function by which a reduction of a tile joins two values: a pointwise op."""
    value = bare(OPS[name].triton.format("left", "right"))
    return f"\n@triton.jit\ndef {name}(left, right):\n    return {value}\n\n"


def write_mask(body: Body, symbol: Symbol, masks: dict[Symbol, str], also: str = "") -> None:
    """Define the mask of a symbol whose last block is partial; `also`: one more condition."""
    masks[symbol] = f"{symbol.name}_mask"
    inside = f"{symbol.name} < {kernel_text(symbol.extent)}"
    text = f"({inside}) & ({also})" if also else inside
    body.write(f"{masks[symbol]} = {text}", frozenset({symbol}))


def has_tail(symbol: Symbol, blocks: Sequence[int]) -> bool:
    """Whether blocks of some candidate reach beyond the extent.

    A kernel that has one block for all elements has it also at a call that has none of them.
    """
    low, high = bounds(symbol.extent)
    return symbol.extent % max(blocks) != 0 or (low < 1 and high <= max(blocks))


def write_stores(emitter: Emitter, roots: Sequence[Root]) -> None:
    """Store each root at its index, contiguous in the root's own shape."""
    for place, root in enumerate(roots):
        if root.rows is None:
            write_store(emitter, root, place)
        else:
            _write_rows(emitter, root, root.rows, place)


def _write_rows(emitter: Emitter, root: Root, rows: WrittenRows, number: int) -> None:
    """Store what is of the rows, where their places are inside of the tensor."""
    value = emitter.unrounded(*_of(rows.value))  # the store rounds
    place = emitter.value(*_of(rows.place))
    extent = kernel_text(rows.loaded.extent)
    inside = f"({place.text} >= 0) & ({place.text} < {extent})"
    with emitter.body.at(emitter.moment_of(rows.place.node)):
        is_inside = emitter.body.bind(inside, place.symbols, "inside")
    loaded = Symbol(place.text, rows.loaded.extent)
    emitter.loaded[loaded] = place.symbols
    offset = ix.linear(root.index, root.node.shape).substitute({rows.loaded: ix.of(loaded)})
    symbols = emitter.varies_with(offset).union(
        value.symbols, *(emitter.varies_with(each.index) for each in rows.conditions)
    )
    masks = [name for at, name in emitter.masks.items() if at in symbols]
    masks += [emitter.condition(each) for each in rows.conditions]
    mask = " & ".join([*masks, is_inside.text])
    line = f"tl.store(out{number} + {offset}, {value.text}, mask={mask})"
    emitter.body.write(line, symbols)


def _of(need: Access) -> tuple[Node, tuple[Index, ...], tuple[Bound, ...]]:
    return need.node, need.index, need.conditions


def write_store(emitter: Emitter, root: Root, place: int) -> None:
    """Store one root to the parameter `out{place}`."""
    value = emitter.unrounded(root.node, root.index)  # the store rounds
    offset = ix.linear(root.index, root.node.shape)
    symbols = offset.symbols()
    masks = " & ".join(name for at, name in emitter.masks.items() if at in symbols)
    where = str(offset)
    if all(symbol.name in PROGRAM_SYMBOLS for symbol in symbols):
        # One element: the value may still be a block of shape (1, 1).
        where = "tl.zeros((1, 1), tl.int32)" + (f" + {where}" if symbols else "")
    if root.node.op == "check":  # one word for all elements, and only where one is wrong
        masks = " & ".join(filter(None, (emitter.is_wrong(root.node, root.index), masks)))
        where = f"({where}) * 0"
    mask = f", mask={masks}" if masks else ""
    emitter.body.write(f"tl.store(out{place} + {where}, {value.text}{mask})", symbols)


def blocks_of(candidates: Sequence[Candidate], name: str) -> list[int]:
    """Values of one config over all candidates."""
    return [dict(candidate.config)[name] for candidate in candidates]


def kernel_of(
    group: Group,
    drafts: Sequence[Draft],
    candidates: Sequence[Candidate],
    others: Sequence[str] = (),
) -> KernelSpec:
    """The spec of a kernel of several forms, which all take the dims that any of them reads;
    `others`: lines of forms that are written elsewhere."""
    lines = [line for row in drafts for line in row.lines]
    sizes = sizes_of(group, "\n".join([*lines, *others]))
    name, first = function_name(group), {row.form: row for row in reversed(candidates)}
    forms = (
        Form(row.name, assemble(group, row, first[row.name], sizes), name, row.waits)
        for row in drafts
    )
    return KernelSpec(
        name=name,
        forms=tuple(forms),
        params=parameters(group),
        candidates=tuple(candidates),
        bytes=group.bytes,
        operations=group.operations,
        sizes=sizes,
    )


def fill(
    template: Template,
    holes: Mapping[str, Sequence[str]],
    constants: Mapping[str, str],
    before_loop: Sequence[str],
) -> list[str]:
    """Lines of the template's function body.

    Each statement that calls a hole, or assigns to it, gives way to the lines given for it, each
    constant to its text; `before_loop` goes before the first loop. Branches on a constant are
    decided; assignments that nothing reads are dropped.
    """
    function = next(
        node
        for node in template.tree().body
        if isinstance(node, ast.FunctionDef) and node.name == template.function
    )
    lines: list[str] = []
    source = template.text().splitlines()
    waiting = list(before_loop)
    for statement in function.body:
        if isinstance(statement, ast.For):
            lines += waiting
            waiting = []
        lines += _filled(statement, source, holes, constants)
    return _without_unread(lines)


def _filled(
    statement: ast.stmt,
    source: Sequence[str],
    holes: Mapping[str, Sequence[str]],
    constants: Mapping[str, str],
) -> list[str]:
    if isinstance(statement, ast.For | ast.If):
        inside = [
            line for inner in statement.body for line in _filled(inner, source, holes, constants)
        ]
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name):
            decided = constants.get(statement.test.id)
            if decided is not None:
                return inside if ast.literal_eval(decided) else []
        head = _replaced([statement], source, constants, 0)[:1]
        return head + [textwrap.indent(line, "    ") for line in inside]
    called = getattr(getattr(statement, "value", None), "func", None)
    for node in (called, *getattr(statement, "targets", ())):
        if isinstance(node, ast.Name) and node.id in holes:
            return list(holes[node.id])
    last = statement.end_lineno or statement.lineno
    return _replaced([statement], source, constants, last - statement.lineno)


def _replaced(
    statements: Sequence[ast.stmt], source: Sequence[str], constants: Mapping[str, str], more: int
) -> list[str]:
    """The statement's own lines with the constants put in."""
    first = statements[0].lineno - 1
    lines = [line[statements[0].col_offset :] for line in source[first : first + more + 1]]
    pattern = re.compile(rf"\b({'|'.join(constants)})\b")
    return [pattern.sub(lambda match: constants[match[1]], line) for line in lines]


def _without_unread(lines: list[str]) -> list[str]:
    """The lines without assignments to names that stand nowhere else, nor in lines that go."""
    words = [_WORD.findall(line) for line in lines]
    counts = Counter(word for row in words for word in row)
    while True:
        kept: list[tuple[str, list[str]]] = []
        for line, row in zip(reversed(lines), reversed(words), strict=True):  # readers first
            assigned = _ASSIGNED.match(line)
            if assigned and counts[assigned[1]] == 1:
                counts.subtract(row)
            else:
                kept.append((line, row))
        if len(kept) == len(lines):
            return lines
        kept.reverse()
        lines, words = [line for line, _ in kept], [row for _, row in kept]
