"""One decoder layer: how it is built from a checkpoint and run over a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from halogen_kernels import AttentionShape, Kernels, LinearWeight, NormWeight
from halogen_kernels.seam import KvLayer
from torch import Tensor

from halogend.checkpoint.geometry import Geometry
from halogend.engine.models.feed_forward import Dense, FeedForward, Mixture
from halogend.engine.models.source import PairedHeads, TensorSource

_QKV = ("attn_q", "attn_k", "attn_v")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """`qkv` holds the heads of Q, then K, then V; `qk_norm` one row for each head of Q and K. Biases are
    float32."""

    attention_norm: NormWeight
    qkv: LinearWeight
    qkv_bias: Tensor | None
    qk_norm: NormWeight | None
    output: LinearWeight
    output_bias: Tensor | None
    attention_post_norm: NormWeight | None
    ffn_norm: NormWeight
    feed_forward: FeedForward
    ffn_post_norm: NormWeight | None

    @property
    def nbytes(self) -> int:
        """Matrices and routers; norms and biases are not worth counting."""
        return self.qkv.nbytes + self.output.nbytes + self.feed_forward.nbytes

    @property
    def matrices(self) -> tuple[LinearWeight, ...]:
        return (self.qkv, self.output, *self.feed_forward.matrices)


@dataclass(frozen=True, slots=True)
class StepTensors:
    """What layers of one kind share in a step."""

    turns: Tensor
    slots: Tensor
    attention: Any


@dataclass(frozen=True, slots=True)
class LayerRecipe:
    """How a model's layers are built and run, the same for all of them. `adjacent_pairs`: the source
    has the rows of Q and K in the order in which they are turned."""

    kernels: Kernels
    geometry: Geometry
    shape: AttentionShape
    dtype: torch.dtype
    adjacent_pairs: bool

    def build(self, source: TensorSource, index: int) -> LayerWeights:
        geometry, layer = self.geometry, f"blk.{index}"
        paired = self._paired(index)
        qkv = [f"{layer}.{name}" for name in _QKV]
        return LayerWeights(
            attention_norm=self._norm(source, f"{layer}.attn_norm"),
            qkv=source.linear(qkv, paired),
            qkv_bias=source.vector([f"{name}.bias" for name in qkv], paired) if geometry.qkv_bias else None,
            qk_norm=self._qk_norm(source, layer, paired) if geometry.qk_norm else None,
            output=source.linear([f"{layer}.attn_output"]),
            output_bias=source.vector([f"{layer}.attn_output.bias"]) if geometry.output_bias else None,
            attention_post_norm=self._post_norm(source, f"{layer}.post_attention_norm"),
            ffn_norm=self._norm(source, f"{layer}.ffn_norm"),
            feed_forward=self._feed_forward(source, index),
            ffn_post_norm=self._post_norm(source, f"{layer}.post_ffw_norm"),
        )

    def enter(self, weights: LayerWeights, residual: Tensor) -> Tensor:
        """What the first layer reads of the residual."""
        return self.kernels.rms_norm(residual, weights.attention_norm, self.dtype)

    def run(
        self,
        weights: LayerWeights,
        residual: Tensor,
        x: Tensor,
        cache: KvLayer,
        step: StepTensors,
        following: LayerWeights | None,
    ) -> Tensor:
        """One layer over all rows of a step; `residual` [n, h] float32 is changed in place, of which `x` is what this
        layer reads. What the `following` one reads; the residual itself, if it is the last."""
        kernels, shape = self.kernels, self.shape
        qkv = kernels.linear(x, weights.qkv, weights.qkv_bias).view(x.shape[0], -1, shape.head_dim)
        kernels.rotate(qkv[:, : shape.heads + shape.kv_heads], step.turns, weights.qk_norm)
        kernels.write_kv(cache, step.slots, qkv[:, shape.heads :].flatten(1))
        mixed = kernels.attend(qkv[:, : shape.heads], cache, step.attention).to(self.dtype)
        delta = kernels.linear(mixed, weights.output, weights.output_bias)
        x = self._over(residual, delta, weights.attention_post_norm, weights.ffn_norm)
        delta = weights.feed_forward.run(kernels, x, self.geometry.activation)
        if following is None:
            self._add(residual, delta, weights.ffn_post_norm)
            return residual
        return self._over(residual, delta, weights.ffn_post_norm, following.attention_norm)

    def attend(self, x: Tensor, cache: KvLayer, step: StepTensors) -> None:
        """What of `run` depends on a layer's window, over heads of zeros that take the place of a layer's own."""
        shape = self.shape
        qkv = torch.zeros(len(x), shape.heads + 2 * shape.kv_heads, shape.head_dim, dtype=x.dtype, device=x.device)
        self.kernels.attend(qkv[:, : shape.heads], cache, step.attention).to(self.dtype)

    def _over(self, residual: Tensor, delta: Tensor, inner: NormWeight | None, norm: NormWeight) -> Tensor:
        """Adds to the residual; what is read of it next."""
        if self.kernels.norm_of_sum is not None:
            return self.kernels.norm_of_sum(residual, delta, norm, self.dtype, inner)
        self._add(residual, delta, inner)
        return self.kernels.rms_norm(residual, norm, self.dtype)

    def _add(self, residual: Tensor, delta: Tensor, norm: NormWeight | None) -> None:
        if norm is None:
            residual.add_(delta)
        else:
            self.kernels.add_rms_norm(residual, delta, norm)

    def _feed_forward(self, source: TensorSource, index: int) -> FeedForward:
        layer, experts = f"blk.{index}", self.geometry.experts
        if experts is not None and experts.layers[index]:
            return Mixture.load(source, layer, experts)
        return Dense.load(source, layer)

    def _paired(self, index: int) -> PairedHeads | None:
        if self.adjacent_pairs:
            return None
        shape, geometry = self.shape, self.geometry
        turned = 2 * len(geometry.ropes[geometry.rope_of[index]].frequencies)
        return PairedHeads((shape.heads + shape.kv_heads) * shape.head_dim, shape.head_dim, turned)

    def _norm(self, source: TensorSource, name: str) -> NormWeight:
        return self.kernels.pack_norm(source.norm(name), self.geometry.rms_eps)

    def _post_norm(self, source: TensorSource, name: str) -> NormWeight | None:
        return self._norm(source, name) if self.geometry.post_norms else None

    def _qk_norm(self, source: TensorSource, layer: str, paired: PairedHeads | None) -> NormWeight:
        query, key = source.norm(f"{layer}.attn_q_norm"), source.norm(f"{layer}.attn_k_norm")
        rows = torch.stack([query] * self.shape.heads + [key] * self.shape.kv_heads)
        if paired is not None:
            rows = rows[:, paired.order()]
        return self.kernels.pack_norm(rows, self.geometry.rms_eps)
