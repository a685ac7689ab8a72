"""What a configuration may say beside the usual, and that each such word is heard.

Options: logits of the engine against transformers. Faults: the same weights under a configuration
with one value changed give other logits, so the tiny models do exercise that value.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny_hf
from support.engine_logits import engine_logits, largest_error, oracle_logits
from support.tiny_families import VARIANTS, WINDOW
from support.tiny_hf import TinyDir
from support.tiny_layouts import old_config

from halogend.checkpoint.checkpoint import open_checkpoint
from halogend.checkpoint.errors import ARCHITECTURE_UNSUPPORTED, CheckpointError

TOLERANCE = 2e-5  # of the largest logit
_YARN = VARIANTS["llama-yarn"].config["rope_parameters"]
_LONG = VARIANTS["phi3-longrope"].config["rope_parameters"]
_SLIDING, _FULL = "sliding_attention", "full_attention"

OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "more-key-heads": ("llama", {"num_key_value_heads": 4}),
    "one-key-head": ("qwen3", {"num_key_value_heads": 1}),
    "wide-heads": ("mistral", {"head_dim": 32}),
    "qwen3-bias": ("qwen3", {"attention_bias": True}),
    "epsilon": ("llama", {"rms_norm_eps": 1e-2}),
    "rope-base": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "yarn-bands": ("llama-yarn", {"rope_parameters": {**_YARN, "beta_fast": 4.0, "beta_slow": 0.5}}),
    "yarn-not-truncated": ("llama-yarn", {"rope_parameters": {**_YARN, "beta_fast": 6.0, "truncate": False}}),
    "yarn-magnitude": ("llama-yarn", {"rope_parameters": {**_YARN, "attention_factor": 1.4}}),
    "yarn-qwen2": ("qwen2", {"rope_parameters": _YARN}),
    "yarn-qwen3_moe": ("qwen3_moe", {"rope_parameters": _YARN}),
    "longrope-magnitude": ("phi3-longrope", {"rope_parameters": {**_LONG, "attention_factor": 0.8}}),
    "mixtral-window": ("mixtral", {"sliding_window": WINDOW}),
    "qwen3-window": ("qwen3", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "qwen3_moe-window": ("qwen3_moe", {"use_sliding_window": True, "sliding_window": WINDOW}),
    "qwen2-window-off": ("qwen2", {"use_sliding_window": False, "sliding_window": WINDOW, "max_window_layers": 0}),
    "one-expert": ("qwen3_moe", {"num_experts_per_tok": 1}),
    "every-expert": ("mixtral", {"num_experts_per_tok": 3}),
    "gemma2-no-caps": ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gemma2-query-scale": ("gemma2", {"query_pre_attn_scalar": 40}),
    "gemma3-query-scale": ("gemma3_text", {"query_pre_attn_scalar": 40}),
    "gemma3-layers": ("gemma3_text", {"layer_types": [_FULL, _SLIDING, _SLIDING, _FULL, _SLIDING, _FULL]}),
    "gemma3-final-cap": ("gemma3_text", {"final_logit_softcapping": 6.0}),
}

FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "window-less": ("mistral", {"sliding_window": WINDOW - 1}),
    "window-more": ("phi3-window", {"sliding_window": WINDOW + 1}),
    "window-layers": ("qwen2-window", {"layer_types": [_FULL, _SLIDING, _SLIDING]}),
    "gemma2-layers": ("gemma2", {"layer_types": [_FULL, _SLIDING, _FULL, _SLIDING]}),
    "attention-cap": ("gemma2", {"attn_logit_softcapping": 4.0}),
    "final-cap": ("gemma2", {"final_logit_softcapping": 9.0}),
    "query-scale": ("gemma3_text", {"query_pre_attn_scalar": 17}),
    "normalised": ("qwen3_moe", {"norm_topk_prob": False}),
    "not-normalised": ("qwen3_moe-mixed", {"norm_topk_prob": True}),
    "experts-used": ("mixtral", {"num_experts_per_tok": 1}),
    "epsilon": ("llama", {"rms_norm_eps": 1e-3}),
    "yarn-factor": ("llama-yarn", {"rope_parameters": {**_YARN, "factor": 7.0}}),
    "longrope-magnitude": ("phi3-longrope", {"rope_parameters": {**_LONG, "attention_factor": 1.0}}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_option(tmp_path: Path, option: str) -> None:
    name, overrides = OPTIONS[option]
    assert largest_error(tiny_hf.make(name, tmp_path / "hf", seed=3, **overrides)) < TOLERANCE


@pytest.mark.parametrize("original", [64, None])
def test_a_context_that_yarn_is_switched_on_for(tmp_path: Path, original: int | None) -> None:
    """As Qwen's cards tell it: `rope_scaling` is added, and `max_position_embeddings` left as it was."""
    tiny = tiny_hf.make("qwen2", tmp_path / "hf", seed=3, max_position_embeddings=64)
    scaling = {"factor": 4.0, "original_max_position_embeddings": original, "type": "yarn"}
    config = old_config(tiny.config) | {"rope_scaling": {key: value for key, value in scaling.items() if value}}
    switched = changed(tiny, tmp_path / "switched", config)
    (switched.path / "config.json").write_text(json.dumps(config))
    assert open_checkpoint(tiny.path).geometry.context_length == 64
    assert open_checkpoint(switched.path).geometry.context_length == 256
    tokens = torch.randint(3, tiny.vocab_size, (250,), generator=torch.Generator().manual_seed(0)).tolist()
    expected = oracle_logits(replace(switched, source=switched.path), tokens)
    error = (engine_logits(switched.path, tokens) - expected).abs().max() / expected.abs().max()
    assert error < TOLERANCE


