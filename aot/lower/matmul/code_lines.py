"""Lines that load a chunk of quantised codes in each thread, and scale and sum its products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import fixed, kernel_text
from aotc.aot.lower import kernel_file
from aotc.aot.lower.emit import Body, Emitter, computed, literal, triton_type
from aotc.aot.lower.matmul.decoding import CHUNK_BYTES, Decoding, Term

WORD_BYTES = 4


@dataclass(slots=True)
class CodeLines:
    """Writes codes into `body`; `values` are the columns of the operand as loads have them."""

    decoding: Decoding
    body: Body
    emitter: Emitter
    masks: dict[Symbol, str]
    has_tail: bool  # along k
    is_masked: bool = False  # also where no tile has a tail: the one behind the last is loaded too
    values: dict[Symbol, Index] = field(default_factory=dict)

    def write_columns(self, name: str, text: str, has_tail: bool) -> None:
        """Name the columns: beyond the last one loads read that one again."""
        columns = self.decoding.columns
        if columns.extent == 1:
            return
        if has_tail:
            text = f"tl.minimum({text}, {kernel_text(columns.extent - 1)})"
            self.body.write(f"{name} = {text}")
        elif not text.isidentifier():
            self.body.write(f"{name} = {text}")
        else:
            name = text
        self.values = {columns: ix.of(Symbol(name, columns.extent))}

    def write_chunks(self, chunks: str, lanes: str) -> None:
        """Name `codes`, by texts of the chunks' places and of the lanes' dim."""
        decoding = self.decoding
        chunk = decoding.chunk
        inside = frozenset({chunk})
        self.body.write(f"{chunk.name} = start // {decoding.chunk_elements} + {chunks}", inside)
        if self.has_tail or self.is_masked:
            kernel_file.write_mask(self.body, chunk, self.masks)
        offset = decoding.offset.substitute(self.values)
        offset += ix.constant(-self.emitter.starts.get(decoding.codes, 0))
        words, offset = CHUNK_BYTES // WORD_BYTES, _divided(offset, WORD_BYTES)
        buffer = self.emitter.buffers[decoding.codes]
        pointer = f"{buffer}.to(tl.pointer_type(tl.int32), bitcast=True)"
        masked = f", mask={self.masks[chunk]}, other=0" if chunk in self.masks else ""
        where = f"{pointer} + {offset} + tl.arange(0, {words}){lanes}"
        with self.body.at(self.emitter.moment_of(decoding.codes)):
            self.body.write(f"codes = tl.load({where}{masked})", inside)

    def widened(self) -> str:
        """The numbers of `codes`."""
        code, zero = self.decoding.code, self.decoding.zero
        how = "" if code.is_float else f", {code.flip}, {zero + code.bias}"
        return f"numbers_of_{code.suffix}(codes{how})"

    def write_sums(self, pieces: Sequence[str]) -> None:
        """Name `p` the sums of products of each chunk of `codes` with its pieces of A."""
        code, inside = self.decoding.code, frozenset({self.decoding.chunk})
        names = [f"codes{number}" for number in range(len(pieces))]
        if len(pieces) == 4:
            self.body.write("low, high = halves(codes)", inside)
            self.body.write(f"{names[0]}, {names[1]} = halves(low)", inside)
            self.body.write(f"{names[2]}, {names[3]} = halves(high)", inside)
        else:
            self.body.write(f"{', '.join(names)} = halves(codes)", inside)
        how, first = "", "0.0"
        if not code.is_float:
            how, zero = f", zero, {code.flip}", self.decoding.zero + code.bias
            first = " + ".join(f"less_{code.suffix}({piece}, {zero})" for piece in pieces)
        self.body.write(f"p = {first}", inside)
        for piece, name in zip(pieces, names, strict=True):
            self.body.write(f"p = plus_{code.suffix}(p, {piece}, {name}{how})", inside)

    def write_step(self) -> None:
        """Name the chunk whose factor is that of all codes of a step."""
        chunk = self.decoding.chunk
        text = f"{chunk.name} = start // {self.decoding.chunk_elements}"
        self.body.write(text, frozenset({chunk}))
        if self.has_tail:
            kernel_file.write_mask(self.body, chunk, self.masks)

    def load(self, byte: Symbol) -> str:
        """The codes at the bytes of rows."""
        values = {**self.values, self.decoding.chunk: ix.of(byte)}
        base = self.decoding.offset.substitute({self.decoding.chunk: ix.ZERO})
        offset = base.substitute(values) + ix.of(byte)
        offset += ix.constant(-self.emitter.starts.get(self.decoding.codes, 0))
        masked = f", mask={self.masks[byte]}, other=0" if self.has_tail else ""
        return f"tl.load({self.emitter.buffers[self.decoding.codes]} + {offset}{masked})"

    def scaled(self, text: str, total: str) -> str:
        """text · factor + total · term, zero beyond the last chunk."""
        decoding = self.decoding
        found = text
        if decoding.factor is not None:
            found = f"{found} * {self._text(decoding.factor)}"
        if decoding.term is not None:
            term = self._text(decoding.term)
            found = f"{found} + {total} * {term}" if total else f"{found} + {term}"
        is_zero = found == text and not decoding.zero + decoding.code.bias
        if self.has_tail and not is_zero:
            found = f"tl.where({self.masks[decoding.chunk]}, {found}, 0.0)"
        return found

    def _text(self, term: Term) -> str:
        """A term of the codes' groups in f32."""
        if term.op == "number":
            return literal(term.number, "f32")
        if term.access is None:
            left, right = map(self._text, term.parts)
            return f"({left} {term.op} {right})"
        node = term.access.node
        index = tuple(part.substitute(self.values) for part in term.access.index)
        found = self.emitter.value(node, index)
        if found.is_literal or computed(node.dtype) == "f32":
            return found.text
        return f"{found.text}.to({triton_type('f32')})"


def _divided(index: Index, divisor: int) -> Index:
    """An index all of whose parts are multiples, in units of the divisor."""
    total = ix.constant(fixed(index.constant) // divisor)
    for symbol in sorted(index.symbols(), key=lambda symbol: symbol.name):
        total += ix.of(symbol) * (fixed(index.stride(symbol) or 0) // divisor)
    return total
