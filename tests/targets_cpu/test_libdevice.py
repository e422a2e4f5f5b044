"""Every function of Triton's libdevice, for all its types: right numbers or an error naming it.

The list is the module's own, so that a function that a later Triton adds is a failing test.
"""

from __future__ import annotations

import inspect
import itertools
import math
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("mpmath")
import mpmath
import torch
import triton
from triton.language.extra.cuda import libdevice

from aotc import kernels
from aotc.aot.targets.toolchain import load_kernel

sys.path.insert(0, str(Path(__file__).parent))
from device_judges import ABSOLUTE, DIGITS, FORMATS, Format, Judge, is_absolute, judge_of

DTYPES = {
    "int32": torch.int32, "uint32": torch.uint32, "int64": torch.int64, "uint64": torch.uint64,
    "fp32": torch.float32, "fp64": torch.float64,
}  # fmt: skip
BLOCK, DRAWN = 64, 20
SOURCE = """
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel({operands}, out, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    mask = i < n
    found = libdevice.{name}({loads})
    tl.store(out + i, found, mask=mask)
"""


class Overload(NamedTuple):
    """A function of libdevice for operands of certain types."""

    name: str
    symbol: str
    operands: tuple[str, ...]
    result: str

    def __str__(self) -> str:
        return f"{self.name}-{'-'.join(self.operands)}"


class _Recorder:
    """In place of Triton's front end: keeps the table that a function of libdevice hands over."""

    def __init__(self) -> None:
        self.table: dict[Any, Any] = {}

    def extern_elementwise(self, *given: Any, **_: Any) -> Any:
        self.table = next(each for each in given if isinstance(each, dict))
        return SimpleNamespace(to=lambda *_, **__: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(triton.language.core, name)


def _overloads() -> Iterator[Overload]:
    """All of them, by calling each function of the module with nothing."""
    for name, function in sorted(vars(libdevice).items()):
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        plain = inspect.unwrap(function)
        if plain.__module__ != libdevice.__name__:
            continue
        count = sum(x.kind is x.POSITIONAL_OR_KEYWORD for x in _parameters(plain))
        recorder = _Recorder()
        scope = {**vars(libdevice), "core": recorder}
        copied = type(plain)(plain.__code__, scope, plain.__name__, None, plain.__closure__)
        copied(*[None] * count, _semantic=None)
        for operands, (symbol, result) in recorder.table.items():
            kinds = tuple(str(each) for each in operands)
            yield Overload(name, symbol, kinds, str(result))


def _parameters(function: Any) -> list[inspect.Parameter]:
    found = inspect.signature(function).parameters.values()
    return [x for x in found if x.name != "_semantic"]


OVERLOADS = list(_overloads())


def _numbers(kinds: tuple[str, ...], kind: str, judge: Judge, numbers: random.Random) -> list[Any]:
    """Special values, all sizes, and numbers where the function changes most."""
    if kind in FORMATS:
        return _floats(FORMATS[kind], kind, judge, numbers)
    bits, is_signed = int(kind.lstrip("uint")), not kind.startswith("u")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    if is_signed and "fp" in "".join(kinds):
        low, high = max(low, judge.integers[0]), min(high, judge.integers[1])
    chosen = [0, 1, 2, 3, -1, -2, 255, 2**24 - 1, low, high, low + 1, high - 1]
    chosen += [numbers.getrandbits(bits) >> numbers.randrange(bits) for _ in range(DRAWN)]
    drawn = [numbers.randint(low, high) for _ in range(DRAWN)]
    return [x for x in chosen if low <= x <= high] + drawn


def _floats(form: Format, kind: str, judge: Judge, numbers: random.Random) -> list[float]:
    largest, smallest = float(form.largest), 2.0 ** (form.lowest - form.bits + 1)
    ones = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 8.0, 10.0, math.inf, smallest, 3 * smallest)
    ones += (2.0**form.lowest, largest)
    chosen = [sign * x for x in ones for sign in (1, -1)] + [math.nan]
    for _ in range(DRAWN):
        exponent = numbers.uniform(form.lowest - form.bits + 2, form.highest)
        chosen.append(numbers.choice((-1, 1)) * 2.0**exponent)
    for low, high in judge.ranges or ((-4.0, 4.0),):
        chosen += [numbers.uniform(low, high) for _ in range(2 * DRAWN)]
    if kind == "fp64":
        return chosen
    return [struct.unpack("<f", struct.pack("<f", min(max(x, -3e38), 3e38)))[0]
            if math.isfinite(x) and abs(x) < largest else x for x in chosen]  # fmt: skip


