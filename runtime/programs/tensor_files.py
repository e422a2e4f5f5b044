"""Weights that a caller gives: safetensors files, sharded ones, or a mapping of arrays.

Files of strangers: any layout that stays within the file is read, since writers differ in order,
gaps and metadata; nothing outside of it is.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

from ..arrays.buffers import copy_strided
from ..arrays.dtypes import BY_SAFETENSORS, bytes_of
from ..arrays.exchange import kind_of
from ..arrays.port import ports
from ..arrays.strided import copier
from ..bundle.signature import TensorSpec
from ..bundle.strict_json import NotStrict, parse
from ..bundle.weights import MappedFile
from ..errors import InputError, WeightsUnreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Specs = Mapping[str, tuple[str, tuple[int, ...]] | None]

HEADER_LIMIT_BYTES = 100 << 20  # the format's own
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
SUFFIX = ".safetensors"
# 8-bit floats, which bundles hold by their bits, in files and of arrays.
BITS_IN_FILES = {"F8_E4M3": "U8", "F8_E5M2": "U8"}
BITS_OF_ARRAYS = "float8_e4m3fn", "float8_e5m2"


class GivenTensor:
    """A tensor of the caller's: element type as its source names it, shape, address of its bytes.

    problem: why it cannot be read, empty where it can.
    """

    __slots__ = ("address", "dtype", "nbytes", "problem", "shape")

    def __init__(
        self, dtype: str, shape: tuple[int, ...], address: int, nbytes: int, problem: str = ""
    ) -> None:
        self.dtype, self.shape = dtype, shape
        self.address, self.nbytes, self.problem = address, nbytes, problem


NOTHING = GivenTensor("", (), 0, 0)


class Given:
    """All tensors of a source by name, whose memory it keeps alive."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tensors: dict[str, GivenTensor] = {}
        self.keep: list[Any] = []


def given(source: Any, specs: Specs) -> Given:
    """The tensors of a path or of a mapping of arrays by name.

    specs: element type and shape that are expected of a name; None where only the bytes are asked
    for. Raises `WeightsUnreadable`.
    """
    if isinstance(source, (str, os.PathLike)):
        return _of_path(os.fspath(source))
    if not hasattr(source, "keys") or not hasattr(source, "__getitem__"):
        found = f"a `{type(source).__name__}`"
        raise WeightsUnreadable(source="argument", found=found, expected=EXPECTED)
    return _of_mapping(source, specs)


EXPECTED = "a path of safetensors files, or a mapping of names to arrays"


def _of_mapping(source: Any, specs: Specs) -> Given:
    found = Given("the mapping")
    copy = copier(copy_strided)
    for name in list(source.keys()):
        if not isinstance(name, str):
            raise WeightsUnreadable(source="mapping", found=repr(name), expected="names as text")
        value = _plain(source[name])
        found.keep.append(value)
        spec = specs.get(name)
        if spec is None:
            found.tensors[name] = _bytes_of(value, found) if name in specs else NOTHING
            continue
        dtype, shape = spec
        ((port,), _) = ports((TensorSpec(name, dtype, shape),), (), copy)
        try:
            address = kind_of(port, value).address(port, value, found.keep)
        except InputError as error:
            found.tensors[name] = GivenTensor("", (), 0, 0, error.message)
            continue
        found.tensors[name] = GivenTensor(dtype, shape, address, bytes_of(dtype, shape))
    return found


def _bytes_of(value: Any, found: Given) -> GivenTensor:
    """The bytes of an array of any element type."""
    try:
        view = memoryview(value.numpy() if hasattr(value, "numpy") else value)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        return GivenTensor("", (), 0, 0, f"no array in host memory: {error}")
    copy = ctypes.create_string_buffer(view.tobytes(), max(view.nbytes, 1))
    found.keep.append(copy)
    return GivenTensor("", (), ctypes.addressof(copy), view.nbytes)


def _plain(value: Any) -> Any:
    """A tensor of torch's without its gradient, in host memory; 8-bit floats as their bits."""
    if getattr(value, "requires_grad", False):
        value = value.detach()
    if getattr(value, "is_cpu", True) is False:
        value = value.cpu()
    word = str(getattr(value, "dtype", ""))
    if word.removeprefix("torch.") in BITS_OF_ARRAYS:
        value = value.view(sys.modules["torch"].uint8 if word[:6] == "torch." else "uint8")
    return value


def _of_path(path: str) -> Given:
    found = Given(path)
    for file in _files(path):
        mapped = _mapped(file)
        found.keep.append(mapped)
        for name, tensor in read_tensors(mapped, file).items():
            if name in found.tensors:
                raise WeightsUnreadable(
                    source=path, found=f"`{name}` in two files", expected="each tensor in one"
                )
            found.tensors[name] = tensor
    return found


