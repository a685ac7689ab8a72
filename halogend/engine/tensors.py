"""Tensors of a GGUF file, read piece by piece into the form the kernels want.

The file is read, not mapped: a mapped file that somebody truncates would kill the process, and its
pages would count as ours. Beside the finished weights this needs one slice and its bytes for each
loading thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from halogen_kernels import LinearWeight
from halogen_kernels.seam import PackLinear
from torch import Tensor

from halogend.checkpoint.errors import FILE_UNREADABLE, TRUNCATED, CheckpointError
from halogend.checkpoint.gguf import GgufHeader
from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.tensor_table import TensorInfo
from halogend.engine.dequant import dequantise, is_native
from halogend.engine.embedding import Embedding
from halogend.engine.models.layers import PairedHeads

SLICE_BYTES = 64 << 20  # of decoded weights
_RAW_BYTES = 8 << 20  # read at a time


@dataclass
class _Scratch(threading.local):
    """Each loading thread's own buffers; they grow to one slice."""

    buffers: dict[str, Tensor] = field(default_factory=dict)

    def take(self, name: str, size: int) -> Tensor:
        held = self.buffers.get(name)
        if held is None or held.numel() < size:
            held = self.buffers[name] = torch.empty(size, dtype=torch.uint8)
        return held[:size]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows `first` to `first + count - 1` of a matrix."""

    info: TensorInfo
    first: int
    count: int


def _cut(info: TensorInfo, limit: int) -> Iterator[_Piece]:
    rows = info.shape[0]
    for first in range(0, rows, limit):
        yield _Piece(info, first, min(limit, rows - first))


class GgufTensors:
    """A model's `TensorSource` over an open file. Safe from several threads.

    `advance` is told the bytes read of the file. Every method raises CheckpointError when the file
    ends early, cannot be read, or holds a type that nobody decodes.
    """

    def __init__(
        self,
        descriptor: int,
        header: GgufHeader,
        dtype: torch.dtype,
        pack: PackLinear,
        advance: Callable[[int], None],
    ) -> None:
        self._descriptor = descriptor
        self._header = header
        self._dtype = dtype
        self._pack = pack
        self._advance = advance
        self._scratch = _Scratch()

    def linear(self, names: Sequence[str], paired: PairedHeads | None = None) -> LinearWeight:
        infos = [self._header.tensors[name] for name in names]
        return self._pack(self._slices(infos, paired))

    def vector(self, name: str) -> Tensor:
        info = self._header.tensors[name]
        out = torch.empty(info.elements)
        self._decode_rows(info, 0, 1, out)
        return out

    def embedding(self, name: str) -> Embedding:
        """The table as it is stored, or in our dtype where its type is too slow to decode by rows."""
        info = self._header.tensors[name]
        rows, width = info.shape
        if is_native(info.type):
            raw = torch.empty(info.nbytes, dtype=torch.uint8)
            self._read(info, 0, raw)
            return Embedding(info.type, raw.view(rows, -1), width)
        table = torch.empty(rows, width, dtype=self._dtype)
        self._decode_rows(info, 0, rows, table)
        plain = GgmlType.BF16 if self._dtype == torch.bfloat16 else GgmlType.F32
        return Embedding(plain, table.view(torch.uint8), width)

    def _slices(self, infos: Sequence[TensorInfo], paired: PairedHeads | None) -> Iterator[Tensor]:
        """The matrices below each other in slices of rows; the buffer is used again for each."""
        limit = max(1, SLICE_BYTES // (infos[0].shape[1] * self._dtype.itemsize))
        if paired is not None:
            limit = max(1, limit // paired.head_dim) * paired.head_dim
        held: list[_Piece] = []
        held_rows, done = 0, 0
        for piece in (piece for info in infos for piece in _cut(info, limit)):
            if held and held_rows + piece.count > limit:
                yield self._slice(held, paired, done)
                done, held, held_rows = done + held_rows, [], 0
            held.append(piece)
            held_rows += piece.count
        yield self._slice(held, paired, done)

    def _slice(self, pieces: Sequence[_Piece], paired: PairedHeads | None, first_row: int) -> Tensor:
        columns = pieces[0].info.shape[1]
        rows = sum(piece.count for piece in pieces)
        room = self._scratch.take("slice", rows * columns * self._dtype.itemsize)
        slice_ = room.view(self._dtype).view(rows, columns)
        done = 0
        for piece in pieces:
            self._decode_rows(piece.info, piece.first, piece.count, slice_[done : done + piece.count])
            done += piece.count
        if paired is not None and paired.rows > first_row:
            part = slice_[: paired.rows - first_row]
            halves = part.view(-1, 2, paired.head_dim // 2, columns)
            part.copy_(halves.transpose(1, 2).reshape(part.shape))
        return slice_

    def _decode_rows(self, info: TensorInfo, first: int, count: int, out: Tensor) -> None:
        """Rows `first` to `first + count - 1` of `info` into `out` [count, columns]."""
        row_bytes = info.nbytes // (info.elements // info.shape[-1])
        step = max(1, _RAW_BYTES // row_bytes)
        for start in range(0, count, step):
            rows = min(step, count - start)
            raw = self._scratch.take("raw", rows * row_bytes)
            self._read(info, (first + start) * row_bytes, raw)
            try:
                dequantise(info.type, raw, out if out.dim() == 1 else out[start : start + rows])
            except CheckpointError as error:
                message = f"{self._header.path}: tensor {info.name!r}: {error.message}"
                raise CheckpointError(error.code, message) from error

    def _read(self, info: TensorInfo, skip: int, into: Tensor) -> None:
        """Fills `into` (uint8) with the tensor's bytes from `skip` on."""
        view = memoryview(into.numpy().data)
        offset = info.offset + skip
        while view:
            try:
                count = os.preadv(self._descriptor, [view[:_RAW_BYTES]], offset)
            except OSError as error:
                message = f"{self._header.path}: cannot be read: {error.strerror}"
                raise CheckpointError(FILE_UNREADABLE, message) from error
            if count == 0:
                raise CheckpointError(
                    TRUNCATED, f"{self._header.path}: the file ends inside tensor {info.name!r}; was it cut short?"
                )
            view, offset = view[count:], offset + count
            self._advance(count)
