"""A native back end as Python uses it: `get_backend("custom_add").add(a, b, n, out=out)`."""

from __future__ import annotations

import os

from .discovery import find
from .errors import BackendConfigured
from .function import Function
from .library import NativeLibrary, open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .signature import Signature


def get_backend(name: str | os.PathLike[str], configs: Mapping[str, str] | None = None) -> Backend:
    """The native back end of that name, loaded once in a process.

    name: looked up on AOTC_BACKEND_PATH, then among the entry points `aotc.backends` of installed
    packages. A path, which is whatever has a `/`, is that file. configs: what the library's
    `initialize` gets, at the first call on each device. Raises the `BackendError` family: not
    found, not loadable, no back end, another ABI, another name, other configs.
    """
    text = os.fspath(name)
    if "/" in text:
        library = open_file(os.path.abspath(text))
    else:
        library = open_file(find(text).path, text)
    if configs is not None and not library.configure(configs):
        raise BackendConfigured(name=library.name, found=library.configs, expected=dict(configs))
    return Backend(library)


class Backend:
    """A loaded library; its functions are methods, and items with signature and pointer.

    name, version, path: the library's; devices: where it has functions, of `cpu` and `cuda`.
    """

    __slots__ = ("__dict__", "_functions", "_library")

    def __init__(self, library: NativeLibrary) -> None:
        self._library = library
        self._functions: dict[str, Function] = {}

    @property
    def name(self) -> str:
        """The back end's name."""
        return self._library.name

    @property
    def version(self) -> str:
        """The library's own version."""
        return self._library.version

    @property
    def path(self) -> str:
        """The file that was loaded, as an absolute path."""
        return self._library.path

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices of its functions: `cpu`, `cuda`."""
        return self._library.devices

    @property
    def functions(self) -> dict[str, Signature]:
        """Name → signature of every function."""
        return {name: self[name].signature for name in self._library.function_names}

    def get_function_ptr(self, name: str) -> int:
        """The address of a function's `aotc_kernel`, for other code; raises `FunctionUnknown`."""
        return self[name].pointer

    def execute_kernel(self, name: str, *arguments: Any, stream: Any = None) -> None:
        """One call with tensors, then scalars, in the kernel's own order; writes its outputs."""
        self[name].execute(arguments, stream)

    def __getitem__(self, name: str) -> Function:
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = Function(self._library.function(name))
        return function

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):  # Python's own questions about the object
            raise AttributeError(name)
        # From here on it is found without this method; and a method is called for less than an
        # object with `__call__`.
        call = self.__dict__[name] = self[name].__call__
        return call

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._library.function_names})

    def __repr__(self) -> str:
        return f"<native back end {self.name} {self.version} from {self.path}>"

    def close(self) -> None:
        """Give back what the library holds on its devices; otherwise the process's end does.

        Its functions cannot be called afterwards, by whomever; none may be running.
        """
        self._library.close()
