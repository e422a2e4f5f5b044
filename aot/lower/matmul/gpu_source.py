"""Matmul groups on a GPU → several filled templates, each with its own candidates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from aotc.aot.errors import InternalError
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import fixed, kernel_text, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file
from aotc.aot.lower.emit import Body, Value, as_tensor, computed, triton_type
from aotc.aot.lower.kernel_file import fill
from aotc.aot.lower.matmul.choice import MAP_NAMES, Choice, Problem
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
from aotc.kernels.templates.registry import TEMPLATES


def lower_matmul_gpu(
    group: Group, traits: TargetTraits, limit: int | None = CANDIDATES
) -> KernelSpec:
    """The matmul of the group with everything that was fused into it, in every form that fits.

    Of the legal candidates, the `limit` cheapest by the model, and last one that always fits.
    """
    product = product_of(group)
    problem = problem_of(product, traits)
    drafts: dict[str, kernel_file.Draft] = {}
    loads: dict[str, tuple[int, int]] = {}
    candidates: list[Candidate] = []
    last = surest(problem)
    most = limit if limit is None else max(1, limit - 1)
    for choice in dict.fromkeys((*choices(problem, traits, most), last)):
        name = choice.source_name
        if name not in loads:
            drafts[name], loads[name] = _draft(product, choice, traits)
        if choice == last or choice.shared_bytes_of(loads[name]) <= traits.shared_bytes:
            candidates.append(replace(choice.candidate(), maps=_maps(product, choice)))
    named = {candidate.form for candidate in candidates}
    forms = [draft for name, draft in drafts.items() if name in named]
    return kernel_file.kernel_of(group, forms, candidates)


def problem_of(product: Product, traits: TargetTraits) -> Problem:
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
        is_left_along_depth=product.left.is_along_depth,
        is_right_along_depth=product.right.is_along_depth,
        has_descriptors=product.left.has_descriptor(size) and product.right.has_descriptor(size),
        is_paired=product.pair is not None,
        is_plain=product.left.strides is not None and product.right.strides is not None,
        result_bytes=sum(typical(root.node.type.nbytes) for root in product.roots),
        precision=traits.dot_precision,
        operand_bytes=sum(typical(node.type.nbytes) for node in product.group.reads),
    )


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
    product: Product, choice: Choice, traits: TargetTraits
) -> tuple[kernel_file.Draft, tuple[int, int]]:
    """The form of one choice, its template filled, and how many loads a tile of each operand is."""
    oriented = product.swapped() if choice.style.is_swapped else product
    is_described = choice.style.has_descriptors
    loads = (_described if is_described else _by_pointers)(oriented, choice)
    template = TEMPLATES[choice.style.template]
    precision = traits.dot_precision if product.root_op.dtype == "f32" else "ieee"
    lines = fill(
        template,
        {
            "describe": loads.describe,
            "load_a": loads.a,
            "load_b": loads.b,
            "store": _Epilogue(oriented, choice).lines(),
        },
        {
            "M": kernel_text(oriented.rows.extent),
            "N": kernel_text(oriented.columns.extent),
            "K": kernel_text(product.walk.kernel_size * product.walk.block),
            "ACCUMULATOR": triton_type(computed(product.root_op.dtype)),
            "PRECISION": f'"{precision}"',
        },
        loads.before,
    )
    of_a, of_b = (sum(line.count(".load(") for line in part) for part in (loads.a, loads.b))
    return kernel_file.Draft(choice.source_name, lines), (max(1, of_a), max(1, of_b))


@dataclass(frozen=True, slots=True)
class _Loads:
    """Lines that load a tile of each operand, and those before the loop over k."""

    a: list[str]
    b: list[str]
    describe: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)


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


def _by_pointers(product: Product, choice: Choice) -> _Loads:
    return _PointerLoads(product, choice).loads()


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

    def __init__(self, product: Product, choice: Choice) -> None:
        super().__init__(product, choice)
        self.is_flat = choice.style.is_flat
        self.row_symbols: set[Symbol] = set()

    def loads(self) -> _Loads:
        """The loads of both operands."""
        sides = [
            self._side("a", self.product.left, "m"),
            self._side("b", self.product.right, "n"),
        ]
        inside = frozenset({side.inner for side in sides} | {self.walk.kernel_offset})
        self.body.open_loop(inside)
        self._write_side(sides[0], "a")
        count = len(self.body.loop or ())
        self._write_side(sides[1], "b")
        lines = self.body.close_loop()
        return _Loads(lines[:count], lines[count:], before=self.body.lines)

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
        inside, walk = frozenset({side.inner}), self.walk
        dim = "[None, None, :]" if self.is_flat else "[None, :]" if name == "a" else "[:, None]"
        walk.write_depth(self.body, side.inner, dim, has_offset=name == "a")
        has_tail = "k" in self.choice.tails
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
        self.body.name(name, text, inside)

    def _row_statistic(self, node: Node) -> Value:
        """A reduction of the only row of A, in each program: it does not vary with k."""
        need, count = whole_row(node), fixed(prod(reduced_extents(node)))
        (elements,) = {symbol for part in need.index for symbol in part.symbols()}
        dim = "[None, None, :]" if self.is_flat else "[None, :]"
        if elements not in self.row_symbols:
            self.row_symbols.add(elements)
            self.body.write(f"{elements.name} = tl.arange(0, {power_above(count)}){dim}")
            if power_above(count) != count:
                kernel_file.write_mask(self.body, elements, self.masks)
        text = statistics.prepared(node, self.emitter.operand(node, need).text)
        if elements in self.masks:
            text = f"tl.where({self.masks[elements]}, {text}, {statistics.identity(node)})"
        along = f"axis={2 if self.is_flat else 1}, keep_dims=True"
        return self.body.bind(statistics.finished(node, text, along), ())

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        return self._row_statistic(node) if node.kind == "reduce" else None


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
        """Overhang letter and symbol of both axes of the stored tile."""
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
    """One operand's demand, its symbol of k and its other one."""

    need: Access
    inner: Symbol
    outer: Symbol