def _cases(overload: Overload, judge: Judge) -> list[tuple[Any, ...]]:
    numbers = random.Random(overload.symbol)
    kinds = overload.operands
    columns = [_numbers(kinds, kind, judge, numbers) for kind in kinds]
    if len(columns) == 1:
        return [(x,) for x in columns[0]]
    special = [column[:24:3] for column in columns]
    rows = list(itertools.islice(itertools.product(*special), 600))
    length = max(map(len, columns))
    for column in columns:
        numbers.shuffle(column)
    drawn = zip(*(itertools.islice(itertools.cycle(x), 3 * length) for x in columns), strict=True)
    return rows + list(drawn)


def _computed(overload: Overload, rows: list[tuple[Any, ...]]) -> list[Any]:
    """The function of each row of operands, by a kernel."""
    names = [f"x{place}" for place in range(len(overload.operands))]
    loads = ", ".join(f"tl.load({name} + i, mask=mask)" for name in names)
    text = SOURCE.format(operands=", ".join(names), name=overload.name, loads=loads)
    kernel = load_kernel(text, "kernel")
    given = [
        torch.tensor([row[place] for row in rows], dtype=DTYPES[kind])
        for place, kind in enumerate(overload.operands)
    ]
    out = torch.zeros(len(rows), dtype=DTYPES[overload.result])
    with kernels.on_cpu():
        kernel[(triton.cdiv(len(rows), BLOCK),)](*given, out, len(rows), N=BLOCK)
    return list(out.tolist())


def _exact(overload: Overload, judge: Judge, row: tuple[Any, ...]) -> Any:
    form = FORMATS.get(overload.result)
    return judge.exact(form, *row) if judge.is_rounded else judge.exact(*row)


def _problem(overload: Overload, judge: Judge, row: tuple[Any, ...], found: Any) -> str:
    """What is wrong with a result, or nothing."""
    exact = _exact(overload, judge, row)
    form = FORMATS.get(overload.result)
    if form is None:
        return "" if found == exact else f"expected {exact}"
    if mpmath.isnan(exact):
        return "" if math.isnan(found) else "expected NaN"
    is_beyond = abs(exact) > float(form.largest) * (1 + 2.0 ** -(form.bits + 1))
    if is_beyond and judge.ulp == (0.0, 0.0):
        return "" if found == exact else f"expected {exact}"
    if is_beyond:
        return "" if math.isinf(found) and (found > 0) == (exact > 0) else f"expected {exact}"
    if math.isnan(found) or (math.isinf(found) and abs(exact) < float(form.largest) / 2):
        return f"expected {mpmath.nstr(mpmath.mpf(exact), 17)}"
    if math.isinf(found):
        return ""
    difference = abs(mpmath.mpf(found) - exact)
    if is_absolute(overload.name, row[-1]) and difference < ABSOLUTE[overload.result]:
        return ""
    exponent = int(mpmath.frexp(mpmath.mpf(exact))[1]) - 1 if exact else form.lowest
    ulp = difference / mpmath.mpf(2) ** (max(exponent, form.lowest) - form.bits + 1)
    bound = judge.ulp[overload.result == "fp64"]
    if ulp <= bound:
        return ""
    return f"expected {mpmath.nstr(mpmath.mpf(exact), 17)}: {float(ulp):.3g} ulp, at most {bound:g}"


@pytest.mark.parametrize("overload", OVERLOADS, ids=str)
def test_function_of_libdevice_is_right_or_refused(overload: Overload) -> None:
    judge = judge_of(overload.symbol)
    assert judge is not None, f"`{overload.symbol}` has no judge: add a row to device_judges.py"
    rows = _cases(overload, judge)
    with mpmath.workdps(DIGITS):
        problems = [
            f"{overload.name}({', '.join(map(repr, row))}) is {found!r}, {why}"
            for row, found in zip(rows, _computed(overload, rows), strict=True)
            if (why := _problem(overload, judge, row, found))
        ]
    assert not problems, "\n".join([f"{len(problems)} of {len(rows)}:", *problems[:8]])


def test_the_list_is_whole() -> None:
    text = inspect.getsource(libdevice)
    symbols = {word.split('"')[0] for word in text.split('("')[1:] if word.startswith("__nv_")}
    assert {overload.symbol for overload in OVERLOADS} == symbols
