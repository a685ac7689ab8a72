"""A decoder-only model: embedding, layers, final norm, logits of the rows that are sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from halogen_kernels import Activation, AttentionShape, Kernels, LinearWeight, NormWeight, Workspace
from torch import Tensor

from halogend.checkpoint.errors import ARCHITECTURE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.kv_groups import group_layers
from halogend.engine.batch import Batch
from halogend.engine.kvcache import KvCache
from halogend.engine.models import gemma3, llama
from halogend.engine.models.layers import (
    MATRICES_PER_LAYER,
    LayerRecipe,
    LayerWeights,
    Rotary,
    StepTensors,
    TensorSource,
)
from halogend.engine.models.names import LayerNames
from halogend.sched.blocks import BLOCK_TOKENS

_NAMES: dict[str, LayerNames] = {"gemma3": gemma3.NAMES, "llama": llama.NAMES}

EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
OUTPUT_NORM = "output_norm.weight"
ROPE_FREQUENCIES = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`embed` maps int64 [n] to float32 [n, hidden], not scaled."""

    embed: Callable[[Tensor], Tensor]
    layers: tuple[LayerWeights, ...]
    norm: NormWeight
    output: LinearWeight


class Decoder:
    """Runs steps over a KV cache. Holds no state of its own between steps but scratch memory."""

    def __init__(self, geometry: Geometry, recipe: LayerRecipe, weights: DecoderWeights, rotaries: Rotaries) -> None:
        self.geometry = geometry
        self._recipe = recipe
        self._weights = weights
        self._rotaries = rotaries
        self._workspace = Workspace()
        self.groups = group_layers(layer_windows(geometry))
        self._places = self.groups.places

    @property
    def matrix_bytes(self) -> float:
        """Mean size of a layer's matrices."""
        layers = self._weights.layers
        return sum(layer.nbytes for layer in layers) / (MATRICES_PER_LAYER * len(layers))

    @torch.inference_mode()
    def run_layers(self, batch: Batch, cache: KvCache, bump: Callable[[], None]) -> Tensor:
        """Writes the step's K and V into `cache`; the residual of `batch.sampled`, float32 [s, hidden].
        `bump` is called after each layer."""
        steps = self._step_tensors(batch, cache)
        residual = self._weights.embed(batch.tokens)
        if self.geometry.embedding_scale != 1.0:
            residual *= self.geometry.embedding_scale
        for layer, (_, place), step in zip(self._weights.layers, self._places, steps, strict=True):
            self._recipe.run(layer, residual, cache.layers[place], step)
            bump()
        return residual.index_select(0, batch.sampled)

    @torch.inference_mode()
    def write_logits(self, residual: Tensor, out: Tensor) -> None:
        """The logits of at least one row into `out`, float32 [s, vocab]."""
        normed = self._recipe.kernels.rms_norm(residual, self._weights.norm, self._recipe.dtype)
        self._recipe.kernels.logits(normed, self._weights.output, out)

    def _step_tensors(self, batch: Batch, cache: KvCache) -> list[StepTensors]:
        """For each layer. Attention is planned once a table, positions are turned once a kind."""
        kernels, shape = self._recipe.kernels, self._recipe.shape
        plans = [
            kernels.plan_attention(shape, rows.spans, table.window, cache.dtype, self._workspace)
            for table, rows in zip(self.groups.tables, batch.tables, strict=True)
        ]
        kinds = self.geometry.global_layers
        turns = {kind: self._rotaries.of(kind).turns(batch.positions) for kind in set(kinds)}
        return [
            StepTensors(turns[kind], batch.tables[table].slots, plans[table])
            for kind, (table, _) in zip(kinds, self._places, strict=True)
        ]


def layer_windows(geometry: Geometry) -> tuple[int | None, ...]:
    """How far back each layer sees; None is everything."""
    return tuple(None if is_global else geometry.sliding_window for is_global in geometry.global_layers)


@dataclass(frozen=True, slots=True)
class Rotaries:
    global_layers: Rotary
    local_layers: Rotary

    def of(self, is_global: bool) -> Rotary:
        return self.global_layers if is_global else self.local_layers


def make_recipe(geometry: Geometry, kernels: Kernels, dtype: torch.dtype) -> LayerRecipe:
    """Raises CheckpointError for an architecture without a table of names."""
    names = _NAMES.get(geometry.architecture)
    if names is None:
        raise CheckpointError(ARCHITECTURE_UNSUPPORTED, f"architecture {geometry.architecture!r} is not supported")
    shape = AttentionShape(
        heads=geometry.heads,
        kv_heads=geometry.kv_heads,
        head_dim=geometry.head_dim,
        scale=geometry.query_scale,
        block_tokens=BLOCK_TOKENS,
    )
    activation: Activation = "gelu_tanh" if geometry.activation == "gelu_tanh" else "silu"
    return LayerRecipe(kernels, names, shape, activation, geometry.rms_eps, dtype)


def make_rotaries(geometry: Geometry, source: TensorSource) -> Rotaries:
    divisor: Tensor | float = geometry.rope_scaling_factor
    if geometry.rope_freqs:
        divisor = source.vector(ROPE_FREQUENCIES).double() * geometry.rope_scaling_factor
    return Rotaries(
        Rotary.of(geometry.rope_base_global, geometry.head_dim, divisor),
        Rotary.of(geometry.rope_base_local, geometry.head_dim),
    )
