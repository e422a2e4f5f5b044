"""Matmul groups on a GPU → several filled templates, each with its own candidates."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from aotc.aot.errors import InternalError
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import fixed, kernel_text, typical
from aotc.aot.ir.types import DTYPES, SHORT_FLOATS
from aotc.aot.lower import kernel_file
from aotc.aot.lower.emit import Body, Value, as_tensor, computed, triton_type
from aotc.aot.lower.grids import axes_of, folded
from aotc.aot.lower.kernel_file import fill
from aotc.aot.lower.matmul.choice import MAP_NAMES, Choice, Problem
from aotc.aot.lower.matmul.code_lines import CodeLines
from aotc.aot.lower.matmul.decoding import CHUNK_BYTES, Decoding, decoding_of
from aotc.aot.lower.matmul.gpu_candidates import CANDIDATES, choices, surest
from aotc.aot.lower.matmul.operands import (
    Operand,
    Product,
    product_of,
)
from aotc.aot.lower.row import statistics
from aotc.aot.lower.spec import Candidate, KernelSpec, TensorMap
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.domain import whole_row
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import Access, reduced_extents
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import TEMPLATES, Axes

LOADED_AHEAD_BYTES = 24 << 20  # of weights that programs begin to load before they wait
AHEAD = {"gemv": "gemv_ahead"}  # template → the one that does
LARGEST_EXACT = 256  # whole numbers up to which bf16 has all


def lower_matmul_gpu(
    group: Group, traits: TargetTraits, limit: int | None = CANDIDATES
) -> KernelSpec:
    """The matmul of the group with everything that was fused into it, in every form that fits.

    Of the legal candidates, the `limit` cheapest by the model, and last one that always fits.
    """
    product = product_of(group)
    decoding = decoding_of(product, traits)
    problem = problem_of(product, traits, decoding)
    drafts: dict[str, kernel_file.Draft] = {}
    axes: dict[str, Axes] = {}
    loads: dict[str, tuple[int, int]] = {}
    candidates: list[Candidate] = []
    last = surest(problem)
    most = limit if limit is None else max(1, limit - 1)
    for choice in dict.fromkeys((*choices(problem, traits, most), last)):
        name = choice.source_name
        if name not in loads:
            drafts[name], loads[name] = _draft(product, choice, traits, decoding)
            axes[name] = axes_of(TEMPLATES[choice.style.template], _sizes(product, choice))
        if choice == last or choice.shared_bytes_of(loads[name]) <= traits.shared_bytes:
            candidates.append(replace(choice.candidate(), maps=_maps(product, choice)))
    named = {candidate.form for candidate in candidates}
    forms = [draft for name, draft in drafts.items() if name in named]
    return kernel_file.kernel_of(group, *folded(forms, candidates, axes))


def _sizes(product: Product, choice: Choice) -> dict[str, str]:
    """The sizes in a template's words."""
    oriented = product.swapped() if choice.style.is_swapped else product
    return {
        "BATCH": kernel_text(product.batch.extent),
        "M": kernel_text(oriented.rows.extent),
        "N": kernel_text(oriented.columns.extent),
        "K": kernel_text(product.walk.kernel_size * product.walk.block),
    }


def problem_of(product: Product, traits: TargetTraits, decoding: Decoding | None = None) -> Problem:
    """The matmul as the ranking sees it."""
    size = product.itemsize_bytes
    walk = product.walk
    return Problem(
        extents=(
            product.batch.extent,
            product.rows.extent,
            product.columns.extent,
            walk.kernel_size * walk.block,
        ),
        dtype=product.root_op.dtype,
        run=fixed(walk.block) if walk.is_split else 0,
        is_right_along_depth=product.right.is_along_depth,
        has_descriptors=product.left.has_descriptor(size) and product.right.has_descriptor(size),
        is_paired=product.pair is not None,
        is_normed=any(node.kind == "reduce" for node in product.group.nodes),
        is_plain=product.left.strides is not None and product.right.strides is not None,
        result_bytes=sum(typical(root.node.type.nbytes) for root in product.roots),
        precision=traits.dot_precision,
        code_bits=decoding.code.bits if decoding else 0,
        chunk=decoding.chunk_elements if decoding else 0,
        step=_step_of(decoding, product.root_op.dtype) if decoding else 0,
        operand_bytes=sum(typical(node.type.nbytes) for node in product.group.reads),
    )


