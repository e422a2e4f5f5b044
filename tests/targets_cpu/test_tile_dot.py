"""Products by words, of tiles (AMX) and vectors (AVX-512 BF16, VNNI): numbers beside f64, code on
every machine, and the permission."""

from __future__ import annotations

import itertools
import os
import re
import threading

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu import compile
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import lower
from aotc.aot.targets.digest import compiler_digest
from aotc.aot.tasks.task import Request
from aotc.kernels import driver
from aotc.runtime.drivers.cpu import driver as cpu
from aotc.runtime.drivers.cpu import tile_permission

pytestmark = [pytest.mark.torch, pytest.mark.triton]
ROW, VECTORS, VNNI, WIDENED = "x86-64-amx", "x86-64-v4-bf16", "x86-64-v4-vnni", "x86-64-v4"
# Instruction set and element type for which it adds nothing to the one that it is based on.
WITH_THE_CODE_BEFORE = (("x86-64-v3-vnni", "bf16"), (VNNI, "bf16"), (VECTORS, "i8"))
UNIT_ROUNDOFF = 2.0**-24  # of f32
SMALLEST_NORMAL = 2.0**-126


@triton.jit
def multiply(
    a, b, out, M, N, K: tl.constexpr, A0, A1: tl.constexpr, B0: tl.constexpr, B1: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):  # fmt: skip
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    y = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), OUT)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        if IS_WHOLE:
            left = tl.load(a + x * A0 + k[None, :] * A1)
            right = tl.load(b + k[:, None] * B0 + y * B1)
        else:
            is_row, is_column = k[None, :] < K, k[:, None] < K
            left = tl.load(a + x * A0 + k[None, :] * A1, mask=(x < M) & is_row, other=0.0)
            right = tl.load(b + k[:, None] * B0 + y * B1, mask=is_column & (y < N), other=0.0)
        acc = tl.dot(left, right, acc, out_dtype=OUT)
    tl.store(out + x * N + y, acc * 2, mask=(x < M) & (y < N))


