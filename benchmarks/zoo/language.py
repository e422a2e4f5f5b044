"""Rows of language models."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.inputs import text, text_pair, tokens
from benchmarks.zoo.row import Row, Size, library

_TEXT = {"batch": 2, "length": 32, "vocabulary": 512}
_LONG = {"batch": 1, "length": 128, "vocabulary": 30000}
_TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 512,
}
_TINY_DECODER = {**_TINY, "num_key_value_heads": 2, "max_position_embeddings": 128}
_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

ENCODERS = (
    Row("bert", library("BertModel", "BertConfig"), text, Size(_TINY, _TEXT), Size({}, _LONG)),
    Row(
        "distilbert",
        library("DistilBertModel", "DistilBertConfig"),
        text,
        Size({"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": 512}, _TEXT),
        Size({}, _LONG),
    ),
    Row(
        "roberta",
        library("RobertaForSequenceClassification", "RobertaConfig"),
        text,
        Size(_TINY, _TEXT),
        Size({"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}, _LONG),
    ),
    Row(
        "modernbert",
        library("ModernBertModel", "ModernBertConfig", reference_compile=False),
        text,
        Size({**_TINY, "num_hidden_layers": 3, "local_attention": 16, "pad_token_id": 0,
              "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}, _TEXT),
        Size({}, _LONG),
    ),
)  # fmt: skip

DECODERS = (
    Row(
        "gpt2",
        library("GPT2LMHeadModel", "GPT2Config", use_cache=False),
        tokens,
        Size({"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 128},
             _TEXT),
        Size({}, _LONG),
    ),
    Row(
        "llama",
        library("LlamaForCausalLM", "LlamaConfig", use_cache=False, rope_parameters=_ROPE),
        text,
        Size(_TINY_DECODER, _TEXT),
        Size({"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
              "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256}, _LONG),
    ),
    Row(
        "mistral",
        library("MistralForCausalLM", "MistralConfig", use_cache=False, sliding_window=16),
        tokens,
        Size(_TINY_DECODER, _TEXT),
        Size({"hidden_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 16,
              "num_key_value_heads": 4, "intermediate_size": 7168}, _LONG),
    ),
    Row(
        "qwen3",
        library("Qwen3ForCausalLM", "Qwen3Config", use_cache=False),
        tokens,
        Size({**_TINY_DECODER, "head_dim": 16}, _TEXT),
        Size({"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
              "num_key_value_heads": 8, "intermediate_size": 3072, "head_dim": 128}, _LONG),
    ),
    Row(
        "gemma",
        library("GemmaForCausalLM", "GemmaConfig", use_cache=False),
        tokens,
        Size({**_TINY_DECODER, "num_key_value_heads": 1, "head_dim": 32}, _TEXT),
        Size({"hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8,
              "num_key_value_heads": 1, "intermediate_size": 16384}, _LONG),
    ),
    Row(
        "phi",
        library("PhiForCausalLM", "PhiConfig", use_cache=False),
        tokens,
        Size({**_TINY_DECODER, "num_key_value_heads": 4}, _TEXT),
        Size({"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
              "intermediate_size": 8192}, _LONG),
    ),
    Row(
        "mixtral",
        library("MixtralForCausalLM", "MixtralConfig", use_cache=False,
                experts_implementation="batched_mm"),
        tokens,
        Size({**_TINY_DECODER, "num_local_experts": 4}, _TEXT),
        Size({"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
              "num_key_value_heads": 4, "intermediate_size": 2048}, {**_LONG, "length": 32}),
    ),
    Row(
        "mamba",
        library("MambaModel", "MambaConfig", use_cache=False),
        tokens,
        Size({"hidden_size": 64, "state_size": 8, "num_hidden_layers": 2, "vocab_size": 512},
             {**_TEXT, "length": 12}),
        Size({"num_hidden_layers": 24}, {**_LONG, "length": 32}),
    ),
)  # fmt: skip

PAIRS = (
    Row(
        "t5",
        library("T5Model", "T5Config", use_cache=False),
        text_pair,
        Size({"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
              "vocab_size": 512}, {**_TEXT, "target": 16}),
        Size({}, {**_LONG, "target": 64}),
    ),
)  # fmt: skip
