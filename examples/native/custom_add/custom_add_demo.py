"""Adds two arrays by the library beside this file; AOTC_BACKEND_PATH names its folder."""

import numpy

from aotc import runtime

library = runtime.get_backend("custom_add")
a, b = numpy.arange(6, dtype=numpy.float32), numpy.ones(6, numpy.float32)
out = numpy.empty_like(a)

library.add(a, b, a.size, out=out)
assert (out == a + b).all()

library.execute_kernel("add", out, out, b, a.size)  # in the kernel's own order
assert (out == a + 2 * b).all()
print(f"{library}: {out}")
