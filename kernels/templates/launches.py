"""When a kernel on a GPU has what it reads: what it does while those before it still run, where it
is launched early, and what stays in registers while its loop runs.

A kernel whose text has no `wait_for_kernels` waits before anything else.
"""

import triton
import triton.language as tl


@triton.jit
def wait_for_kernels():
    """Until all kernels before this one have ended. Before it only what no kernel of the call
    writes may be loaded."""
    tl.inline_asm_elementwise(
        "griddepcontrol.wait; mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def ask_for(pointers):
    """Have the lines at these places brought into the cache that all programs share. It changes
    nothing, whoever writes there meanwhile."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
        "=r,l",
        [pointers],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def held(tile):
    """A tile of 16 or 32 bits an element that was loaded before a loop. Without this Triton has
    its elements change threads there, for which all of them must have come."""
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;",
        "=r,r",
        [tile],
        dtype=tile.dtype,
        is_pure=False,
        pack=32 // tile.dtype.primitive_bitwidth,
    )
