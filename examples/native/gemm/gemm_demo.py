"""Multiplies two matrices by the library beside this file and compares with numpy."""

import numpy

from aotc import runtime

gemm = runtime.get_backend("gemm")
random = numpy.random.default_rng(0)
a = random.standard_normal((37, 300), numpy.float32)
b = random.standard_normal((300, 41), numpy.float32)
c = numpy.empty((37, 41), numpy.float32)

gemm.matmul(a, b, out=c)
numpy.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
print(f"{gemm}: {a.shape} x {b.shape}")
