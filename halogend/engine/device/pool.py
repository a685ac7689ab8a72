"""The KV pool's memory on a device: chunks, each an allocation of its own, made when a block of theirs is first used.

    table       chunk 0 | chunk 1 | chunk 2 | ...     for each place (a table's layer) where its part starts, or 0
                   |         |
    chunk       | place 0: block, block, ... | place 1: block, block, ... | ...

The last chunk under the limit may be shorter than the others, so that the pool takes no more than it may. Values of
fewer bits have their scales in chunks of their own. Must never know which sequence or which table a block
belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from halogen_kernels.triton.chunked import CODED, ChunkedCache
from torch import Tensor

from halogend.engine.device.place import Place
from halogend.sched.blocks import BLOCK_TOKENS

CHUNK_BYTES = 64 << 20
_FLOOR_CHUNKS = 4  # at least so many in the floor: a small model's pool grows by small chunks
_SCALE_BYTES = 4
_EVEN = 2  # a place's part of the table starts at 16 bytes


@dataclass(frozen=True, slots=True)
class KvForm:
    """What a block holds: BLOCK_TOKENS positions of `places` layers, each K heads and V heads in `dtype`."""

    places: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def block_values(self) -> int:
        """Of one place."""
        return BLOCK_TOKENS * 2 * self.kv_heads * self.head_dim

    @property
    def block_scales(self) -> int:
        """Of one place; none where a value is what it says."""
        return BLOCK_TOKENS * 2 * self.kv_heads if self.dtype in CODED else 0

    @property
    def block_bytes(self) -> int:
        return self.places * (self.block_values * self.dtype.itemsize + self.block_scales * _SCALE_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """`values` [places, blocks, values of a block], `scales` likewise if there are any."""

    values: Tensor
    scales: Tensor | None

    @property
    def blocks(self) -> int:
        return self.values.shape[1]

    def parts(self) -> Iterable[Tensor]:
        return (self.values,) if self.scales is None else (self.values, self.scales)


class DeviceKvCache:
    """One replica's pool. Single writer: the runner's thread. `layers` are what kernels take, by place. The first
    `floor_blocks` are there at once, and zeros; others hold whatever was left there until they are written.
    Raises torch's OutOfMemoryError when the device has no memory for a chunk."""

    def __init__(self, form: KvForm, place: Place, reserve_blocks: int, floor_blocks: int = 1) -> None:
        self.form = form
        self.dtype = form.dtype
        self.block_bytes = form.block_bytes
        self.reserve_blocks = reserve_blocks
        self.chunk_blocks = _chunk_blocks(form, floor_blocks)
        self._place = place
        self._limit = floor_blocks
        count = -(-reserve_blocks // self.chunk_blocks)
        self._chunks: list[_Chunk | None] = [None] * count
        width = -(-count // _EVEN) * _EVEN
        self._addresses = torch.zeros(form.places, width, dtype=torch.int64, device=place.device)
        self._scale_addresses = torch.zeros_like(self._addresses) if form.block_scales else None
        self._ordinals = torch.arange(form.places, dtype=torch.int64, device=place.device)
        self.layers = tuple(self._layer(number, count) for number in range(form.places))
        for start in range(0, floor_blocks, self.chunk_blocks):
            self._reach(min(start + self.chunk_blocks, floor_blocks) - 1)
        for chunk in self._chunks:  # a warm-up reads what nobody has written
            for part in () if chunk is None else chunk.parts():
                part.zero_()
        self._limit = reserve_blocks

    @property
    def device(self) -> torch.device:
        return self._place.device

    @property
    def touched_bytes(self) -> int:
        """What the pool takes of the device now."""
        return sum(chunk.blocks for chunk in self._chunks if chunk is not None) * self.block_bytes

    @torch.inference_mode()
    def clear(self, blocks: Sequence[int]) -> None:
        """`blocks` are about to be written for the first time: their chunks are there from now on. Kernels use no
        position that was not written, so nothing is zeroed."""
        for block in blocks:
            self._reach(block)

    @torch.inference_mode()
    def copy(self, copies: Iterable[tuple[int, int]]) -> None:
        """Each block from its old place to the new one, in this order: a new place may be the next one's old."""
        for old, new in copies:
            self._reach(new)
            source, target = self._chunk_of(old), self._chunk_of(new)
            for from_, into in zip(source.parts(), target.parts(), strict=True):
                into[:, new % self.chunk_blocks].copy_(from_[:, old % self.chunk_blocks])

    @torch.inference_mode()
    def resize(self, blocks: int, moves: Mapping[int, int]) -> None:
        """Copies blocks, old place to new, and gives the memory behind block `blocks` - 1 back to the device."""
        self.copy(moves.items())
        self._limit = blocks
        is_less = False
        for number, chunk in enumerate(self._chunks):
            left = blocks - number * self.chunk_blocks
            if chunk is not None and chunk.blocks > left:
                self._put(number, self._remade(chunk, left) if left > 0 else None)
                is_less = True
        if is_less and not self._place.is_host:
            torch.cuda.empty_cache()  # what torch keeps is no other process's

    def _layer(self, number: int, count: int) -> ChunkedCache:
        scales = self._scale_addresses
        return ChunkedCache(
            addresses=self._addresses[number, :count],
            chunk_blocks=self.chunk_blocks,
            block_tokens=BLOCK_TOKENS,
            kv_heads=self.form.kv_heads,
            head_dim=self.form.head_dim,
            dtype=self.dtype,
            scale_addresses=None if scales is None else scales[number, :count],
        )

    def _chunk_of(self, block: int) -> _Chunk:
        chunk = self._chunks[block // self.chunk_blocks]
        if chunk is None:
            raise IndexError(f"block {block} is read and was never written")
        return chunk

    def _reach(self, block: int) -> None:
        """It has memory from now on."""
        number = block // self.chunk_blocks
        chunk, start = self._chunks[number], number * self.chunk_blocks
        if chunk is not None and block - start < chunk.blocks:
            return
        blocks = min(self.chunk_blocks, max(self._limit, block + 1) - start)
        self._put(number, self._made(blocks) if chunk is None else self._remade(chunk, blocks))

    def _made(self, blocks: int) -> _Chunk:
        form, device = self.form, self._place.device
        values = torch.empty(form.places, blocks, form.block_values, dtype=form.dtype, device=device)
        if not form.block_scales:
            return _Chunk(values, None)
        return _Chunk(values, torch.empty(form.places, blocks, form.block_scales, device=device))

    def _remade(self, chunk: _Chunk, blocks: int) -> _Chunk:
        """With more or fewer blocks."""
        made, kept = self._made(blocks), min(blocks, chunk.blocks)
        for from_, into in zip(chunk.parts(), made.parts(), strict=True):
            into[:, :kept].copy_(from_[:, :kept])
        return made

    def _put(self, number: int, chunk: _Chunk | None) -> None:
        """The table says where each place's part begins; what it was told is on its way as kernels are."""
        self._chunks[number] = chunk
        for table, part in (
            (self._addresses, None if chunk is None else chunk.values),
            (self._scale_addresses, None if chunk is None else chunk.scales),
        ):
            if table is not None and part is None:
                table[:, number].zero_()
            elif table is not None and part is not None:
                stride = part.stride(0) * part.dtype.itemsize
                table[:, number].copy_(self._ordinals * stride + part.data_ptr())


def _chunk_blocks(form: KvForm, floor_blocks: int) -> int:
    """A power of two: at most CHUNK_BYTES, several to the floor."""
    wanted = min(CHUNK_BYTES // form.block_bytes, floor_blocks // _FLOOR_CHUNKS)
    return 1 << (max(1, wanted).bit_length() - 1)
