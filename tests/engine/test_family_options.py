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
from support import tiny_hf
from support.engine_logits import largest_error
from support.tiny_families import VARIANTS, WINDOW
from support.tiny_hf import TinyDir

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
