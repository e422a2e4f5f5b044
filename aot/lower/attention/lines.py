"""The lines that fill the holes of attention's templates: loads, masks, what rows see, stores."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.ops import KEEPS_NAN
from aotc.aot.ir.size import fixed, highest, kernel_text, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file
from aotc.aot.lower.attention.operands import LOG2_E, Attention, has_tail, lies_there, padded
from aotc.aot.lower.attention.pieces import KEYS_TOGETHER, parts_of
from aotc.aot.lower.emit import INDENT, Body, Value, as_tensor, computed, triton_type
from aotc.aot.lower.spec import Candidate
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.attention import query_position
from aotc.aot.schedule.group import Root
from aotc.aot.schedule.trace import Access

DESCRIPTORS = ("queries", "keys", "values", "result")
FEW_KEYS = 1024  # in blocks of 64 or fewer
LINE_BYTES = 128  # of a GPU's cache
# Keys up to which all are asked for ahead. Asking for many takes as long as a third of reading them
# (8 sequences of 8,192 keys: 87 µs with it, 64 without), and rows may see few of them.
MOST_AHEAD = 1024


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
        holes = self._begun() | self._last_seen()
        self.emitter.forget_all()
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
        found = [matrix for matrix in matrices if matrix is not None and lies_there(matrix)]
        if not self.writer.traits.is_launched_early or not found:
            return []
        keys = kernel_text(self.writer.keys.extent)
        if typical(self.writer.keys.extent) > MOST_AHEAD:
            return []
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
        begun = self._begun()
        if begun:
            begun["peak"], masks = [*masks, *begun["peak"]], []
        self.emitter.forget_all()
        hide = [line.replace("= s[", "= (start + tl.arange(0, BN))[", 1) for line in self._hide()]
        holes |= dict.fromkeys(("load_mask", "last_mask"), self._cap())
        return {**holes, **begun, "hide": hide, "store": [*masks, *self._store()]}

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
        for line in self._cap():
            self.body.write(line, self.inside)
        if self.writer.mask is not None:
            self._write_mask(self.writer.mask, is_last)

    def _cap(self) -> list[str]:
        """The cap of a block of products, if there is one."""
        if not self.writer.root_op.attr("softcap"):
            return []
        known = self.writer.constants()
        is_exact = self.writer.root_op.dtype == "f32"
        return [f"scores = capped(scores, {known['RATE']}, {known['CAP']}, {is_exact})"]

    def _write_values(self, is_last: bool) -> None:
        lanes = self.domain.lanes
        self._operand("v", self._of(2, self.writer.row), "BN", padded(lanes.length), lanes)

    def _of(self, place: int, keys: Symbol) -> Access:
        """Access of an operand with keys along the given symbol."""
        return self._at(self.writer.needs[place], keys)

    def _at(self, need: Access, keys: Symbol) -> Access:
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

    def _write_mask(self, mask: Access, is_last: bool) -> None:
        writer = self.writer
        inside = frozenset({writer.column})
        self.body.write("sl = s[None, :]", inside)
        self._mask(writer.column, is_last)
        need = self._at(mask, writer.column)
        value = self.emitter.value_of_type(need.node, need.index)  # it is compared with -inf
        if not writer.has_bias:
            self.body.write(f'scores = tl.where({value.text}, scores, float("-inf"))', inside)
            return
        # The smallest finite numbers stay finite as exponents of two; -inf stays what it is, and
        # so does what is no number.
        bias = f"tl.maximum({value.text} * {LOG2_E!r}, -2.5e38, {KEEPS_NAN})"
        bias = f'tl.where({value.text} == float("-inf"), {value.text}, {bias})'
        is_capped = writer.root_op.attr("softcap") > 0
        scaled = "" if is_capped else f" * {writer.root_op.attr('scale') * LOG2_E!r}"
        self.body.write(f"scores = scores{scaled} + {bias}", inside)

    def _begun(self) -> dict[str, list[str]]:
        """Peak and sum of rows before any key, where they have sinks; of keys in splits the first
        one counts the sinks."""
        if self.writer.sinks is None:
            return {}
        need = self.writer.sinks
        text = as_tensor(self.emitter.value_of_type(need.node, need.index).text, need.node.dtype)
        sink = f"{text}.to(tl.float32) * {LOG2_E!r}"
        self.body.write(f"sink = tl.sum(tl.broadcast_to({sink}, BM, 1), 1)")
        self.body.write("peak = tl.maximum(sink, -3.0e38)")
        lines, self.body.lines = self.body.lines, []
        power = "tl.exp2(sink - peak)"
        if self.is_split:
            power = f"tl.where(split == 0, {power}, 0.0)"
        return {"peak": lines, "total": [f"total = {power}"]}

    def _last_seen(self) -> dict[str, list[str]]:
        """The last keys that rows see, where not all are causal rows of a tile."""
        attention, keys = self.writer.root_op, self.writer.keys.extent
        if self.writer.ends is not None:
            self._write_ends(self.writer.ends)
            lines, self.body.lines = self.body.lines, []
            return {"last_seen": lines}
        if not self.is_split:
            return {}
        low = high = keys - 1
        if attention.attr("causal"):
            low = attention.attr("offset")
            high = low + attention.shape[2] - 1
        return {"last_seen": [f"low, high = {kernel_text(low)}, {kernel_text(high)}"]}

    def _write_ends(self, ends: Access) -> None:
        """The last key that each row sees; the least and the greatest of them."""
        keys = self.writer.keys.extent
        text = self.emitter.value_of_type(ends.node, ends.index).text
        most = kernel_text(keys + self.writer.root_op.attr("window"))
        inside = f"tl.minimum(tl.maximum({text}, 0), {most}).to(tl.int32)"
        self.body.write(f"last = tl.broadcast_to({inside}, BM, 1) - 1")
        low = high = "last"
        if self.domain.rows in self.masks:
            mask = self.masks[self.domain.rows]
            low = f"tl.where({mask}, last, {kernel_text(keys)})"
            high = f"tl.where({mask}, last, -1)"
        self.body.write(f"low, high = tl.min({low}), tl.max({high})")

    def _hide(self) -> list[str]:
        """Keys beyond the last one, and those after and before what a row sees."""
        writer = self.writer
        lines = []
        if self.has_last:
            keys = kernel_text(writer.keys.extent)
            lines.append(f'scores = tl.where(sl < {keys}, scores, float("-inf"))')
        window = writer.root_op.attr("window")
        last, first = "", ""
        if writer.root_op.attr("causal"):
            _, _, query, _ = query_position(writer.root_op, self.domain)
            position = query + writer.root_op.attr("offset")
            last, first = str(position), str(position - window)
        elif writer.ends is not None:
            last, first = "last", f"last - {window}"
        if last:
            lines.append(f'scores = tl.where(sl <= {last}, scores, float("-inf"))')
        if window:
            lines.append(f'scores = tl.where(sl > {first}, scores, float("-inf"))')
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
        is_masked = self.has_last or writer.constants()["CAUSAL"] == "True"
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
        seen = self._begun() | self._last_seen()
        self.emitter.forget_all()
        holes = self._block("load", is_last=False) | self._block("last", is_last=self.has_last)
        return {
            **holes,
            **seen,
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
