"""Native back ends: shared libraries whose functions Python and compiled graphs call.

`aotc_backend.h` (C11) and `aotc_backend.hpp` (C++17) beside this file say what a library is;
`docs/native-backends.md` tells how to write one. Nothing here is imported by `import runtime`:
`runtime.get_backend` is, at its first use.
"""

from .abi import ABI
from .backend import Backend, Function, get_backend
from .signature import ScalarSlot, Signature, TensorSlot

__all__ = ["ABI", "Backend", "Function", "ScalarSlot", "Signature", "TensorSlot", "get_backend"]
