"""What a model asks of a checkpoint, and the order in which heads are turned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from halogen_kernels import LinearWeight
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PairedHeads:
    """The first `rows` rows of a matrix are heads of `head_dim` rows. Of each head the first `turned`
    rows are rotary pairs that lie half of it apart (i and i + turned/2) and are to be brought side by
    side (2i and 2i + 1). Scores do not change: Q and K are reordered alike."""

    rows: int
    head_dim: int
    turned: int

    def order(self) -> Tensor:
        """Where each row of a head comes from, int64 [head_dim]."""
        pairs = torch.arange(self.turned).view(2, -1).T.flatten()
        return torch.cat((pairs, torch.arange(self.turned, self.head_dim)))


class TensorSource(Protocol):
    """Where a model's tensors come from; names are those of `checkpoint.inventory`. Every method raises
    CheckpointError for what the files cannot give."""

    def linear(self, names: Sequence[str], paired: PairedHeads | None = None) -> LinearWeight:
        """The matrices of `names` one below the other, packed."""
        ...

    def vector(self, names: Sequence[str], paired: PairedHeads | None = None) -> Tensor:
        """The vectors of `names` one after the other, float32."""
        ...

    def norm(self, name: str) -> Tensor:
        """An RMSNorm's weight as it is multiplied, float32."""
        ...

    def matrix(self, name: str) -> Tensor:
        """A small matrix as it is, float32."""
        ...
