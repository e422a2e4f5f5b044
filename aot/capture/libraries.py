"""What capture knows of model libraries: types to register with torch.export, attributes to ignore.

transformers keeps the keys and values of attention in classes of its own, which it registers with
torch.export on request only; its models return them by default.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Registration:
    """A function of a library that registers types; with `of_model` it is given the model."""

    module: str
    function: str
    of_model: bool = False


# In order: what is registered first stays.
REGISTRATIONS = (
    Registration(
        "transformers.exporters.exporter_dynamo", "register_cache_pytrees_for_model", of_model=True
    ),
    # Of older versions. Its way back from arrays makes tensors, which decomposition trips over.
    Registration("transformers.integrations.executorch", "register_dynamic_cache_export_support"),
)

# Class → attributes that differ from one process to the next, and that no model computes with.
OF_THE_PROCESS = {
    # Python's own hash of a text, which is seeded anew each time.
    "transformers.generation.configuration_utils.GenerationConfig": ("_original_object_hash",)
}


def of_the_process(kind: type) -> tuple[str, ...]:
    """Names of a class's attributes that say nothing about an object."""
    return OF_THE_PROCESS.get(f"{kind.__module__}.{kind.__qualname__}", ())


def register_types(model: Any) -> None:
    """Have the libraries that the model is made of register their types.

    Versions that lack a function are left as they are: what they cannot flatten, export refuses.
    """
    libraries = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    for row in REGISTRATIONS:
        library = row.module.partition(".")[0]
        if library in libraries and library in sys.modules:
            register = _find(row)
            if register is not None:
                register(*([model] if row.of_model else []))


def _find(row: Registration) -> Callable[..., Any] | None:
    try:
        module = importlib.import_module(row.module)
    except ImportError:
        return None
    found: Callable[..., Any] | None = getattr(module, row.function, None)
    return found
