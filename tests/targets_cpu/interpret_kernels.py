"""Writes what Triton's interpreter gives for each case of `kernel_table.py`: run as a script, with
TRITON_INTERPRET=1 and the file to write."""

from __future__ import annotations

import sys

import control_kernels
import extended_kernels
import language_kernels
import torch
import tutorial_kernels
from kernel_table import CASES

MODULES = (tutorial_kernels, language_kernels, control_kernels, extended_kernels)
NOT_INTERPRETED = {
    "device_functions", "atomic_histogram", "casts", "matmul_bfloat", "clamp_of_nan",
    "batched_products_of_bfloats", "functions_of_elements", "products_with_scales",
    "products_of_half_bytes_with_scales", "products_of_half_bytes_and_bytes_with_scales",
    "atomics_of_floats", "extremes_of_bfloats", "extremes_of_halves", "histograms",
    "calls_in_loops", "loops_with_attributes",
}  # fmt: skip
"""Cases that Triton's interpreter gets wrong or refuses: libdevice, bfloat16, atomics, functions of
elements, products with scales."""

if __name__ == "__main__":
    torch.save(
        {name: run()[0] for name, run in CASES.items() if name not in NOT_INTERPRETED}, sys.argv[1]
    )