def _step_of(decoding: Decoding, dtype: str) -> int:
    """Elements of k of a tile of codes that is multiplied as it is; 0 where it cannot be."""
    numbers = [number - decoding.zero for part in decoding.code.numbers for number in part]
    is_exact = decoding.code.is_float or max(map(abs, numbers)) <= LARGEST_EXACT
    is_dense = decoding.offset.stride(decoding.chunk) == CHUNK_BYTES
    return decoding.largest_step if is_exact and is_dense and dtype in SHORT_FLOATS else 0


def _maps(product: Product, choice: Choice) -> tuple[TensorMap, ...]:
    """The descriptors that a launch of the choice makes."""
    if not choice.style.has_maps:
        return ()
    oriented = product.swapped() if choice.style.is_swapped else product
    sides = ((oriented.left, choice.tile.rows), (oriented.right, choice.tile.columns))
    places = {node: place for place, node in enumerate(product.group.reads)}
    found = []
    for name, (operand, width) in zip(MAP_NAMES, sides, strict=True):
        assert operand.memory is not None
        view = operand.view(str(width), product.walk.depth)
        block = tuple(width if text != "BK" else choice.tile.depth for text in view.block)
        kind = DTYPES[product.root_op.dtype].triton
        place = places[operand.memory]
        found.append(TensorMap(name, place, kind, operand.start, view.shape, view.strides, block))
    return tuple(found)


def _draft(
    product: Product, choice: Choice, traits: TargetTraits, decoding: Decoding | None
) -> tuple[kernel_file.Draft, tuple[int, int]]:
    """The form of one choice, its template filled, and how many loads a tile of each operand is."""
    oriented = product.swapped() if choice.style.is_swapped else product
    is_described = choice.style.has_descriptors
    if is_described:
        loads = _described(oriented, choice)
    else:
        kind = _PointerLoads
        if choice.style.is_decoding:
            kind = _DecodingLoads
        elif choice.style.multiplies_codes:
            kind = _CodeDots
        loads = kind(oriented, choice, decoding, _may_load_ahead(choice, traits)).loads()
    template = TEMPLATES[choice.style.template]
    store = _Epilogue(oriented, choice).lines()
    ahead = _ahead_of(product, loads, store) if _may_load_ahead(choice, traits) else None
    if ahead is not None:
        template = TEMPLATES[AHEAD[template.name]]
    precision = traits.dot_precision if product.root_op.dtype == "f32" else "ieee"
    accumulator = triton_type(computed(product.root_op.dtype))
    how = f'input_precision="{precision}", out_dtype={accumulator}'
    lines = fill(
        template,
        {
            "describe": loads.describe,
            "load_a": loads.a if ahead is None else ahead.a,
            "load_b": loads.b if ahead is None else ahead.following,
            "first_b": [] if ahead is None else ahead.first,
            "epilogue": [] if ahead is None else ahead.behind,
            "store": store if ahead is None else ahead.store,
            "multiply": loads.multiply or [f"acc = tl.dot(a, b, acc, {how})"],
        },
        {
            **_sizes(product, choice),
            "ACCUMULATOR": accumulator,
            "PRECISION": f'"{precision}"',
            "LENGTH": str(decoding.chunk_elements if decoding else 0),
        },
        loads.before[0 if ahead is None else loads.places :],
    )
    of_a, of_b = (sum(line.count(".load(") for line in part) for part in (loads.a, loads.b))
    if decoding is not None and choice.has_codes:  # codes and factors are less than the numbers
        of_a, of_b = (1, of_b) if choice.style.is_swapped else (of_a, 1)
    return kernel_file.Draft(choice.source_name, lines), (max(1, of_a), max(1, of_b))


def _may_load_ahead(choice: Choice, traits: TargetTraits) -> bool:
    """Whether programs load their first tile of B while the kernels before still run. Of large
    weights that is no gain: the tiles only take registers."""
    _, _, columns, depth = choice.problem.extents
    nbytes = typical(columns * depth) * choice.problem.itemsize_bytes
    is_short = nbytes <= LOADED_AHEAD_BYTES
    return traits.is_launched_early and choice.style.template in AHEAD and is_short


_ASSIGNED = re.compile(r"(\w+(?:, \w+)*) = (.*)")
_NAMES = re.compile(r"\b[a-z_]\w*\b")
_BUFFER = re.compile(r"in\d+")


