"""The angles by which heads are turned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from halogend.checkpoint.rope import Rope
from halogend.engine.models.source import TensorSource


@dataclass(frozen=True, slots=True)
class Rotary:
    """`frequencies` and `magnitudes` are float64 [d/2], one for each pair of a head; a pair that is not
    turned has 0 and 1."""

    frequencies: Tensor
    magnitudes: Tensor

    @classmethod
    def of(cls, rope: Rope, head_dim: int, source: TensorSource) -> Rotary:
        turned = len(rope.frequencies)
        frequencies = torch.zeros(head_dim // 2, dtype=torch.float64)
        frequencies[:turned] = torch.tensor(rope.frequencies, dtype=torch.float64)
        if rope.divisors is not None:
            frequencies[:turned] /= source.vector([rope.divisors]).double()
        magnitudes = torch.ones_like(frequencies)
        magnitudes[:turned] = rope.magnitude
        return cls(frequencies, magnitudes)

    def moved(self, move: Callable[[Tensor], Tensor]) -> Rotary:
        """Where positions lie."""
        return Rotary(move(self.frequencies), move(self.magnitudes))

    def turns(self, positions: Tensor) -> Tensor:
        """What pairs are multiplied by, complex64 [n, 1, d/2]."""
        angles = positions.unsqueeze(1) * self.frequencies
        return torch.polar(self.magnitudes.expand_as(angles), angles).to(torch.complex64).unsqueeze(1)
