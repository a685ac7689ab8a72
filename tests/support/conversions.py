"""What a converted checkpoint holds, decoded, and what its source holds in the same terms, found another way."""

from __future__ import annotations

from pathlib import Path

import torch
from support.file_bytes import FileBytes
from torch import Tensor

from halogend.checkpoint.checkpoint import Checkpoint, open_checkpoint
from halogend.engine.codecs import decode_rows


def decoded(path: Path) -> dict[str, Tensor]:
    """Every weight by its name, float32 [rows, columns]."""
    checkpoint = open_checkpoint(path)
    with FileBytes(checkpoint.files) as source:
        found = {}
        for name, weight in checkpoint.weights.items():
            parts = []
            for piece in weight.pieces:
                out = torch.full((piece.rows, weight.columns), float("nan"))
                decode_rows(piece.encoded, piece.first, piece.rows, out, source)
                parts.append(out)
            found[name] = torch.cat(parts)
    return found


def in_v2_terms(path: Path) -> dict[str, Tensor]:
    """The source's weights, rows of Q and K brought side by side one by one, norms as they are multiplied."""
    checkpoint = open_checkpoint(path)
    found = decoded(path)
    for name in found:
        if name.endswith("_norm"):
            found[name] = found[name] + checkpoint.norm_offset
        part = name.split(".", 2)[-1]
        if not checkpoint.adjacent_pairs and part.startswith(("attn_q", "attn_k")):
            found[name] = _side_by_side(checkpoint, name, found[name])
    return found


def _side_by_side(checkpoint: Checkpoint, name: str, rows: Tensor) -> Tensor:
    """In each head row i goes to place 2i and row i + turned / 2 to place 2i + 1."""
    geometry = checkpoint.geometry
    half = len(geometry.ropes[geometry.rope_of[int(name.split(".")[1])]].frequencies)
    out = rows.clone()
    for head in range(0, len(rows), geometry.head_dim):
        for pair in range(half):
            out[head + 2 * pair] = rows[head + pair]
            out[head + 2 * pair + 1] = rows[head + half + pair]
    return out
