"""A decoder-only model: embedding, layers, final norm, logits of the rows that are sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from halogen_kernels import AttentionShape, Kernels, LinearWeight, NormWeight, Workspace
from torch import Tensor

from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.kv_groups import group_layers
from halogend.engine.batch import Batch
from halogend.engine.kvcache import KvCache
from halogend.engine.models.layers import LayerRecipe, LayerWeights, StepTensors
from halogend.engine.models.rotary import Rotary
from halogend.sched.blocks import BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`embed` maps int64 [n] to float32 [n, hidden], not scaled. `rotaries` are as the geometry's ropes.
    `output` is packed by `output_kernels`, whose weight format may differ from that of the layers."""

    embed: Callable[[Tensor], Tensor]
    layers: tuple[LayerWeights, ...]
    norm: NormWeight
    output: LinearWeight
    output_kernels: Kernels
    rotaries: tuple[Rotary, ...]


class Decoder:
    """Runs steps over a KV cache. Holds no state of its own between steps but scratch memory."""

    def __init__(self, geometry: Geometry, recipe: LayerRecipe, weights: DecoderWeights) -> None:
        self.geometry = geometry
        self._recipe = recipe
        self._weights = weights
        self._workspace = Workspace()
        self.groups = group_layers(geometry.windows)
        self._places = self.groups.places
        self.all_layers = range(geometry.layers)
        self.sample_layers = _first_of_each(geometry.windows)

    @property
    def shape(self) -> AttentionShape:
        return self._recipe.shape

    @property
    def matrix_bytes(self) -> float:
        """Mean size of a layer's matrices as they are multiplied: what is held in fewer bits is widened."""
        matrices = [matrix for layer in self._weights.layers for matrix in layer.matrices]
        sizes = [matrix.rows * matrix.columns * matrix.dtype.itemsize for matrix in matrices]
        return sum(sizes) / len(sizes)

    @torch.inference_mode()
    def run_layers(self, batch: Batch, cache: KvCache, bump: Callable[[], None], layers: Sequence[int]) -> Tensor:
        """Writes the step's K and V into `cache`; the residual of `batch.sampled`, float32 [s, hidden].
        `layers` are those to run, in order; `bump` is called after each."""
        steps = self._step_tensors(batch, cache)
        residual = self._weights.embed(batch.tokens)
        if self.geometry.embedding_scale != 1.0:
            residual *= self.geometry.embedding_scale
        for number in layers:
            _, place = self._places[number]
            self._recipe.run(self._weights.layers[number], residual, cache.layers[place], steps[number])
            bump()
        return residual.index_select(0, batch.sampled)

    @torch.inference_mode()
    def write_logits(self, residual: Tensor, out: Tensor) -> None:
        """The logits of at least one row into `out`, float32 [s, vocab]."""
        normed = self._recipe.kernels.rms_norm(residual, self._weights.norm, self._recipe.dtype)
        self._weights.output_kernels.logits(normed, self._weights.output, out)
        if cap := self.geometry.logits_softcap:
            out.div_(cap).tanh_().mul_(cap)

    def _step_tensors(self, batch: Batch, cache: KvCache) -> list[StepTensors]:
        """For each layer. Attention is planned once a table, positions are turned once a kind."""
        kernels, shape = self._recipe.kernels, self._recipe.shape
        plans = [
            kernels.plan_attention(shape, rows.spans, table.window, cache.dtype, self._workspace)
            for table, rows in zip(self.groups.tables, batch.tables, strict=True)
        ]
        turns = [rotary.turns(batch.positions) for rotary in self._weights.rotaries]
        return [
            StepTensors(turns[kind], batch.tables[table].slots, plans[table])
            for kind, (table, _) in zip(self.geometry.rope_of, self._places, strict=True)
        ]


def _first_of_each(kinds: Sequence[object]) -> tuple[int, ...]:
    """The index of the first of each kind."""
    return tuple(number for number, kind in enumerate(kinds) if kind not in kinds[:number])


def make_recipe(geometry: Geometry, kernels: Kernels, dtype: torch.dtype, *, adjacent_pairs: bool) -> LayerRecipe:
    shape = AttentionShape(
        heads=geometry.heads,
        kv_heads=geometry.kv_heads,
        head_dim=geometry.head_dim,
        scale=geometry.query_scale,
        block_tokens=BLOCK_TOKENS,
        softcap=geometry.attention_softcap,
    )
    return LayerRecipe(kernels, geometry, shape, dtype, adjacent_pairs)
