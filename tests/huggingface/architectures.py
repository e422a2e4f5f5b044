"""Small random models of transformers, one for each architecture that the helper is proved on."""

import torch
import transformers

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
WINDOW = {"sliding_window": 6, "head_dim": 8}
# Name → (config class, model class, further fields).
ARCHITECTURES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 8}),
    "mistral": ("MistralConfig", "MistralForCausalLM", WINDOW),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {**WINDOW, "query_pre_attn_scalar": 8}),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {
            **WINDOW,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "phi": ("PhiConfig", "PhiForCausalLM", {}),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    ),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}),
    "glm": ("GlmConfig", "GlmForCausalLM", {"head_dim": 8}),
    "gpt_oss": (
        "GptOssConfig",
        "GptOssForCausalLM",
        {
            **WINDOW,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "mixtral": (
        "MixtralConfig",
        "MixtralForCausalLM",
        {"sliding_window": 6, "num_local_experts": 4},
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
        },
    ),
}


def make(name, positions=64):
    """A model in eval mode whose logits are far apart."""
    config_class, model_class, fields = ARCHITECTURES[name]
    torch.manual_seed(0)
    longest = dict.fromkeys(("max_position_embeddings", "n_positions"), positions)
    longest = {each: longest[each] for each in {**SIZES, **fields} if each in longest}
    config = getattr(transformers, config_class)(**{**SIZES, **fields, **longest})
    config.pad_token_id, config.bos_token_id, config.eos_token_id = 0, None, None
    model = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for each in model.parameters():
            if each.dim() > 1:
                each.mul_(8)
    return model


def continued(model, prompts, count):
    """What eager transformers generates greedily of each prompt by itself: `count` tokens, and by
    how much the best logit exceeded the next one."""
    found = []
    for prompt in prompts:
        result = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=count,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best = torch.stack(result.logits)[:, 0].topk(2).values
        tokens = result.sequences[0, len(prompt) :].tolist()
        found.append((tokens, (best[:, 0] - best[:, 1]).tolist()))
    return found
