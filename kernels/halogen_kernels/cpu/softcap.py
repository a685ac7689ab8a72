"""Attention with a soft cap on its scores, written out in float32: torch's fused product has none.

A prompt's rows are taken in tiles, one key/value head at a time, so that the scores held at once are
bounded however long the prompt is. Scores are needed whole rows at a time, for the softmax.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halogen_kernels.values import AttentionShape, Workspace

# Scores of a tile, 4 MiB of them: a prompt's later keys are not multiplied with its earlier rows. The scores of
# one position may exceed it.
TILE_VALUES = 1 << 20


@dataclass(frozen=True, slots=True)
class Reach:
    """Row r of a chunk sees places up to `start` + r of its context, and of those the last `window`."""

    start: int
    window: int | None

    def first(self, row: int) -> int:
        return 0 if self.window is None else max(0, self.start + row - self.window + 1)

    def end(self, row: int) -> int:
        return self.start + row + 1


def attend_group(queries: Tensor, context: Tensor, mask: Tensor, shape: AttentionShape, workspace: Workspace) -> Tensor:
    """[B, G, H/G, d] against `context` [B, L, 2, G, d] -> [B, H*d]; `mask` is float32 [B, 1, 1, L]."""
    count, length = context.shape[:2]
    wide = workspace.take("wide_context", (2, count, shape.kv_heads, length, shape.head_dim), torch.float32)
    keys, values = wide.copy_(context.permute(2, 0, 3, 1, 4)).unbind()
    scores = _capped(queries.float() @ keys.transpose(2, 3), shape).add_(mask)
    result = scores.softmax(-1) @ values
    return result.reshape(count, -1).to(queries.dtype)


def attend_chunk(queries: Tensor, context: Tensor, reach: Reach, shape: AttentionShape, workspace: Workspace) -> Tensor:
    """[n, H, d] against `context` [L, 2, G, d] -> [n, H*d]."""
    rows = len(queries)
    length = len(context)
    out = torch.empty(rows, shape.kv_heads, shape.group, shape.head_dim, dtype=queries.dtype)
    heads = queries.view(out.shape)
    tile = max(1, TILE_VALUES // (shape.group * length))
    for head in range(shape.kv_heads):
        wide = workspace.take("wide_context", (2, length, shape.head_dim), torch.float32)
        keys, values = wide.copy_(context[:, :, head].transpose(0, 1)).unbind()
        for row in range(0, rows, tile):
            stop = min(rows, row + tile)
            seen = slice(reach.first(row), reach.end(stop - 1))
            scores = _capped(heads[row:stop, head].float() @ keys[seen].t(), shape)
            scores.masked_fill_(_hidden(reach, row, stop, seen), float("-inf"))
            out[row:stop, head] = scores.softmax(-1) @ values[seen]
    return out.flatten(1)


def _capped(scores: Tensor, shape: AttentionShape) -> Tensor:
    return scores.mul_(shape.scale / shape.softcap).tanh_().mul_(shape.softcap)


def _hidden(reach: Reach, row: int, stop: int, seen: slice) -> Tensor:
    """Bool [stop - row, 1, places]: which places of `seen` each row does not see."""
    lasts = torch.arange(row, stop).view(-1, 1, 1) + reach.start
    places = torch.arange(seen.start, seen.stop)
    hidden = places > lasts
    return hidden if reach.window is None else hidden | (places <= lasts - reach.window)
