"""Taking packed codes apart, many blocks at a time: the steps that GGML's block types share.

A type's decoder turns blocks (uint8 [n, bytes of a block]) into `Scaled`: small whole numbers and
what they are multiplied with. Tables of 256 entries hold a byte's several codes packed into one wide
integer, so that one look-up gives them all.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Scaled(NamedTuple):
    """A block's elements are `codes` (int8 or uint8 [n, groups, width]) times `scales`, plus `offsets`
    (both float32 [n, groups or 1, 1]; no offsets: nothing is added), in this order of rounding."""

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None = None


def halves(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte `at` (even) of each block, float32 [n, 1, 1]."""
    return blocks.view(torch.float16)[:, at // 2].float().view(-1, 1, 1)


def words(blocks: Tensor, first: int, last: int, dtype: torch.dtype) -> Tensor:
    """Bytes `first` to `last - 1` of each block as whole numbers of `dtype`, little-endian."""
    # A copy even of what is contiguous, as one block's bytes are: they may lie at any address.
    return blocks[:, first:last].clone(memory_format=torch.contiguous_format).view(dtype)


def planes(packed: Tensor, bits: int, at: int = 0) -> Tensor:
    """[..., w] bytes -> [..., 8 / bits, w]: the lowest `bits` of each byte, then the next, and so on, each
    moved to bit `at`."""
    packed = packed.contiguous()  # a part of each block: the steps below are then one long run each
    mask = ((1 << bits) - 1) << at
    return torch.stack([_moved(packed, at - first).bitwise_and_(mask) for first in range(0, 8, bits)], dim=-2)


def _moved(packed: Tensor, up: int) -> Tensor:
    return packed << up if up >= 0 else packed >> -up


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """`table` (one dimension) at each whole number of `index`, in its shape."""
    return table.index_select(0, index.reshape(-1).int()).view(index.shape)


def unpacked(table: Tensor, index: Tensor) -> Tensor:
    """Like `look_up` for a table of wide integers: int8 [..., w * bytes of an entry] for [..., w]."""
    return look_up(table, index).view(torch.int8)


def pack(codes: Tensor) -> Tensor:
    """Whole numbers [entries, 4 or 8] -> one int32 or int64 an entry, to be looked up and viewed as int8 again."""
    codes = codes.to(torch.int8).contiguous()
    return codes.view({4: torch.int32, 8: torch.int64}[codes.shape[1]]).view(-1)


def bit_table(clear: int, set_: int) -> Tensor:
    """For each byte its eight bits, the lowest first, as `clear` or `set_`."""
    bits = (torch.arange(256).unsqueeze(1) >> torch.arange(8)) & 1
    return pack(bits * (set_ - clear) + clear)
