"""A checkpoint's weights as a v2 file states them: rows of Q and K in the order in which they are turned, norms as
they are multiplied."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from halogend.checkpoint.checkpoint import Checkpoint
from halogend.checkpoint.errors import CheckpointError
from halogend.checkpoint.stored import Piece
from halogend.engine.codecs import decode_rows
from halogend.engine.codecs.source import TensorError
from halogend.engine.convert.four_bit import Groups
from halogend.engine.convert.kept import kept_groups
from halogend.engine.files import FileBytes
from halogend.engine.models.source import PairedHeads

_TURNED = frozenset({"attn_q", "attn_k", "attn_q.bias", "attn_k.bias", "attn_q_norm", "attn_k_norm"})
_NORM = "_norm"
_NORM_BEFORE = {
    **dict.fromkeys(("attn_q", "attn_k", "attn_v"), "attn_norm"),
    **dict.fromkeys(("ffn_gate", "ffn_up"), "ffn_norm"),
}
_LEAST_SHARE, _TINY = 1e-4, 1e-12  # of the mean, and of all: no column counts for nothing


class Restated:
    """Over a checkpoint's open files. Safe from several threads. Rows are asked for from a multiple of the weight's
    `unit` on and in whole ones. Raises CheckpointError naming the file and the tensor that cannot be read."""

    def __init__(self, checkpoint: Checkpoint, files: FileBytes) -> None:
        self._checkpoint = checkpoint
        self._files = files
        self._orders = {name: order for name in checkpoint.weights if (order := self._order(name)) is not None}

    def unit(self, name: str) -> int:
        """Rows that are only read together."""
        return len(self._orders[name]) if name in self._orders else 1

    def rows(self, name: str, first: int, count: int) -> Tensor:
        """float32 [count, columns]"""
        values = torch.empty(count, self._checkpoint.weights[name].columns)

        def decode(piece: Piece, done: int) -> None:
            decode_rows(piece.encoded, piece.first, piece.rows, values[done : done + piece.rows], self._files)

        self._each(name, first, count, decode)
        values = self._ordered(name, values)
        return values.add_(self._checkpoint.norm_offset) if name.endswith(_NORM) else values

    def importance(self, name: str) -> Tensor | None:
        """How much each column counts, float32 [columns]: a norm before it multiplies what is of one size by its
        weights. None where nothing is known."""
        layer, _, part = name.rpartition(".")
        if part.isdigit():  # of an expert
            layer, _, part = layer.rpartition(".")
        norm = _NORM_BEFORE.get(part)
        if norm is None or not layer:
            return None
        squares = self.rows(f"{layer}.{norm}", 0, self._checkpoint.weights[name].columns).view(-1).square()
        return squares.clamp(min=max(_LEAST_SHARE * float(squares.mean()), _TINY))

    def groups(self, name: str, first: int, count: int) -> Groups | None:
        """The codes of four bits that the source has, None where it has others."""
        found: list[Groups | None] = []

        def look(piece: Piece, _: int) -> None:
            found.append(kept_groups(piece, self._files))

        self._each(name, first, count, look)
        parts = [part for part in found if part is not None]
        if len(parts) < len(found):
            return None
        return Groups(*(self._ordered(name, torch.cat(each)) for each in zip(*parts, strict=True)))

    def _each(self, name: str, first: int, count: int, look: Callable[[Piece, int], None]) -> None:
        """`look` gets the pieces that hold these rows, and how many rows came before."""
        done = 0
        for piece in self._pieces(name, first, count):
            try:
                look(piece, done)
            except TensorError as error:
                file = self._checkpoint.files[error.tensor.file]
                raise CheckpointError(error.code, f"{file}: {error.message}") from error
            done += piece.rows
            self._files.release()

    def _pieces(self, name: str, first: int, count: int) -> Iterator[Piece]:
        end = first + count
        at = 0
        for piece in self._checkpoint.weights[name].pieces:
            begin, stop = max(first, at), min(end, at + piece.rows)
            if begin < stop:
                yield Piece(piece.encoded, piece.first + begin - at, stop - begin)
            at += piece.rows

    def _ordered(self, name: str, rows: Tensor) -> Tensor:
        order = self._orders.get(name)
        if order is None:
            return rows
        return rows.view(-1, len(order), *rows.shape[1:]).index_select(1, order).view(rows.shape)

    def _order(self, name: str) -> Tensor | None:
        """Where each row of a head comes from, None where all stay."""
        prefix, _, part = name.partition(".")
        layer, _, part = part.partition(".")
        if self._checkpoint.adjacent_pairs or prefix != "blk" or part not in _TURNED:
            return None
        geometry = self._checkpoint.geometry
        turned = 2 * len(geometry.ropes[geometry.rope_of[int(layer)]].frequencies)
        return PairedHeads(geometry.head_dim, geometry.head_dim, turned).order()
