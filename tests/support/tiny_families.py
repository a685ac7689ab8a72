"""The tiny models that stand for each architecture: their configurations as transformers takes them.

A variant's name is its family's, with what is special about it behind a dash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WINDOW = 16
CONTEXT = 512
ORIGINAL_CONTEXT = 64  # of the models whose RoPE is scaled

_ROPE_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL_CONTEXT,
}
_ROPE_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "original_max_position_embeddings": ORIGINAL_CONTEXT,
}
_ROPE_LONG = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
    "long_factor": [1.2, 1.9, 3.0, 4.8, 7.5, 12.0],
}


@dataclass(frozen=True)
class Variant:
    """`model` is the prefix of transformers' classes. `extra_rows` are rows of the embedding table
    that no token has. `gemma` says that norms hold their distance from one."""

    model: str
    config: dict[str, Any] = field(default_factory=dict)
    extra_rows: int = 0
    spm: bool = False
    gemma: bool = False


def _gemma(model: str, **config: Any) -> Variant:
    return Variant(model, {"head_dim": 16, "sliding_window": WINDOW, **config}, spm=True, gemma=True)


VARIANTS: dict[str, Variant] = {
    "llama": Variant("Llama", {"tie_word_embeddings": True}),
    "llama-llama3": Variant("Llama", {"rope_parameters": _ROPE_LLAMA3}),
    "llama-linear": Variant(
        "Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}}
    ),
    "llama-yarn": Variant("Llama", {"rope_parameters": _ROPE_YARN}),
    "llama-bias": Variant("Llama", {"attention_bias": True, "head_dim": 24}),
    "mistral": Variant("Mistral", {"sliding_window": WINDOW}, spm=True),
    "mistral-full": Variant("Mistral", {"sliding_window": None}, spm=True),
    "qwen2": Variant("Qwen2", {"tie_word_embeddings": True}, extra_rows=26),
    "qwen2-window": Variant("Qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2}),
    "qwen3": Variant("Qwen3", {"head_dim": 24}, extra_rows=10),
    "qwen3_moe": Variant(
        "Qwen3Moe",
        {
            "head_dim": 16,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "norm_topk_prob": True,
        },
    ),
    "qwen3_moe-mixed": Variant(
        "Qwen3Moe",
        {
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "norm_topk_prob": False,
            "num_hidden_layers": 4,  # of which the last alone has experts
            "decoder_sparse_step": 2,
            "mlp_only_layers": [1],
        },
    ),
    "mixtral": Variant("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}, spm=True),
    "gemma2": _gemma(
        "Gemma2", attn_logit_softcapping=3.0, final_logit_softcapping=8.0, query_pre_attn_scalar=16, num_hidden_layers=4
    ),
    "gemma3_text": _gemma(
        "Gemma3",
        query_pre_attn_scalar=16,
        num_hidden_layers=6,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    ),
    "phi3": Variant("Phi3", {"original_max_position_embeddings": CONTEXT, "pad_token_id": 0}, spm=True),
    "phi3-window": Variant(
        "Phi3", {"original_max_position_embeddings": CONTEXT, "pad_token_id": 0, "sliding_window": WINDOW}, spm=True
    ),
    "phi3-longrope": Variant(
        "Phi3",
        {
            "original_max_position_embeddings": ORIGINAL_CONTEXT,
            "pad_token_id": 0,
            "rope_parameters": _ROPE_LONG,
            "tie_word_embeddings": True,
        },
    ),
}

COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
}

# Variants that a GGUF file of their architecture can say in full: Mistral's and Qwen2's windows have
# no key there, Qwen3-MoE's layers without experts no tensor, and its routing is always normalised.
IN_GGUF = tuple(name for name in VARIANTS if name not in ("mistral", "qwen2-window", "qwen3_moe-mixed"))
