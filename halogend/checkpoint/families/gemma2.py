"""Gemma 2: norms before and after each half of a layer, tanh-GELU gate, a window in every other layer,
soft caps on scores and logits.

Norm weights are stored less 1 in Hugging Face directories. The GGUF converter writes neither the
pattern nor the scale of queries.
"""

from __future__ import annotations

import math

from halogend.checkpoint.families.family import HF_SANDWICH, Family, dense, layer_windows, read_activation
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.parameters import Parameters

_GGUF_WINDOW = 4096  # llama.cpp's, where the file has none
_27B_LAYERS = 46  # the one size whose query scale is not head_dim ** -0.5


def read(p: Parameters) -> Geometry:
    layers = p.integer("layers", most=4096)
    check_causal(p)
    return dense(
        p,
        "gemma2",
        tied=True,
        windows=layer_windows(p, layers, lambda index: index % 2 == 0, usual=_GGUF_WINDOW if p.is_gguf else 0),
        query_scale=query_scale(p, layers == _27B_LAYERS),
        embedding_scale=math.sqrt(p.integer("hidden")),
        attention_softcap=soft_cap(p, "attention_softcap", 50.0 if p.is_gguf else 0.0),
        logits_softcap=soft_cap(p, "logits_softcap", 30.0 if p.is_gguf else 0.0),
        activation=read_activation(p, "gelu_pytorch_tanh"),
        qkv_bias=p.flag("qkv_bias", default=False),
        output_bias=p.flag("output_bias", default=False),
        post_norms=True,
    )


def soft_cap(p: Parameters, name: str, usual: float = 0.0) -> float:
    """0 is off."""
    return p.positive(name, usual, or_zero=True)


def check_causal(p: Parameters) -> None:
    """Both families have models that embed texts, whose tokens see what comes after them."""
    if not p.is_gguf and p.flag("bidirectional", default=False):
        p.unsupported("bidirectional", "is true; only causal attention is supported")


def query_scale(p: Parameters, is_largest: bool) -> float:
    """What config.json states; by the published constants where a GGUF file cannot."""
    heads, hidden = p.integer("heads"), p.integer("hidden")
    usual = hidden / heads if is_largest else p.integer("head_dim", hidden // heads)
    scalar = usual if p.is_gguf else p.positive("query_scalar", usual)
    return float(scalar**-0.5)


FAMILY = Family(
    name="gemma2",
    hf="Gemma2ForCausalLM",
    gguf="gemma2",
    read=read,
    hf_layer=HF_SANDWICH,
    norm_offset=1.0,
    keys={"activation": "hidden_activation"},
    defaults={
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
)
