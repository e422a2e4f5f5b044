"""The instructions of tiles (AMX) by software, so that kernels for them run on other processors.

LLVM's intrinsics become functions on memory of the kernel's library: eight tiles of 16 rows of 64
bytes, and the 64 bytes that configure them (Intel 64 and IA-32 Architectures Software Developer's
Manual, volume 2). Threads share them and take turns: a product configures them first and releases
them last. Sums of bf16 are in f32; subnormal operands count as zeros.
"""

from __future__ import annotations

import re

ROW, TILE = 64, 1024  # bytes
FLAGS = ("amx_tile", "amx_bf16", "amx_int8")
_INTRINSIC = re.compile(r"@llvm\.x86\.((?:ldtilecfg|tile\w+|tdp\w+))\b")


def emulated(llvm_ir: str) -> str:
    """The text with functions of its own in place of the intrinsics of tiles."""
    if not _INTRINSIC.search(llvm_ir):
        return llvm_ir
    return _INTRINSIC.sub(r"@emulated.\1", llvm_ir) + "\n" + FUNCTIONS


def _nest(limits: dict[str, str], body: str) -> str:
    """Loops around each other: the counters by name, with their ends."""
    head, tail, before = [], [], "entry"
    names = list(limits)
    for place, name in enumerate(names):
        out = f"{names[place - 1]}.next" if place else "done"
        inside = f"{names[place + 1]}.head" if place + 1 < len(names) else "body"
        head += [
            f"  br label %{name}.head" if place == 0 else "",
            f"{name}.head:",
            f"  %{name} = phi i64 [ 0, %{before} ], [ %{name}.more, %{name}.next ]",
            f"  %{name}.goes = icmp ult i64 %{name}, {limits[name]}",
            f"  br i1 %{name}.goes, label %{name}.in, label %{out}",
            f"{name}.in:",
            f"  br label %{inside}",
        ]
        tail = [
            f"{name}.next:",
            f"  %{name}.more = add i64 %{name}, 1",
            f"  br label %{name}.head",
            *tail,
        ]
        before = f"{name}.in"
    return "\n".join([*head, "body:", body, f"  br label %{names[-1]}.next", *tail, "done:"])


def _size(tile: str, name: str, first: int, kind: str) -> str:
    """A number of the configuration, as i64: the bytes of a row of a tile, or its rows."""
    step = 2 if kind == "i16" else 1
    return f"""
  %{name}.wide = zext i8 {tile} to i64
  %{name}.scaled = mul i64 %{name}.wide, {step}
  %{name}.at = add i64 %{name}.scaled, {first}
  %{name}.place = getelementptr i8, ptr @emulated.sizes, i64 %{name}.at
  %{name}.read = load {kind}, ptr %{name}.place, align 1
  %{name} = zext {kind} %{name}.read to i64"""


def _row_bytes(tile: str, name: str) -> str:
    return _size(tile, name, 16, "i16")


def _rows(tile: str, name: str) -> str:
    return _size(tile, name, 48, "i8")


def _tile(tile: str, name: str) -> str:
    return f"""
  %{name}.number = zext i8 {tile} to i64
  %{name}.first = mul i64 %{name}.number, {TILE}
  %{name} = getelementptr i8, ptr @emulated.tiles, i64 %{name}.first"""


def _place(tile: str, row: str, column: str, name: str, column_bytes: int = 1) -> str:
    """The address of `column` of a row of a tile."""
    return f"""
  %{name}.down = mul i64 %{row}, {ROW}
  %{name}.across = mul i64 %{column}, {column_bytes}
  %{name}.sum = add i64 %{name}.down, %{name}.across
  %{name} = getelementptr i8, ptr %{tile}, i64 %{name}.sum"""


def _moved(name: str, is_load: bool) -> str:
    """Rows of a tile from or to memory, byte by byte; what a load does not fill is zeros."""
    copy = (
        _place("tile", "i", "j", "own")
        + """
  %line = mul i64 %i, %stride
  %far = add i64 %line, %j
  %other = getelementptr i8, ptr %memory, i64 %far"""
    )
    source, target = ("other", "own") if is_load else ("own", "other")
    copy += f"\n  %byte = load i8, ptr %{source}, align 1\n  store i8 %byte, ptr %{target}, align 1"
    clear = (
        f"  call void @llvm.memset.p0.i64(ptr %tile, i8 0, i64 {TILE}, i1 false)" if is_load else ""
    )
    return f"""
define internal void @emulated.{name}(i8 %t, ptr %memory, i64 %stride) noinline {{
entry:{_row_bytes("%t", "bytes")}{_rows("%t", "rows")}{_tile("%t", "tile")}
{clear}
{_nest({"i": "%rows", "j": "%bytes"}, copy)}
  ret void
}}"""


