"""Matmul groups on a GPU → several filled templates, each with its own candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node, walk
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.size import fixed, kernel_text, typical
from aotc.aot.ir.types import DTYPES, SHORT_FLOATS
from aotc.aot.lower import kernel_file
from aotc.aot.lower.emit import Line, Moment, Value, as_tensor, computed, triton_type
from aotc.aot.lower.grids import axes_of, folded
from aotc.aot.lower.kernel_file import fill, moments_of
from aotc.aot.lower.matmul.choice import MAP_NAMES, Choice, Problem, precision_of
from aotc.aot.lower.matmul.code_lines import WORD_BYTES, CodeLines
from aotc.aot.lower.matmul.decoding import CHUNK_BYTES, Decoding, decoding_of
from aotc.aot.lower.matmul.epilogue import Lines, epilogue, since, until
from aotc.aot.lower.matmul.fragments import FragmentLoads, constants_of, numbers_of, piece_of
from aotc.aot.lower.matmul.gpu_candidates import CANDIDATES, choices, surest
from aotc.aot.lower.matmul.loads import Loads
from aotc.aot.lower.matmul.operands import (
    Operand,
    Product,
    product_of,
)
from aotc.aot.lower.row import statistics
from aotc.aot.lower.spec import Candidate, KernelSpec, TensorMap
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.cost import function_operations
from aotc.aot.schedule.domain import whole_row
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import Access, reduced_extents
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import TEMPLATES, Axes

LOADED_AHEAD_BYTES = 24 << 20  # of weights that programs begin to load before they wait
# Functions that take large angles apart, and how many times their cost is written for that.
OF_ANGLES, ANGLE_FACTORS = frozenset({"sin", "cos", "tan"}), {"f32": 3, "f64": 8}
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
    step = _step_of(decoding, product.root_op.dtype) if decoding else 0
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
        is_right_constant=traits.is_launched_early
        and moments_of(product.group)(product.right.need.node) <= Moment.CONSTANTS,
        has_descriptors=product.group.distance < 2
        and product.left.has_descriptor(size)
        and product.right.has_descriptor(size),
        work=(_work(product.left, product), 0 if decoding else _work(product.right, product)),
        column_group=product.column_group,
        is_normed=any(node.kind == "reduce" for node in product.group.nodes),
        is_plain=product.left.strides is not None and product.right.strides is not None,
        precision=_precision(product, traits),
        code_bits=decoding.code.bits if decoding else 0,
        chunk=decoding.chunk_elements if decoding else 0,
        step=step,
        piece=piece_of(product, decoding, step) if decoding else 0,
        bytes=product.group.bytes,
        function_work=function_operations(product.group),
    )


def _precision(product: Product, traits: TargetTraits) -> str:
    depth = product.walk.kernel_size * product.walk.block
    return precision_of(product.root_op, product.columns.extent, depth, traits)


def _work(operand: Operand, product: Product) -> int:
    """Operations that compute an element of an operand of what the kernel reads."""
    found, behind = set[Node](), [operand.need.node]
    while behind:
        node = behind.pop()
        if node not in found and node not in product.group.reads and node.kind != "reduce":
            found.add(node)
            behind += node.inputs
    return int(sum(OPS[node.op].cost * _times(node) for node in found))


def _times(node: Node) -> int:
    return ANGLE_FACTORS.get(node.dtype, 1) if node.op in OF_ANGLES else 1


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
    is_ahead = _is_ahead(product, choice, traits)
    if choice.style.has_descriptors:
        loads = _described(oriented, choice)
    else:
        kind: type[_PointerLoads | FragmentLoads] = _PointerLoads
        if choice.style.is_decoding:
            kind = _DecodingLoads
        elif choice.style.is_fragments:
            kind = FragmentLoads
        elif choice.style.multiplies_codes:
            kind = _CodeDots
        loads = kind(oriented, choice, decoding, is_ahead).loads()
    early, store = epilogue(oriented, choice, is_ahead)
    pairs = _paired(oriented, choice)
    first = [*pairs, *loads.first, *early] if is_ahead else []
    if choice.style.is_walk:
        first, early = [*loads.first, kernel_file.WAIT], [*pairs[1:], *early]
        loads = replace(loads, a=[*loads.before, *loads.a], b=[*pairs[:1], *loads.b], before=[])
    elif not choice.style.has_more_axes:  # before all that names columns
        early, pairs = [*pairs, *early], []
    precision = _precision(product, traits)
    accumulator = triton_type(computed(product.root_op.dtype))
    more: Mapping[str, str] = {}
    if decoding is not None and choice.style.is_fragments:
        more = constants_of(product, decoding, choice.problem.piece)
    how = f'input_precision="{precision}", out_dtype={accumulator}'
    lines = fill(
        TEMPLATES[choice.style.template],
        {
            "describe": loads.describe,
            "ahead": first,
            "load_early": early,
            "load_a": loads.a,
            "load_b": loads.b,
            "next_b": loads.following,
            "store": store,
            "multiply": loads.multiply or [f"acc = tl.dot(a, b, acc, {how})"],
        },
        {
            **_sizes(product, choice),
            "ACCUMULATOR": accumulator,
            "PRECISION": f'"{precision}"',
            "LENGTH": str(decoding.chunk_elements if decoding else 0),
            "WIDTH": str(_loaded_at_once(product)),
            **more,
        },
        loads.before if is_ahead else [*pairs, *loads.before],
    )
    of_a, of_b = (sum(line.count(".load(") for line in part) for part in (loads.a, loads.b))
    if decoding is not None and choice.has_codes:  # codes and factors are less than the numbers
        of_a, of_b = (1, of_b) if choice.style.is_swapped else (of_a, 1)
    draft = kernel_file.Draft(
        choice.source_name, lines, waits=is_ahead, is_gluon=choice.style.is_fragments
    )
    return draft, (max(1, of_a), max(1, of_b))


def _paired(product: Product, choice: Choice) -> list[str]:
    """Lines that put the columns which meet side by side, wherever a tile names them."""
    if product.group.distance < 2:  # neighbours, or none
        return []
    names: tuple[str, ...] = ("x" if product.is_swapped else "y",)
    if choice.style.is_flat:
        names = ("y", "y2")
    elif choice.style.is_fragments:
        names = ("xa", "xf", "x2")
    return [f"{name} = {product.paired(name)}" for name in names]


def _is_ahead(product: Product, choice: Choice, traits: TargetTraits) -> bool:
    """Whether programs load their first tile of B while the kernels before still run. Of large
    weights that is no gain: the tiles only take registers. Codes take the registers anyway, and a
    program that norms a row has them on the way meanwhile. Fragments of several steps would have to
    carry bytes from step to step, each in a register of its own."""
    _, _, columns, depth = choice.problem.extents
    style, nbytes = choice.style, typical(columns * depth) * choice.problem.itemsize_bytes
    has_codes = style.is_decoding or style.is_fragments
    is_short = has_codes or style.is_walk or nbytes <= LOADED_AHEAD_BYTES
    may_wait = "ahead" in TEMPLATES[style.template].holes
    may_wait = may_wait and (style.is_whole or not style.is_fragments)
    return may_wait and choice.problem.is_right_constant and is_short


def _loaded_at_once(product: Product) -> int:
    """Elements of A of which a thread's loads have at most 16 bytes each, whatever A is."""
    stored, need = set(product.group.reads), product.left.need
    nodes = walk((need.node,), stored)
    reads = {need.node, *(leaf for node in nodes for leaf in node.inputs)} & stored
    # Fewer elements than the depth are the same along it, as the number of a table's row is.
    depth = typical(product.walk.depth)
    along = (node for node in reads if typical(node.type.numel) >= depth)
    widest = max((DTYPES[node.dtype].itemsize_bytes for node in along), default=1)
    return CHUNK_BYTES // max(2, widest)


