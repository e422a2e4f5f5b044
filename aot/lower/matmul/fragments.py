"""Lines that load codes as tensor cores take them, and multiply them with a few rows."""

from __future__ import annotations

from collections.abc import Mapping

from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import Extent, content, fixed, kernel_text
from aotc.aot.ir.types import SHORT_FLOATS
from aotc.aot.lower.emit import Moment, Value, triton_type
from aotc.aot.lower.matmul.choice import Choice
from aotc.aot.lower.matmul.code_lines import CodeLines
from aotc.aot.lower.matmul.decoding import Decoding
from aotc.aot.lower.matmul.epilogue import Lines, since, until
from aotc.aot.lower.matmul.loads import Loads
from aotc.aot.lower.matmul.operands import Product

LONGEST_PIECE = 128  # elements of k
LEAST_PIECE = 32
LANES_ALONG = 4  # threads that have one row of a fragment
MOST_TOGETHER = 16  # bytes of codes that a thread loads at once
PAIR = 2  # 16-bit numbers of a word
# The bits of the number whose last bits a nibble becomes, and that number.
ONES = {"bf16": (0x4300, 128), "f16": (0x6400, 1024)}


def piece_of(product: Product, decoding: Decoding, step: int) -> int:
    """Elements of k that have one factor and go to the tensor cores together; 0 where the few rows
    are not 16-bit numbers that lie along k as words do."""
    few, words = product.left, (product.batch.extent, product.root_op.dtype)
    if words[0] != 1 or words[1] not in SHORT_FLOATS or few.strides is None or few.memory is None:
        return 0
    if few.memory.dtype != words[1] or few.need.node.dtype != words[1] or few.strides[2] != 1:
        return 0
    is_even = not any(content(part) % PAIR for part in (few.strides[1], few.start))
    codes = len(decoding.code.numbers)
    piece = min(LONGEST_PIECE, step)
    return piece if piece >= LEAST_PIECE and (codes == 1 or is_even) else 0


