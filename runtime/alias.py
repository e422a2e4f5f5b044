"""One runtime under two names: `runtime` and `aotc.runtime` are the same module objects.

Without this a second import of the same files would make second classes, and an
`except InputError` of one name would miss what the other raises.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PACKAGE = "aotc.runtime"


class _Second:
    """Finder and loader of the modules under the second name."""

    def __init__(self, name: str) -> None:
        self.prefix = name + "."

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if not name.startswith(self.prefix):
            return None
        assert __spec__ is not None
        return type(__spec__)(name, self)  # type: ignore[arg-type]  # all that the import asks for

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        found = PACKAGE + "." + spec.name.removeprefix(self.prefix)
        __import__(found)
        spec.loader_state = sys.modules[found].__spec__
        return sys.modules[found]

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # it has run, under the first name


def answer_to(name: str) -> None:
    """Make `name` and its submodules the modules of the installed `aotc.runtime`."""
    sys.modules[name] = sys.modules[PACKAGE]
    sys.meta_path.insert(0, _Second(name))