def _files(path: str) -> list[str]:
    """The files that a path stands for, those of an index after it was checked."""
    if os.path.isdir(path):
        for name in (INDEX_NAME, SINGLE_NAME):
            if os.path.exists(os.path.join(path, name)):
                return _files(os.path.join(path, name))
        try:
            names = sorted(name for name in os.listdir(path) if name.endswith(SUFFIX))
        except OSError as error:
            found = (error.strerror or str(error)).lower()
            raise WeightsUnreadable(source=path, found=found, expected=EXPECTED) from None
        if len(names) != 1:
            raise WeightsUnreadable(
                source=path,
                found=f"{len(names)} files `*{SUFFIX}`",
                expected=f"`{SINGLE_NAME}`, `{INDEX_NAME}` or one file",
            )
        return [os.path.join(path, names[0])]
    if not path.endswith(".json"):
        return [path]
    folder = os.path.dirname(path)
    return [os.path.join(folder, name) for name in dict.fromkeys(_shards(path).values())]


def _shards(path: str) -> dict[str, str]:
    """Tensor → file of an index, files beside it only."""
    expected = "an object `weight_map` of tensors and files beside the index"
    shards = read_json(path, expected).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise WeightsUnreadable(source=path, found="no `weight_map`", expected=expected)
    for name in shards.values():
        is_plain = isinstance(name, str) and name == os.path.basename(name)
        if not is_plain or not name.endswith(SUFFIX) or "\0" in name:
            raise WeightsUnreadable(source=path, found=repr(name)[:80], expected=expected)
    return shards


def read_json(path: str, expected: str) -> dict[str, Any]:
    """The object of a small JSON file; raises `WeightsUnreadable`."""
    mapped = _mapped(path)
    if mapped.nbytes > HEADER_LIMIT_BYTES:
        raise WeightsUnreadable(source=path, found=f"{mapped.nbytes} bytes", expected=expected)
    try:
        value = parse(bytes(mapped.view), has_floats=True)
    except NotStrict as error:
        raise WeightsUnreadable(source=path, found=str(error), expected=expected) from None
    if not isinstance(value, dict):
        raise WeightsUnreadable(source=path, found="no object", expected=expected)
    return value


def _mapped(path: str) -> MappedFile:
    """A plain file, mapped for reading; links are followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or not status.st_size:
                found = "an empty file" if stat.S_ISREG(status.st_mode) else "no plain file"
                raise WeightsUnreadable(source=path, found=found, expected="a plain file")
            return MappedFile(descriptor, status.st_size)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        raise WeightsUnreadable(source=path, found=found, expected="a readable file") from None


def read_tensors(mapped: MappedFile, path: str) -> dict[str, GivenTensor]:
    """The tensors of a safetensors file in memory, by name; raises `WeightsUnreadable`."""

    def refuse(found: str, expected: str) -> WeightsUnreadable:
        return WeightsUnreadable(source=path, found=found, expected=expected)

    if mapped.nbytes < 8:
        raise refuse(f"{mapped.nbytes} bytes", "a safetensors file")
    header_bytes = int.from_bytes(mapped.view[:8], "little")
    start = 8 + header_bytes
    if header_bytes > HEADER_LIMIT_BYTES or start > mapped.nbytes:
        raise refuse(f"a header of {header_bytes} bytes", "a safetensors file")
    try:
        rows = parse(bytes(mapped.view[8:start]))
    except NotStrict as error:
        raise refuse(f"a header with {error}", "the header of a safetensors file") from None
    if not isinstance(rows, dict):
        raise refuse("a header that is not an object", "the header of a safetensors file")
    tensors = {}
    for name, row in rows.items():
        if name == "__metadata__":
            continue
        problem = _broken_row(row, mapped.nbytes - start)
        if problem:
            raise refuse(f"tensor `{name[:80]}` with {problem}", "tensors within the file")
        begin, end = row["data_offsets"]
        dtype = BY_SAFETENSORS.get(BITS_IN_FILES.get(row["dtype"], row["dtype"]))
        word = row["dtype"][:16] if dtype is None else dtype.name
        nbytes = end - begin if dtype is None else bytes_of(word, row["shape"])
        if nbytes != end - begin:
            raise refuse(f"tensor `{name[:80]}` of {end - begin} bytes", f"{nbytes} bytes")
        address = mapped.address + start + begin
        tensors[name] = GivenTensor(word, tuple(row["shape"]), address, nbytes)
    return tensors


def _broken_row(row: Any, data_bytes: int) -> str:
    """What is wrong with a tensor's row of the header; empty where nothing is."""
    if not isinstance(row, dict) or not {"dtype", "shape", "data_offsets"} <= row.keys():
        return "no dtype, shape and data_offsets"
    shape, offsets = row["shape"], row["data_offsets"]
    if not isinstance(row["dtype"], str):
        return "a dtype that is not text"
    if not isinstance(shape, list) or len(shape) > 64 or not all(map(_is_extent, shape)):
        return "a shape that is none"
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_extent, offsets)):
        return "data_offsets that are none"
    begin, end = offsets
    return "" if begin <= end <= data_bytes else f"bytes {begin} to {end} of {data_bytes}"


def _is_extent(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 48