def constants_of(product: Product, decoding: Decoding, piece: int) -> Mapping[str, str]:
    """What the template is filled with beside the sizes."""
    codes = piece // len(decoding.code.numbers)
    return {
        "PIECE": str(piece),
        "CODES": str(codes),
        "VECTOR": str(min(MOST_TOGETHER, codes // LANES_ALONG)),
        "TOGETHER": str(product.column_group),
    }


def numbers_of(decoding: Decoding, dtype: str) -> list[str]:
    """Lines that name `a` the numbers of `codes` less their zero, which 16-bit floats have exactly,
    and `a1` those of the second codes of bytes."""
    code, kind = decoding.code, triton_type(dtype)
    if code.is_float:
        return [f"a = widened_{code.suffix}(codes).to({kind})"]
    if len(code.numbers) == 1:
        signed = "tl.int8" if code.bias else "tl.uint8"
        numbers = f"codes.to({signed}, bitcast=True).to({kind})"
        zero = decoding.zero
        return [f"a = ({numbers} - {float(zero)}).to({kind})" if zero else f"a = {numbers}"]
    ones, one = ONES[dtype]
    bits = (ones | code.flip & 0xF) * 0x10001
    raised = f'a, a1 = raised_nibbles(codes, "{bits:#x}", {kind})'
    less = f"{float(one + decoding.zero + code.bias)}"
    return [raised, f"a = (a - {less}).to({kind})", f"a1 = (a1 - {less}).to({kind})"]


class FragmentLoads(Lines):
    """Pieces of codes, which are `a`, and `a1` of the second codes of bytes, times those of the few
    rows, `b` and `b1`."""

    def __init__(
        self, product: Product, choice: Choice, decoding: Decoding | None, is_ahead: bool
    ) -> None:
        super().__init__(product, choice)
        assert decoding is not None
        self.decoding, self.is_ahead = decoding, is_ahead
        self.piece = choice.problem.piece
        self.count = len(decoding.code.numbers)  # codes of a byte
        self.type = triton_type(product.root_op.dtype)
        has_tail = "k" in choice.tails
        self.codes = CodeLines(decoding, self.body, self.emitter, self.masks, has_tail)

    def loads(self) -> Loads:
        """The lines of both operands."""
        decoding, tails = self.decoding, self.choice.tails
        byte = Symbol("byte", fixed(self.walk.depth) // self.count)
        inside = frozenset({byte, decoding.chunk})
        self.codes.write_columns("xa", "xa", False)
        if "m" in tails:
            last = kernel_text(decoding.columns.extent - 1)
            for name in ("xa", "xf"):
                self.body.write(f"{name} = tl.minimum({name}, {last})")
        self.body.open_loop(inside)
        self._write_codes(byte)
        scaled = self._write_factor()
        count = len(self.body.loop or ())
        self._write_few(inside)
        second = len(self.body.loop or ())
        self._write_products(scaled, inside)
        lines = self.body.close_timed_loop()
        texts = [line.text for line in lines]
        if not self.is_ahead:
            before = self.body.lines
            return Loads(texts[:count], texts[count:second], [], before, texts[second:])
        return Loads(
            a=since(Moment.MEMORY, lines[:count]),
            b=texts[count:second],
            before=since(Moment.MEMORY, self.body.written),
            multiply=texts[second:],
            first=[
                *until(Moment.CONSTANTS, self.body.written),
                "start = 0",
                *until(Moment.CONSTANTS, lines[:count]),
            ],
        )

    def _place(self, pieces: str) -> str:
        return f"(start + {pieces} * {self.piece})"

    def _write_codes(self, byte: Symbol) -> None:
        inside, depth = frozenset({byte}), kernel_text(self.walk.depth)
        with self.body.at(self.emitter.moment_of(self.decoding.codes)):
            if "k" in self.choice.tails:
                self.masks[byte] = "pa_mask"
                self.body.write(f"pa_mask = {self._place('pa')} < {depth}", inside)
            each = "" if self.count == 1 else f" // {self.count}"
            self.body.write(f"{byte.name} = {self._place('pa')}{each} + ka", inside)
            self.body.write(f"codes = {self.codes.load(byte)}", inside)

    def _write_factor(self) -> str:
        """The text of the scaled sums, whose factor is loaded here."""
        decoding, chunk = self.decoding, self.decoding.chunk
        inside = frozenset({chunk})
        self.codes.values = {decoding.columns: ix.of(Symbol("xf", decoding.columns.extent))}
        text = f"{chunk.name} = {self._place('pf')} // {decoding.chunk_elements}"
        self.body.write(text, inside)
        if "k" in self.choice.tails:
            self.masks[chunk] = "pf_mask"
            depth = kernel_text(self.walk.depth)
            self.body.write(f"pf_mask = {self._place('pf')} < {depth}", inside)
        return self.codes.scaled("sums", "totals")

    def _write_few(self, inside: frozenset[Symbol]) -> None:
        """The few rows, of which those beyond the last one are zero, as words of two numbers where
        bytes have two codes."""
        few, tails = self.product.right, self.choice.tails
        assert few.memory is not None
        assert few.strides is not None
        masks = []
        if "k" in tails:
            depth = kernel_text(self.walk.depth)
            self.body.write(f"pb_mask = {self._place('pb')} < {depth}", inside)
            masks.append("pb_mask")
        if "n" in tails:
            masks.append(f"(yb < {kernel_text(few.outer.extent)})")
        masked = f", mask={' & '.join(masks)}, other=0" if masks else ""
        pointer = self.emitter.buffers[few.memory]
        row, first = few.strides[1], few.start
        if self.count == 1:
            where = f"{self._place('pb')} + kb"
            self.body.write(self._loaded("b", pointer, row, first, where, masked), inside)
            return
        pointer = f"{pointer}.to(tl.pointer_type(tl.int32), bitcast=True)"
        where = f"{self._place('pb')} // {PAIR} + kb"
        line = self._loaded("words", pointer, row // PAIR, first // PAIR, where, masked)
        self.body.write(line, inside)
        self.body.write(f"b = (words & 0xFFFF).to(tl.int16).to({self.type}, bitcast=True)", inside)
        self.body.write(f"b1 = (words >> 16).to(tl.int16).to({self.type}, bitcast=True)", inside)

    def _loaded(
        self, name: str, pointer: str, row: Extent, first: Extent, where: str, masked: str
    ) -> str:
        begin = f" + {kernel_text(first)}" if first != 0 else ""
        return f"{name} = tl.load({pointer}{begin} + yb * {kernel_text(row)} + {where}{masked})"

    def _write_products(self, scaled: str, inside: frozenset[Symbol]) -> None:
        shape = f"(BK // {self.piece}, BM, BN)"
        zeros = f"gl.zeros({shape}, tl.float32, layout=SUMS)"
        for line in numbers_of(self.decoding, self.product.root_op.dtype):
            self.body.write(line, inside)
        self.body.write(f"sums = mma_v2(a, b, {zeros})", inside)
        if self.count == 2:
            self.body.write("sums = mma_v2(a1, b1, sums)", inside)
        if "totals" in scaled:
            ones = f"(BK // {self.piece}, BM, {self.piece // self.count})"
            self.body.write(f"ones = gl.full({ones}, 1.0, {self.type}, layout=A)", inside)
            self.body.write(f"totals = mma_v2(ones, b, {zeros})", inside)
            if self.count == 2:
                self.body.write("totals = mma_v2(ones, b1, totals)", inside)
        self.body.write(f"acc += {scaled}", inside)

    def _stop(self, node: Node, index: tuple[Index, ...]) -> Value | None:
        return None
