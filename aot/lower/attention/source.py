"""Attention groups → filled templates: heads read straight through views, masks on the scores."""

from __future__ import annotations

import ast
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.ops import KEEPS_NAN
from aotc.aot.ir.size import Extent, content, fixed, highest, is_static, kernel_text, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file
from aotc.aot.lower.attention.candidates import Problem, candidates
from aotc.aot.lower.attention.pieces import KEYS_TOGETHER, parts_of
from aotc.aot.lower.emit import INDENT, Body, Value, as_tensor, computed, triton_type
from aotc.aot.lower.grids import axes_of, folded
from aotc.aot.lower.kernel_file import fill
from aotc.aot.lower.spec import Candidate, Form, KernelSpec
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.attention import (
    attention_accesses,
    groups,
    has_few_rows,
    head_element,
    query_position,
)
from aotc.aot.schedule.group import Group, Root
from aotc.aot.schedule.trace import STORED, Access, accesses
from aotc.aot.traits import DESCRIPTOR_BYTES, TargetTraits
from aotc.kernels.templates.registry import Axes, Template, called_functions

LOG2_E = 1 / math.log(2)
FEW_KEYS = 1024  # in blocks of 64 or fewer
SMALLEST_DOT = 16  # elements along each axis of a dot
FARTHEST = 2**31 - 1  # element that an address of 32 bits reaches
HEAD_AXES = 2  # of a descriptor of all heads, beside rows and elements
_LOADS = ("load_q", "load_k", "load_v", "load_mask", "last_k", "last_v", "last_mask")
DESCRIPTORS = ("queries", "keys", "values", "result")
HEADS = ("head_q", "head_k", "head_v", "head_out")  # of the Gluon form
LINE_BYTES = 128  # of a GPU's cache
CONSTEXPRS = ("BN", "GROUP", "STAGES")


@dataclass(frozen=True, slots=True)
class Heads:
    """All heads of an operand as one tensor: extents, strides and places of head z on two axes."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of one head in memory: stored node, first element, extents and the stride of rows."""

    memory: Node
    start: Index
    extents: tuple[Extent, Extent]
    stride: Extent

    def heads(self) -> Heads | None:
        """The first element of head z as a place on two axes, if it can be written so."""
        axes = []
        for atom, stride in self.start.terms:
            lowest, highest = ix.of(atom).bounds()
            if lowest < 0 or stride < 0:
                return None
            axes.append((highest + 1, stride, str(ix.of(atom))))
        if len(axes) > HEAD_AXES:
            return None
        axes += [(1, self.stride, "0")] * (HEAD_AXES - len(axes))
        extents, strides, places = zip(*axes, strict=True)
        return Heads(extents, strides, places)


