"""Measures the vector math against f64: `python math_errors.py` rewrites docs/math-accuracy.md."""

from __future__ import annotations

import ctypes
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.math import FUNCTIONS, functions, symbol
from aotc.aot.targets.cpu.vector_ir import type_name

DOCUMENT = Path(__file__).parents[2] / "docs" / "math-accuracy.md"
CPUS = {1: "x86-64-v3", 8: "x86-64-v3", 16: "x86-64-v4"}
SMALLEST_NORMAL = 2.0**-126
SAME_NAMES = ("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "sinh", "cosh", "sin", "cos")
SAME_NAMES += ("tan", "sqrt", "floor", "ceil", "trunc", "round")
REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in SAME_NAMES},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.0]
SPECIAL += [2.0**-149, -(2.0**-149), 2.0**-126, 3.4028235e38, -3.4028235e38, 1e9, 0.1]
HEAD = """
# Accuracy of the CPU target's vector math

Measured on samples of all f32 bit patterns, of ranges where functions change most, and of special
values, against f64. `ulp` is the distance in units of the exact result's last place, `relative` is
over normal results. `tests/targets_cpu/test_math.py` holds the bounds, the same for 1, 8 and 16
lanes; `python tests/targets_cpu/math_errors.py` rewrites this file.

| function | largest ulp | at | largest relative | bound in ulp | note |
|---|---|---|---|---|---|
""".lstrip()


class Error(NamedTuple):
    """The worst of one function over all samples."""

    ulp: float
    where: tuple[float, ...]
    relative: float
    wrong_specials: list[tuple[float, ...]]  # operands whose result should be ±∞, NaN or ±0


def _loop(name: str, lanes: int, arity: int) -> str:
    """A function that applies the vector function to arrays."""
    vector = type_name("float", lanes)
    loads = "".join(
        f"  %p{i} = getelementptr i8, ptr %a{i}, i64 %o\n"
        f"  %v{i} = load {vector}, ptr %p{i}, align 4\n"
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
{loads}  %r = call {vector} @{symbol(name, lanes)}({operands})
  %to = getelementptr i8, ptr %out, i64 %o
  store {vector} %r, ptr %to, align 4
  %next = add i64 %o, {4 * lanes}
  %more = icmp ult i64 %next, %bytes
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def load(lanes: int) -> ctypes.CDLL:
    """A library with an array form of every function."""
    text, exports = functions(lanes), []
    for name, row in FUNCTIONS.items():
        text += _loop(name, lanes, row.arity)
        exports.append(
            toolchain.Export(name, f"{name}.body", ("ptr",) * (row.arity + 1) + ("i64",))
        )
    compiled = toolchain.compile_module(text, exports, CPUS[lanes])
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(toolchain.link({"math": compiled.data}))
        file.flush()
        return ctypes.CDLL(file.name)


def apply(library: ctypes.CDLL, name: str, operands: list[np.ndarray]) -> np.ndarray:
    """The function on f32 arrays whose length is a multiple of 16."""
    result = np.empty_like(operands[0])
    function = getattr(library, name)
    function.argtypes = [ctypes.c_void_p] * (len(operands) + 1) + [ctypes.c_int64]
    function(*(x.ctypes.data for x in operands), result.ctypes.data, result.nbytes)
    return result


def samples(arity: int) -> list[np.ndarray]:
    """Operands: bit patterns, dense ranges, special values; for two operands also all pairs."""
    numbers = np.random.default_rng(0)
    patterns = np.arange(0, 2**32, 2**15, dtype=np.uint64)
    patterns += numbers.integers(0, 2**15, patterns.shape, dtype=np.uint64)
    dense = [np.linspace(-limit, limit, 2**16) for limit in (1, 4, 20, 110, 1e5)]
    rest = np.concatenate([*dense, SPECIAL * 2]).astype(np.float32)
    x = np.concatenate([patterns.astype(np.uint32).view(np.float32), rest])
    if arity == 1:
        return [_padded(x)]
    base = np.exp(numbers.normal(size=2**17) * 3).astype(np.float32)
    power = (numbers.normal(size=2**17) * 10).astype(np.float32)
    special = np.array(SPECIAL, np.float32)
    bases = [-base[: 2**15], base, x, np.repeat(special, len(special))]
    powers = [np.round(power[: 2**15]), power, numbers.permutation(x)]
    powers.append(np.tile(special, len(special)))
    return [_padded(np.concatenate(bases)), _padded(np.concatenate(powers))]


def _padded(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones(-len(x) % 16, np.float32)])


def measure(library: ctypes.CDLL, name: str) -> Error:
    """Compare one function with f64 on all samples."""
    operands = samples(FUNCTIONS[name].arity)
    result = apply(library, name, operands)
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](*(x.astype(np.float64) for x in operands))
        rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded)
    agrees = (np.isnan(rounded) & np.isnan(result)) | (rounded == result)
    wrong = ~np.where(finite, np.isfinite(result), agrees)
    difference = np.abs(
        np.where(finite & ~wrong, result, 0.0) - np.where(finite & ~wrong, exact, 0)
    )
    exponent = np.frexp(np.where(finite & (rounded != 0), rounded, 1.0))[1]
    ulp = difference / np.ldexp(1.0, np.maximum(exponent - 24, -149))
    size = np.where(finite & (np.abs(exact) >= SMALLEST_NORMAL), np.abs(exact), np.inf)
    worst = int(np.argmax(_without_flushed(name, ulp, exact)))
    where = tuple(float(x[worst]) for x in operands)
    specials = [tuple(float(x[index]) for x in operands) for index in np.flatnonzero(wrong)[:5]]
    return Error(float(ulp[worst]), where, float(np.max(difference / size)), specials)


def _without_flushed(name: str, ulp: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Sigmoid's note: results below 2⁻¹²⁷ may be 0."""
    return np.where(np.abs(exact) < 2.0**-127, 0, ulp) if name == "sigmoid" else ulp


def document(errors: Mapping[str, Error]) -> str:
    """The Markdown text of docs/math-accuracy.md."""
    lines = []
    for name, error in sorted(errors.items()):
        row = FUNCTIONS[name]
        where = ", ".join(f"{value:.7g}" for value in error.where) if error.ulp else ""
        lines.append(
            f"| {name} | {error.ulp:.2f} | {where} | {error.relative:.1e} | {row.max_ulp:g} "
            f"| {row.note} |"
        )
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite the document from 8 lanes."""
    library = load(8)
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document({name: measure(library, name) for name in FUNCTIONS}))


if __name__ == "__main__":
    main()
