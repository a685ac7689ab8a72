"""Attention over a gathered context with torch's fused product. Letters and masks as in `attention`."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from halogen_kernels.values import AttentionShape


def attend_group(queries: Tensor, context: Tensor, mask: Tensor, shape: AttentionShape) -> Tensor:
    """[B, G, H/G, d] against `context` [B, L, 2, G, d] -> [B, H*d]."""
    keys, values = context.permute(2, 0, 3, 1, 4).unbind()
    result = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=shape.scale)
    return result.reshape(queries.shape[0], -1)


def attend_chunk(queries: Tensor, context: Tensor, mask: Tensor | None, shape: AttentionShape) -> Tensor:
    """[n, H, d] against `context` [L, 2, G, d] -> [n, H*d]; causal without a mask, and then n is L."""
    keys, values = context.unsqueeze(3).permute(1, 2, 3, 0, 4).expand(-1, -1, shape.group, -1, -1).unbind()
    heads = queries.view(-1, shape.kv_heads, shape.group, shape.head_dim).permute(1, 2, 0, 3)
    result = F.scaled_dot_product_attention(
        heads, keys, values, attn_mask=mask, is_causal=mask is None, scale=shape.scale
    )
    return result.permute(2, 0, 1, 3).reshape(queries.shape[0], -1)
