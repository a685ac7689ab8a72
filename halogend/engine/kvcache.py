"""The KV pool's memory: an address range reserved once, touched only as blocks are used.

    place 0: | block 0 | block 1 | ...            | up to the reserve, padded to a page |
    place 1: | block 0 | block 1 | ...

A block holds BLOCK_TOKENS positions, each its K heads and then its V heads, for every layer of one
table: place i is the table's layer i. Blocks are handed out lowest first elsewhere, so the memory in
use grows with use. Must never know which sequence or which table a block belongs to.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from halogend.sched.blocks import BLOCK_TOKENS

_MAP_NORESERVE = 0x4000  # Linux; the mmap module has no name for it before Python 3.13


class KvCache:
    """One replica's pool. Single writer: the runner's thread.

    `layers[i]`, of place i, is [reserve_blocks, BLOCK_TOKENS * kv_width], contiguous: what the attention kernels
    read. `kv_width` is 2 * kv_heads * head_dim. Raises OSError if the range cannot be reserved.
    """

    def __init__(self, layer_count: int, kv_width: int, dtype: torch.dtype, reserve_blocks: int) -> None:
        width = BLOCK_TOKENS * kv_width
        self.row_bytes = width * dtype.itemsize
        self.block_bytes = self.row_bytes * layer_count
        self.reserve_blocks = reserve_blocks
        self.dtype = dtype
        self._layer_bytes = _page_ceil(reserve_blocks * self.row_bytes)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._memory = mmap.mmap(-1, layer_count * self._layer_bytes, flags=flags)
        # Huge pages would be touched 2 MiB at a time in every layer.
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        flat = torch.frombuffer(self._memory, dtype=dtype)
        stride = self._layer_bytes // dtype.itemsize
        self._pool = torch.as_strided(flat, (layer_count, reserve_blocks, width), (stride, width, 1))
        self.layers: tuple[Tensor, ...] = self._pool.unbind()
        self._pool[:, 0] = 0

    def clear(self, blocks: Sequence[int]) -> None:
        """Zeroes `blocks`. A block is cleared before its first position is written: a masked position
        still takes part in products, and what its last holder left there may not be finite."""
        for block in blocks:  # eight times as fast as one indexed fill over all of them
            self._pool.select(1, block).zero_()

    def resize(self, blocks: int) -> None:
        """Gives the memory behind block `blocks` - 1 back to the system. It reads as zeros and is
        taken again when written."""
        start = min(_page_ceil(blocks * self.row_bytes), self._layer_bytes)
        if start == self._layer_bytes:
            return
        for layer in range(len(self.layers)):
            self._memory.madvise(mmap.MADV_DONTNEED, layer * self._layer_bytes + start, self._layer_bytes - start)


def _page_ceil(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