def _loaded_ahead(
    lines: Sequence[str], buffers: Collection[str], unknown: Collection[str]
) -> tuple[list[str], list[str]]:
    """The lines that need nothing but places and some buffers, and the others; `unknown` are names
    that have no value yet."""
    ahead: list[str] = []
    rest: list[str] = []
    later = set(unknown)
    for line in lines:
        found = _ASSIGNED.fullmatch(line)
        words = set(_NAMES.findall(found[2] if found else line))
        reads = {word for word in words if _BUFFER.fullmatch(word)}
        if found is None or words & later or not reads <= set(buffers):
            rest.append(line)
            later.update(found[1].split(", ") if found else ())
        else:
            ahead.append(line)
    return ahead, rest


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The lines of a form whose programs load what is constant before they wait."""

    first: list[str]  # places and the first tiles
    following: list[str]  # the next tiles
    behind: list[str]  # what else is loaded before the loop
    a: list[str]
    store: list[str]


def _ahead_of(product: Product, loads: _Loads, store: Sequence[str]) -> _Ahead | None:
    """These lines, where all of B is constant."""
    names = kernel_file.buffer_names(product.group)
    constants = {name for node, name in names.items() if node.op == "constant"}
    later = [line.split(" = ")[0] for line in loads.before[loads.places :]]
    b, others = _loaded_ahead(loads.b, constants, later)
    if others:
        return None
    a, rest = _loaded_ahead(loads.a, constants, later)
    places = [line for line in a if "tl.load" not in line]
    # Values of the epilogue have names of their own beside those of the loads.
    store = [re.sub(r"\b(v|inside)(\d+)\b", r"e\1\2", line) for line in store]
    fixed, store = _loaded_ahead(store, constants, ["acc"])
    early, store = _loaded_ahead(store, names.values(), ["acc"])
    wide = [
        re.sub(r"\b([xy])\b", r"\g<1>2", line) for line in (*fixed, "wait_for_kernels()", *early)
    ]
    return _Ahead(
        [*loads.before[: loads.places], "start = 0", *a, *b],
        [*a, *b],
        wide,
        [*places, *rest],
        [*(line for line in (*fixed, *early) if "tl.load" not in line), *store],
    )


@dataclass(frozen=True, slots=True)
class _Loads:
    """Lines that load a tile of each operand, and those before the loop over k."""

    a: list[str]
    b: list[str]
    describe: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    multiply: list[str] = field(default_factory=list)
    places: int = 0  # lines of `before`, the first, that tell where tiles lie


def _described(product: Product, choice: Choice) -> _Loads:
    """Loads by tensor descriptors of the operands, made here if the launch makes none."""
    buffers, depth = kernel_file.buffer_names(product.group), product.walk.depth
    describe: list[str] = []

    def load(name: str, operand: Operand, first: str, block: str) -> list[str]:
        assert operand.memory is not None
        assert operand.strides is not None
        if not choice.style.has_maps:
            view, start, stride = operand.view(block, depth), operand.start, operand.strides[0]
            base = buffers[operand.memory] + (f" + {kernel_text(start)}" if start else "")
            base += f" + z * {kernel_text(stride)}" if stride else ""
            sizes, strides = (
                ", ".join(map(kernel_text, row)) for row in (view.shape, view.strides)
            )
            made = f"{base}, [{sizes}], [{strides}], [{', '.join(view.block)}]"
            describe.append(f"{name}_rows = tl.make_tensor_descriptor({made})")
        is_along_depth = operand.strides[2] == 1
        at = f"{first}, start" if is_along_depth else f"start, {first}"
        turn = ".T" if is_along_depth == (name == "b") else ""
        return [f"{name} = {name}_rows.load([{at}]){turn}"]

    a, b = load("a", product.left, "xs", "BM"), load("b", product.right, "ys", "BN")
    return _Loads(a, b, describe)


class _Part:
    """A part of a kernel: its lines, and the emitter that writes them."""

    def __init__(self, product: Product, choice: Choice) -> None:
        self.product, self.choice, self.walk = product, choice, product.walk
        self.body, self.masks = Body(), dict[Symbol, str]()
        self.emitter = kernel_file.emitter_of(
            product.group, self.body, self.masks, self._stop, True
        )

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        raise NotImplementedError


class _PointerLoads(_Part):
    """Loads by pointers, with all that is computed of them; what does not vary with k comes before
    the loop."""

    def __init__(
        self,
        product: Product,
        choice: Choice,
        decoding: Decoding | None,
        is_ahead: bool = False,
    ) -> None:
        super().__init__(product, choice)
        self.is_flat = choice.style.is_flat
        self.is_ahead = is_ahead
        self.codes: CodeLines | None = None
        if decoding is not None and choice.has_codes:
            has_tail = "k" in choice.tails
            self.codes = CodeLines(decoding, self.body, self.emitter, self.masks, has_tail)
        self.row_symbols: set[Symbol] = set()

    def loads(self) -> _Loads:
        """The loads of both operands."""
        sides = [
            self._side("a", self.product.left, "m"),
            self._side("b", self.product.right, "n"),
        ]
        inside = frozenset({side.inner for side in sides} | {self.walk.kernel_offset})
        places, count, coded = len(self.body.lines), 0, ""
        if self.codes is not None:
            coded = "a" if self.choice.style.is_swapped else "b"
            self._name_columns(self.codes, coded)
            inside |= {self.codes.decoding.chunk}
        self.body.open_loop(inside)
        for side, name in zip(sides, "ab", strict=True):
            count = len(self.body.loop or ())
            if self.codes is not None and name == coded:
                self._write_coded(self.codes, name, inside)
            else:
                self._write_side(side, name)
        lines = self.body.close_loop()
        return _Loads(lines[:count], lines[count:], before=self.body.lines, places=places)

    def _side(self, name: str, operand: Operand, letter: str) -> _Side:
        """The operand in terms of its own k; beyond its last row it reads that row again."""
        walk, depth = self.walk, self.product.group.domain.reduced
        assert depth is not None
        is_in_run = walk.is_split and (name == "a" or walk.is_padded)
        inner = Symbol(f"{'c' if is_in_run else 'k'}{name}", walk.run if is_in_run else walk.depth)
        outer, values = operand.outer, {depth: self.walk.position(inner)}
        if letter in self.choice.tails and outer.extent != 1:
            if operand.is_along_depth:
                outer = Symbol(f"{outer.name}{name}", outer.extent)
                last = kernel_text(outer.extent - 1)
                self.body.write(f"{outer.name} = tl.minimum({operand.outer.name}, {last})")
                values[operand.outer] = ix.of(outer)
            else:
                kernel_file.write_mask(self.body, outer, self.masks)
        index = tuple(part.substitute(values) for part in operand.need.index)
        return _Side(Access(operand.need.node, index), inner, outer)

    def _write_side(self, side: _Side, name: str) -> None:
        walk = self.walk
        dim = "[None, None, :]" if self.is_flat else "[None, :]" if name == "a" else "[:, None]"
        walk.write_depth(self.body, side.inner, dim, has_offset=name == "a")
        has_tail = "k" in self.choice.tails or self.is_ahead
        if walk.is_padded or has_tail:
            # Equal parts of the loop may go on beyond the last run, whose elements are all inside.
            end = f"start < {walk.kernel_size * walk.block}" if walk.is_split and has_tail else ""
            kernel_file.write_mask(self.body, side.inner, self.masks, end)
        value, text = self.emitter.cut_off(side.need, side.inner)
        dtype = self.product.root_op.dtype
        text = as_tensor(text, dtype)
        is_wide = computed(dtype) != dtype and not self.body.unwiden(value.text)
        if is_wide and not self.is_flat:
            text = f"{text}.to({triton_type(dtype)})"
        if not self.is_flat and not {side.inner, side.outer} <= value.symbols:
            text = f"tl.broadcast_to({text}, {'BM, BK' if name == 'a' else 'BK, BN'})"
        if dtype == "f64" and not self.is_flat and self._reads_narrow():
            # Triton counts elements of an operand's fragments by the narrowest load behind it, and
            # has none of f64 for those below 32 bits; it looks no further than a reduction.
            text = f"tl.sum({text}[:, :, None], 2)"
        self.body.name(name, text, frozenset({side.inner}))

    def _reads_narrow(self) -> bool:
        """Whether anything in memory that the kernel reads has less than 32 bits an element."""
        return any(DTYPES[node.dtype].itemsize_bytes < 4 for node in self.product.group.reads)

    def _name_columns(self, codes: CodeLines, name: str) -> None:
        """The columns of codes along the first dim of a tile that has their chunks apart."""
        first, block, letter = ("xs", "BM", "m") if name == "a" else ("ys", "BN", "n")
        text = f"{first} + tl.arange(0, {block})[:, None, None]"
        codes.write_columns("column", text, letter in self.choice.tails)

    def _write_coded(self, codes: CodeLines, name: str, inside: frozenset[Symbol]) -> None:
        """A tile of codes widened and scaled, in chunks along k, then seen as a matrix."""
        length, dtype = codes.decoding.chunk_elements, self.product.root_op.dtype
        chunks = f"tl.arange(0, BK // {length})[None, :, None]"
        arguments = codes.write_codes(chunks, "[None, None, :]")
        suffix = codes.decoding.code.suffix
        self.body.write(f"numbers = numbers_of_{suffix}({arguments})", inside)
        scaled = codes.scaled("numbers", "")
        self.body.write(f"numbers = ({scaled}).to({triton_type(dtype)})", inside)
        block, turn = ("BM", "") if name == "a" else ("BN", ".T")
        self.body.write(f"{name} = tl.reshape(numbers, ({block}, BK)){turn}", inside)

    def _row_statistic(self, node: Node) -> Value:
        """A reduction of the only row of A, in each program: it does not vary with k."""
        need, count = whole_row(node), fixed(prod(reduced_extents(node)))
        (elements,) = {symbol for part in need.index for symbol in part.symbols()}
        dim = "[None, None, :]" if self.is_flat else "[None, :]"
        dim = "[:, None, None, None]" if self.choice.style.is_decoding else dim
        if elements not in self.row_symbols:
            self.row_symbols.add(elements)
            self.body.write(f"{elements.name} = tl.arange(0, {power_above(count)}){dim}")
            if power_above(count) != count:
                kernel_file.write_mask(self.body, elements, self.masks)
        text = statistics.prepared(node, self.emitter.operand(node, need).text)
        if elements in self.masks:
            text = f"tl.where({self.masks[elements]}, {text}, {statistics.identity(node)})"
        axis = 0 if self.choice.style.is_decoding else 2 if self.is_flat else 1
        along = f"axis={axis}, keep_dims=True"
        return self.body.bind(statistics.finished(node, text, along), ())

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        return self._row_statistic(node) if node.kind == "reduce" else None


class _DecodingLoads(_PointerLoads):
    """Loads of A by chunks, and of codes, whose products are summed up and scaled."""

    def loads(self) -> _Loads:
        """The loads of A, and the lines that make `p` of codes."""
        assert self.codes is not None
        decoding = self.codes.decoding
        left = self._side("a", self.product.left, "m")
        self.codes.write_columns("yb", decoding.columns.name, "n" in self.choice.tails)
        inside = frozenset({left.inner, decoding.chunk})
        self.body.open_loop(inside)
        length = decoding.chunk_elements
        self.body.write(f"{left.inner.name} = start + chunk * {length} + element", inside)
        if "k" in self.choice.tails:
            kernel_file.write_mask(self.body, left.inner, self.masks)
        _, text = self.emitter.cut_off(left.need, left.inner)
        self.body.name("a", as_tensor(text, self.product.root_op.dtype), inside)
        count = len(self.body.loop or ())
        codes = self.codes.write_codes("chunk", "[None, None, None, :]")
        if not decoding.code.is_float:
            pointer = self.emitter.buffers[decoding.codes]
            self.body.write(f"zero = unknown_zero({pointer})")
            codes = codes.replace("codes", "codes, zero", 1)
        self.body.write(f"p = sums_of_{decoding.code.suffix}(a, {codes})", inside)
        scaled = self.codes.scaled("p", "tl.sum(a, axis=3, keep_dims=True)")
        if scaled != "p":
            self.body.write(f"p = {scaled}", inside)
        lines = self.body.close_loop()
        return _Loads(lines[:count], lines[count:], before=self.body.lines)


class _CodeDots(_PointerLoads):
    """Tiles of codes, whose numbers go to the tensor cores; sums of each step are scaled."""

    def loads(self) -> _Loads:
        """The codes are the rows: `a`, and `a1` of the second codes of bytes, times `b`, `b1`."""
        assert self.codes is not None
        decoding, tails = self.codes.decoding, self.choice.tails
        count = len(decoding.code.numbers)
        self.codes.write_columns("xa", self.product.rows.name, "m" in tails)
        side = self._side("b", self.product.right, "n")
        byte = Symbol("ka", fixed(self.walk.depth) // count)
        inside = frozenset({side.inner, decoding.chunk, byte})
        self.body.open_loop(inside)
        self._write_numbers(self.codes, byte, inside)
        first = len(self.body.loop or ())
        self._write_side(side, "b")
        if count == 2:
            pairs = "tl.reshape(b, (BK // 2, 2, BN))"
            self.body.write(f"b, b1 = tl.split(tl.permute({pairs}, (0, 2, 1)))", inside)
        second = len(self.body.loop or ())
        self._write_dots(self.codes, count, inside)
        lines = self.body.close_loop()
        before = self.body.lines
        return _Loads(lines[:first], lines[first:second], [], before, lines[second:])

    def _write_numbers(self, codes: CodeLines, byte: Symbol, inside: frozenset[Symbol]) -> None:
        decoding, code = codes.decoding, codes.decoding.code
        count, dtype = len(code.numbers), triton_type(self.product.root_op.dtype)
        codes.write_step()
        each = "" if count == 1 else f" // {count}"
        self.body.write(f"{byte.name} = start{each} + tl.arange(0, BK{each})[None, :]", inside)
        if "k" in self.choice.tails:
            kernel_file.write_mask(self.body, byte, self.masks)
        self.body.write(f"codes = {codes.load(byte)}", inside)
        if code.is_float:
            self.body.write(f"a = numbers_of_{code.suffix}(codes).to({dtype})", inside)
            return
        for number in range(count):
            how = f"{number * code.bits}, {code.flip & 0xFF}, {(1 << code.bits) - 1}"
            how = f"{how}, {decoding.zero + code.bias}"
            text = f"a{number or ''} = numbers_of_each(codes, {how}).to({dtype})"
            self.body.write(text, inside)

    def _write_dots(self, codes: CodeLines, count: int, inside: frozenset[Symbol]) -> None:
        how = 'input_precision="ieee", out_dtype=tl.float32'
        self.body.write(f"sums = tl.dot(a, b, {how})", inside)
        if count == 2:
            self.body.write(f"sums = tl.dot(a1, b1, sums, {how})", inside)
        names = ("b", "b1")[:count]
        totals = [f"tl.sum({name}.to(tl.float32), axis=0, keep_dims=True)" for name in names]
        total = f"({' + '.join(totals)})"
        self.body.write(f"acc += {codes.scaled('sums', total)}", inside)


class _Epilogue(_Part):
    """Turns `acc` into the roots and stores them."""

    tile = "acc"

    def lines(self) -> list[str]:
        """Lines behind the loop."""
        shape = ["BM", "BN"]
        for axis, (letter, symbol) in enumerate(self._tile_symbols()):
            if letter in self.choice.tails and symbol.extent == 1:
                # The result has no such axis: the tile's first row or column is all of it.
                only = f"tl.where({symbol.name} == 0, {self.tile}, 0.0)"
                self.tile, shape[axis] = f"single{axis}", "1"
                self.body.write(f"{self.tile} = tl.sum({only}, axis={axis}, keep_dims=True)")
        self.body.lines += self._pair_lines(*shape)
        for letter, symbol in self._tile_symbols():
            if letter in self.choice.tails and symbol.extent != 1:
                kernel_file.write_mask(self.body, symbol, self.masks)
        kernel_file.write_stores(self.emitter, self.product.roots)
        return self.body.lines

    def _tile_symbols(self) -> tuple[tuple[str, Symbol], tuple[str, Symbol]]:
        """Tail letter and symbol of both axes of the stored tile."""
        product = self.product
        rows, columns = product.rows, product.columns
        if product.pair is not None:
            rows = product.pair if product.is_swapped else rows
            columns = columns if product.is_swapped else product.pair
        return ("m", rows), ("n", columns)

    def _pair_lines(self, rows: str, columns: str) -> list[str]:
        """Even and odd columns of the tile apart, where an element of the result needs both."""
        if self.product.pair is None:
            return []
        if self.product.is_swapped:
            return [
                "pair = xs // 2 + tl.arange(0, BM // 2)[:, None]",
                f"pairs = tl.reshape({self.tile}, ({rows} // 2, 2, {columns}))",
                "even, odd = tl.split(tl.permute(pairs, (0, 2, 1)))",
            ]
        return [
            "pair = ys // 2 + tl.arange(0, BN // 2)[None, :]",
            f"even, odd = tl.split(tl.reshape({self.tile}, ({rows}, {columns} // 2, 2)))",
        ]

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        if node is not self.product.root_op:
            return None
        tile = [symbol for _, symbol in self._tile_symbols()]
        symbols = frozenset(item for item in (self.product.batch, *tile) if item.extent != 1)
        pair = self.product.pair
        if pair is None:
            return Value(self.tile, symbols)
        for name, at in (("even", ix.of(pair) * 2), ("odd", ix.of(pair) * 2 + 1)):
            if index[-1] == at:
                return Value(name, symbols)
        raise InternalError(stage="lower", detail=f"`{node!r}` is read at column {index[-1]}")


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand's access, its symbol of k and its other one."""

    need: Access
    inner: Symbol
    outer: Symbol