def _half(word: str, which: int, name: str) -> str:
    """One bf16 of a word as f32; a subnormal one as zero of its sign."""
    moved = f"shl i32 %{word}, 16" if which == 0 else f"and i32 %{word}, -65536"
    return f"""
  %{name}.bits = {moved}
  %{name}.size = and i32 %{name}.bits, 2139095040
  %{name}.is_small = icmp eq i32 %{name}.size, 0
  %{name}.sign = and i32 %{name}.bits, -2147483648
  %{name}.kept = select i1 %{name}.is_small, i32 %{name}.sign, i32 %{name}.bits
  %{name} = bitcast i32 %{name}.kept to float"""


def _multiplied(name: str, total: str, products: str) -> str:
    """total[m, n] += Σ over the elements of word k of left[m, k] · right[k, n]"""
    body = (
        _place("sums", "m", "n", "sum", 4)
        + _place("left", "m", "k", "own", 4)
        + _place("right", "k", "n", "other", 4)
        + f"""
  %start = load {total}, ptr %sum, align 4
  %a = load i32, ptr %own, align 4
  %b = load i32, ptr %other, align 4{products}
  store {total} %found, ptr %sum, align 4"""
    )
    sizes = _rows("%d", "rows") + _row_bytes("%d", "wide") + _row_bytes("%l", "deep")
    tiles = _tile("%d", "sums") + _tile("%l", "left") + _tile("%r", "right")
    return f"""
define internal void @emulated.{name}(i8 %d, i8 %l, i8 %r) noinline {{
entry:{sizes}{tiles}
  %columns = lshr i64 %wide, 2
  %words = lshr i64 %deep, 2
{_nest({"m": "%rows", "k": "%words", "n": "%columns"}, body)}
  ret void
}}"""


def _of_bf16() -> str:
    halves = "".join(_half(word, which, f"{word}{which}") for word in "ab" for which in (0, 1))
    return (
        halves
        + """
  %first = call float @llvm.fma.f32(float %a0, float %b0, float %start)
  %found = call float @llvm.fma.f32(float %a1, float %b1, float %first)"""
    )


def _of_bytes() -> str:
    lines, total = [], "start"
    for place in range(4):
        for word in "ab":
            lines += [
                f"  %{word}{place}.up = shl i32 %{word}, {24 - 8 * place}",
                f"  %{word}{place} = ashr i32 %{word}{place}.up, 24",
            ]
        after = "found" if place == 3 else f"sum{place}.more"
        lines += [
            f"  %product{place} = mul i32 %a{place}, %b{place}",
            f"  %{after} = add i32 %{total}, %product{place}",
        ]
        total = after
    return "\n" + "\n".join(lines)


FUNCTIONS = "\n".join(
    [
        f"@emulated.tiles = internal global [{8 * TILE} x i8] zeroinitializer, align 64",
        "@emulated.sizes = internal global [64 x i8] zeroinitializer, align 64",
        "@emulated.lock = internal global i32 0, align 4",
        f"""
define internal void @emulated.ldtilecfg(ptr %from) noinline {{
entry:
  br label %wait
wait:
  %pair = cmpxchg ptr @emulated.lock, i32 0, i32 1 acquire monotonic
  %is_own = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %is_own, label %own, label %wait
own:
  call void @llvm.memcpy.p0.p0.i64(ptr @emulated.sizes, ptr %from, i64 64, i1 false)
  call void @llvm.memset.p0.i64(ptr @emulated.tiles, i8 0, i64 {8 * TILE}, i1 false)
  ret void
}}
define internal void @emulated.tilerelease() noinline {{
  call void @llvm.memset.p0.i64(ptr @emulated.sizes, i8 0, i64 64, i1 false)
  store atomic i32 0, ptr @emulated.lock release, align 4
  ret void
}}
define internal void @emulated.tilezero(i8 %t) noinline {{{_tile("%t", "tile")}
  call void @llvm.memset.p0.i64(ptr %tile, i8 0, i64 {TILE}, i1 false)
  ret void
}}""",
        _moved("tileloadd64", is_load=True),
        _moved("tilestored64", is_load=False),
        _multiplied("tdpbf16ps", "float", _of_bf16()),
        _multiplied("tdpbssd", "i32", _of_bytes()),
        "",
    ]
)
