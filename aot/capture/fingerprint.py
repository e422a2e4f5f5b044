"""What a capture depends on, as digests: the model's state and code, its example, the libraries.

Two specs with one fingerprint are exported to one graph. What cannot be hashed is not guessed: a
function or an exported program as a model, or an object that does not pickle, has no fingerprint.
State is hashed by value, code by its files and the globals that it reads (`dependencies.py`). A
library's own switches are not seen, so that whoever trusts a fingerprint still runs the model and
compares (`cache_entry.py`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import io
import os
import pickle  # noqa: TID251  it writes into a hash; nothing is ever loaded
import sys
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch

from aotc.aot.capture.dependencies import Dependencies, file_of, is_hashed_by_version, is_users
from aotc.aot.capture.libraries import of_the_process
from aotc.aot.capture.spec import FunctionModule, Spec
from aotc.aot.version import ROOT, sources_digest

# Folders whose code makes a graph of an export, stands in models, or in place of their ops.
IMPORTER = ("aot/capture", "aot/huggingface", "aot/ir", "kernels/library")
SETTINGS: dict[str, Callable[[], Any]] = {
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "matmul precision": lambda: torch.backends.cuda.matmul.fp32_precision,
    "convolution precision": lambda: torch.backends.cudnn.conv.fp32_precision,
    "deterministic": torch.are_deterministic_algorithms_enabled,
    "flash attention": torch.backends.cuda.flash_sdp_enabled,
    "plain attention": torch.backends.cuda.math_sdp_enabled,
}


def fingerprints(specs: Sequence[Spec]) -> list[dict[str, str] | None]:
    """The `fingerprint` of each; what their models share is hashed once."""
    storages: dict[int, bytes] = {}
    return [fingerprint(spec, storages) for spec in specs]


def fingerprint(spec: Spec, storages: dict[int, bytes] | None = None) -> dict[str, str] | None:
    """Named digests of all that the export of `spec` depends on; None where one has no digest.

    storages: digests of the memory of models by address; that of this one is added.
    """
    if spec.module is None or isinstance(spec.module, FunctionModule) or spec.decompositions:
        return None
    dependencies = _Met({} if storages is None else storages)
    try:
        dependencies.add_memory(spec.module)
        values = {
            "example": _digest((spec.arguments, dict(spec.keyword_arguments)), dependencies),
            "model": _digest(spec.module, dependencies),
            "globals": _digest_each(dependencies.values(), dependencies),
            "dims": f"{_dims(spec.dynamic_shapes)}; {_dims(dict(spec.state_shapes))}",
            "entry": spec.entry,
        }
        return {
            **values,
            "files": _files(dependencies.modules),
            "importer": _importer(),
            "installed": _installed(tuple(sys.path)),
            "libraries": _libraries(dependencies.modules),
            "settings": "; ".join(f"{name} {read()}" for name, read in SETTINGS.items()),
            "spec": spec.path,
            "versions": _versions(),
        }
    except _NotHashable:
        return None


class _NotHashable(Exception):
    """A value whose meaning does not show in its pickle."""


class _Met(Dependencies):
    """The code that was met, and memory whose digest is known."""

    def __init__(self, storages: dict[int, bytes]) -> None:
        super().__init__()
        self.storages = storages

    def add_memory(self, module: torch.nn.Module) -> None:
        """Hash the weights of a module, which stay where they are."""
        for tensor in (*module.parameters(), *module.buffers()):
            if _is_plain(tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self.storages:
                    self.storages[storage.data_ptr()] = _memory(storage)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is what its memory holds: subclasses may have other tensors in them."""
    is_own = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return is_own and tensor.is_cpu and tensor.layout == torch.strided and not tensor.is_quantized


