"""Qwen3: Qwen2 with Q and K normalised per head before they are turned, and biases only where the file
says so."""

from __future__ import annotations

from halogend.checkpoint.families.family import Family, dense
from halogend.checkpoint.families.qwen2 import upper_windows
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.parameters import Parameters

DEFAULT_HEAD_DIM = 128  # where config.json names none


def read(p: Parameters) -> Geometry:
    return dense(
        p,
        "qwen3",
        head_dim=None if p.is_gguf or p.has("head_dim") else DEFAULT_HEAD_DIM,
        windows=upper_windows(p),
        qk_norm=True,
        qkv_bias=p.flag("qkv_bias", default=False),
        output_bias=p.flag("output_bias", default=False),
    )


FAMILY = Family(name="qwen3", hf="Qwen3ForCausalLM", gguf="qwen3", read=read)