@triton.jit
def closed(
    a, b, bias, more, out, M, N, turns, STEP: tl.constexpr, DEPTH: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Rows of A `STEP` apart; panels of BN columns of B, `DEPTH` deep, whose rows lie in pairs."""
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.arange(0, BN)[None, :]
    y = tl.program_id(1) * BN + n
    acc = tl.zeros((BM, BN), tl.float32)
    for turn in range(turns):
        k = turn * BK + tl.arange(0, BK)
        left = tl.load(a + x * STEP + k[None, :])
        pairs = b + tl.program_id(1) * BN * DEPTH + (k[:, None] // 2) * (2 * BN)
        acc = tl.dot(left, tl.load(pairs + n * 2 + k[:, None] % 2), acc, out_dtype=tl.float32)
    is_asked = (x < M) & (y < N)
    found = acc + tl.load(bias + y) + tl.load(more + x * N + y, mask=is_asked, other=0.0)
    tl.store(out + x * N + y, tl.where(found < 0, 0.25 * found, found), mask=is_asked)


@triton.jit
def summed(
    a, b, out, M, DEPTH: tl.constexpr, PACK: tl.constexpr, OUT: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """BN columns of B, whose rows lie in words, added up in turns of BK."""
    x = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), OUT)
    for start in range(0, DEPTH, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + tl.minimum(x, M - 1) * DEPTH + k[None, :])
        words = b + (k[:, None] // PACK) * (PACK * BN) + n * PACK + k[:, None] % PACK
        acc = tl.dot(left, tl.load(words), acc, out_dtype=OUT)
    tl.store(out + x * BN + n, acc * 2, mask=x < M)


@triton.jit
def chained(a, b, c, out, S: tl.constexpr):
    """A product of a product, which is computed, added to the first: nothing is stored at once."""
    x, y = tl.arange(0, S)[:, None], tl.arange(0, S)[None, :]
    first = tl.dot(tl.load(a + x * S + y), tl.load(b + x * S + y))
    second = tl.dot(first.to(tl.bfloat16), tl.trans(tl.load(c + x * S + y)), first)
    tl.store(out + x * S + y, second - tl.sum(second, 1)[:, None])


@pytest.fixture(params=list(cpu.ISA_FEATURES))
def word_row(request, monkeypatch):
    """The row of the instruction set that kernels are compiled for."""
    if not cpu.ISA_FEATURES[request.param] <= cpu.features():
        pytest.skip("this processor has no such instructions, or its kernel denies them")
    monkeypatch.setattr(driver, "_isa", lambda: request.param)
    with kernels.on_cpu():
        yield request.param
    for kernel in (multiply, closed, chained):
        kernel.device_caches.clear()


@pytest.fixture
def apart(word_row, monkeypatch):
    """As kernels of our own are compiled: the memory behind different pointers does not overlap."""
    known = lambda name, function, values: Request(name, function, (*values[:2], True))  # noqa: E731
    monkeypatch.setattr(driver, "Request", known)
    digest = f"apart-{compiler_digest('cpu')}-{word_row}"
    monkeypatch.setattr(driver.CpuBackend, "hash", lambda self: digest)
    return word_row


def operands(dtype, sizes, is_turned):
    """Random matrices [M, K] and [K, N], each turned or not."""
    rows, columns, depth = sizes
    shapes = (rows, depth), (depth, columns)
    found = []
    for shape, turned in zip(shapes, is_turned, strict=True):
        wanted = shape[::-1] if turned else shape
        if dtype == torch.int8:
            made = torch.randint(-128, 128, wanted, dtype=dtype)
        else:
            made = torch.randn(wanted).to(dtype)
        found.append(made.t() if turned else made)
    return found


def product(a, b, blocks, out=None):
    (rows, depth), columns = a.shape, b.shape[1]
    is_integer = a.dtype == torch.int8
    if out is None:
        out = torch.full((rows, columns), 7, dtype=torch.int32 if is_integer else torch.float32)
    is_whole = all(s % b == 0 for s, b in zip((rows, columns, depth), blocks, strict=True))
    grid = triton.cdiv(rows, blocks[0]), triton.cdiv(columns, blocks[1])
    steps = (*a.stride(), *b.stride())
    total = tl.int32 if is_integer else tl.float32
    multiply[grid](a, b, out, rows, columns, depth, *steps, *blocks, total, is_whole)
    return out


def most_apart(a, b):
    """Bound on the error of a product of bf16 in f32 in any order, an element: products are exact,
    each addition rounds once, and what is below the smallest normal number is taken as zero."""
    depth = a.shape[1]
    sizes = a.double().abs() @ b.double().abs()
    lost = depth * SMALLEST_NORMAL * (1 + a.double().abs().amax() + b.double().abs().amax())
    return 2 * (depth * UNIT_ROUNDOFF * sizes + lost)


CASES = [
    ((64, 64, 64), (64, 64, 64)),
    ((128, 128, 256), (32, 64, 128)),  # accumulators come back from memory
    ((100, 70, 130), (32, 32, 64)),  # no size divides
    ((16, 16, 16), (16, 16, 16)),  # half a tile's depth
    ((5, 9, 7), (8, 8, 8)),
    ((33, 17, 31), (16, 32, 32)),
    ((7, 200, 513), (4, 64, 128)),  # one row of tiles, four tiles across
    ((64, 48, 96), (64, 16, 32)),
    ((1, 1, 1), (8, 8, 8)),
]


def of_each_code(*dtypes):
    """(type, instruction set): by night also those of `WITH_THE_CODE_BEFORE`."""
    names = {torch.bfloat16: "bf16", torch.int8: "i8"}
    pairs = [
        pytest.param(
            dtype,
            row,
            marks=pytest.mark.nightly if (row, names[dtype]) in WITH_THE_CODE_BEFORE else (),
        )
        for dtype, row in itertools.product(dtypes, cpu.ISA_FEATURES)
    ]
    return pytest.mark.parametrize(("dtype", "word_row"), pairs, indirect=["word_row"])


@pytest.mark.parametrize("is_turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(("sizes", "blocks"), CASES)
@of_each_code(torch.bfloat16, torch.int8)
def test_products_are_right(dtype, sizes, blocks, is_turned, word_row):
    a, b = operands(dtype, sizes, is_turned)
    found = product(a, b, blocks).double()
    expected = 2 * (a.double() @ b.double())
    limit = 0 if dtype == torch.int8 else most_apart(a, b)
    assert ((found - expected).abs() <= limit).all()


def test_no_row_or_depth_gives_zeros(word_row):
    a, b = torch.zeros(8, 0, dtype=torch.bfloat16), torch.zeros(0, 8, dtype=torch.bfloat16)
    assert product(a, b, (8, 8, 8)).eq(0).all()


def test_results_that_others_read_stay_in_memory(word_row):
    a, b, c = torch.randn(3, 64, 64).to(torch.bfloat16)
    out = torch.empty(64, 64)
    chained[(1,)](a, b, c, out, 64)
    first = a.double() @ b.double()
    second = first.float().bfloat16().double() @ c.double().t() + first
    expected = second - second.sum(1, keepdim=True)
    # The first product may round to the other neighbour in bf16, 2⁻⁸ of it apart.
    limit = 2.0**-8 * (first.abs() @ c.double().t().abs()).sum(1, keepdim=True)
    assert ((out.double() - expected).abs() <= limit).all()
    assert torch.allclose(out.double(), expected, atol=0.02 * expected.abs().amax().item())


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ((128, 128, 64), (64, 64, 32)),
        ((100, 70, 96), (32, 32, 32)),  # the last blocks are cut
        ((65, 33, 32), (64, 32, 32)),  # one row of the last block
        ((40, 64, 64), (16, 64, 64)),  # one row of tiles
        ((96, 64, 0), (32, 64, 32)),  # nothing is multiplied
        ((0, 64, 32), (32, 64, 32)),  # nobody asks for a row
    ],
)
def test_what_follows_a_product(sizes, blocks, apart):
    rows, columns, depth = sizes
    height, width, inner = blocks
    grid = max(1, triton.cdiv(rows, height)), triton.cdiv(columns, width)
    room = grid[0] * height, grid[1] * width, max(inner, depth)
    a = torch.randn(room[0], room[2]).bfloat16()
    b = torch.randn(room[2], room[1]).bfloat16()
    panels = b.reshape(room[2] // 2, 2, grid[1], width).permute(2, 0, 3, 1).contiguous()
    bias, more = torch.randn(room[1]), torch.randn(max(1, rows), columns)
    out = torch.full((max(1, rows), columns), 7.0)
    turns = depth // inner
    steps = room[2], room[2]
    made = closed[grid](a, panels, bias, more, out, rows, columns, turns, *steps, *blocks)
    loads = made.asm["llir"].count("tileloadd64")
    assert loads in (4, 5) if apart == ROW else not loads  # of operands alone
    left, right = a[:rows, :depth], b[:depth, :columns]
    found = left.double() @ right.double() + bias[:columns].double() + more[:rows].double()
    expected = torch.where(found < 0, 0.25 * found, found)
    limit = most_apart(left, right) if left.numel() else 0
    limit = limit + 4 * UNIT_ROUNDOFF * (found.abs() + 2 * more[:rows].abs() + bias[:columns].abs())
    assert ((out[:rows].double() - expected).abs() <= limit).all()
    if not rows:
        assert out.eq(7.0).all()


def test_infinities_and_what_is_no_number(word_row):
    a, b = torch.ones(16, 32).bfloat16(), torch.ones(32, 16).bfloat16()
    a[1, 3], a[2, 4], a[3, 5], b[5, 7] = torch.inf, torch.nan, -torch.inf, 0.0
    found = product(a, b, (16, 16, 32))
    expected = 2 * (a.float() @ b.float())
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())
    assert found[2].isnan().all()
    assert found[3, 7].isnan()


def test_subnormal_operands_count_as_zeros(word_row):
    a = torch.full((16, 32), 2.0**-130).bfloat16()
    b = torch.full((32, 16), 2.0**100).bfloat16()
    assert a[0, 0] != 0
    found = product(a, b, (16, 16, 32)).double()
    assert found.eq(0).all() == (word_row in (ROW, VECTORS))
    assert ((found - 2 * (a.double() @ b.double())).abs() <= most_apart(a, b)).all()


def test_many_threads_multiply_at_once(word_row):
    a, b = operands(torch.bfloat16, (96, 96, 96), (0, 0))
    expected = product(a, b, (32, 32, 32))
    found = [torch.empty_like(expected) for _ in range(4)]

    def run(out):
        with kernels.on_cpu():
            for _ in range(9):
                product(a, b, (32, 32, 32), out)

    threads = [threading.Thread(target=run, args=(each,)) for each in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(each, expected) for each in found)


@pytest.mark.parametrize("inner", [32, 64, 128])
@pytest.mark.parametrize("rows", [32, 45])
@of_each_code(torch.bfloat16, torch.int8)
def test_sums_over_turns(dtype, rows, inner, word_row):
    a, b = operands(dtype, (rows, 64, 256), (0, 0))
    pack, total = (4, tl.int32) if dtype == torch.int8 else (2, tl.float32)
    words = b.reshape(256 // pack, pack, 64).transpose(1, 2).contiguous()
    out = torch.full((rows, 64), 7, dtype=torch.int32 if dtype == torch.int8 else torch.float32)
    summed[(2,)](a, words, out, rows, 256, pack, total, 32, 64, inner)
    limit = 0 if dtype == torch.int8 else most_apart(a, b)
    assert ((out.double() - 2 * (a.double() @ b.double())).abs() <= limit).all()


# ------------------------------------------------------------ on every machine


def assembly(element, blocks, row=ROW):
    total = "fp32" if element == "bf16" else "i32"
    size = {"BM": blocks[0], "BN": blocks[1], "BK": blocks[2]}
    strides = {"A1": 1, "B0": blocks[1], "B1": 1}
    config = {"K": blocks[2], **strides, **size, "IS_WHOLE": True}
    config["OUT"] = tl.int32 if total == "i32" else tl.float32
    pointers = [("a", f"*{element}"), ("b", f"*{element}"), ("out", f"*{total}")]
    numbers = [(name, "i32") for name in ("M", "N", "A0")]
    kinds = [*pointers, *numbers, *((name, "constexpr") for name in config)]
    order = {name: place for place, name in enumerate(multiply.arg_names)}
    text = toolchain.ttir_text(multiply, sorted(kinds, key=lambda kind: order[kind[0]]), config)
    lowered = lower(text, ISAS[row], no_alias=True)
    return toolchain.compile_object(lowered.llvm_ir, "k", ISAS[row].cpu).assembly


@pytest.mark.skipif("AOTC_TESTS_TILES" in os.environ, reason="tiles are emulated")
@pytest.mark.parametrize(("element", "name"), [("bf16", "tdpbf16ps"), ("i8", "tdpbssd")])
def test_the_code_multiplies_by_tiles_and_releases_them(element, name):
    text = assembly(element, (64, 64, 64))
    assert len(re.findall(rf"\b{name}\b", text)) >= 4
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1
    assert text.index("ldtilecfg") < text.index(name) < text.index("tilerelease")


def test_sums_stay_in_tiles_over_a_loop_that_ends_in_stores():
    config = {"STEP": 64, "DEPTH": 64, "BM": 64, "BN": 64, "BK": 32}
    kinds = [("a", "*bf16"), ("b", "*bf16"), *((name, "*fp32") for name in ("bias", "more", "out"))]
    kinds += [(name, "i32") for name in ("M", "N", "turns")]
    kinds += [(name, "constexpr") for name in config]
    text = toolchain.ttir_text(closed, kinds, config)
    found = lower(text, ISAS[ROW], no_alias=True).llvm_ir
    assert found.count("tileloadd64") == found.count("tilestored64") == 4
    assert found.count("tdpbf16ps") == 4


@pytest.mark.parametrize(("inner", "is_apart"), [(64, False), (128, False), (256, True)])
@pytest.mark.parametrize(("element", "pack", "total"), [("bf16", 2, "fp32"), ("i8", 4, "i32")])
def test_sums_of_short_turns_stay_in_registers(inner, is_apart, element, pack, total):
    """Over a loop whose turns are long they go to memory and back, 16 kB of it here."""
    config = {"DEPTH": 512, "PACK": pack, "BM": 64, "BN": 64, "BK": inner}
    config["OUT"] = tl.int32 if total == "i32" else tl.float32
    kinds = [("a", f"*{element}"), ("b", f"*{element}"), ("out", f"*{total}"), ("M", "i32")]
    kinds += [(name, "constexpr") for name in config]
    order = {name: place for place, name in enumerate(summed.arg_names)}
    text = toolchain.ttir_text(summed, sorted(kinds, key=lambda kind: order[kind[0]]), config)
    assert bool(lower(text, ISAS[VECTORS], no_alias=True).scratch_bytes) == is_apart


@pytest.mark.parametrize(
    ("row", "element", "name"),
    [
        (VECTORS, "bf16", "vdpbf16ps"),
        (VECTORS, "i8", "vpdpbusd"),
        (VNNI, "i8", "vpdpbusd"),
        (WIDENED, "i8", "vpmaddwd"),
    ],
)
def test_vectors_multiply_words(row, element, name):
    text = assembly(element, (64, 64, 64), row)
    assert "tile" not in text
    assert len(re.findall(rf"\b{name}\b.*%zmm", text)) >= 32  # 16 sums, two words a turn


@pytest.mark.parametrize(("row", "element"), [(WIDENED, "bf16"), (VNNI, "bf16"), (WIDENED, "i8")])
def test_other_rows_have_no_such_instructions(row, element):
    assert not re.search("tile|vdp|vpdp", assembly(element, (32, 32, 32), row))


@pytest.mark.parametrize(("row", "element"), WITH_THE_CODE_BEFORE)
@pytest.mark.parametrize("blocks", [(64, 64, 64), (8, 8, 8)])
def test_a_row_that_adds_nothing_for_a_type_has_the_code_before(row, element, blocks):
    assert assembly(element, blocks, row) == assembly(element, blocks, ISAS[row].base)


def test_few_rows_are_multiplied_by_vectors():
    assert "tile" not in assembly("bf16", (2, 64, 64))


@pytest.mark.parametrize("refusal", ["", "a kernel that denies it (operation not permitted)"])
def test_a_kernel_that_denies_tiles_is_named(refusal, monkeypatch):
    everything = frozenset().union(*cpu.ISA_FEATURES.values())
    monkeypatch.setattr(cpu, "processor_features", lambda: everything)
    monkeypatch.setattr(tile_permission, "_refusals", [refusal])
    needs = sorted(cpu.ISA_FEATURES[ROW])
    rows = cpu.missing(needs)
    assert [row[0] for row in rows] == (["tile-permission"] if refusal else [])
    assert cpu.best_isa(cpu.features()) == (VECTORS if refusal else ROW)
    assert not cpu.missing(sorted(cpu.ISA_FEATURES["x86-64-v4"]))
    if refusal:
        assert refusal in rows[0]


def test_pairs_of_bf16_are_not_chosen_where_they_are_slower_than_f32():
    """Intel's processors with tiles that are not permitted; others with the same instructions."""
    found = cpu.ISA_FEATURES[VECTORS] | {"avx512_fp16"}
    assert cpu.best_isa(found) == VECTORS
    assert cpu.best_isa(found | {"AuthenticAMD"}) == VECTORS
    assert cpu.best_isa(found | {"GenuineIntel"}) == VNNI
    assert cpu.best_isa(found - {"avx512_fp16"} | {"GenuineIntel"}) == VECTORS
    assert cpu.best_isa(cpu.ISA_FEATURES[ROW] | found | {"GenuineIntel"}) == ROW


def test_the_permission_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(tile_permission, "_refusals", [])
    monkeypatch.setattr(tile_permission, "_asked", lambda: asked.append(1) or "no")
    assert [tile_permission.tile_refusal() for _ in range(3)] == ["no"] * 3
    assert len(asked) == 1


def test_targets_without_tiles_ask_for_nothing(monkeypatch):
    monkeypatch.setattr(tile_permission, "_refusals", [])
    cpu.missing(["avx2"])
    assert not tile_permission._refusals


@pytest.mark.parametrize(
    ("row", "text", "least"),
    [
        (ROW, "", WIDENED),
        (ROW, "call @llvm.x86.tdpbssd(", ROW),
        (ROW, "call @llvm.x86.avx512bf16.dpbf16ps.512(", VECTORS),
        (ROW, "call @llvm.x86.avx512.vpdpbusd.256(", VNNI),
        (VECTORS, "call @llvm.x86.avx512.pmaddw.d.512(", WIDENED),
        (VECTORS, "call @llvm.x86.avx512.vpdpbusd.512(", VNNI),
        ("x86-64-v3-vnni", "call @llvm.x86.avx512.vpdpbusd.256(", "x86-64-v3-vnni"),
        ("x86-64-v3-vnni", "", "x86-64-v3"),
        ("x86-64-v3", "", "x86-64-v3"),
    ],
)
def test_code_needs_the_row_that_has_its_instructions(row, text, least):
    assert compile._least(ISAS[row], text) is ISAS[least]