class _Hash(io.RawIOBase):
    """A file that only hashes."""

    def __init__(self) -> None:
        super().__init__()
        self.state = hashlib.sha256()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Hash the bytes."""
        self.state.update(data)
        return len(data)


class _Digester(pickle.Pickler):
    """Pickles values into a hash: tensors as their bytes and the memory that they share.

    Functions and classes are written by name; what they are is hashed through `dependencies`.
    """

    def __init__(self, digested: _Hash, dependencies: _Met) -> None:
        super().__init__(digested, protocol=5)
        self._digested, self._dependencies = digested, dependencies
        self._storages: dict[int, int] = {}  # address → number

    def persistent_id(self, value: Any) -> Any:
        """What stands for a tensor or a set; None for anything else, which is pickled."""
        if isinstance(value, set | frozenset):  # whose order is the process's own
            return ("set", *sorted(_digest(item, self._dependencies) for item in value))
        if isinstance(value, FunctionType):
            return self._function(value)
        if not isinstance(value, torch.Tensor):
            self._dependencies.add(value)
            return None
        if not _is_plain(value):
            raise _NotHashable
        storage = value.untyped_storage()
        known = len(self._storages)
        number = self._storages.setdefault(storage.data_ptr(), known)
        if number == known:
            digest = self._dependencies.storages.get(storage.data_ptr())
            self._digested.write(digest or _memory(storage))
        place = (number, value.storage_offset(), tuple(value.shape), value.stride())
        return (type(value).__name__, str(value.dtype), value.requires_grad, *place)

    def _function(self, value: FunctionType) -> Any:
        """A function by name, place and body; one inside another, with what it holds of that."""
        code = value.__code__
        place = (value.__module__, value.__qualname__, code.co_firstlineno, code.co_code)
        is_new = self._dependencies.add(value)
        if is_new and value.__closure__ and not is_users(value.__module__):
            held = [cell.cell_contents for cell in value.__closure__]
            return ("function", *place, _digest(held, self._dependencies))
        return ("function", *place)

    def reducer_override(self, value: Any) -> Any:
        """A module with parametrizations is its class and attributes: it refuses to be pickled.

        So are objects with an attribute that says nothing about them. A method is its function,
        not its name alone, and what it is bound to.
        """
        kind = type(value)
        if kind is MethodType and type(value.__func__) is FunctionType:
            return _restored, ("method", ""), (value.__func__, value.__self__)
        left_out = of_the_process(kind)
        is_parametrized = (
            isinstance(value, torch.nn.Module) and "parametrizations" in value._modules
        )
        if not left_out and not is_parametrized:
            return NotImplemented
        self._dependencies.add(kind)
        state = {name: item for name, item in vars(value).items() if name not in left_out}
        return _restored, (kind.__module__, kind.__qualname__), state


def _memory(storage: Any) -> bytes:
    data = torch.empty(0, dtype=torch.uint8).set_(storage)
    return hashlib.sha256(data.numpy()).digest()


def _dims(value: Any) -> str:
    """The text of `dynamic_shapes`, by what each dim means; equal names are one dim to torch."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {_dims(item)}' for name, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(_dims, value))})"
    if value is None or type(value) in (int, str):
        return repr(value)
    kind = type(value)
    if kind.__module__ != torch.export.Dim.__module__:
        raise _NotHashable
    if hasattr(value, "root"):  # a multiple of another dim, and a number added
        return f"{value.fn(0)} to {value.fn(1)} of {_dims(value.root)}"
    ends = value.min, value.max
    name = getattr(value, "__name__", "") or str(getattr(value, "type", ""))
    return f"{kind.__name__} {name} {ends} {getattr(value, 'value', '')}"


def _restored(module: str, name: str) -> None:
    """Stands in the pickle for what makes a module; nothing is ever unpickled."""


def _digest(value: Any, dependencies: _Met) -> str:
    digested = _Hash()
    try:
        _Digester(digested, dependencies).dump(value)
    except _NotHashable:
        raise
    except Exception:  # whatever a user's class does when it is pickled
        raise _NotHashable from None
    return digested.state.hexdigest()


def _digest_each(values: Iterable[tuple[str, Any]], dependencies: _Met) -> str:
    """One digest of named values; reading one may reach more of them."""
    whole = hashlib.sha256()
    for name, value in values:
        whole.update(f"{name} {_digest(value, dependencies)}\n".encode())
    return whole.hexdigest()


def _files(modules: Iterable[str]) -> str:
    """The user's modules whose code the model depends on, by their bytes."""
    digest = hashlib.sha256()
    for name in sorted(filter(is_users, modules)):
        file = file_of(name)
        if file is None or not file.is_file():  # typed into an interpreter
            raise _NotHashable
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _libraries(modules: Iterable[str]) -> str:
    """The installed packages that the model depends on, by size and time of all files."""
    names = {name.partition(".")[0] for name in modules if not is_users(name)}
    hashed = sorted(name for name in names if not is_hashed_by_version(name))
    return hashlib.sha256("".join(map(_package, hashed)).encode()).hexdigest()


@functools.cache
def _package(name: str) -> str:
    file = file_of(name)
    if file is None:
        raise _NotHashable
    paths = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    states = [(path, path.stat()) for path in paths]
    return "".join(f"{path} {state.st_size} {state.st_mtime_ns}\n" for path, state in states)


@functools.cache
def _installed(folders: tuple[str, ...]) -> str:
    """All distributions on the path, so that what a library imports is hashed too."""
    rows = []
    for folder in dict.fromkeys(folders):
        try:
            with os.scandir(folder or ".") as entries:
                found = [entry for entry in entries if entry.name.endswith(".dist-info")]
                rows += [f"{entry.name} {entry.stat().st_mtime_ns}" for entry in found]
        except OSError:  # a zip file, or a folder that is not there
            continue
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()


@functools.cache
def _importer() -> str:
    return sources_digest(ROOT / folder for folder in IMPORTER)


@functools.cache  # importlib parses a whole file for each
def _versions() -> str:
    names = ("torch", "numpy", "triton")
    found = [f"{name} {importlib.metadata.version(name)}" for name in names]
    return ", ".join([*found, f"git {torch.version.git_version}", f"python {sys.version}"])
