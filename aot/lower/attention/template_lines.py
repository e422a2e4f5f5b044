"""The lines that fill the holes of a form of attention: loads, masks and the epilogue."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import fixed, highest, kernel_text
from aotc.aot.lower import kernel_file
from aotc.aot.lower.attention.operands import LOG2_E, Attention, has_tail, padded
from aotc.aot.lower.body import Body, Value
from aotc.aot.lower.emit import Emitter
from aotc.aot.lower.literal import as_tensor, computed, triton_type
from aotc.aot.lower.spec import Candidate
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.attention import query_position
from aotc.aot.schedule.group import Root
from aotc.aot.schedule.trace import Access


class Lines:
    """The lines that fill the holes of one form."""

    def __init__(self, writer: Attention, is_split: bool, found: Sequence[Candidate]) -> None:
        self.writer, self.is_split, self.domain = writer, is_split, writer.domain
        self.body, self.masks = Body(), dict[Symbol, str]()
        self.buffers = kernel_file.buffer_names(writer.group)
        rounded = writer.group.rounded
        self.emitter = Emitter(self.body, self.buffers, self.masks, self._stop, rounded=rounded)
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
        self._operand("q", writer.needs[0], "BM", padded(writer.element.length))
        before, self.body.lines = self.body.lines, []
        self.emitter.forget_all()
        holes: dict[str, list[str]] = {}
        if not self.is_split:
            holes |= self._block("load", is_last=False)
        holes |= self._block("last", is_last=self.has_last)
        holes["load_q"] = [*before, *self.body.lines]
        return {**holes, "hide": self._hide(), "store": self._store()}

    def describing(self) -> dict[str, list[str]]:
        """Holes of a form that loads through descriptors."""
        rows = (("q", "queries", "BM"), ("k", "keys", "BN"), ("v", "values", "BN"))
        holes = {}
        for place, (letter, name, block) in enumerate(rows):
            matrix = self.writer.matrix(place)
            assert matrix is not None
            shape = ", ".join(map(kernel_text, matrix.extents))
            width = padded(fixed(matrix.extents[1]))
            start = str(matrix.start)
            address = self.buffers[matrix.memory] + (f" + {start}" if start != "0" else "")
            holes[f"describe_{letter}"] = [
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
        writer = self.writer
        inside = frozenset({writer.row, writer.column})
        self.body.open_loop(inside)
        loop = self.body.loop
        assert loop is not None
        self.body.write("sk = s[:, None]", inside)
        self._mask(writer.row, is_last)
        self._operand("k", self._of(1, writer.row), "BN", padded(writer.element.length))
        at_mask = len(loop)
        if len(writer.needs) == 4:
            self._write_mask(is_last)
        at_value = len(loop)
        self._operand("v", self._of(2, writer.row), "BN", padded(self.domain.lanes.length))
        lines = self.body.close_loop()
        self.emitter.forget(inside)
        self.masks.pop(writer.row, None)
        self.masks.pop(writer.column, None)
        return {
            f"{prefix}_k": lines[:at_mask],
            f"{prefix}_mask": lines[at_mask:at_value],
            f"{prefix}_v": lines[at_value:],
        }

    def _of(self, place: int, keys: Symbol) -> Access:
        """Access of an operand with keys along the given symbol."""
        need = self.writer.needs[place]
        values = {self.writer.keys: ix.of(keys)}
        return Access(need.node, tuple(part.substitute(values) for part in need.index))

    def _operand(self, name: str, need: Access, rows: str, columns: int) -> None:
        """The tile `name` of an operand, zero where it is masked."""
        value = self.emitter.filled(need, "0.0" if self.masks else "")
        dtype = need.node.dtype
        text = as_tensor(value.text, dtype)
        masks = [mask for symbol, mask in self.masks.items() if symbol in value.symbols]
        if masks and not self.emitter.is_filled(need, 0.0):
            text = f"tl.where({' & '.join(masks)}, {text}, 0.0)"
        if computed(dtype) != dtype:
            text = self._narrowed(text, dtype)
        element = self.writer.element
        if name != "v" and element in self.masks and element not in value.symbols:
            # Equal elements, of which the product is to have no more than there are.
            text = f"tl.where({self.masks[element]}, {text}, 0.0)"
        lanes = value.symbols & {self.writer.element, self.domain.lanes}
        if not lanes or not value.symbols & {self.domain.rows, self.writer.row}:
            text = f"tl.broadcast_to({text}, {rows}, {columns})"
        self.body.name(name, text, value.symbols & {self.writer.row})

    def _narrowed(self, text: str, dtype: str) -> str:
        """A 16-bit value as it was loaded, where widening it was the last thing done."""
        wide = f".to({triton_type('f32')})"
        lines = self.body.loop if self.body.loop else self.body.lines
        last = lines[-1] if lines else ""
        if last.startswith(f"{text} = tl.load(") and last.endswith(wide):
            lines[-1] = last.removesuffix(wide)
            return text
        return f"{text}.to({triton_type(dtype)})"

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
        # The smallest finite numbers stay finite as exponents of two; -inf stays what it is.
        bias = f"tl.maximum({value.text} * {LOG2_E!r}, -2.5e38)"
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
