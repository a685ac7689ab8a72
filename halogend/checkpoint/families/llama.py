"""Llama 2 and 3: pre-norm layers, rotary positions in every layer, SiLU gate.

GGUF files of this architecture hold Mistral and Mixtral models as well, with a window or experts.
"""

from __future__ import annotations

from typing import Any

from halogend.checkpoint.families.family import Family, dense, read_experts, read_window
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.parameters import Parameters


def read(p: Parameters) -> Geometry:
    if not p.is_gguf:
        if p.flag("mlp_bias", default=False):
            p.unsupported("mlp_bias", "is true; biases in the feed-forward are not supported")
        return _biased(p)
    layers, window = p.integer("layers", most=4096), read_window(p)
    has_experts = p.integer("experts", 0, least=0) > 0
    experts = read_experts(p, p.integer("ffn"), normalised=True, layers=(True,) * layers) if has_experts else None
    return _biased(p, windows=(window,) * layers, experts=experts)


def _biased(p: Parameters, **traits: Any) -> Geometry:
    qkv, output = p.flag("qkv_bias", default=False), p.flag("output_bias", default=False)
    return dense(p, "llama", qkv_bias=qkv, output_bias=output, **traits)


FAMILY = Family(name="llama", hf="LlamaForCausalLM", gguf="llama", read=read, adjacent_pairs=True)
