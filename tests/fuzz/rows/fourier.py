"""Fourier transforms and complex numbers, from real values to real values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.draw import Draw
from fuzz.rows.row import Op

Arguments = Mapping[str, Any]
REAL = ("f32", "f64")


def along(d: Draw) -> Arguments:
    x = d.pick(dtypes=REAL, ranks=(1, 2, 3, 4), may_be_empty=False)
    return {"x": x.ref, "axis": d.axis(x, 1), "norm": d.one_of((None, "ortho", "forward"))}


def back(d: Draw) -> Arguments:
    x = d.pick(dtypes=REAL, ranks=(1, 2, 3, 4), may_be_empty=False)
    axis = d.axis(x, 2)
    return {"x": x.ref, "axis": axis, "count": d.extent(x, axis)}


def plane(d: Draw) -> Arguments:
    return {"x": d.pick(dtypes=REAL, ranks=(2, 3, 4), may_be_empty=False).ref}


def pairs(d: Draw) -> Arguments:
    x = d.pick(dtypes=REAL, ranks=(1, 2, 3), may_be_empty=False)
    return {"x": x.ref, "y": d.matching(x, (x.dtype,)).ref}


def _op(name: str, text: str, draw: Any, **more: Any) -> Op:
    """Of values that do not overflow: every element of a transform depends on every other."""
    for operand in ("{x}", "{y}"):
        text = text.replace(operand, f"{operand}.nan_to_num(0.5).clamp(-100, 100)")
    return Op(name, "fourier", text, draw, accumulates=True, is_of_norm=True, **more)


ROWS = (
    _op("rfft", "torch.view_as_real(torch.fft.rfft({x}, dim={axis}, norm={norm}))", along,
        weight=2),
    _op("fft", "torch.view_as_real(torch.fft.fft({x}, dim={axis}, norm={norm}))", along),
    _op("ifft", "torch.fft.ifft({x}, dim={axis}, norm={norm}).real", along),
    _op("size of rfft", "torch.fft.rfft({x}, dim={axis}).abs()", along),
    _op("rfft and irfft", "torch.fft.irfft(torch.fft.rfft({x}, dim={axis}), {count}, dim={axis})",
        back),
    _op("fft2", "torch.fft.fft2({x}).real", plane, weight=0.5),
    _op("rfft2", "torch.fft.rfft2({x}).imag", plane, weight=0.5),
    _op("complex product",
        "torch.view_as_real(torch.complex({x}, {y}) * torch.complex({y}, {x}))", pairs),
    _op("complex conjugate", "torch.view_as_real(torch.complex({x}, {y}).conj())", pairs,
        weight=0.5),
    _op("complex size", "torch.complex({x}, {y}).abs()", pairs, weight=0.5),
)  # fmt: skip
