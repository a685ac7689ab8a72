"""A decoder-only model: embedding, layers, final norm, logits of the rows that are sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from halogen_kernels import Activation, AttentionShape, Kernels, LinearWeight, NormWeight, Workspace
from torch import Tensor

from halogend.checkpoint.errors import ARCHITECTURE_UNSUPPORTED, CheckpointError
from halogend.checkpoint.geometry import Geometry
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

    @property
    def matrix_bytes(self) -> float:
        """Mean size of a layer's matrices."""
        layers = self._weights.layers
        return sum(layer.nbytes for layer in layers) / (MATRICES_PER_LAYER * len(layers))

    @torch.inference_mode()
    def run_layers(self, batch: Batch, cache: KvCache, bump: Callable[[], None]) -> Tensor:
        """Writes the step's K and V into `cache`; the residual of `batch.sampled`, float32 [s, hidden].
        `bump` is called after each layer."""
        kinds = self._step_tensors(batch, cache)
        residual = self._weights.embed(batch.tokens)
        if self.geometry.embedding_scale != 1.0:
            residual *= self.geometry.embedding_scale
        for index, layer in enumerate(self._weights.layers):
            self._recipe.run(layer, residual, cache.layers[index], kinds[self.geometry.global_layers[index]])
            bump()
        return residual.index_select(0, batch.sampled)

    @torch.inference_mode()
    def write_logits(self, residual: Tensor, out: Tensor) -> None:
        """The logits of at least one row into `out`, float32 [s, vocab]."""
        normed = self._recipe.kernels.rms_norm(residual, self._weights.norm, self._recipe.dtype)
        self._recipe.kernels.logits(normed, self._weights.output, out)

    def _step_tensors(self, batch: Batch, cache: KvCache) -> dict[bool, StepTensors]:
        """For each kind of layer the model has: True global, False with the window."""
        kinds = {}
        for is_global in set(self.geometry.global_layers):
            window = None if is_global else self.geometry.sliding_window
            plan = self._recipe.kernels.plan_attention(
                self._recipe.shape, batch.spans, window, cache.dtype, self._workspace
            )
            turns = self._rotaries.of(is_global).turns(batch.positions)
            kinds[is_global] = StepTensors(turns, batch.slots, plan)
        return kinds


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
