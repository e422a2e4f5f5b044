"""The permission to use tile registers (AMX), which Linux gives to a process that asks for it.

It is asked for once, when a target needs it; threads and forked children have it too. The kernel
then saves 8 KiB more of a thread that uses tiles (Documentation/arch/x86/xstate.rst).
"""

from __future__ import annotations

import ctypes
import os

TILE_FEATURES = frozenset(("amx_tile", "amx_bf16", "amx_int8"))
SYS_ARCH_PRCTL = 158
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18

_refusals: list[str] = []


def tile_refusal() -> str:
    """Why this process may not use tiles; empty where it may."""
    if not _refusals:
        _refusals.append(_asked())
    return _refusals[0]


def _asked() -> str:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        number, request, feature = map(
            ctypes.c_long, (SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
        )
        if libc.syscall(number, request, feature) == 0:
            return ""
        reason = os.strerror(ctypes.get_errno()).lower()
    except (AttributeError, OSError) as error:
        reason = str(error)
    return f"a kernel that denies it ({reason})"
