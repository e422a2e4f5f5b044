"""Convolutions by tiles read their input where it stands: numbers, and which kernels they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lower.case_graphs import graph_of, op, operand, weight

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Node, make
from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.runtime.drivers.cpu import driver as cpu

HERE = Path(__file__).parent
MASKED = HERE.parent / "masked"
TILES = replace(CPU, has_tiles=True, product_rates=(("i8", 32.0), ("bf16", 16.0)))
WIDE = "high = x //"


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.triton
@pytest.mark.parametrize("target", ["cpu-x86-64-amx", "cpu"])
@pytest.mark.parametrize("count", [14, pytest.param(24, marks=pytest.mark.nightly)])
def test_convolutions_have_the_numbers_of_f64(target, count, tmp_path, cache):
    """Drawn filters, strides, margins, dilations, groups and orders of the dims, with fresh
    numbers: by tiles, which are functions here, and by what the machine has."""
    environment = dict(os.environ)
    if target != "cpu":
        if "avx512_bf16" not in cpu.features():
            pytest.skip("the functions need AVX-512 BF16")
        path = os.pathsep.join([str(MASKED), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment |= {"AOTC_TESTS_TILES": "emulated", "PYTHONPATH": path}
    program = str(HERE / "drawn_convolutions.py")
    command = [sys.executable, program, target, tmp_path, cache, str(count)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    errors = json.loads(found.stdout)
    assert len(errors) == 2 * count
    assert {name: error for name, error in errors.items() if not error <= 1} == {}
    if target != "cpu":
        for name in ("bf16", "int8"):
            assert (tmp_path / name / "3-lower.txt").read_text().count(WIDE) >= count // 2


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.triton
@pytest.mark.parametrize("target", ["cpu-x86-64-amx", "cpu-x86-64-v4-bf16"])
def test_convolutions_of_few_channels_have_the_numbers_of_f64(target, tmp_path, cache):
    """With infinities and NaN too, which only windows that hold them may show."""
    if "avx512_bf16" not in cpu.features():
        pytest.skip("it needs AVX-512 BF16")
    environment = dict(os.environ)
    if target == "cpu-x86-64-amx":
        path = os.pathsep.join([str(MASKED), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment |= {"AOTC_TESTS_TILES": "emulated", "PYTHONPATH": path}
    command = [sys.executable, str(HERE / "few_channels.py"), target, tmp_path, cache]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    errors = json.loads(found.stdout)
    assert {name: error for name, error in errors.items() if not error <= 1} == {}
    text = (tmp_path / "dump" / "3-lower.txt").read_text()
    assert text.count("cb_mask = ") >= 8
    if target == "cpu-x86-64-amx":
        assert text.count(WIDE) >= 6


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.triton
@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        ("cpu-x86-64-amx", "bfloat16"),
        ("cpu-x86-64-v4-bf16", "bfloat16"),
        ("cpu-x86-64-v4", "float32"),
        pytest.param("cpu-x86-64-v4-vnni", "bfloat16", marks=pytest.mark.nightly),
        pytest.param("cpu-x86-64-v3", "float32", marks=pytest.mark.nightly),
    ],
)
def test_convolutions_by_groups_have_the_numbers_of_f64(target, dtype, tmp_path, cache):
    """With infinities and NaN too, which no other group may see."""
    row = "x86-64-v4-bf16" if target == "cpu-x86-64-amx" else target.removeprefix("cpu-")
    if not cpu.ISA_FEATURES[row] <= cpu.features():
        pytest.skip("the processor has not these instructions")
    environment = os.environ | {"GROUPED_DTYPE": dtype}
    if target == "cpu-x86-64-amx":
        path = os.pathsep.join([str(MASKED), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment |= {"AOTC_TESTS_TILES": "emulated", "PYTHONPATH": path}
    command = [sys.executable, str(HERE / "grouped_convolutions.py"), target, tmp_path, cache]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    errors = json.loads(found.stdout)
    assert {name: error for name, error in errors.items() if not error <= 1} == {}
    text = (tmp_path / "dump" / "3-lower.txt").read_text()
    assert text.count("z = tl.program_id(0)") >= 6  # neighbours are groups of the same pixels
    assert text.count(WIDE) >= (8 if target == "cpu-x86-64-amx" else 2)


def by_groups(stride=1, each=16, dtype="f32") -> list[Node]:
    """A 3 × 3 convolution by 4 groups, channels last, as products with panels."""
    x = operand("x", 2, 14, 14, 4 * each, dtype=dtype)
    data = b.pad(x, (0, 1, 1, 0), (0, 1, 1, 0), 0.0)
    attrs = {"axes": (1, 2), "sizes": (3, 3), "strides": (stride,) * 2, "dilations": (1, 1)}
    found = make("window", (data,), attrs)
    split = b.reshape(found, (*found.shape[:3], 4, each, 3, 3))
    count = 2 * found.shape[1] * found.shape[2]
    left = b.reshape(b.permute(split, (3, 0, 1, 2, 5, 6, 4)), (4, count, 9 * each))
    shape = (9 * each // 2, 64, 2) if dtype == "bf16" else (9 * each, 64)
    panels = weight("w", -(-each // 16), *shape, dtype=dtype)
    return [op("relu", make("matmul_packed", (left, panels), {"n": each}))]


def test_groups_are_copied_by_themselves():
    """With their margins, so that a row of a window is one run; not where a stride leaves most of
    the copy unread."""
    copy, product = texts(by_groups(), CPU)
    assert "* 16 + y" in copy or "*16 + y" in copy
    assert "kernel_offset = start // 48" in product
    assert WIDE in product
    (strided,) = texts(by_groups(stride=2), CPU)
    assert "mask=inside" in strided


def test_groups_are_read_in_place_by_tiles():
    copy, product = texts(by_groups(dtype="bf16"))
    assert "kernel_offset = start // 16" in product
    assert WIDE in product
    assert "inside" in copy


def windows(shape, size, stride=1, padding=0, dilation=1, channels=64) -> list[Node]:
    """A convolution of N images, channels last, as a product with panels of words."""
    images, high, wide = shape
    x = operand("x", images, high, wide, channels, dtype="bf16")
    margins = (0, padding, padding, 0)
    data = b.pad(x, margins, margins, 0.0) if padding else x
    attrs = {"axes": (1, 2), "sizes": (size,) * 2, "strides": (stride,) * 2}
    found = make("window", (data,), attrs | {"dilations": (dilation,) * 2})
    rows = b.permute(found, (0, 1, 2, 4, 5, 3))
    count, depth = images * found.shape[1] * found.shape[2], size * size * channels
    panels = weight("w", 2, depth // 2, 64, 2, dtype="bf16")
    left = b.reshape(rows, (count, depth))
    product = make("matmul_packed", (left, panels), {"n": 128})
    return [op("relu", product)]


def texts(outputs, traits=TILES) -> list[str]:
    """The kernels' sources, in order."""
    plan = schedule(graph_of(outputs), traits)
    return [spec.forms[0].source for spec in lower(plan, traits)]


