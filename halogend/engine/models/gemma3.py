"""Gemma 3: norms before and after each half of a layer, Q and K normalised per head before they are
turned, tanh-GELU gate, a sliding window in all but every sixth layer.

Norm weights are stored with their 1 already added.
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
    adjacent_pairs=False,
    query_norm="attn_q_norm",
    key_norm="attn_k_norm",
    attention_post_norm="post_attention_norm",
    ffn_post_norm="post_ffw_norm",
)
