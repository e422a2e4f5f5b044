"""Models of transformers as specs: two lines for a causal language model.

    from aotc.aot.huggingface import causal_lm
    model, entry_points = causal_lm("folder", max_length=2048, batch=8)
"""

from aotc.aot.huggingface.errors import TransformersMissing

try:
    import safetensors as _
    import transformers as _  # noqa: F811  both are only looked for
except ImportError as error:
    raise TransformersMissing(module=error.name) from error

from aotc.aot.huggingface.causal import causal_lm

__all__ = ["causal_lm"]
