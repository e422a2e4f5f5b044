"""The vector math's errors stay below their stated bounds, with every number of lanes."""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("mpmath")
pytest.importorskip("triton")

import numpy as np

from aotc.aot.targets.cpu import math as vector_math
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

sys.path.insert(0, str(Path(__file__).parent))
import math_errors

NEEDS = {lanes: ISA_FEATURES[cpu] for lanes, cpu in math_errors.CPUS.items()}


@functools.cache
def _library(lanes: int, element: str = "float") -> ctypes.CDLL:
    if not NEEDS[lanes] <= features():
        pytest.skip(f"{lanes} lanes need {math_errors.CPUS[lanes]}")
    return math_errors.load(lanes, element)


@functools.cache
def _errors(lanes: int, element: str, name: str) -> math_errors.Error:
    return math_errors.measure(_library(lanes, element), name, element)


@pytest.mark.parametrize("lanes", vector_math.WIDTHS)
@pytest.mark.parametrize(
    ("element", "name"),
    [(element, name) for element, rows in vector_math.FUNCTIONS.items() for name in sorted(rows)],
)
def test_errors_are_below_their_bounds(element: str, name: str, lanes: int) -> None:
    row = vector_math.FUNCTIONS[element][name]
    error = _errors(lanes, element, name)
    assert not error.wrong_specials
    assert error.ulp <= row.max_ulp
    assert error.relative <= (1e-6 if element == "float" else 2e-15)


def test_document_lists_every_function_and_its_error() -> None:
    for element, part in zip(vector_math.FUNCTIONS, _tables(), strict=True):
        rows = {line.split("|")[1].strip(): line.split("|") for line in part}
        for name, row in vector_math.FUNCTIONS[element].items():
            measured = _errors(8, element, name).ulp
            assert float(rows[name][2]) == pytest.approx(measured, abs=0.05), "rewrite the document"
            assert float(rows[name][5]) == row.max_ulp


def _tables() -> list[list[str]]:
    """The lines of each table of the document."""
    parts = math_errors.DOCUMENT.read_text().split("\n## ")[1:]
    return [[line for line in part.splitlines() if line.startswith("| ")] for part in parts]


@pytest.mark.parametrize("name", ["sin", "expm1", "log1p", "tanh", "erf", "sinh", "asin", "atan"])
def test_odd_functions_keep_small_values(name: str) -> None:
    tiny = np.array([1e-30, -1e-30, 1e-40, -1e-40] * 4, dtype=np.float32)
    result = math_errors.apply(_library(8), name, [tiny])
    expected = tiny * (2 / math.sqrt(math.pi)) if name == "erf" else tiny
    np.testing.assert_allclose(result, expected, rtol=2e-7, atol=2e-45)


def test_results_stay_in_range() -> None:
    x = np.linspace(-30, 30, 2**16, dtype=np.float32)
    for name in ("tanh", "erf"):
        assert np.abs(math_errors.apply(_library(8), name, [x])).max() == 1.0
    assert math_errors.apply(_library(8), "cosh", [x]).min() >= 1.0


@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_nothing_is_left_of_one_plus_a_function_that_has_reached_minus_one(name, lanes):
    # GELU multiplies what is left by x, however large that is.
    x = np.array([9.5, 1e3, 1e30, math.inf] * 4, dtype=np.float32)
    assert set(math_errors.apply(_library(lanes), name, [x])) == {1.0}
    assert set(math_errors.apply(_library(lanes), name, [-x])) == {-1.0}


@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_what_tanh_leaves_of_one_is_as_exact_as_its_type(lanes):
    # A slope is (1 - tanh²) times x and more: the gradient of gelu, far from 0.
    x = np.linspace(3.0, 9.0, 2**16, dtype=np.float32)
    found = math_errors.apply(_library(lanes), "tanh", [x]).astype(np.float64)
    assert np.abs(found - np.tanh(x.astype(np.float64))).max() <= 2.0**-24 * 1.6


def test_large_lanes_beside_small_ones() -> None:
    x = np.array([0.5, 1e6, -3.0, -1e30, math.inf, 2.0, 1e5, math.nan] * 2, dtype=np.float32)
    result = math_errors.apply(_library(8), "cos", [x])
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(result, np.cos(x.astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize("name", ["cos", "sin", "tan"])
def test_forms_for_several_lanes_share_what_they_call(name: str) -> None:
    text = vector_math.module([("float", name, 1), ("float", name, 8), ("double", name, 8)])
    defined = [line.split("(")[0] for line in text.splitlines() if line.startswith("define")]
    assert len(defined) == len(set(defined))


def test_zeros_keep_their_sign() -> None:
    zeros = np.array([0.0, -0.0] * 8, dtype=np.float32)
    for name in ("sin", "tan", "asin", "atan", "sinh", "tanh", "expm1", "log1p", "erf"):
        found = math_errors.apply(_library(8), name, [zeros])
        assert list(np.signbit(found)) == list(np.signbit(zeros)), name


def test_text_is_deterministic_and_selective() -> None:
    assert vector_math.functions(16) == vector_math.functions(16)
    text = vector_math.functions(8, ["exp"])
    assert "@aotc.exp.v8f32(" in text
    assert "aotc.log" not in text
    with pytest.raises(KeyError):
        vector_math.functions(8, ["gamma"])