class Attention:
    """One attention as its forms see it: symbols, accesses, operands in memory."""

    def __init__(self, group: Group, traits: TargetTraits) -> None:
        assert group.root_op is not None
        assert group.domain.reduced is not None
        self.group, self.root_op, self.domain, self.traits = (
            group, group.root_op, group.domain, traits,
        )  # fmt: skip
        self.keys = group.domain.reduced
        self.needs = attention_accesses(group.root_op, group.domain)
        self.row = Symbol("sk", self.keys.extent)  # keys along the rows of a tile
        self.column = Symbol("sl", self.keys.extent)  # keys along its lanes
        self.element = head_element(group.root_op)

    def problem(self) -> Problem:
        """What the choice of a config depends on."""
        key, value = (fixed(operand.shape[3]) for operand in self.root_op.inputs[1:3])
        is_split = self.traits.precision_of(self.root_op.dtype) == "tf32x3"
        return Problem(
            extents=self._extents(),
            key_block=padded(key),
            value_block=padded(value),
            itemsize_bytes=DTYPES[self.root_op.dtype].itemsize_bytes,
            is_causal=self.root_op.attr("causal"),
            offset=typical(self.root_op.attr("offset")),
            has_few_rows=has_few_rows(self.root_op),
            has_descriptors=self._has_descriptors(),
            may_overlap=self._may_overlap(),
            is_split=is_split,
            # Such products read what lies along their depth, which a value's keys are not.
            pieces=(key, value) if is_split and self.traits.can_overlap else None,
        )

    def _extents(self) -> tuple[Extent, Extent, Extent]:
        return self.domain.outer.extent, self.domain.rows.extent, self.keys.extent

    def constants(self) -> dict[str, str]:
        """The literals of the templates: sizes, scale and what is compiled in."""
        sizes = self.problem()
        heads, rows, keys = sizes.extents
        scale = 1.0 if self.has_bias else self.root_op.attr("scale") * LOG2_E
        return {
            "HEADS": kernel_text(heads),
            "RATIO": str(groups(self.root_op)),
            "T": kernel_text(rows),
            "ROWS": kernel_text(rows),
            "BR": str(power_above(highest(rows))),
            "S": kernel_text(keys),
            "BD": str(sizes.key_block),
            "BV": str(sizes.value_block),
            "SCALE": repr(scale),
            "CAUSAL": str(self.root_op.attr("causal")),
            "OFFSET": kernel_text(self.root_op.attr("offset")),
            "SAFE": str(self.root_op.attr("is_safe")),
            "PRECISION": f'"{self.traits.precision_of(self.root_op.dtype)}"',
        }

    @property
    def has_bias(self) -> bool:
        """Whether the mask is added to the scores."""
        return len(self.needs) == 4 and self.root_op.inputs[3].dtype != "bool"

    def _may_overlap(self) -> bool:
        """Whether operands and result are tensors of heads, rows and elements."""
        # Its text holds numbers.
        if not self._has_descriptors() or not is_static(self._extents()):
            return False
        matrices = (*(self.matrix(place) for place in range(3)), self.result())
        return all(matrix is not None and matrix.heads() is not None for matrix in matrices)

    def _has_descriptors(self) -> bool:
        """Whether q, k and v are rows in memory, of 16 bits, and no mask is an operand."""
        if len(self.needs) == 4 or DTYPES[self.root_op.dtype].itemsize_bytes != 2:
            return False
        return all(self.matrix(place) is not None for place in range(3))

    def matrix(self, place: int) -> Matrix | None:
        """Operand `place` as rows of contiguous elements in memory, or None where it is not so."""
        need: Access | None = self.needs[place]
        while need is not None and need.node not in self.group.reads:
            need = accesses(need.node, need.index)[0] if need.node.kind == "view" else None
        if need is None:
            return None
        outer = self.domain.rows if place == 0 else self.keys
        inner = self.domain.lanes if place == 2 else self.element
        return _matrix(need.node, need.index, outer, inner)

    def result(self) -> Matrix | None:
        """The stored result likewise, where nothing but views follows on the attention."""
        (root, *more) = self.group.roots
        node = root.node
        while node.kind == "view" and node is not self.root_op:
            (node,) = node.inputs
        if more or node is not self.root_op:
            return None
        return _matrix(root.node, root.index, self.domain.rows, self.domain.lanes)


def _matrix(memory: Node, index: Sequence[Index], outer: Symbol, inner: Symbol) -> Matrix | None:
    """Rows `outer` of elements `inner` of a stored node, if its strides allow a descriptor."""
    offset = ix.linear(index, memory.shape)
    stride = offset.stride(outer)
    start = offset.substitute({outer: ix.ZERO, inner: ix.ZERO})
    if stride is None or offset.stride(inner) != 1 or {outer, inner} & start.symbols():
        return None
    parts = (stride, start.constant, *(count for _, count in start.terms))
    itemsize = DTYPES[memory.dtype].itemsize_bytes
    if any(content(part) * itemsize % DESCRIPTOR_BYTES for part in parts):
        return None
    if typical(memory.type.numel) > FARTHEST:  # a plan of sizes refuses calls with more
        return None
    return Matrix(memory, start, (outer.extent, inner.extent), stride)


def _lies_there(matrix: Matrix) -> bool:
    """Whether most of a tensor is there before the call: rows are written into it at most."""
    memory = matrix.memory
    if memory.kind == "call":
        return memory.attr("result") in dict(memory.attr("updates"))
    return memory.op in STORED


def padded(extent: int) -> int:
    """Block of a head's elements."""
    return max(SMALLEST_DOT, power_above(extent))


def has_tail(symbol: Symbol) -> bool:
    return padded(symbol.length) != symbol.length


