"""Models of transformers as specs: two lines for a causal language model.

from aotc.aot.huggingface import causal_step
model, example_inputs, dynamic_shapes = causal_step("folder", max_length=2048, batch=8)
"""

import importlib.util

from aotc.aot.huggingface.errors import TransformersMissing

for _name in ("transformers", "safetensors"):
    if importlib.util.find_spec(_name) is None:
        raise TransformersMissing(module=_name)

from aotc.aot.huggingface.causal import causal_lm, causal_step  # noqa: E402  imports transformers
from aotc.aot.huggingface.seq2seq import seq2seq  # noqa: E402

__all__ = ["causal_lm", "causal_step", "seq2seq"]
