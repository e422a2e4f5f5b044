"""The structures of `aotc_backend.h` for ctypes; a test compares every offset with a compiler's."""

from __future__ import annotations

import ctypes

from ..arrays.dlpack import CPU_DEVICE, CUDA_DEVICE, DEVICES, DLTensor

ABI = 1
ENTRY = "aotc_backend_init"
DEVICE_TYPES = {DEVICES[code]: code for code in (CPU_DEVICE, CUDA_DEVICE)}
DEVICE_BITS = {name: 1 << code - 1 for name, code in DEVICE_TYPES.items()}
DTYPE_BITS = {
    name: 1 << bit
    for bit, name in enumerate(
        ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool")
    )
}
ROLES = ("input", "output")
SCALAR_KINDS = ("whole", "real")
ANY_RANK = -1
STRIDED = 1 << 0  # flag of a tensor
CONCURRENT, TILED = 1 << 0, 1 << 1  # flags of a function
TENSOR_BYTES = ctypes.sizeof(DLTensor)
SCALAR_BYTES = 8
# Limits of the host, which bound what is read from a table.
ARGUMENT_LIMIT, FUNCTION_LIMIT, RANK_LIMIT = 64, 4096, 64


class Context(ctypes.Structure):
    """`aotc_context`."""

    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("tile", ctypes.c_int32),
        ("tiles", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_uint64),
        ("message", ctypes.c_void_p),
        ("message_bytes", ctypes.c_uint64),
    )


class TensorSpecTable(ctypes.Structure):
    """`aotc_tensor_spec`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("role", ctypes.c_uint32),
        ("dtypes", ctypes.c_uint32),
        ("rank", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("alignment_bytes", ctypes.c_uint32),
    )


class ScalarSpecTable(ctypes.Structure):
    """`aotc_scalar_spec`."""

    _fields_ = (("name", ctypes.c_char_p), ("kind", ctypes.c_uint32))


class FunctionTable(ctypes.Structure):
    """`aotc_function`."""

    _fields_ = (
        ("struct_bytes", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("devices", ctypes.c_uint32),
        ("tensor_count", ctypes.c_uint32),
        ("tensors", ctypes.c_void_p),
        ("scalar_count", ctypes.c_uint32),
        ("scalars", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_void_p),
    )


class Config(ctypes.Structure):
    """`aotc_config`."""

    _fields_ = (("key", ctypes.c_char_p), ("value", ctypes.c_char_p))


class BackendTable(ctypes.Structure):
    """`aotc_backend`."""

    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("struct_bytes", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("devices", ctypes.c_uint32),
        ("initialize", ctypes.c_void_p),
        ("finalize", ctypes.c_void_p),
        ("function_names", ctypes.c_void_p),
        ("get_function", ctypes.c_void_p),
    )


# Functions take addresses as numbers: nothing is converted that a call does not need.
KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
WORKSPACE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
INITIALIZE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
FINALIZE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
GET_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
