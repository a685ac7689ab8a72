"""One layer's keys and values on a device: chunks, each an allocation of its own, found through a table.

    addresses   | 0x7f..00 | 0x7f..00 | 0 | 0x7f..00 |     int64, one a chunk, 0 for none
                     |
    chunk       | block | block | ...                      chunk_blocks of them, a power of two
                     |
    block       | position: G K heads, G V heads | ...     block_tokens of them, each 2 * G * d values

A pool grows and shrinks by entries of the table: kernels read it anew each time. Keys and values of fewer bits
have a float32 scale for each head of a position, [block_tokens, 2, G] a block, in chunks of their own. Must never
know which sequence a block belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CODED = (torch.float8_e4m3fn, torch.int8)
"""What has scales: a value is its code times its head's scale."""
HELD = (torch.bfloat16, torch.float16, torch.float32, *CODED)
CHUNK_VALUES = (1 << 31) - 1
"""At most so many values a chunk: places within one are counted in 32 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedCache:
    """What `write_kv` and `attend` take as a layer's cache on a device.

    `addresses` int64 [chunks] holds where each chunk starts, a multiple of 16, or 0; block b lies in chunk
    b // `chunk_blocks`. `dtype` is one of HELD; `scale_addresses` is there if it is one of CODED. The memory is the
    maker's, and lives as long as an address to it is in the table. Raises ValueError for what kernels cannot read.
    """

    addresses: Tensor
    chunk_blocks: int
    block_tokens: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    scale_addresses: Tensor | None = None

    def __post_init__(self) -> None:
        if self.dtype not in HELD:
            raise ValueError(f"no kernel reads keys and values in {self.dtype}")
        if (self.scale_addresses is not None) != (self.dtype in CODED):
            raise ValueError(f"keys and values in {self.dtype} have {'' if self.dtype in CODED else 'no '}scales")
        if self.chunk_blocks & (self.chunk_blocks - 1) or self.block_tokens & (self.block_tokens - 1):
            raise ValueError(f"{self.chunk_blocks} blocks of {self.block_tokens}: not powers of two")
        if self.chunk_blocks * self.block_tokens * self.kv_width > CHUNK_VALUES:
            raise ValueError(f"a chunk of {self.chunk_blocks} blocks has more than {CHUNK_VALUES} values")

    @property
    def kv_width(self) -> int:
        """Values of one position."""
        return 2 * self.kv_heads * self.head_dim

    @property
    def device(self) -> torch.device:
        return self.addresses.device

    @property
    def chunk_shift(self) -> int:
        """Binary logarithm of `chunk_blocks`."""
        return self.chunk_blocks.bit_length() - 1


def over_chunks(
    chunks: Sequence[Tensor | None], block_tokens: int, head_dim: int, scales: Sequence[Tensor | None] = ()
) -> ChunkedCache:
    """A cache over chunks that the caller keeps, each contiguous [blocks, block_tokens * 2 * G * d], of the same
    blocks, dtype and device, None where there is none; `scales` likewise, float32 [blocks, block_tokens * 2 * G]."""
    first = next(chunk for chunk in chunks if chunk is not None)
    return ChunkedCache(
        addresses=addresses_of(chunks, first.device),
        chunk_blocks=first.shape[0],
        block_tokens=block_tokens,
        kv_heads=first.shape[1] // (2 * block_tokens * head_dim),
        head_dim=head_dim,
        dtype=first.dtype,
        scale_addresses=addresses_of(scales, first.device) if scales else None,
    )


def addresses_of(chunks: Sequence[Tensor | None], device: torch.device) -> Tensor:
    """The table of these chunks, int64 [chunks]."""
    return torch.tensor([0 if chunk is None else chunk.data_ptr() for chunk in chunks], dtype=torch.int64).to(device)