# What transformers has for keys that config.json leaves out, where that is not what null means.
LEFT_OUT = {
    "gemma2": ("attn_logit_softcapping", "final_logit_softcapping", "head_dim", "query_pre_attn_scalar"),
    "gemma3_text": ("head_dim", "query_pre_attn_scalar", "num_attention_heads", "num_key_value_heads", "rms_norm_eps"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_keys_that_are_left_out(tmp_path: Path, name: str) -> None:
    usual = {"head_dim": 256, "query_pre_attn_scalar": 256, "num_attention_heads": 8, "num_key_value_heads": 4}
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0} if name == "gemma2" else {}
    tiny = tiny_hf.make(name, tmp_path / "hf", seed=3, rms_norm_eps=1e-6, **usual, **caps)
    left = changed(tiny, tmp_path / "left", {})
    config = {key: value for key, value in tiny.config.items() if key not in LEFT_OUT[name]}
    (left.path / "config.json").write_text(json.dumps(config))
    assert largest_error(left) < TOLERANCE
    without = {"sliding_window", "max_position_embeddings"} if name == "gemma3_text" else {"sliding_window"}
    (left.path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k not in without}))
    geometry = open_checkpoint(left.path).geometry
    assert geometry.windows[0] == 4096
    assert geometry.context_length == (131_072 if "max_position_embeddings" in without else 512)


@pytest.mark.parametrize("name", ["gemma2", "gemma3_text"])
def test_models_that_look_ahead_are_refused(tmp_path: Path, name: str) -> None:
    tiny = tiny_hf.make(name, tmp_path / "hf", seed=3)
    with pytest.raises(CheckpointError, match="'use_bidirectional_attention' is true") as caught:
        open_checkpoint(changed(tiny, tmp_path / "ahead", {"use_bidirectional_attention": True}).path)
    assert caught.value.code == ARCHITECTURE_UNSUPPORTED
    open_checkpoint(changed(tiny, tmp_path / "causal", {"use_bidirectional_attention": False}).path)


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_seen(tmp_path: Path, fault: str) -> None:
    name, changes = FAULTS[fault]
    tiny = tiny_hf.make(name, tmp_path / "hf", seed=3)
    assert largest_error(changed(tiny, tmp_path / "changed", changes)) > 20 * TOLERANCE


def changed(tiny: TinyDir, path: Path, changes: dict[str, Any]) -> TinyDir:
    """The same directory with other values in config.json, and the oracle of the first."""
    shutil.copytree(tiny.path, path)
    (path / "config.json").write_text(json.dumps({**tiny.config, **changes}))
    return replace(tiny, path=path)
