"""LoRA adapters as PEFT writes them: `adapter_config.json` and `adapter_model.safetensors`.

W + s · B · A        s = scale · alpha / r, or scale · alpha / √r where `use_rslora`
"""

from __future__ import annotations

import array
import ctypes
import math
import os
import struct

from ..arrays.buffers import buffer_address, copy_strided
from ..errors import AdapterMismatch
from ..settings import ArgumentInvalid, path_text
from .tensor_files import given, read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .tensor_files import Given, GivenTensor

CONFIG_NAME, WEIGHTS_NAME = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
PARTS = {".lora_A.weight": "a", ".lora_B.weight": "b"}
# What would mean other numbers than W + s · B · A; each has to be absent, or to have such a value.
PLAIN: dict[str, tuple[Any, ...]] = {
    "use_dora": (None, False),
    "bias": (None, "none"),
    "modules_to_save": (None, []),
    "alpha_pattern": (None, {}),
    "lora_bias": (None, False),
    "layer_replication": (None, []),
    "trainable_token_indices": (None, [], {}),
}


class Factor:
    """A matrix of an adapter where it lies: element [i, j] is element i · strides[0] + j ·
    strides[1] from the address on; scale: what each element is multiplied with, as f32."""

    __slots__ = ("scale", "shape", "strides", "tensor")

    def __init__(
        self, tensor: GivenTensor, shape: tuple[int, int], strides: tuple[int, int], scale: float
    ) -> None:
        self.tensor, self.shape, self.strides, self.scale = tensor, shape, strides, scale

    def singles(self) -> Any:
        """The elements as f32 in the order of rows, in memory of their own, not scaled."""
        values = _singles(self.tensor)
        rows, columns = self.shape
        return values if self.strides == (columns, 1) else _transposed(values, columns, rows)


class Change:
    """What an adapter adds to one weight: left [n, r] times right [r, k]; keep: holds both."""

    __slots__ = ("keep", "left", "right")

    def __init__(self, left: Factor, right: Factor, keep: Any) -> None:
        self.left, self.right, self.keep = left, right, keep

    @property
    def shape(self) -> tuple[int, int]:
        """That of the weight."""
        return self.left.shape[0], self.right.shape[1]

    @property
    def rank(self) -> int:
        """Columns of left, rows of right."""
        return self.left.shape[1]


def read_adapter(path: str | os.PathLike[str], scale: float) -> dict[str, Change]:
    """Module → what is added to its weight; raises `AdapterMismatch`, `WeightsUnreadable` and
    `ArgumentInvalid`."""
    folder = path_text("path", path)
    if type(scale) not in (int, float) or not math.isfinite(scale):
        expected, remedy = "a finite number", "1.0 adds the adapter as it was trained"
        raise ArgumentInvalid(name="scale", found=scale, expected=expected, remedy=remedy)
    config = read_json(os.path.join(folder, CONFIG_NAME), "the configuration of an adapter")
    for name, values in PLAIN.items():
        if config.get(name) not in values:
            raise _mismatch(folder, "a kind that is not applied", [f"{name}={config[name]!r}"[:80]])
    alpha: Any = config.get("lora_alpha")
    if config.get("peft_type", "LORA") != "LORA" or type(alpha) not in (int, float):
        raise _mismatch(folder, "no LoRA adapter", [str(config.get("peft_type"))[:40]])
    found = given(os.path.join(folder, WEIGHTS_NAME), {})
    pairs = _pairs(folder, found)
    is_transposed, is_rooted = bool(config.get("fan_in_fan_out")), bool(config.get("use_rslora"))
    changes = {}
    for module, (a, b) in pairs.items():
        is_product = len(a.shape) == len(b.shape) == 2 and a.shape[0] == b.shape[1]
        if not is_product or not a.shape[0]:
            shapes = f"{module} (A {list(a.shape)}, B {list(b.shape)})"
            raise _mismatch(folder, "sizes that are not those of a product", [shapes])
        rank, inner, rows = *a.shape, b.shape[0]
        factor = scale * alpha / (rank**0.5 if is_rooted else rank)
        left = Factor(b, (rows, rank), (rank, 1), factor)
        right = Factor(a, (rank, inner), (inner, 1), 1.0)
        if is_transposed:  # the weight is [k, n]: Aᵀ · Bᵀ is added
            left = Factor(a, (inner, rank), (1, inner), factor)
            right = Factor(b, (rank, rows), (1, rank), 1.0)
        changes[module] = Change(left, right, found)
    return changes


def _pairs(folder: str, found: Given) -> dict[str, tuple[GivenTensor, GivenTensor]]:
    """Module → A and B."""
    parts: dict[str, dict[str, GivenTensor]] = {}
    others = []
    for name, tensor in found.tensors.items():
        end = next((end for end in PARTS if name.endswith(end)), None)
        if end is None or tensor.dtype not in ("f32", "f16", "bf16"):
            others.append(name)
            continue
        module = name.removesuffix(end).removeprefix(PREFIX)
        parts.setdefault(module, {})[PARTS[end]] = tensor
    others += [module for module, pair in parts.items() if len(pair) != 2]
    if others or not parts:
        raise _mismatch(folder, "tensors that are not pairs `lora_A`, `lora_B` of floats", others)
    return {module: (pair["a"], pair["b"]) for module, pair in parts.items()}


def _mismatch(source: str, problem: str, names: list[str]) -> AdapterMismatch:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    text = ", ".join(names[:8]) + more
    return AdapterMismatch(source=source, problem=problem, modules=text, names=names)


def _singles(tensor: GivenTensor) -> Any:
    """The elements as f32, in an array of their own."""

    data = ctypes.string_at(tensor.address, tensor.nbytes)
    if tensor.dtype == "f32":
        return array.array("f", data)
    if tensor.dtype == "f16":
        return array.array("f", struct.unpack(f"<{len(data) // 2}e", data))
    wide = bytearray(2 * len(data))  # bf16 is the upper half of f32
    wide[2::4], wide[3::4] = data[::2], data[1::2]
    return array.array("f", bytes(wide))


def _transposed(values: Any, rows: int, columns: int) -> Any:
    """The elements of [rows, columns] as [columns, rows]."""
    found = array.array("f", bytes(4 * len(values)))
    to, source = buffer_address(found), buffer_address(values)
    copy_strided(to, source, 4, (columns, rows), (4, 4 * columns))
    return found
