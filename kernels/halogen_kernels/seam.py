"""The seam: the operators' signatures, and one backend's operators as one value.

Letters in shapes: n rows of a step (one a position), h model width, H query heads, G key/value
heads, d head width, T positions in a block, f feed-forward width, k experts a row. The cache of one
layer is [blocks, T * 2 * G * d]: a position's K heads, then its V heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from halogen_kernels.values import (
    Activation,
    AttentionShape,
    ExpertWeights,
    LinearWeight,
    NormWeight,
    Span,
    StoredPart,
    Workspace,
)

KvLayer: TypeAlias = Any
"""One layer's keys and values, in a form that the backend which reads and writes them knows: a Tensor
[blocks, T * 2 * G * d], or on a device a `triton.chunked.ChunkedCache`."""


class PackLinear(Protocol):
    def __call__(self, slices: Iterable[Tensor]) -> LinearWeight:
        """Takes a matrix [rows, columns] as slices of rows, in order. Each slice is copied before the
        next is asked for, so that a caller may fill one buffer again and again.

        A plain weight computes in the slices' dtype. For other formats slices are float32 or the compute
        dtype, float32 being the more exact. Raises ValueError for columns that the format cannot
        hold, naming their number, and for values it cannot hold (not finite; beyond float16 in int4)."""
        ...


class AdoptLinear(Protocol):
    def __call__(self, parts: Sequence[StoredPart]) -> LinearWeight:
        """The matrices of `parts`, one below the other, used where they lie. Nothing is copied: the planes are
        kept, and what is in them must stay as it is; but kernels of a device may put several together there.
        `nbytes` is what is held. Raises ValueError for a layout that is not among those that these kernels
        take, planes that are not as it says, and columns that differ."""
        ...


class Linear(Protocol):
    def __call__(self, x: Tensor, weight: LinearWeight, bias: Tensor | None = None) -> Tensor:
        """x @ W.T + bias: [n, columns] -> [n, rows], both in the weight's dtype. `bias` [rows] is float32
        or in the weight's dtype, and is added before the result is rounded to that dtype where the
        product allows it."""
        ...


class Logits(Protocol):
    def __call__(self, x: Tensor, weight: LinearWeight, out: Tensor) -> None:
        """As linear, into `out` [n, rows], which is wider than the weight or as wide."""
        ...


class GatedLinear(Protocol):
    def __call__(self, x: Tensor, gate: LinearWeight, up: LinearWeight, activation: Activation) -> Tensor:
        """act(x @ gate.T) * (x @ up.T): [n, h] -> [n, f] in the weights' dtype."""
        ...


class Mixture(Protocol):
    def __call__(
        self, x: Tensor, chosen: Tensor, shares: Tensor, experts: ExpertWeights, activation: Activation
    ) -> Tensor:
        """Sum over a row's experts e of share * down_e(act(gate_e x) * up_e x): [n, h] -> [n, h] in the
        weights' dtype, summed in float32 in an order that other rows do not change. `chosen` int64
        [n, k] has the experts' numbers, `shares` float32 [n, k] what each counts. Raises ValueError
        for a number that no expert has; on a device, where to look is to wait, it counts for nothing."""
        ...


class PackNorm(Protocol):
    def __call__(self, weight: Tensor, eps: float) -> NormWeight:
        """`weight` is float32 and is not kept."""
        ...


class RmsNorm(Protocol):
    def __call__(self, x: Tensor, norm: NormWeight, dtype: torch.dtype) -> Tensor:
        """x / sqrt(mean(x^2) + eps) * weight over the last axis, computed in float32, in `dtype`."""
        ...


class AddRmsNorm(Protocol):
    def __call__(self, residual: Tensor, delta: Tensor, norm: NormWeight) -> None:
        """residual += rms_norm(delta), in place; the residual is float32."""
        ...


class NormOfSum(Protocol):
    def __call__(
        self, residual: Tensor, delta: Tensor, norm: NormWeight, dtype: torch.dtype, inner: NormWeight | None = None
    ) -> Tensor:
        """residual += delta, or += rms_norm(delta, inner), in place; then rms_norm(residual, norm) in `dtype`: the
        two in one, where a backend has that."""
        ...


class Rotate(Protocol):
    def __call__(self, heads: Tensor, turns: Tensor, norm: NormWeight | None) -> None:
        """Turns each head of `heads` [n, heads, d] by its row's angles, in place, after normalising it
        if `norm` is given. `turns` is complex [n, 1, d/2]; values 2i and 2i+1 of a head are pair i."""
        ...


