"""A decoder-only model: embedding, layers, final norm, logits of the rows that are sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias

import torch
from halogen_kernels import AttentionShape, Kernels, LinearWeight, NormWeight, Workspace
from halogen_kernels.seam import FixedPlan, KvLayer
from torch import Tensor

from halogend.checkpoint.geometry import Geometry
from halogend.checkpoint.kv_groups import group_layers
from halogend.engine.batch import Batch
from halogend.engine.models.layers import LayerRecipe, LayerWeights, StepTensors
from halogend.engine.models.rotary import Rotary
from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.errors import InvariantError

RunLayers: TypeAlias = Callable[[Batch, Sequence[Any], Sequence[KvLayer], Callable[[], None]], Tensor]


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All on one device. `embed` maps int64 [n] to float32 [n, hidden], not scaled. `rotaries` are as the
    geometry's ropes. `output` is packed by `output_kernels`, whose weight format may differ from that of the layers."""

    embed: Callable[[Tensor], Tensor]
    layers: tuple[LayerWeights, ...]
    norm: NormWeight
    output: LinearWeight
    output_kernels: Kernels
    rotaries: tuple[Rotary, ...]


class Decoder:
    """Runs steps over a KV cache. Holds no state of its own between steps."""

    def __init__(self, geometry: Geometry, recipe: LayerRecipe, weights: DecoderWeights) -> None:
        self.geometry = geometry
        self._recipe = recipe
        self._weights = weights
        self.groups = group_layers(geometry.windows)
        self._places = self.groups.places
        self.sample_layers = _first_of_each([geometry.has_experts(layer) for layer in range(geometry.layers)])
        sampled = {geometry.windows[layer] for layer in self.sample_layers}
        self._sample_windows = [n for n in _first_of_each(geometry.windows) if geometry.windows[n] not in sampled]

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
    def plan(self, batch: Batch, dtype: torch.dtype, workspace: Workspace) -> list[Any]:
        """What attention is to know of a step, for each table; `dtype` is the cache's. Scratch memory of the
        `workspace` is used until the step is over."""
        kernels, shape = self._recipe.kernels, self._recipe.shape
        return [
            kernels.plan_attention(shape, rows.spans, table.window, dtype, workspace)
            for table, rows in zip(self.groups.tables, batch.tables, strict=True)
        ]

    @torch.inference_mode()
    def fixed_plans(self, dtype: torch.dtype, size: tuple[int, int], device: torch.device) -> list[FixedPlan]:
        """For steps of up to `size` = (rows, blocks of each) that are recorded, one for each table. Raises
        InvariantError where the kernels cannot be."""
        fix = self._recipe.kernels.fix_plan
        if fix is None:
            raise InvariantError("these kernels plan nothing that could be recorded")
        return [fix(self.shape, table.window, dtype, size, device) for table in self.groups.tables]

    @torch.inference_mode()
    def run_layers(
        self,
        batch: Batch,
        plans: Sequence[Any],
        cache: Sequence[KvLayer],
        bump: Callable[[], None],
    ) -> Tensor:
        """Writes the step's K and V into `cache`, which has an entry for each place; the residual of
        `batch.sampled`, float32 [s, hidden]. `bump` is called after each layer."""
        residual = self._embedded(batch)
        self._run(range(self.geometry.layers), residual, cache, self._step_tensors(batch, plans), bump)
        return residual.index_select(0, batch.sampled)

    @torch.inference_mode()
    def run_samples(
        self,
        batch: Batch,
        plans: Sequence[Any],
        cache: Sequence[KvLayer],
        bump: Callable[[], None],
    ) -> Tensor:
        """As `run_layers`, with all that it builds and takes and a fraction of its work: `sample_layers`, one with each
        kind of feed-forward, and what else there is of windows is attended through alone."""
        residual, steps = self._embedded(batch), self._step_tensors(batch, plans)
        self._run(self.sample_layers, residual, cache, steps, bump)
        for number in self._sample_windows:
            x = self._recipe.enter(self._weights.layers[self.sample_layers[0]], residual)
            self._recipe.attend(x, cache[self._places[number][1]], steps[number])
            bump()
        return residual.index_select(0, batch.sampled)

    @torch.inference_mode()
    def logits(self, residual: Tensor) -> Tensor:
        """The end of a step: float32 [s, vocab], of the rows of `run_layers`, none for none."""
        out = torch.empty(len(residual), self.geometry.vocab, device=residual.device)
        if len(out):
            normed = self._recipe.kernels.rms_norm(residual, self._weights.norm, self._recipe.dtype)
            self._weights.output_kernels.logits(normed, self._weights.output, out)
            if cap := self.geometry.logits_softcap:
                out.div_(cap).tanh_().mul_(cap)
        return out

    def _embedded(self, batch: Batch) -> Tensor:
        residual = self._weights.embed(batch.tokens)
        if self.geometry.embedding_scale != 1.0:
            residual *= self.geometry.embedding_scale
        return residual

    def _run(
        self,
        layers: Sequence[int],
        residual: Tensor,
        cache: Sequence[KvLayer],
        steps: Sequence[StepTensors],
        bump: Callable[[], None],
    ) -> None:
        """These layers, one after the other; `residual` is changed in place."""
        x = self._recipe.enter(self._weights.layers[layers[0]], residual)
        for number, following in zip_longest(layers, layers[1:]):
            _, place = self._places[number]
            then = None if following is None else self._weights.layers[following]
            x = self._recipe.run(self._weights.layers[number], residual, x, cache[place], steps[number], then)
            bump()

    def _step_tensors(self, batch: Batch, plans: Sequence[Any]) -> list[StepTensors]:
        """For each layer. Positions are turned once a kind."""
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
