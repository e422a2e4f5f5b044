"""A library's own config at a small size, by the names that its sizes have.

Widths are made of the same few numbers everywhere, so that sizes which have to agree (a
projection's and a tower's, an encoder's and a decoder's) still do. What has no rule stays as the
library has it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

HEADS, HEAD, WIDTH, VOCABULARY, LAYERS = 4, 16, 64, 320, 2
SMALL_TOKEN = 2  # tokens with a meaning that would lie outside of the vocabulary begin here
# (names, number), the first that fits. WIDTH is HEADS heads of HEAD.
RULES: tuple[tuple[str, int], ...] = (
    (r"vocab_size(_.*)?|.*_vocab_size|n_vocab|num_embeddings", VOCABULARY),
    (r"(num_)?(hidden|encoder|decoder|attention|block|transformer)?_?layers?|n_layers?|depth"
     r"|num_(encoder|decoder|hidden|text|vision|audio|cross|perceiver)\w*_layers|(en|de)coder_layers"
     r"|num_hidden_blocks|num_blocks|num_layer|\w+_num_hidden_layers|num_\w*hidden_layers", LAYERS),
    (r"(num_)?(attention_|query_)?heads|n_heads?|num_heads|(en|de)coder_attention_heads"
     r"|num_\w*attention_heads|\w+_attention_heads", HEADS),
    (r"num_key_value_heads|num_kv_heads|n_kv_heads|multi_query_group_num", 2),
    (r"head_dim|d_kv|attention_head_dim|\w+_head_dim|d_head|kv_channels|attention_head_size", HEAD),
    (r"num_(local_|routed_)?experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok|moe_top_?k|num_selected_experts", 2),
    (r"num_queries|two_stage_num_proposals|num_query_tokens", 10),
    (r"n_group|topk_group|n_shared_experts|num_shared_experts|first_k_dense_replace", 1),
    (r"q_lora_rank|kv_lora_rank", 24),
    (r"(\w+_)?(intermediate_size|ffn_dim|ffn_hidden_size|inner_dim|d_ff|n_inner|mlp_dim)"
     r"|moe_intermediate_size|hidden_dim|dim_feedforward", 96),
    (r"(\w+_)?(hidden_size|d_model|embed_dim|n_embd|embedding_size|model_dim|projection_dim"
     r"|hidden_dims?|d_embed|emb_dim|width|dim)", WIDTH),
    (r"max_position_embeddings|n_positions|max_\w+_positions|max_sequence_length|n_ctx|max_seq_len",
     128),
)  # fmt: skip
DEPTHS = re.compile(r"(num_)?(depths?|blocks|layers_per_stage|layer_depths|layers)|encoder_depths")
TOKEN = re.compile(r".*token_(id|index)|.*_idx")
IMAGE = re.compile(r"image_size|img_size|input_size")
PATCHES = 4  # of an image's side


def small(config: Any, keep_widths: bool = False) -> Any:
    """A config of the same class with small sizes; with `keep_widths` only fewer layers and tokens.

    Raises what the class does with sizes that do not fit each other.
    """
    return type(config)(**_arguments(config, keep_widths))


def _arguments(config: Any, keep_widths: bool) -> dict[str, Any]:
    parameters = inspect.signature(type(config).__init__).parameters
    found: dict[str, Any] = {}
    for name, parameter in parameters.items():
        value = getattr(config, name, None)
        if name in ("self", "id2label", "label2id") or value is None:
            continue
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            found[name] = small(value, keep_widths)
        elif parameter.default is not inspect.Parameter.empty:
            is_derived = parameter.default is None and isinstance(value, list | dict | tuple)
            if not is_derived:
                found[name] = value
    layers = [found.get(name) for name in found if _rule(name) == LAYERS]
    for name, value in found.items():
        found[name] = _number(name, value, keep_widths)
    for name, value in list(found.items()):
        if isinstance(value, list | tuple) and len(value) in layers and name != "layers":
            found[name] = type(value)(value[:LAYERS])  # one entry a layer
    _fit(found, parameters)
    return found


def _rule(name: str) -> int | None:
    return next((number for names, number in RULES if re.fullmatch(names, name)), None)


def _number(name: str, value: Any, keep_widths: bool) -> Any:
    if type(value) is not int:
        if DEPTHS.fullmatch(name) and isinstance(value, list | tuple):
            return type(value)(min(each, 1) if type(each) is int else each for each in value)
        return value
    number = _rule(name)
    if number is None or number >= value:
        return value
    if keep_widths and number not in (VOCABULARY, LAYERS):
        return value
    return number


def _fit(found: dict[str, Any], parameters: Mapping[str, Any]) -> None:
    """Tokens inside the vocabulary, and images of a few patches."""
    vocabulary = found.get("vocab_size")
    sizes = [vocabulary] if isinstance(vocabulary, int) else []
    for value in found.values():
        subs = getattr(value, "vocab_size", None)
        if hasattr(value, "model_type") and isinstance(subs, int):
            sizes.append(subs)
    if sizes:
        number = SMALL_TOKEN
        for name, value in found.items():
            if TOKEN.fullmatch(name) and type(value) is int and value >= min(sizes):
                number += 1
                found[name] = number
    patch = found.get("patch_size")
    if isinstance(patch, int):
        for name in found:
            if IMAGE.fullmatch(name) and type(found[name]) is int:
                found[name] = min(found[name], PATCHES * patch)
