"""A checkpoint's weights, decoded slice by slice into the form the kernels want.

Beside the finished weights this needs one slice and its bytes for each loading thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from halogen_kernels import LinearWeight
from halogen_kernels.seam import AdoptLinear, PackLinear
from torch import Tensor

from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.errors import TYPE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.gguf_types import GgmlType
from halogend.checkpoint.stored import Piece, Plain, Weight
from halogend.engine.adopted import Adopted
from halogend.engine.codecs import decode_rows, stored_rows
from halogend.engine.codecs.source import TensorError
from halogend.engine.embedding import Embedding
from halogend.engine.files import FileBytes
from halogend.engine.models.source import PairedHeads

Advance = Callable[[int], None]
SLICE_BYTES = 64 << 20  # of decoded weights


@dataclass
class _Scratch(threading.local):
    """Each loading thread's own slice; it grows to the largest."""

    held: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))

    def take(self, nbytes: int) -> Tensor:
        if self.held.numel() < nbytes:
            self.held = torch.empty(nbytes, dtype=torch.uint8)
        return self.held[:nbytes]


@dataclass(frozen=True, slots=True)
class Packing:
    """How matrices are packed: `pack` takes slices of `dtype`; `adopt`, where there is one, what is used as it
    lies."""

    pack: PackLinear
    dtype: torch.dtype
    adopt: AdoptLinear | None = None


class WeightSource:
    """A model's `TensorSource` over a checkpoint's open files. Safe from several threads.

    Every method raises CheckpointError naming the file and the tensor when a file ends early, cannot be
    read, or holds what cannot be decoded or packed. `advance` is told the bytes done, but for those of weights
    that stay mapped. `adopted` are weights that are used as they lie.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        files: FileBytes,
        packing: Packing,
        advance: Advance,
        adopted: Adopted | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._files = files
        self._advance = advance
        self._packing = packing
        self._adopted = adopted
        self._scratch = _Scratch()

    def packed_by(self, packing: Packing) -> WeightSource:
        """The same weights, packed otherwise."""
        return WeightSource(self._checkpoint, self._files, packing, self._advance, self._adopted)

    def linear(self, names: Sequence[str], paired: PairedHeads | None = None) -> LinearWeight:
        try:
            if self._packing.adopt is not None and self._adopted is not None and self._adopted.has_parts(names):
                return self._packing.adopt([self._adopted.part(name) for name in names])
            weights = [self._checkpoint.weights[name] for name in names]
            return self._packing.pack(self._slices(weights, paired))
        except ValueError as error:
            message = f"{self._checkpoint.path}: weight {names[0]!r} cannot be packed: {error}"
            raise CheckpointError(TYPE_UNSUPPORTED, message) from error

    def vector(self, names: Sequence[str], paired: PairedHeads | None = None) -> Tensor:
        joined = torch.cat([self.matrix(name).view(-1) for name in names])
        if paired is not None:
            _reorder(joined[: paired.rows].view(-1, 1), paired)
        return joined

    def norm(self, name: str) -> Tensor:
        return self.vector([name]) + self._checkpoint.norm_offset

    def matrix(self, name: str) -> Tensor:
        weight = self._checkpoint.weights[name]
        out = torch.empty(weight.rows, weight.columns)
        self._decode(weight.pieces, out)
        return out

    def embedding(self, name: str) -> Embedding:
        """The table as it is stored, or in our dtype where that is no single tensor of numbers or blocks."""
        weight = self._checkpoint.weights[name]
        encoded = weight.pieces[0].encoded
        if self._adopted is not None and self._adopted.has(name):
            raw = self._adopted.raw(name)
            return Embedding(encoded.tensors[0].type, raw.view(weight.rows, -1), weight.columns)
        if len(weight.pieces) == 1 and isinstance(encoded, Plain):
            raw = self._files.copy(encoded.tensor, self._advance)
            return Embedding(encoded.tensor.type, raw.view(weight.rows, -1), weight.columns)
        dtype = torch.float32 if self._packing.dtype == torch.float32 else torch.bfloat16
        table = torch.empty(weight.rows, weight.columns, dtype=dtype)
        self._decode(weight.pieces, table)
        plain = GgmlType.BF16 if dtype == torch.bfloat16 else GgmlType.F32
        return Embedding(plain, table.view(torch.uint8), weight.columns)

    def _slices(self, weights: Sequence[Weight], paired: PairedHeads | None) -> Iterator[Tensor]:
        """The matrices below each other in slices of rows, each valid until the next."""
        limit = max(1, SLICE_BYTES // (weights[0].columns * self._packing.dtype.itemsize))
        if paired is not None:
            limit = max(1, limit // paired.head_dim) * paired.head_dim
        for pieces, first_row in _together(weights, limit):
            yield self._slice(pieces, paired, first_row)
            self._files.release()

    def _slice(self, pieces: Sequence[Piece], paired: PairedHeads | None, first_row: int) -> Tensor:
        """Where the packer can read it from the file as it is, it does; else in the buffer."""
        is_reordered = paired is not None and paired.rows > first_row
        if len(pieces) == 1 and not is_reordered and (stored := self._stored(pieces[0])) is not None:
            return stored
        columns = pieces[0].encoded.columns
        rows = sum(piece.rows for piece in pieces)
        dtype = self._packing.dtype
        slice_ = self._scratch.take(rows * columns * dtype.itemsize).view(dtype).view(rows, columns)
        self._decode(pieces, slice_)
        if paired is not None and is_reordered:
            _reorder(slice_[: paired.rows - first_row], paired)
        return slice_

    def _stored(self, piece: Piece) -> Tensor | None:
        stored = stored_rows(piece.encoded, piece.first, piece.rows, self._packing.dtype, self._files)
        if stored is not None:
            self._advance(piece.nbytes)
        return stored

    def _decode(self, pieces: Sequence[Piece], out: Tensor) -> None:
        done = 0
        for piece in pieces:
            try:
                decode_rows(piece.encoded, piece.first, piece.rows, out[done : done + piece.rows], self._files)
            except TensorError as error:
                file = self._checkpoint.files[error.tensor.file]
                raise CheckpointError(error.code, f"{file}: {error.message}") from error
            done += piece.rows
            self._files.release()
            self._advance(piece.nbytes)


def _together(weights: Sequence[Weight], limit: int) -> Iterator[tuple[list[Piece], int]]:
    """Pieces that make up to `limit` rows, and the number of the first of these rows."""
    held: list[Piece] = []
    held_rows, done = 0, 0
    pieces = (piece for weight in weights for stored in weight.pieces for piece in _cut(stored, limit))
    for piece in pieces:
        if held and held_rows + piece.rows > limit:
            yield held, done
            done, held, held_rows = done + held_rows, [], 0
        held.append(piece)
        held_rows += piece.rows
    yield held, done


def _cut(piece: Piece, limit: int) -> Iterator[Piece]:
    for first in range(0, piece.rows, limit):
        yield Piece(piece.encoded, piece.first + first, min(limit, piece.rows - first))


def _reorder(heads: Tensor, paired: PairedHeads) -> None:
    """Rows of whole heads [n * head_dim, columns], in place; one head at a time stays in the cache."""
    order = paired.order()
    for head in heads.view(-1, paired.head_dim, heads.shape[1]):
        head.copy_(head.index_select(0, order))
