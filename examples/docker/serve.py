"""Loads a bundle and answers once, on zeros: where a server would take requests."""

import sys
import time

from aotc import runtime
from aotc.runtime.arrays.dtypes import DTYPES

started_s = time.perf_counter()
with runtime.load(sys.argv[1]) as program:
    zeros = [
        memoryview(bytearray(port.nbytes)).cast(DTYPES[port.dtype].buffer or "H", list(port.shape))
        for port in program.inputs
    ]
    program(*zeros)
    seconds = time.perf_counter() - started_s
    print(f"target {program.target}, first answer after {seconds:.3f} s")
