"""Models of transformers as specs: two lines for a causal language model.

from aotc.aot.huggingface import causal_step
model, example_inputs, dynamic_shapes = causal_step("folder", max_length=2048, batch=8)
"""

import importlib
import importlib.util
from typing import Any

from aotc.aot.huggingface.errors import TransformersMissing

_PUBLIC = {  # name → its module, which imports transformers
    "causal_lm": "aotc.aot.huggingface.causal",
    "causal_step": "aotc.aot.huggingface.causal",
    "seq2seq": "aotc.aot.huggingface.encoder_decoder",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    """A public function; raises `TransformersMissing`."""
    if name not in _PUBLIC:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    for needed in ("transformers", "safetensors"):
        if importlib.util.find_spec(needed) is None:
            raise TransformersMissing(module=needed)
    return getattr(importlib.import_module(_PUBLIC[name]), name)
