"""Measures the vector math in more bits: `python math_errors.py` rewrites docs/math-accuracy.md."""

from __future__ import annotations

import ctypes
import functools
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import mpmath
import numpy as np

from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.math import FUNCTIONS, functions, symbol
from aotc.aot.targets.cpu.math.vector_ir import type_name

DOCUMENT = Path(__file__).parents[2] / "docs" / "math-accuracy.md"
CPUS = {1: "x86-64-v3", 8: "x86-64-v3", 16: "x86-64-v4", 32: "x86-64-v4"}
SAME_NAMES = ("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "sinh", "cosh", "sin", "cos")
SAME_NAMES += ("fmod", "tan", "sqrt", "floor", "ceil", "trunc", "round")
REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in SAME_NAMES},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.0]
SPECIAL += [1e9, 0.1]
HEAD = """
# Accuracy of the CPU target's vector math

Measured on samples of all bit patterns, of ranges where functions change most, and of special
values: f32 against f64, f64 against the 80-bit numbers of x86 (`erf` and `erfc` against mpmath).
`ulp` is the distance in units of the exact result's last place, `relative` is over normal results.
`tests/targets_cpu/test_math.py` holds the bounds, the same for 1, 8, 16 and 32 lanes;
`python tests/targets_cpu/math_errors.py` rewrites this file.
""".lstrip()
TITLES = {"float": "f32", "double": "f64"}
TABLE = """
| function | largest ulp | at | largest relative | bound in ulp | note |
|---|---|---|---|---|---|
""".lstrip()


class Element(NamedTuple):
    """An element type, the type of more bits that its functions are compared in, and its limits."""

    name: str
    dtype: type[np.floating]
    wide: type[np.floating]
    digits: int  # of the significand, in bits
    lowest_exponent: int  # of the smallest normal number
    dense: tuple[float, ...]  # ranges that are sampled evenly
    power_deviation: float  # of exponents of `pow`, whose bases have logarithms of 3

    @property
    def special(self) -> list[float]:
        smallest, limit = 2.0 ** (self.lowest_exponent - self.digits + 1), np.finfo(self.dtype).max
        return [*SPECIAL, smallest, -smallest, 2.0**self.lowest_exponent, limit, -limit]


ELEMENTS = {
    "float": Element("float", np.float32, np.float64, 24, -126, (1, 4, 20, 110, 1e5), 10.0),
    "double": Element(
        "double", np.float64, np.longdouble, 53, -1022, (1, 4, 40, 760, 1e9, 1e12), 60.0
    ),
}


SCALE = 600  # in bits: the smallest numbers in the range of f64


def _erf(x: np.ndarray) -> np.ndarray:
    return _in_bits("erf", x, -7.0, 7.0)


def _erfc(x: np.ndarray) -> np.ndarray:
    return _in_bits("erfc", x, -7.0, 28.0)


def _in_bits(name: str, x: np.ndarray, low: float, high: float) -> np.ndarray:
    """`math`'s function of f64, else mpmath's, which has reached its limits outside low…high."""
    if x.dtype == np.float64:
        return np.vectorize(getattr(math, name), otypes=[np.float64])(x)
    function = getattr(mpmath, name)
    limits = (float(function(mpmath.mpf(sign))) for sign in ("-inf", "inf"))
    below, above = limits
    result = np.where(x > 0, above, np.where(x < 0, below, x)).astype(x.dtype)
    inner = (x > low) & (x < high)
    with mpmath.workprec(80):
        exact = [mpmath.ldexp(function(float(value)), SCALE) for value in x[inner]]
        first = np.array([float(value) for value in exact])
        rest = [float(value - head) for value, head in zip(exact, first, strict=True)]
    result[inner] = np.ldexp(first.astype(x.dtype) + rest, -SCALE)
    return result


REFERENCES |= {"erf": _erf, "erfc": _erfc}


class Error(NamedTuple):
    """The worst of one function over all samples."""

    ulp: float
    where: tuple[float, ...]
    relative: float
    wrong_specials: list[tuple[float, ...]]  # operands whose result should be ±∞, NaN or ±0


def _loop(name: str, lanes: int, arity: int, element: str) -> str:
    """A function that applies the vector function to arrays."""
    vector, size = type_name(element, lanes), np.dtype(ELEMENTS[element].dtype).itemsize
    loads = "".join(
        f"  %p{i} = getelementptr i8, ptr %a{i}, i64 %o\n"
        f"  %v{i} = load {vector}, ptr %p{i}, align {size}\n"
        for i in range(arity)
    )
    operands = ", ".join(f"{vector} %v{i}" for i in range(arity))
    parameters = ", ".join(f"ptr %a{i}" for i in range(arity))
    return f"""
define void @{name}.body({parameters}, ptr %out, i64 %bytes) noinline nounwind \
"min-legal-vector-width"="512" "prefer-vector-width"="512" {{
entry:
  br label %loop
loop:
  %o = phi i64 [ 0, %entry ], [ %next, %loop ]
{loads}  %r = call {vector} @{symbol(name, lanes, element)}({operands})
  %to = getelementptr i8, ptr %out, i64 %o
  store {vector} %r, ptr %to, align {size}
  %next = add i64 %o, {size * lanes}
  %more = icmp ult i64 %next, %bytes
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def load(lanes: int, element: str = "float") -> ctypes.CDLL:
    """A library with an array form of every function."""
    text, exports = functions(lanes, FUNCTIONS[element], element), []
    for name, row in FUNCTIONS[element].items():
        text += _loop(name, lanes, row.arity, element)
        exports.append(
            toolchain.Export(name, f"{name}.body", ("ptr",) * (row.arity + 1) + ("i64",))
        )
    compiled = toolchain.compile_module(text, exports, CPUS[lanes])
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(toolchain.link({"math": compiled.data}))
        file.flush()
        return ctypes.CDLL(file.name)


def apply(library: ctypes.CDLL, name: str, operands: list[np.ndarray]) -> np.ndarray:
    """The function on arrays of the library's element whose length is a multiple of 32."""
    result = np.empty_like(operands[0])
    function = getattr(library, name)
    function.argtypes = [ctypes.c_void_p] * (len(operands) + 1) + [ctypes.c_int64]
    function(*(x.ctypes.data for x in operands), result.ctypes.data, result.nbytes)
    return result


