"""The parts that architectures share: rotary angles, and one decoder layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from halogen_kernels import Activation, AttentionShape, Kernels, LinearWeight, NormWeight
from torch import Tensor

from halogend.engine.models.names import LayerNames


@dataclass(frozen=True, slots=True)
class PairedHeads:
    """The first `rows` rows of a matrix are heads of `head_dim` rows whose rotary pairs lie half a
    head apart (i and i + d/2) and are to be brought side by side (2i and 2i + 1)."""

    rows: int
    head_dim: int


class TensorSource(Protocol):
    """Where a model's tensors come from."""

    def linear(self, names: Sequence[str], paired: PairedHeads | None = None) -> LinearWeight:
        """The matrices of `names` one below the other, packed."""
        ...

    def vector(self, name: str) -> Tensor:
        """A float32 vector."""
        ...


@dataclass(frozen=True, slots=True)
class Rotary:
    """Angles of one kind of layer: position times `frequencies`, float64 [d/2]."""

    frequencies: Tensor

    @classmethod
    def of(cls, base: float, head_dim: int, divisor: Tensor | float = 1.0) -> Rotary:
        """`divisor` stretches positions: linear scaling, or one factor for each frequency."""
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        return cls(base**-exponents / divisor)

    def turns(self, positions: Tensor) -> Tensor:
        """Unit complex numbers, complex64 [n, 1, d/2]."""
        angles = positions.unsqueeze(1) * self.frequencies
        return torch.polar(torch.ones_like(angles), angles).to(torch.complex64).unsqueeze(1)


MATRICES_PER_LAYER = 5


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """`qkv` holds the heads of Q, then K, then V; `qk_norm` one row for each head of Q and K."""

    attention_norm: NormWeight
    qkv: LinearWeight
    qk_norm: NormWeight | None
    output: LinearWeight
    attention_post_norm: NormWeight | None
    ffn_norm: NormWeight
    gate: LinearWeight
    up: LinearWeight
    down: LinearWeight
    ffn_post_norm: NormWeight | None

    @property
    def nbytes(self) -> int:
        return sum(weight.nbytes for weight in (self.qkv, self.output, self.gate, self.up, self.down))


@dataclass(frozen=True, slots=True)
class StepTensors:
    """What layers of one kind (global, or with a window) share in a step."""

    turns: Tensor
    slots: Tensor
    attention: Any


@dataclass(frozen=True, slots=True)
class LayerRecipe:
    """How this architecture's layers are built and run, the same for all of them."""

    kernels: Kernels
    names: LayerNames
    shape: AttentionShape
    activation: Activation
    eps: float
    dtype: torch.dtype

    def build(self, source: TensorSource, index: int) -> LayerWeights:
        names, shape = self.names, self.shape
        paired = PairedHeads((shape.heads + shape.kv_heads) * shape.head_dim, shape.head_dim)

        def full(name: str) -> str:
            return f"blk.{index}.{name}.weight"

        def norm(name: str | None) -> NormWeight | None:
            return None if name is None else self.kernels.pack_norm(source.vector(full(name)), self.eps)

        def required_norm(name: str) -> NormWeight:
            return self.kernels.pack_norm(source.vector(full(name)), self.eps)

        return LayerWeights(
            attention_norm=required_norm(names.attention_norm),
            qkv=source.linear(
                [full(names.query), full(names.key), full(names.value)], None if names.adjacent_pairs else paired
            ),
            qk_norm=self._qk_norm(source, index),
            output=source.linear([full(names.output)]),
            attention_post_norm=norm(names.attention_post_norm),
            ffn_norm=required_norm(names.ffn_norm),
            gate=source.linear([full(names.gate)]),
            up=source.linear([full(names.up)]),
            down=source.linear([full(names.down)]),
            ffn_post_norm=norm(names.ffn_post_norm),
        )

    def run(self, weights: LayerWeights, residual: Tensor, cache: Tensor, step: StepTensors) -> None:
        """One layer over all rows of a step; `residual` [n, h] float32 is changed in place."""
        kernels, shape = self.kernels, self.shape
        x = kernels.rms_norm(residual, weights.attention_norm, self.dtype)
        qkv = kernels.linear(x, weights.qkv).view(len(x), -1, shape.head_dim)
        kernels.rotate(qkv[:, : shape.heads + shape.kv_heads], step.turns, weights.qk_norm)
        kernels.write_kv(cache, step.slots, qkv[:, shape.heads :].flatten(1))
        mixed = kernels.attend(qkv[:, : shape.heads], cache, step.attention).to(self.dtype)
        self._add(residual, kernels.linear(mixed, weights.output), weights.attention_post_norm)
        x = kernels.rms_norm(residual, weights.ffn_norm, self.dtype)
        x = kernels.gated_linear(x, weights.gate, weights.up, self.activation)
        self._add(residual, kernels.linear(x, weights.down), weights.ffn_post_norm)

    def _add(self, residual: Tensor, delta: Tensor, norm: NormWeight | None) -> None:
        if norm is None:
            residual.add_(delta)
        else:
            self.kernels.add_rms_norm(residual, delta, norm)

    def _qk_norm(self, source: TensorSource, index: int) -> NormWeight | None:
        names = self.names
        if names.query_norm is None or names.key_norm is None:
            return None
        query = source.vector(f"blk.{index}.{names.query_norm}.weight")
        key = source.vector(f"blk.{index}.{names.key_norm}.weight")
        rows = torch.stack([query] * self.shape.heads + [key] * self.shape.kv_heads)
        if not names.adjacent_pairs:
            rows = rows.view(len(rows), 2, -1).transpose(1, 2).flatten(1)
        return self.kernels.pack_norm(rows, self.eps)
