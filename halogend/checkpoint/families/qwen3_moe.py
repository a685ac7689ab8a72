"""Qwen3-MoE: Qwen3 with experts in every layer, or in every n-th and not in those named dense."""

from __future__ import annotations

from halogend.checkpoint.families.family import Family, dense, read_experts, read_window
from halogend.checkpoint.geometry import Experts, Geometry
from halogend.checkpoint.parameters import Parameters


def read(p: Parameters) -> Geometry:
    return dense(
        p,
        "qwen3_moe",
        windows=_windows(p),
        qk_norm=True,
        qkv_bias=p.flag("qkv_bias", default=False),
        output_bias=p.flag("output_bias", default=False),
        experts=_experts(p),
    )


def _windows(p: Parameters) -> tuple[int | None, ...]:
    """One window for all layers, where it is switched on."""
    slides = not p.is_gguf and p.flag("window_switch", default=False)
    return (read_window(p) if slides else None,) * p.integer("layers", most=4096)


def _experts(p: Parameters) -> Experts:
    layers, ffn = p.integer("layers", most=4096), p.integer("expert_ffn")
    if p.is_gguf:  # llama.cpp's graph of this architecture always normalises
        return read_experts(p, ffn, normalised=True, layers=(True,) * layers)
    step, dense_layers = p.integer("expert_step", 1), set(p.integers("dense_layers"))
    has = tuple((index + 1) % step == 0 and index not in dense_layers for index in range(layers))
    return read_experts(p, ffn, normalised=p.flag("experts_normalised", default=False), layers=has)


FAMILY = Family(name="qwen3_moe", hf="Qwen3MoeForCausalLM", gguf="qwen3moe", read=read)
