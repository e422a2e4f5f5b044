"""How weights are quantised: by groups of a row, each divided by its scale and rounded."""

from __future__ import annotations

from aotc.aot.ir.float8 import E4M3

GROUP = 64  # neighbouring elements of a row that share a scale
LARGEST = {"int8": 127.0, "int4": 7.0, "fp8": E4M3.largest}  # number of each kind
SMALLEST_SCALE = 1e-30  # of a group of zeros
