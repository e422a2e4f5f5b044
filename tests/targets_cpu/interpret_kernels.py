"""Writes what Triton's interpreter gives for each case of `kernel_table.py`: run as a script, with
TRITON_INTERPRET=1 and the file to write."""

from __future__ import annotations

import sys

import language_kernels
import torch
import tutorial_kernels
from kernel_table import CASES

MODULES = (tutorial_kernels, language_kernels)
NOT_INTERPRETED = {
    "device_functions", "atomic_histogram", "casts", "matmul_bfloat", "clamp_of_nan",
}  # fmt: skip
"""Cases that Triton's interpreter gets wrong or refuses: libdevice, bfloat16, atomics."""

if __name__ == "__main__":
    torch.save(
        {name: run()[0] for name, run in CASES.items() if name not in NOT_INTERPRETED}, sys.argv[1]
    )
