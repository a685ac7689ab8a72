"""A model's shape: what memory planning and the engine both need, whatever format it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from halogend.checkpoint.rope import Rope

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture: `used` of `count` feed-forwards of width `ffn` take part for each token. `normalised`:
    their weights are made to sum to 1. `layers[i]` says that layer i has experts."""

    count: int
    used: int
    ffn: int
    normalised: bool
    layers: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Layer i attends to the last `windows[i]` positions, itself included (None: to all), and turns with
    `ropes[rope_of[i]]`. A soft cap of 0 is off. `qkv_bias` and `output_bias` are of attention.
    `post_norms`: what attention and feed-forward give is normalised before it is added.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_length: int
    rms_eps: float
    windows: tuple[int | None, ...]
    ropes: tuple[Rope, ...]
    rope_of: tuple[int, ...]
    query_scale: float
    tied_embeddings: bool
    activation: Activation = "silu"
    embedding_scale: float = 1.0
    attention_softcap: float = 0.0
    logits_softcap: float = 0.0
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    post_norms: bool = False
    experts: Experts | None = None

    def is_stretched(self, context: int) -> bool:
        """Whether requests of up to `context` positions need angles made for more than the original
        context. Positions turned one way cannot be attended to from positions turned the other."""
        return any(rope.reaches(context) for rope in self.ropes)

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and self.experts.layers[layer]