class Lines:
    """The lines that fill the holes of one form."""

    beside: tuple[Symbol, ...] = ()  # keys that a tile of values is made of, where not `row`
    is_masked_throughout = False  # rather than a loop of its own for blocks that need no mask

    def __init__(self, writer: Attention, is_split: bool, found: Sequence[Candidate]) -> None:
        self.writer, self.is_split, self.domain = writer, is_split, writer.domain
        self.body, self.masks = Body(), dict[Symbol, str]()
        self.buffers = kernel_file.buffer_names(writer.group)
        self.emitter = kernel_file.emitter_of(
            writer.group, self.body, self.masks, self._stop, is_of_gpu=True, approximates=False
        )
        blocks, keys = kernel_file.blocks_of(found, "BN"), writer.keys.extent
        self.has_last = kernel_file.has_tail(writer.keys, blocks)
        # Dynamic sizes, but never beyond the shortest block.
        self.is_one_block = not isinstance(keys, int) and highest(keys) <= min(blocks)
        tallest = kernel_file.blocks_of(found, "BM")
        self.has_row_mask = kernel_file.has_tail(self.domain.rows, tallest)

    def loading(self) -> dict[str, list[str]]:
        """Holes of a form that loads through pointers."""
        writer = self.writer
        self._mask(self.domain.rows, self.has_row_mask)
        self.body.write(f"d = tl.arange(0, {padded(writer.element.length)})[None, :]")
        self._mask(writer.element, has_tail(writer.element))
        self._mask(self.domain.lanes, has_tail(self.domain.lanes))
        width = padded(writer.element.length)
        self._operand("q", writer.needs[0], "BM", width, writer.element)
        before, self.body.lines = self.body.lines, []
        self.emitter.forget_all()
        holes: dict[str, list[str]] = {}
        if not self.is_split:
            holes |= self._block("load", is_last=False)
        holes |= self._block("last", is_last=self.has_last)
        holes["load_q"] = [*before, *self.body.lines]
        if self.is_split:  # all of a block is asked for before any of it is multiplied
            loads = [line for line in holes["last_mask"] if "scores" not in line]
            holes["last_mask"] = [line for line in holes["last_mask"] if "scores" in line]
            holes["last_k"] = [*holes["last_k"], *loads, *holes["last_v"]]
            holes["last_v"] = []
        ahead = self._ahead() if self.is_split else []
        return {**holes, "ahead": ahead, "hide": self._hide(), "store": self._store()}

    def _ahead(self) -> list[str]:
        """Has the program's keys and values brought near while the kernels before still run, where
        these write at most some rows of them; then waits for those kernels."""
        matrices = [self.writer.matrix(place) for place in (1, 2)]
        found = [matrix for matrix in matrices if matrix is not None and _lies_there(matrix)]
        if not self.writer.traits.is_launched_early or not found:
            return []
        keys = kernel_text(self.writer.keys.extent)
        lines = [
            f"share = tl.cdiv(tl.cdiv({keys}, BN), SPLITS) * BN",
            f"for start in range(split * share, tl.minimum(split * share + share, {keys}), BN):",
            f"{INDENT}near = tl.minimum(start + tl.arange(0, BN), {keys} - 1)[:, None]",
        ]
        for matrix in found:
            line = LINE_BYTES // DTYPES[matrix.memory.dtype].itemsize_bytes
            count = power_above(max(1, fixed(matrix.extents[1]) // line))
            first = f"{self.buffers[matrix.memory]} + {matrix.start}"
            row = f"near * {kernel_text(matrix.stride)} + tl.arange(0, {count})[None, :] * {line}"
            lines.append(f"{INDENT}ask_for({first} + {row})")
        return [*lines, kernel_file.WAIT]

    def describing(self) -> dict[str, list[str]]:
        """Holes of a form that loads through descriptors."""
        holes = {}
        for place, (name, block) in enumerate(zip(DESCRIPTORS, ("BM", "BN", "BN"), strict=False)):
            matrix = self.writer.matrix(place)
            assert matrix is not None
            shape = ", ".join(map(kernel_text, matrix.extents))
            width = padded(fixed(matrix.extents[1]))
            start = str(matrix.start)
            address = self.buffers[matrix.memory] + (f" + {start}" if start != "0" else "")
            holes[name] = [
                f"{name} = tl.make_tensor_descriptor(",
                f"    {address}, [{shape}], [{kernel_text(matrix.stride)}, 1], [{block}, {width}]",
                ")",
            ]
        self._mask(self.domain.rows, self.has_row_mask)
        self._mask(self.domain.lanes, has_tail(self.domain.lanes))
        masks, self.body.lines = self.body.lines, []
        hide = [line.replace("= s[", "= (start + tl.arange(0, BN))[", 1) for line in self._hide()]
        return {**holes, "hide": hide, "store": [*masks, *self._store()]}

    def _mask(self, symbol: Symbol, has_tail: bool) -> None:
        if has_tail:
            kernel_file.write_mask(self.body, symbol, self.masks)

    def _block(self, prefix: str, is_last: bool) -> dict[str, list[str]]:
        """Loads of a block of keys; the last one may reach beyond them."""
        self.body.open_loop(self.inside)
        loop = self.body.loop
        assert loop is not None
        self._write_keys(is_last)
        at_mask = len(loop)
        self._write_scores(is_last)
        at_value = len(loop)
        self._write_values(is_last)
        lines = self.body.close_loop()
        self.emitter.forget(self.inside)
        for symbol in self.inside:
            self.masks.pop(symbol, None)
        return {
            f"{prefix}_k": lines[:at_mask],
            f"{prefix}_mask": lines[at_mask:at_value],
            f"{prefix}_v": lines[at_value:],
        }

    @property
    def inside(self) -> frozenset[Symbol]:
        """What varies from block to block."""
        return frozenset({self.writer.row, self.writer.column, *self.beside})

    def _write_keys(self, is_last: bool) -> None:
        writer = self.writer
        self.body.write("sk = s[:, None]", self.inside)
        self._mask(writer.row, is_last)
        width = padded(writer.element.length)
        self._operand("k", self._of(1, writer.row), "BN", width, writer.element)

    def _write_scores(self, is_last: bool) -> None:
        """What scores are beside the first product."""
        if len(self.writer.needs) == 4:
            self._write_mask(is_last)

    def _write_values(self, is_last: bool) -> None:
        lanes = self.domain.lanes
        self._operand("v", self._of(2, self.writer.row), "BN", padded(lanes.length), lanes)

    def _of(self, place: int, keys: Symbol) -> Access:
        """Access of an operand with keys along the given symbol."""
        need = self.writer.needs[place]
        values = {self.writer.keys: ix.of(keys)}
        return Access(need.node, tuple(part.substitute(values) for part in need.index))

    def _operand(self, name: str, need: Access, rows: str, columns: int, element: Symbol) -> None:
        """The tile `name` of an operand, zero where it is masked; columns are of `element`."""
        value = self.emitter.filled(need, "0.0" if self.masks else "")
        dtype = need.node.dtype
        text = as_tensor(value.text, dtype)
        masks = [mask for symbol, mask in self.masks.items() if symbol in value.symbols]
        if masks and not self.emitter.is_filled(need, 0.0):
            text = f"tl.where({' & '.join(masks)}, {text}, 0.0)"
        if computed(dtype) != dtype and not self.body.unwiden(text):
            text = f"{text}.to({triton_type(dtype)})"
        if not name.startswith("v") and element in self.masks and element not in value.symbols:
            # Equal elements, of which the product is to have no more than there are.
            text = f"tl.where({self.masks[element]}, {text}, 0.0)"
        keys = {self.writer.row, *self.beside}
        if element not in value.symbols or not value.symbols & {self.domain.rows, *keys}:
            text = f"tl.broadcast_to({text}, {rows}, {columns})"
        self.body.name(name, text, value.symbols & keys)

    def _write_mask(self, is_last: bool) -> None:
        writer = self.writer
        inside = frozenset({writer.column})
        self.body.write("sl = s[None, :]", inside)
        self._mask(writer.column, is_last)
        need = self._of(3, writer.column)
        value = self.emitter.value_of_type(need.node, need.index)  # it is compared with -inf
        if not writer.has_bias:
            self.body.write(f'scores = tl.where({value.text}, scores, float("-inf"))', inside)
            return
        # The smallest finite numbers stay finite as exponents of two; -inf stays what it is, and
        # so does what is no number.
        bias = f"tl.maximum({value.text} * {LOG2_E!r}, -2.5e38, {KEEPS_NAN})"
        bias = f'tl.where({value.text} == float("-inf"), {value.text}, {bias})'
        scale = writer.root_op.attr("scale") * LOG2_E
        self.body.write(f"scores = scores * {scale!r} + {bias}", inside)

    def _hide(self) -> list[str]:
        """Keys beyond the last one, and what a causal row does not see."""
        writer = self.writer
        lines = []
        if self.has_last:
            keys = kernel_text(writer.keys.extent)
            lines.append(f'scores = tl.where(sl < {keys}, scores, float("-inf"))')
        if writer.root_op.attr("causal"):
            _, _, query, _ = query_position(writer.root_op, self.domain)
            seen = f"sl <= {query + writer.root_op.attr('offset')}"
            lines.append(f'scores = tl.where({seen}, scores, float("-inf"))')
        return ["sl = s[None, :]", *lines] if lines else []

    def _store(self) -> list[str]:
        """The epilogue on the result, a tile [BM, BV]; in a split form [BR, BV]."""
        rows, roots = self.domain.rows, self.writer.group.roots
        self.emitter.forget_all()
        self.body.lines = []
        if self.is_split:
            row = Symbol("r", rows.extent)
            tall = power_above(highest(rows.extent))
            self.body.write(f"r = tl.arange(0, {tall})[:, None]")
            self.masks.pop(rows, None)
            self._mask(row, tall != rows.extent)
            values = {rows: ix.of(row)}
            roots = tuple(
                Root(root.node, tuple(part.substitute(values) for part in root.index))
                for root in roots
            )
        elif rows.extent == 1:
            self.body.write("result = tl.sum(tl.where(x == 0, result, 0.0), 0)[None, :]")
        if self.domain.lanes.extent == 1:  # its columns are alike: no index tells them apart
            first = f"tl.arange(0, {padded(1)})[None, :] == 0"
            self.body.write(f"result = tl.sum(tl.where({first}, result, 0.0), 1)[:, None]")
        kernel_file.write_stores(self.emitter, roots)
        return self.body.lines

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        if node is not self.writer.root_op:
            return None
        rows = Symbol("r", self.domain.rows.extent) if self.is_split else self.domain.rows
        tile = frozenset({rows, self.domain.lanes, self.domain.outer})
        return Value("result", frozenset(symbol for symbol in tile if symbol.extent != 1))


class PieceLines(Lines):
    """The lines of the form whose heads come in pieces.

    Tiles of the first piece have the names that they have elsewhere, those of the others end in
    their numbers. A thread has keys of a value beside each other, as shared memory is to have them:
    stored one by one they met in its banks.
    """

    def __init__(self, writer: Attention, is_split: bool, found: Sequence[Candidate]) -> None:
        super().__init__(writer, is_split, found)
        self.elements = parts_of(writer.element)
        self.lanes = parts_of(self.domain.lanes)
        self.beside = tuple(Symbol(f"s{at}", writer.keys.extent) for at in range(KEYS_TOGETHER))
        # A second loop of so many instructions costs a program of few blocks more than masks do.
        is_masked = self.has_last or writer.root_op.attr("causal")
        self.is_masked_throughout = is_masked and typical(writer.keys.extent) <= FEW_KEYS

    def loading(self) -> dict[str, list[str]]:
        """Holes of the form."""
        body = self.body
        self._mask(self.domain.rows, self.has_row_mask)
        for part in self.elements:
            body.write(f"{part.symbol.name} = {part.columns}")
            self._mask(part.symbol, part.has_tail)
            need = part.along(self.writer.needs[0], self.writer.element)
            self._operand(f"q{part.name}", need, "BM", part.width, part.symbol)
        for part in self.lanes:
            # As the hint says no more, loads are narrow and a warp reads one row of a value.
            body.write(f"{part.symbol.name} = tl.multiple_of({part.columns}, [1, 1])")
            self._mask(part.symbol, part.has_tail)
        before, body.lines = body.lines, []
        self.emitter.forget_all()
        holes = self._block("load", is_last=False) | self._block("last", is_last=self.has_last)
        return {
            **holes,
            "load_q": [*before, *body.lines],
            "y": [],
            "acc": [
                f"acc{part.name} = tl.zeros((BM, {part.width}), tl.float32)" for part in self.lanes
            ],
            "attend": self._attend(),
            "result": [],
            "hide": self._hide(),
            "store": self._store(),
        }

    def _write_keys(self, is_last: bool) -> None:
        self.body.write("sk = s[:, None]", self.inside)
        self._mask(self.writer.row, is_last)
        for part in self.elements:
            need = part.along(self._of(1, self.writer.row), self.writer.element)
            self._operand(f"k{part.name}", need, "BN", part.width, part.symbol)

    def _write_scores(self, is_last: bool) -> None:
        precision = self.writer.constants()["PRECISION"]
        for part in self.elements[1:]:
            product = f"tl.dot(q{part.name}, tl.trans(k{part.name}), scores"
            self.body.write(f"scores = {product}, input_precision={precision})", self.inside)
        super()._write_scores(is_last)

    def _write_values(self, is_last: bool) -> None:
        count = len(self.beside)
        for at, key in enumerate(self.beside):
            first = f"start + {at}" if at else "start"
            keys = f"({first} + {count} * tl.arange(0, BN // {count}))[:, None]"
            self.body.write(f"{key.name} = {keys}", self.inside)
            self._mask(key, is_last)
        for part in self.lanes:
            names = [f"v{part.name}_{at}" for at in range(count)]
            for name, key in zip(names, self.beside, strict=True):
                need = part.along(self._of(2, key), self.domain.lanes)
                self._operand(name, need, f"BN // {count}", part.width, part.symbol)
            self.body.write(f"v{part.name} = join_keys({', '.join(names)})", self.inside)

    def _attend(self) -> list[str]:
        """One step over a block of keys."""
        constants = self.writer.constants()
        scale, precision = constants["SCALE"], constants["PRECISION"]
        lines = [f"peak, total, weights, shrink = weigh(scores, peak, total, {scale})"]
        for part in self.lanes:
            acc = f"acc{part.name}"
            product = f"tl.dot(weights, v{part.name}, {acc} * shrink[:, None]"
            lines.append(f"{acc} = {product}, input_precision={precision})")
        return lines

    def _store(self) -> list[str]:
        """The epilogue on the result of each piece."""
        lanes, safe = self.domain.lanes, self.writer.constants()["SAFE"]
        has_tail = self.lanes[-1].has_tail
        if has_tail:
            self.masks[lanes] = f"{lanes.name}_mask"
        storing, lines = super()._store(), list[str]()
        for part in self.lanes:
            if part.name:
                lines.append(f"{lanes.name} = {part.symbol.name}")
            if has_tail:
                lines.append(f"{lanes.name}_mask = {lanes.name} < {lanes.length}")
            lines += [f"result = finish(acc{part.name}, total, {safe})", *storing]
        return lines


@dataclass(frozen=True, slots=True)
class _Form:
    """A template, and the functions it shares with others."""

    template: Template
    functions: tuple[str, ...]


def _form_row(
    name: str, function: str, holes: tuple[str, ...], functions: tuple[str, ...], *axes: Axes
) -> _Form:
    file = "plain" if name == TF32X3 else name
    template = Template(name, f"attention/{file}.py", function, (*holes, "hide", "store"), *axes)
    return _Form(template, functions)


OVERLAPPED = "overlapped"
KEY_RANGE = "key_range"
_TILED = ("place", KEY_RANGE, "weigh", "attend", "finish")
_IN_PIECES = ("place", KEY_RANGE, "weigh", "join_keys", "finish")
TF32X3 = "tf32x3"
FORMS: dict[str, _Form] = {
    row.template.name: row
    for row in (
        _form_row("plain", "attention", _LOADS, _TILED),
        _form_row(TF32X3, "attention", (*_LOADS, "y", "acc", "attend", "result"), _IN_PIECES),
        _form_row("descriptor", "attention_descriptor", DESCRIPTORS[:3], _TILED),
        _form_row("overlapped", "attention_overlapped", (*DESCRIPTORS, *HEADS), ()),
        _form_row(
            "split",
            "attention_split",
            ("ahead", *_LOADS),
            ("weigh", "attend", "finish", "join"),
            ("HEADS", "1"),
        ),
    )
}


def lower_attention(group: Group, traits: TargetTraits) -> KernelSpec:
    """The attention of the group in every form that its operands allow."""
    attention = Attention(group, traits)
    found = candidates(attention.problem(), traits)
    names = tuple(dict.fromkeys(candidate.form for candidate in found))
    drafts = [_draft(attention, name, found) for name in names if name != OVERLAPPED]
    axes = {name: axes_of(FORMS[name].template, attention.constants()) for name in names}
    spec = kernel_file.kernel_of(group, *folded(drafts, found, axes))
    if OVERLAPPED not in names:
        return spec
    forms = sorted((*spec.forms, _overlapped(attention)), key=lambda form: names.index(form.name))
    return replace(spec, forms=tuple(forms))


def _overlapped(attention: Attention) -> Form:
    """The Gluon form, a file of its own kind."""
    function = kernel_file.function_name(attention.group)
    text = overlapped_source(attention, FORMS[OVERLAPPED].template, function)
    return Form(OVERLAPPED, text, function)


def _draft(attention: Attention, name: str, found: Sequence[Candidate]) -> kernel_file.Draft:
    """One source, right for all the candidates of the form."""
    row = FORMS[name]
    form = PieceLines if name == TF32X3 else Lines
    lines = form(attention, name == "split", [each for each in found if each.form == name])
    has_loads = "load_q" in row.template.holes
    holes = lines.loading() if has_loads else lines.describing()
    functions = row.functions
    if KEY_RANGE in functions and lines.is_one_block:
        holes[KEY_RANGE] = ["full, end = 0, BN"]  # numbers, so that no loop is left
        functions = tuple(each for each in functions if each != KEY_RANGE)
    elif KEY_RANGE in functions and lines.is_masked_throughout:
        known = attention.constants()
        given = f"{known['S']}, {known['OFFSET']}, BM, BN, {known['CAUSAL']}"
        holes[KEY_RANGE] = [f"_, end = {KEY_RANGE}(tile * BM, {given})", "full = 0"]
    lines_of_body = fill(row.template, holes, attention.constants(), ())
    shared = "\n\n\n".join(
        text for each, text in called_functions("attention/blocks.py").items() if each in functions
    )
    return kernel_file.Draft(name, lines_of_body, shared, waits=bool(holes.get("ahead")))


def overlapped_source(attention: Attention, template: Template, function: str) -> str:
    """The template as it stands, but for its holes and the kernel itself."""
    lines = template.text().splitlines()
    body = template.tree().body
    title = textwrap.fill(f'"""{attention.group}."""', 96, subsequent_indent=INDENT)
    parts = [title]
    matrices = _matrices(attention)
    for node in body[1:]:
        if isinstance(node, ast.FunctionDef) and node.name in ("describe", template.function):
            continue
        if isinstance(node, ast.FunctionDef) and node.name in HEADS:
            parts.append(_placed(node.name, matrices[HEADS.index(node.name)]))
            continue
        first = node.decorator_list[0].lineno if isinstance(node, ast.FunctionDef) else node.lineno
        parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    names = [param.name for param in kernel_file.parameters(attention.group)]
    names += [f"{name}: gl.constexpr" for name in CONSTEXPRS]
    filled = fill(template, _described(attention, matrices), attention.constants(), ())
    signature = f"@gluon.jit\ndef {function}({', '.join(names)}):"
    parts.append("\n".join([signature, *(textwrap.indent(line, INDENT) for line in filled)]))
    return "\n\n\n".join(parts) + "\n"


def _matrices(attention: Attention) -> tuple[Matrix, ...]:
    """q, k, v and the result; `Problem.may_overlap` has said that they are there."""
    found = (*(attention.matrix(place) for place in range(3)), attention.result())
    return tuple(matrix for matrix in found if matrix is not None)


def _placed(function: str, matrix: Matrix) -> str:
    """The function that gives the place of head z on the two axes of heads."""
    heads = matrix.heads()
    assert heads is not None
    return (
        f"@gluon.jit\ndef {function}(z, RATIO: gl.constexpr):\n"
        f"{INDENT}return {', '.join(heads.places)}"
    )


def _described(attention: Attention, matrices: Sequence[Matrix]) -> dict[str, list[str]]:
    """The lines that make the four descriptors."""
    buffers: dict[Node, str] = kernel_file.buffer_names(attention.group)
    memories = [*(buffers[matrix.memory] for matrix in matrices[:-1]), "out0"]
    rows = ("64", "BN", "BN", "64")
    layouts = ("QUERIES", "KEYS", "VALUES", "RESULTS")
    found = {}
    for name, memory, matrix, block, layout in zip(
        DESCRIPTORS, memories, matrices, rows, layouts, strict=True
    ):
        heads = matrix.heads()
        assert heads is not None
        first = matrix.start.constant
        address = memory + (f" + {first}" if first else "")
        shape = ", ".join(map(str, (*heads.extents, *matrix.extents)))
        strides = ", ".join(map(str, (*heads.strides, matrix.stride, 1)))
        found[name] = [
            f"{name} = tma.make_tensor_descriptor(",
            f"{INDENT}{address}, [{shape}], [{strides}],",
            f"{INDENT}[1, 1, {block}, {padded(fixed(matrix.extents[1]))}], {layout},",
            ")",
        ]
    return found