def samples(arity: int, element: Element) -> list[np.ndarray]:
    """Operands: bit patterns, dense ranges, special values; for two operands also all pairs."""
    numbers = np.random.default_rng(0)
    dense = [np.linspace(-limit, limit, 2**16) for limit in element.dense]
    rest = np.concatenate([*dense, element.special * 2]).astype(element.dtype)
    x = np.concatenate([_patterns(element, numbers), rest])
    if arity == 1:
        return [_padded(x)]
    base = np.exp(numbers.normal(size=2**17) * 3).astype(element.dtype)
    power = (numbers.normal(size=2**17) * element.power_deviation).astype(element.dtype)
    special = np.array(element.special, element.dtype)
    bases = [-base[: 2**15], base, x, np.repeat(special, len(special))]
    powers = [np.round(power[: 2**15]), power, numbers.permutation(x)]
    powers.append(np.tile(special, len(special)))
    return [_padded(np.concatenate(bases)), _padded(np.concatenate(powers))]


def _patterns(element: Element, numbers: np.random.Generator) -> np.ndarray:
    """2¹⁷ numbers evenly over the bits of all numbers."""
    bits = np.dtype(element.dtype).itemsize * 8
    high = np.arange(2**17, dtype=np.uint64) << np.uint64(bits - 17)
    patterns = high + numbers.integers(0, 2 ** (bits - 17), high.shape, dtype=np.uint64)
    return patterns.astype(f"uint{bits}").view(element.dtype)


def _padded(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones(-len(x) % 32, x.dtype)])


@functools.lru_cache(maxsize=1)  # large; the lanes of a function are measured one after another
def _exact(name: str, kind: str) -> tuple[list[np.ndarray], np.ndarray]:
    """A function's samples and its values in more bits."""
    element = ELEMENTS[kind]
    operands = samples(FUNCTIONS[kind][name].arity, element)
    with np.errstate(all="ignore"):
        return operands, REFERENCES[name](*(x.astype(element.wide) for x in operands))


def measure(library: ctypes.CDLL, name: str, kind: str = "float") -> Error:
    """Compare one function with its values in more bits on all samples."""
    element = ELEMENTS[kind]
    operands, exact = _exact(name, kind)
    result = apply(library, name, operands)
    with np.errstate(all="ignore"):
        rounded = exact.astype(element.dtype)
    finite = np.isfinite(rounded)
    agrees = (np.isnan(rounded) & np.isnan(result)) | (rounded == result)
    wrong = ~np.where(finite, np.isfinite(result), agrees)
    difference = np.abs(
        np.where(finite & ~wrong, result, 0.0) - np.where(finite & ~wrong, exact, 0)
    )
    exponent = np.frexp(np.where(finite & (rounded != 0), rounded, 1.0))[1]
    last = np.maximum(exponent, element.lowest_exponent + 1) - element.digits
    ulp = difference / np.ldexp(element.wide(1.0), last)
    normal = element.wide(2.0) ** element.lowest_exponent
    size = np.where(finite & (np.abs(exact) >= normal), np.abs(exact), np.inf)
    worst = int(np.argmax(_without_flushed(name, ulp, exact, normal)))
    where = tuple(float(x[worst]) for x in operands)
    specials = [tuple(float(x[index]) for x in operands) for index in np.flatnonzero(wrong)[:5]]
    return Error(float(ulp[worst]), where, float(np.max(difference / size)), specials)


def _without_flushed(
    name: str, ulp: np.ndarray, exact: np.ndarray, normal: np.floating
) -> np.ndarray:
    """Sigmoid's note: results below half the smallest normal number may be 0."""
    return np.where(np.abs(exact) < normal / 2, 0, ulp) if name == "sigmoid" else ulp


def document(errors: Mapping[str, Mapping[str, Error]]) -> str:
    """The Markdown text of docs/math-accuracy.md, from errors by element and function."""
    return HEAD + "\n".join(
        f"\n## {TITLES[kind]}\n\n{TABLE}" + "\n".join(_rows(kind, found)) + "\n"
        for kind, found in errors.items()
    )


def _rows(kind: str, errors: Mapping[str, Error]) -> list[str]:
    lines = []
    for name, error in sorted(errors.items()):
        row = FUNCTIONS[kind][name]
        where = ", ".join(f"{value:.7g}" for value in error.where) if error.ulp else ""
        lines.append(
            f"| {name} | {error.ulp:.2f} | {where} | {error.relative:.1e} | {row.max_ulp:g} "
            f"| {row.note} |"
        )
    return lines


def main() -> None:
    """Rewrite the document from 8 lanes."""
    errors = {}
    for kind, rows in FUNCTIONS.items():
        library = load(8, kind)
        errors[kind] = {name: measure(library, name, kind) for name in rows}
    DOCUMENT.write_text(document(errors))


if __name__ == "__main__":
    main()
