"""Qwen2 and Qwen2.5: Llama with biases on Q, K and V; a window in the upper layers where it is
switched on."""

from __future__ import annotations

from halogend.checkpoint.families.family import Family, dense, layer_windows
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.parameters import Parameters


def read(p: Parameters) -> Geometry:
    return dense(p, "qwen2", windows=upper_windows(p), qkv_bias=True)


def upper_windows(p: Parameters) -> tuple[int | None, ...]:
    layers = p.integer("layers", most=4096)
    if p.is_gguf or not p.flag("window_switch", default=False):
        return (None,) * layers
    first = p.integer("window_from", layers, least=0)
    return layer_windows(p, layers, lambda index: index >= first)


FAMILY = Family(name="qwen2", hf="Qwen2ForCausalLM", gguf="qwen2", read=read)
