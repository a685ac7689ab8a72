"""Gemma 3: Gemma 2 without soft caps, with Q and K normalised per head, a window in all but every sixth
layer, and another rotary base in the layers that have one.

The GGUF converter writes neither the pattern nor the local base.
"""

from __future__ import annotations

import math
from dataclasses import replace

from halogend.checkpoint.families.family import (
    HF_SANDWICH,
    Family,
    TextPart,
    dense,
    layer_windows,
    read_activation,
    read_head_dim,
)
from halogend.checkpoint.families.gemma2 import check_causal, query_scale, soft_cap
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.parameters import Parameters

_PATTERN = 6
_LOCAL_BASE, _GLOBAL_BASE = 10_000.0, 1_000_000.0
_27B_LAYERS = 62


def read(p: Parameters) -> Geometry:
    check_causal(p)
    layers = p.integer("layers", most=4096)
    pattern = p.integer("window_pattern", _PATTERN, most=4096)
    windows = layer_windows(p, layers, lambda index: (index + 1) % pattern != 0)
    head_dim = read_head_dim(p, p.integer("hidden"), p.integer("heads"))
    base = 10_000.0 if p.is_gguf else _GLOBAL_BASE
    return dense(
        p,
        "gemma3",
        tied=True,
        windows=windows,
        ropes=(p.rope("global", head_dim, base=base), p.rope("local", head_dim, base=_LOCAL_BASE)),
        rope_of=tuple(0 if window is None else 1 for window in windows),
        query_scale=query_scale(p, layers == _27B_LAYERS),
        embedding_scale=math.sqrt(p.integer("hidden")),
        activation=read_activation(p, "gelu_pytorch_tanh"),
        attention_softcap=soft_cap(p, "attention_softcap"),
        logits_softcap=soft_cap(p, "logits_softcap"),
        qk_norm=True,
        post_norms=True,
    )


FAMILY = Family(
    name="gemma3",
    hf="Gemma3ForCausalLM",
    gguf="gemma3",
    read=read,
    hf_layer=HF_SANDWICH,
    norm_offset=1.0,
    keys={"activation": "hidden_activation"},
    defaults={
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6,
    },
)

# The sizes that see: only their text model is read.
MULTIMODAL = replace(
    FAMILY,
    hf="Gemma3ForConditionalGeneration",
    text_part=TextPart(
        "text_config",
        {"language_model.model.": "model.", "language_model.lm_head.": "lm_head.", "model.language_model.": "model."},
        ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."),
    ),
)
