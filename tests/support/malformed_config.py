"""Malformed config.json files, in Hugging Face directories that are sound otherwise."""

from __future__ import annotations

from collections.abc import Callable

from support.malformed_files import Folder, Link, as_json
from support.malformed_hf import CONFIG, mixture, sharded, with_config, without

_LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3_CONTEXT = {"original_max_position_embeddings": 64}
_VISION = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}
_SLIDING = {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 64}

CASES: dict[str, Callable[[], Folder]] = {
    "hf-config-missing": lambda: without(sharded(), "config.json"),
    "hf-config-empty": lambda: sharded() | {"config.json": b""},
    "hf-config-no-json": lambda: sharded() | {"config.json": as_json(CONFIG).replace(b'": 2,', b'": two,', 1)},
    "hf-config-a-list": lambda: sharded() | {"config.json": as_json([CONFIG])},
    "hf-config-key-twice": lambda: (
        sharded() | {"config.json": as_json(CONFIG).replace(b"{", b'{\n "hidden_size": 32,', 1)}
    ),
    "hf-config-dangling": lambda: sharded() | {"config.json": Link("../../blobs/2c26b46b68ffc68ff99b453c1d304134")},
    "hf-architectures-missing": lambda: with_config(architectures=...),
    "hf-architectures-two": lambda: with_config(architectures=["LlamaForCausalLM", "Qwen2ForCausalLM"]),
    "hf-architecture-vision": lambda: with_config(**_VISION),
    "hf-architecture-classifier": lambda: with_config(architectures=["LlamaForSequenceClassification"]),
    "hf-activation-unsupported": lambda: with_config(hidden_act="relu2"),
    "hf-mlp-bias": lambda: with_config(mlp_bias=True),
    "hf-rope-type-unsupported": lambda: with_config(rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    "hf-rope-llama3-without-factor": lambda: with_config(rope_scaling=_LLAMA3 | _LLAMA3_CONTEXT),
    "hf-rope-llama3-factors-swapped": lambda: with_config(
        rope_scaling=_LLAMA3 | _LLAMA3_CONTEXT | {"factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0}
    ),
    "hf-rope-yarn-beta-absurd": lambda: with_config(
        rope_scaling={"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e300}
    ),
    "hf-rope-no-object": lambda: with_config(rope_scaling="yarn"),
    "hf-rope-theta-text": lambda: with_config(rope_theta="1e6"),
    "hf-rope-longrope-list-too-short": lambda: with_config(
        rope_scaling={"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0], "long_factor": [1.0] * 4}
    ),
    "hf-layer-types-too-many": lambda: with_config(**_SLIDING, layer_types=["full_attention"] * 3),
    "hf-layer-types-unknown": lambda: with_config(**_SLIDING, layer_types=["full_attention", "linear_attention"]),
    "hf-window-zero": lambda: with_config(architectures=["MistralForCausalLM"], sliding_window=0),
    "hf-hidden-missing": lambda: with_config(hidden_size=...),
    "hf-layers-as-text": lambda: with_config(num_hidden_layers="2"),
    "hf-heads-zero": lambda: with_config(num_attention_heads=0),
    "hf-heads-not-dividing": lambda: with_config(num_attention_heads=3, head_dim=...),
    "hf-kv-heads-not-dividing": lambda: with_config(num_attention_heads=4, num_key_value_heads=3),
    "hf-epsilon-negative": lambda: with_config(rms_norm_eps=-1e-5),
    "hf-vocabulary-missing": lambda: with_config(vocab_size=...),
    "hf-tied-as-text": lambda: with_config(tie_word_embeddings="false"),
    "hf-experts-missing": lambda: mixture(num_experts=...),
    "hf-experts-used-too-many": lambda: mixture(num_experts_per_tok=3),
    "hf-experts-dense-layers-text": lambda: mixture(mlp_only_layers=["0"]),
    "hf-experts-fewer-than-stored": lambda: mixture(num_experts=1),
}
