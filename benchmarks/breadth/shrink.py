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
    (r"mamba_n_heads", 8),
    (r"mamba_d_head", HEAD),
    (r"rotary_dim", HEAD // 2),
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


def small(config: Any, keep_widths: bool = False, has_sections: bool = False) -> Any:
    """A config of the same class with small sizes; with `keep_widths` only fewer layers and tokens.

    With `has_sections` rotary positions have three sections of a small head, which some models take
    for granted. Raises what the class does with sizes that do not fit each other.
    """
    found = _arguments(config, keep_widths, has_sections)
    rope = _held(config, "rope_parameters")
    if has_sections and isinstance(rope, dict):
        total = int(HEAD // 2 * rope.get("partial_rotary_factor", 1))
        section = [total // 4, total * 3 // 8]
        found["rope_parameters"] = {**rope, "mrope_section": [*section, total - sum(section)]}
    return type(config)(**found)


def _arguments(config: Any, keep_widths: bool, has_sections: bool) -> dict[str, Any]:
    parameters = inspect.signature(type(config).__init__).parameters
    found: dict[str, Any] = {}
    for name, parameter in parameters.items():
        value = _held(config, name)
        if name in ("self", "id2label", "label2id") or value is None:
            continue
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            found[name] = small(value, keep_widths, has_sections)
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
    if not keep_widths:
        _fit_heads(found, config, parameters)
    _fit(found, parameters)
    return found


def _fit_heads(found: dict[str, Any], config: Any, names: Mapping[str, Any]) -> None:
    """As many heads of keys as of queries where that was so; sections of rotary positions, and
    heads of a state space, that make up what they did."""
    heads, keys = (_held(config, f"num_{each}_heads") for each in ("attention", "key_value"))
    if "num_key_value_heads" in found and heads == keys:
        found["num_key_value_heads"] = found["num_attention_heads"]
    if {"expand", "head_dim", "num_heads"} <= found.keys():
        found["expand"] = 1
    if "num_experts_per_tok" in names and "num_experts_per_tok" not in found:
        found["num_experts_per_tok"] = 2
    name = next((each for each in ("rope_parameters", "rope_scaling") if each in names), "")
    rope = _held(config, name) if name else None
    width = _held(config, "head_dim") or (_held(config, "hidden_size") or 0) // (heads or 1)
    if isinstance(rope, dict) and rope.get("mrope_section") and width:
        section = [each * HEAD // width for each in rope["mrope_section"]]
        section[-1] += sum(rope["mrope_section"]) * HEAD // width - sum(section)
        found[name] = {**rope, "mrope_section": section}


def _held(config: Any, name: str) -> Any:
    try:
        return getattr(config, name, None)
    except Exception:  # such as for an attribute that each layer has for itself
        return None


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
