"""The names under which an architecture's files hold a layer's tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Each name is the part between `blk.N.` and `.weight`; None is a step the architecture has not.

    `adjacent_pairs` says that the file holds the rows of Q and K with the two values of a rotary pair
    side by side (2i and 2i+1), which is how the kernels turn them; otherwise they lie half a head
    apart (i and i + d/2) and are brought together at load. Scores do not change: Q and K are
    reordered alike.
    """

    attention_norm: str
    query: str
    key: str
    value: str
    output: str
    ffn_norm: str
    gate: str
    up: str
    down: str
    adjacent_pairs: bool
    query_norm: str | None = None
    key_norm: str | None = None
    attention_post_norm: str | None = None
    ffn_post_norm: str | None = None
