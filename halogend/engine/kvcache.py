"""The KV pool's memory: an address range reserved once, touched chunk by chunk as blocks are used.

    chunk    |    0    |    1    |    2    |    3    | ...
    place 0: | block 0, 1, 2, ...                    | up to the reserve, padded to a page |
    place 1: | block 0, 1, 2, ...                    | up to the reserve, padded to a page |
             | touched |         | touched | not yet, or given back                        |

A block holds BLOCK_TOKENS positions, each its K heads and then its V heads, for every layer of one
table: place i is the table's layer i. A chunk is a fixed number of blocks in every place, whole pages
of each, and touched when a block of it is used, whichever were before: short runs of free blocks may lie at the end of
the pool. Must never know which sequence or which table a block belongs to.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from halogend.sched.blocks import BLOCK_TOKENS

CHUNK_BYTES = 2 << 20
"""A step waits while one is touched: 16 MiB were seen to take over 20 ms, in a virtual machine."""
_FLOOR_CHUNKS = 4  # at least so many in the floor: a small model's pool grows by small chunks
_MAP_NORESERVE = 0x4000  # Linux; the mmap module has no name for it before Python 3.13


class KvCache:
    """One replica's pool. Single writer: the runner's thread.

    `layers[i]`, of place i, is [reserve_blocks, BLOCK_TOKENS * kv_width], contiguous: what the attention kernels
    read. `kv_width` is 2 * kv_heads * head_dim. The first `floor_blocks` are touched at once. Raises OSError
    if the range cannot be reserved.
    """

    def __init__(
        self, layer_count: int, kv_width: int, dtype: torch.dtype, reserve_blocks: int, floor_blocks: int = 1
    ) -> None:
        width = BLOCK_TOKENS * kv_width
        self.row_bytes = width * dtype.itemsize
        self.block_bytes = self.row_bytes * layer_count
        self.reserve_blocks = reserve_blocks
        self.dtype = dtype
        self.chunk_blocks = _chunk_blocks(self.row_bytes, layer_count, floor_blocks)
        self._layer_bytes = _page_ceil(reserve_blocks * self.row_bytes)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._memory = mmap.mmap(-1, layer_count * self._layer_bytes, flags=flags)
        # Huge pages would be touched 2 MiB at a time in every layer.
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        flat = torch.frombuffer(self._memory, dtype=dtype)
        stride = self._layer_bytes // dtype.itemsize
        self._pool = torch.as_strided(flat, (layer_count, reserve_blocks, width), (stride, width, 1))
        self.layers: tuple[Tensor, ...] = self._pool.unbind()
        self._limit = reserve_blocks
        self._touched: dict[int, int] = {}  # of each chunk, how many of its first blocks
        for start in range(0, floor_blocks, self.chunk_blocks):
            self._touch(start // self.chunk_blocks, min(self.chunk_blocks, floor_blocks - start))

    @property
    def touched_bytes(self) -> int:
        """What the pool takes of the machine now."""
        return sum(self._touched.values()) * self.block_bytes

    def clear(self, blocks: Sequence[int]) -> None:
        """Zeroes `blocks`. A block is cleared before its first position is written: a masked position
        still takes part in products, and what its last holder left there may not be finite. A block
        that was not touched yet brings its chunk with it."""
        for block in blocks:  # eight times as fast as one indexed fill over all of them
            self._reach(block)
            self._pool.select(1, block).zero_()

    def copy(self, copies: Iterable[tuple[int, int]]) -> None:
        """Each block from its old place to the new one, in this order: a new place may be the next one's old."""
        for old, new in copies:
            self._reach(new)
            self._pool.select(1, new).copy_(self._pool.select(1, old))

    def resize(self, blocks: int, moves: Mapping[int, int]) -> None:
        """Copies blocks, old place to new, and gives the memory behind block `blocks` - 1 back to the
        system. It reads as zeros and is taken again when it is used."""
        self.copy(moves.items())
        self._limit = blocks
        left = {number: blocks - number * self.chunk_blocks for number in self._touched}
        self._touched = {n: min(count, left[n]) for n, count in self._touched.items() if left[n] > 0}
        start = min(_page_ceil(blocks * self.row_bytes), self._layer_bytes)
        if start == self._layer_bytes:
            return
        for layer in range(len(self.layers)):
            self._memory.madvise(mmap.MADV_DONTNEED, layer * self._layer_bytes + start, self._layer_bytes - start)

    def _reach(self, block: int) -> None:
        """Its chunk is touched from now on, as far as the limit reaches."""
        number, place = divmod(block, self.chunk_blocks)
        if place >= self._touched.get(number, 0):
            left = self._limit - number * self.chunk_blocks
            self._touch(number, min(self.chunk_blocks, max(left, place + 1)))

    def _touch(self, number: int, blocks: int) -> None:
        """Every page of the chunk's first `blocks` is there from now on."""
        start = number * self.chunk_blocks
        self._pool[:, start + self._touched.get(number, 0) : start + blocks].zero_()
        self._touched[number] = blocks


def _chunk_blocks(row_bytes: int, layer_count: int, floor_blocks: int) -> int:
    """Blocks of a chunk: whole pages in every place, at most CHUNK_BYTES, several to the floor."""
    page_blocks = mmap.PAGESIZE // math.gcd(row_bytes, mmap.PAGESIZE)
    wanted_bytes = min(CHUNK_BYTES, floor_blocks * row_bytes * layer_count // _FLOOR_CHUNKS)
    return page_blocks * max(1, wanted_bytes // (page_blocks * row_bytes * layer_count))


def _page_ceil(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