def _described(product: Product, choice: Choice) -> Loads:
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
    return Loads(a, b, describe)


class _PointerLoads(Lines):
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
            self.codes = CodeLines(
                decoding, self.body, self.emitter, self.masks, has_tail, is_ahead
            )
        self.row_symbols: set[Symbol] = set()

    def loads(self) -> Loads:
        """The loads of both operands."""
        sides = [
            self._side("a", self.product.left, "m"),
            self._side("b", self.product.right, "n"),
        ]
        inside = frozenset({side.inner for side in sides} | {self.walk.kernel_offset})
        count, coded = 0, ""
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
        lines = self.body.close_timed_loop()
        return self._timed(lines[:count], lines[count:], [])

    def _timed(self, a: list[Line], b: list[Line], multiply: list[Line]) -> Loads:
        """The lines where they stand: what is constant, before the wait and at a step's end."""
        if not self.is_ahead:
            parts = (a, b, multiply)
            texts, sums, products = ([line.text for line in part] for part in parts)
            return Loads(texts, sums, before=self.body.lines, multiply=products)
        if self.choice.style.is_walk:
            own = [*until(Moment.CONSTANTS, self.body.written), "start = 0"]
            return Loads(
                a=[*until(Moment.START, a), *since(Moment.MEMORY, a)],
                b=[*own, *until(Moment.CONSTANTS, b)],
                before=since(Moment.MEMORY, self.body.written),
                first=until(Moment.CONSTANTS, a),
            )
        early = until(Moment.CONSTANTS, b)
        if any(line.moment == Moment.CONSTANTS for line in a):
            early = [*until(Moment.CONSTANTS, a), *early]
        return Loads(
            a=[*until(Moment.START, a), *since(Moment.MEMORY, a)],
            b=[],
            before=since(Moment.MEMORY, self.body.written),
            multiply=[line.text for line in multiply],
            first=[*until(Moment.CONSTANTS, self.body.written), "start = 0", *early],
            following=["start = place + BK", *early],
        )

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
        walk.write_depth(self.body, side.inner, dim, has_offset=name == "a", is_of_gpu=True)
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
        with self.body.at(self.emitter.moment_of(side.need.node)):
            self.body.name(name, text, frozenset({side.inner}))

    def _reads_narrow(self) -> bool:
        """Whether anything in memory that the kernel reads has less than 32 bits an element."""
        return any(DTYPES[node.dtype].itemsize_bytes < 4 for node in self.product.group.reads)

    def _name_columns(self, codes: CodeLines, name: str) -> None:
        """The columns of codes along the first dim of a tile that has their chunks apart."""
        first, block, letter = ("xs", "BM", "m") if name == "a" else ("ys", "BN", "n")
        text = f"{first} + tl.arange(0, {block})[:, None, None]"
        text = self.product.paired(f"({text})") if self.product.group.distance else text
        codes.write_columns("column", text, letter in self.choice.tails)

    def _write_coded(self, codes: CodeLines, name: str, inside: frozenset[Symbol]) -> None:
        """A tile of codes widened and scaled, in chunks along k, then seen as a matrix."""
        length, dtype = codes.decoding.chunk_elements, self.product.root_op.dtype
        chunks = f"tl.arange(0, BK // {length})[None, :, None]"
        codes.write_chunks(chunks, "[None, None, :]")
        self.body.write(f"numbers = {codes.widened()}", inside)
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
            with self.body.at(Moment.START):
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
    """Loads of A by pieces, and of codes, whose products are summed up and scaled."""

    def loads(self) -> Loads:
        """The loads of both, and the lines that make `p` of them."""
        assert self.codes is not None
        decoding = self.codes.decoding
        side = self._side("a", self.product.left, "m")
        self.codes.write_columns("yb", decoding.columns.name, "n" in self.choice.tails)
        if not decoding.code.is_float:
            self.body.write(f"zero = unknown_zero({self.emitter.buffers[decoding.codes]})")
        self.body.open_loop({decoding.chunk})
        self.codes.write_chunks("chunk", "[None, None, None, :]")
        loaded = _loaded_at_once(self.product)
        width = max(loaded, WORD_BYTES * 8 // decoding.code.bits)
        count, parts = decoding.chunk_elements // width, width // loaded
        pieces = [f"a{number}" for number in range(count)]
        totals = [f"tl.sum({piece}, axis=3, keep_dims=True)" for piece in pieces]
        scaled = self.codes.scaled("p", f"({' + '.join(totals)})")
        b = self.body.close_timed_loop()
        symbols = [Symbol(f"ka{number}", self.walk.depth) for number in range(count * parts)]
        self.body.open_loop(symbols)
        for piece, name in enumerate(pieces):
            self._write_piece(side, name, symbols[piece * parts :][:parts], piece * width)
        a = self.body.close_timed_loop()
        self.body.open_loop({decoding.chunk})
        self.codes.write_sums(pieces)
        if scaled != "p":
            self.body.write(f"p = {scaled}", frozenset({decoding.chunk}))
        # What is constant in A is the same for all programs, and no better loaded before the wait.
        loads = self._timed([], b, self.body.close_timed_loop())
        return replace(loads, a=[line.text for line in a])

    def _write_piece(self, side: _Side, name: str, symbols: Sequence[Symbol], first: int) -> None:
        """A piece of A from an element of each chunk on, loaded at each of the symbols."""
        assert self.codes is not None
        length, loaded = self.codes.decoding.chunk_elements, _loaded_at_once(self.product)
        names = [name] if len(symbols) == 1 else [f"{name}_{each}" for each in range(len(symbols))]
        for symbol, own in zip(symbols, names, strict=True):
            inside = frozenset({symbol})
            at = f"({first} + element)" if first else "element"  # the same for all threads
            first += loaded
            self.body.write(f"{symbol.name} = start + chunk * {length} + {at}", inside)
            if "k" in self.choice.tails:
                kernel_file.write_mask(self.body, symbol, self.masks)
            index = tuple(part.substitute({side.inner: ix.of(symbol)}) for part in side.need.index)
            value, text = self.emitter.cut_off(Access(side.need.node, index), symbol)
            text = as_tensor(text, self.product.root_op.dtype)
            if symbol not in value.symbols:
                text = f"tl.broadcast_to({text}, BK // {length}, BM, 1, {loaded})"
            self.body.name(own, text, inside)
        parts = names
        while len(parts) > 1:  # their count is a power of two
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [f"joined({low}, {high})" for low, high in pairs]
        if parts != names:
            self.body.write(f"{name} = {parts[0]}", frozenset(symbols))


class _CodeDots(_PointerLoads):
    """Tiles of codes, whose numbers go to the tensor cores; sums of each step are scaled."""

    def loads(self) -> Loads:
        """The codes are the rows: `a`, and `a1` of the second codes of bytes, times `b`, `b1`."""
        assert self.codes is not None
        decoding, tails = self.codes.decoding, self.choice.tails
        count = len(decoding.code.numbers)
        self.codes.write_columns("xa", self.product.rows.name, "m" in tails)
        side = self._side("b", self.product.right, "n")
        byte = Symbol("ka", fixed(self.walk.depth) // count)
        inside = frozenset({side.inner, decoding.chunk, byte})
        self.body.open_loop(inside)
        self.codes.write_step()  # factors first, so that they come while the products are made
        names = ("b", "b1")[:count]
        totals = [f"tl.sum({name}.to(tl.float32), axis=0, keep_dims=True)" for name in names]
        scaled = self.codes.scaled("sums", f"({' + '.join(totals)})")
        self._write_numbers(self.codes, byte, inside)
        first = len(self.body.loop or ())
        self._write_side(side, "b")
        if count == 2:
            pairs = "tl.reshape(b, (BK // 2, 2, BN))"
            self.body.write(f"b, b1 = tl.split(tl.permute({pairs}, (0, 2, 1)))", inside)
        second = len(self.body.loop or ())
        self._write_dots(scaled, count, inside)
        lines = self.body.close_loop()
        before = self.body.lines
        return Loads(lines[:first], lines[first:second], [], before, lines[second:])

    def _write_numbers(self, codes: CodeLines, byte: Symbol, inside: frozenset[Symbol]) -> None:
        count = len(codes.decoding.code.numbers)
        each = "" if count == 1 else f" // {count}"
        self.body.write(f"{byte.name} = start{each} + tl.arange(0, BK{each})[None, :]", inside)
        if "k" in self.choice.tails:
            kernel_file.write_mask(self.body, byte, self.masks)
        self.body.write(f"codes = {codes.load(byte)}", inside)
        for line in numbers_of(codes.decoding, self.product.root_op.dtype):
            self.body.write(line, inside)

    def _write_dots(self, scaled: str, count: int, inside: frozenset[Symbol]) -> None:
        how = 'input_precision="ieee", out_dtype=tl.float32'
        self.body.write(f"sums = tl.dot(a, b, {how})", inside)
        if count == 2:
            self.body.write(f"sums = tl.dot(a1, b1, sums, {how})", inside)
        self.body.write(f"acc += {scaled}", inside)


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand's access, its symbol of k and its other one."""

    need: Access
    inner: Symbol
    outer: Symbol