@pytest.mark.parametrize(
    ("given", "launches", "is_wide"),
    [
        (windows((2, 14, 14), 3, padding=1), 2, True),
        (windows((2, 14, 14), 3, padding=2, dilation=2), 2, True),
        (windows((2, 15, 14), 3), 1, True),  # no margins: nothing is copied
        (windows((2, 28, 28), 3, stride=2, padding=1), 2, True),
        (windows((2, 28, 29), 1, stride=2), 2, False),  # rows of the copy are at a distance anyway
        (windows((2, 4, 4), 3, padding=1), 2, False),  # more margins than positions
        (windows((2, 4, 8), 3), 1, False),  # fewer positions than a tile has rows
    ],
)
def test_rows_are_counted_as_they_lie(given, launches, is_wide):
    found = texts(given)
    assert len(found) == launches
    assert (WIDE in found[-1]) == is_wide
    assert "mask=inside" not in found[-1]


def rows_together(stride=2, channels=4, size=7) -> list[Node]:
    """A convolution of an image with its margins, by rows of the filter with zeros behind them."""
    together = size * channels
    x = operand("x", 2, 32, 34, channels - 1, dtype="bf16")
    image = b.pad(x, (0, 3, 3, 0), (0, 3, 3, 1), 0.0)
    rows = b.reshape(image, (2, 38, 40 * channels))
    sizes, strides = (size, together), (stride, stride * channels)
    attrs = {"axes": (1, 2), "sizes": sizes, "strides": strides, "dilations": (1, 1)}
    found = make("window", (rows,), attrs)
    filled = b.pad(found, (0,) * 5, (0, 0, 0, 0, 32 - together), 0.0)
    count = 2 * found.shape[1] * found.shape[2]
    left = b.reshape(filled, (count, size * 32))
    panels = weight("w", 1, size * 16, 64, 2, dtype="bf16")
    return [op("relu", make("matmul_packed", (left, panels), {"n": 64}))]


@pytest.mark.parametrize("traits", [TILES, CPU], ids=["tiles", "words"])
@pytest.mark.parametrize("stride", [1, 2])
def test_rows_of_a_filter_lie_together(stride, traits):
    """What follows a row of a window is masked on both sides, and an image is copied once."""
    image, product = texts(rows_together(stride), traits)
    assert "ca_mask = ca < 28" in product
    assert "cb_mask = cb < 28" in product
    assert product.count("other=0.0") == 2
    assert (WIDE in product) == traits.has_tiles
    assert f"x*{4 * stride} + ca" in product or not traits.has_tiles
    assert "(y >= 12) & (y < 148)" in image  # where the loop along a row is cut


def test_words_of_vectors_copy_windows():
    """A copy of windows that is made on the way; one of the input with margins took as long."""
    found = texts(windows((2, 14, 14), 3, padding=1), CPU)
    assert len(found) == 1
    assert "mask=inside" in found[0]
