"""Launches of the library's kernels that compile for a GPU in place of running on the CPU."""

from __future__ import annotations

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

TARGET = GPUTarget("cuda", 90, 32)


def compiling_for_a_gpu(found, run=None):
    """What `driver.run_on_cpu` can be replaced by: compiled kernels go to the list `found`; with
    `run`, the driver's own, they run on the CPU, too."""

    def compile_kernel(kernel, grid, arguments, options):
        backend = make_backend(TARGET)
        bind = create_function_from_signature(kernel.signature, kernel.params, backend)
        bound, kinds, rest = bind(*arguments, **options)
        settings, signature, constants, attributes = kernel._pack_args(
            backend, dict(rest), bound, kinds, rest
        )
        source = ASTSource(kernel, signature, constants, attributes)
        found.append(triton.compile(source, target=TARGET, options=settings.__dict__))
        if run is not None:
            run(kernel, grid, arguments, options)

    return compile_kernel
