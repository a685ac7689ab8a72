"""Llama: pre-norm layers, rotary positions in every layer, SiLU gate.

Converters write Q and K of this architecture with rotary pairs side by side.
"""

from __future__ import annotations

from halogend.engine.models.names import LayerNames

NAMES = LayerNames(
    attention_norm="attn_norm",
    query="attn_q",
    key="attn_k",
    value="attn_v",
    output="attn_output",
    ffn_norm="ffn_norm",
    gate="ffn_gate",
    up="ffn_up",
    down="ffn_down",
    adjacent_pairs=True,
)
