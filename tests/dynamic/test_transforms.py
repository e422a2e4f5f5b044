"""Fourier transforms of a dynamic length: one bundle, right at every length."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load

TRANSFORMS = """
import torch

def model(x, y):
    spectrum = torch.fft.rfft(x, dim=1, norm="ortho")
    back = torch.fft.irfft(spectrum, x.shape[1], dim=1, norm="ortho")
    whole = torch.fft.fft(torch.view_as_complex(y), dim=0)
    return torch.view_as_real(spectrum), back, torch.view_as_real(torch.fft.ifft2(whole))

example_inputs = (torch.randn(2, 12), torch.randn(9, 4, 2))
dynamic_shapes = ({1: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})
"""


def test_transforms_of_any_length(tmp_path, cache):
    (tmp_path / "transforms.py").write_text(TRANSFORMS)
    names: dict = {}
    exec(TRANSFORMS, names)
    options = BuildOptions(cache, tune="off")
    report = build(str(tmp_path / "transforms.py"), tmp_path / "bundle", ["cpu"], options)
    assert all(check.is_ok for check in report.targets[0].checks)
    generator = torch.Generator().manual_seed(0)
    with load(tmp_path / "bundle") as program:
        for length, other in ((12, 9), (2, 3), (3, 1), (97, 64), (400, 111)):
            x = torch.randn(2, length, generator=generator)
            y = torch.randn(other, 4, 2, generator=generator)
            for found, expected in zip(program(x, y), names["model"](x, y), strict=True):
                scale = float(expected.abs().max())
                torch.testing.assert_close(found, expected, rtol=0, atol=2e-6 * max(scale, 1.0))


ROWS_OF_ANY_NUMBER = """
import torch

def model(x, y):
    half = torch.fft.rfft(x)
    whole = torch.fft.fft(torch.view_as_complex(y))
    return torch.view_as_real(half), torch.fft.irfft(half), torch.view_as_real(whole)

example_inputs = (torch.randn(5, 400), torch.randn(5, 96, 2))
batch = torch.export.Dim("batch", min=1, max=512)
dynamic_shapes = ({0: batch}, {0: batch})
"""


def test_any_number_of_rows(tmp_path, cache):
    (tmp_path / "rows.py").write_text(ROWS_OF_ANY_NUMBER)
    names: dict = {}
    exec(ROWS_OF_ANY_NUMBER, names)
    report = build(str(tmp_path / "rows.py"), tmp_path / "bundle", ["cpu"], BuildOptions(cache))
    assert all(check.is_ok for check in report.targets[0].checks)
    generator = torch.Generator().manual_seed(0)
    for threads in (1, 2):
        with load(tmp_path / "bundle", threads=threads) as program:
            for rows in (5, 1, 2, 41, 300, 512):
                x = torch.randn(rows, 400, generator=generator)
                y = torch.randn(rows, 96, 2, generator=generator)
                for found, expected in zip(program(x, y), names["model"](x, y), strict=True):
                    torch.testing.assert_close(found, expected, rtol=0, atol=5e-5)