class WriteKv(Protocol):
    def __call__(self, cache: KvLayer, slots: Tensor, kv: Tensor) -> None:
        """Row r of `kv` [n, 2*G*d] goes to position `slots[r]` of `cache` [blocks, T*2*G*d], where a
        slot is block * T + offset. Rows must have distinct slots; on a device a row whose slot is negative
        is left out."""
        ...


class PlanAttention(Protocol):
    def __call__(
        self,
        shape: AttentionShape,
        spans: Sequence[Span],
        window: int | None,
        dtype: torch.dtype,
        workspace: Workspace,
    ) -> Any:
        """What all layers of one kind share in a step, for `attend`. A position sees itself and the
        `window` - 1 before it (all before it if None). `dtype` is the cache's."""
        ...


class FixedPlan(Protocol):
    """A plan of single positions whose tensors stay where they are: what a recording of a step reads."""

    @property
    def plan(self) -> Any:
        """As `PlanAttention` gives it."""
        ...

    def fill(self, spans: Sequence[Span]) -> None:
        """Of a step now: row i is span i's; rows behind them attend to nothing."""
        ...


class FixPlan(Protocol):
    def __call__(
        self, shape: AttentionShape, window: int | None, dtype: torch.dtype, size: tuple[int, int], device: torch.device
    ) -> FixedPlan:
        """For up to `size` = (rows, blocks of each) of steps in which every span has one row."""
        ...


class Attend(Protocol):
    def __call__(self, queries: Tensor, cache: KvLayer, plan: Any) -> Tensor:
        """Queries [n, H, d] against one layer's `cache`, into which the step's own K and V are written
        already: [n, H*d] in the cache's dtype. Positions past a sequence's end are never used."""
        ...


class Sample(Protocol):
    def __call__(self, logits: Tensor, rules: Tensor) -> Tensor:
        """The tokens of float32 `logits` [n, vocab] by `rules` float64 [n, 5], as `sampling.rules` writes them and on
        the logits' device: int64 [n], `sampling.NO_TOKEN` for a row that is not finite."""
        ...


class Embed(Protocol):
    def __call__(self, table: Tensor, scales: Tensor | None, tokens: Tensor) -> Tensor:
        """float32 [n, h], the rows of `table` [vocab, h] for `tokens` int64 [n]; of int8 codes, if `scales` float32
        [vocab] is given. A token outside the vocabulary has a row of NaN, and harms no other."""
        ...


class BuiltSizes(Protocol):
    def __call__(self, most: int) -> tuple[int, ...]:
        """The numbers of rows up to which products of up to `most` rows are padded, ascending, where each builds
        something at its first use that stays; none where products build nothing."""
        ...


def nothing_built(most: int) -> tuple[int, ...]:
    return ()


def nothing_adopted(parts: Sequence[StoredPart]) -> LinearWeight:
    layouts = ", ".join(sorted({part.layout for part in parts}))
    raise ValueError(f"these kernels use no matrix where it lies, in whatever layout; these are in {layouts}")


@dataclass(frozen=True, slots=True)
class Kernels:
    """One backend's operators, for one weight format. `names` says for each what runs;
    `softcap_names` where that differs for attention with a soft cap. `takes` are the layouts
    of `formats` in which `adopt_linear` uses a matrix where it lies. `sample` is there where tokens are chosen on the
    device that has the logits, `fix_plan` where steps can be recorded."""

    pack_linear: PackLinear
    linear: Linear
    logits: Logits
    gated_linear: GatedLinear
    mixture: Mixture
    pack_norm: PackNorm
    rms_norm: RmsNorm
    add_rms_norm: AddRmsNorm
    rotate: Rotate
    write_kv: WriteKv
    plan_attention: PlanAttention
    attend: Attend
    names: Mapping[str, str]
    softcap_names: Mapping[str, str] = field(default_factory=dict)
    built_sizes: BuiltSizes = nothing_built
    takes: frozenset[str] = frozenset()
    adopt_linear: AdoptLinear = nothing_adopted
    norm_of_sum: NormOfSum | None = None
    fix_plan: FixPlan | None = None
    sample: Sample | None = None
    embedding: Embed | None = None

    def names_for(self, shape: AttentionShape) -> dict[str, str]:
        """What runs for a model with this attention, for status."""
        return {**self.names, **(self.softcap_names if shape.softcap else {})}
