"""The second half of a layer: one gated feed-forward, or a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from halogen_kernels import Activation, ExpertWeights, Kernels, LinearWeight
from torch import Tensor

from halogend.checkpoint.geometry import Experts
from halogend.engine.models.source import TensorSource


@dataclass(frozen=True, slots=True)
class Dense:
    gate: LinearWeight
    up: LinearWeight
    down: LinearWeight

    @classmethod
    def load(cls, source: TensorSource, layer: str) -> Dense:
        return cls(*(source.linear([f"{layer}.{name}"]) for name in ("ffn_gate", "ffn_up", "ffn_down")))

    @property
    def matrices(self) -> tuple[LinearWeight, ...]:
        return (self.gate, self.up, self.down)

    @property
    def nbytes(self) -> int:
        return sum(matrix.nbytes for matrix in self.matrices)

    def run(self, kernels: Kernels, x: Tensor, activation: Activation) -> Tensor:
        return kernels.linear(kernels.gated_linear(x, self.gate, self.up, activation), self.down)


@dataclass(frozen=True, slots=True)
class Mixture:
    """`router` is float32 [E, h]: which experts a row goes to must not hang on rounding."""

    router: Tensor
    experts: ExpertWeights
    shape: Experts

    @classmethod
    def load(cls, source: TensorSource, layer: str, shape: Experts) -> Mixture:
        def each(name: str) -> tuple[LinearWeight, ...]:
            return tuple(source.linear([f"{layer}.{name}.{expert}"]) for expert in range(shape.count))

        experts = ExpertWeights(gate=each("ffn_gate"), up=each("ffn_up"), down=each("ffn_down"))
        return cls(source.matrix(f"{layer}.ffn_gate_inp"), experts, shape)

    @property
    def matrices(self) -> tuple[LinearWeight, ...]:
        return (*self.experts.gate, *self.experts.up, *self.experts.down)

    @property
    def nbytes(self) -> int:
        return self.experts.nbytes + self.router.nbytes

    def run(self, kernels: Kernels, x: Tensor, activation: Activation) -> Tensor:
        chosen, shares = self.choose(x)
        return kernels.mixture(x, chosen, shares, self.experts, activation)

    def choose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """For each row the experts with the largest share of a softmax over all of them, int64 [n, k],
        and their shares, float32 [n, k] (Shazeer and others, 2017)."""
        shares, chosen = F.linear(x.float(), self.router).softmax(-1).topk(self.shape.used)
        if self.shape.normalised:
            shares = shares / shares.sum(-1, keepdim=True)
        return chosen, shares


FeedForward = Dense | Mixture
