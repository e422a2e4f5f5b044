"""Models of transformers as specs: two lines for a causal language model.

from aotc.aot.huggingface import causal_lm
model, entry_points = causal_lm("folder", max_length=2048, batch=8)
"""

import importlib
from typing import Any

from aotc.aot.huggingface.errors import require_transformers

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
    require_transformers()
    return getattr(importlib.import_module(_PUBLIC[name]), name)
