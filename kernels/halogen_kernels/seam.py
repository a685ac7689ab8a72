"""What crosses the seam: the operators' signatures and the values they take.

Letters in shapes: n rows of a step (one a position), h model width, H query heads, G key/value
heads, d head width, T positions in a block. The cache of one layer is [blocks, T * 2 * G * d]: a
position's K heads, then its V heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class LinearWeight:
    """A matrix [rows, columns] in a backend's own layout, cut by rows into `parts`."""

    parts: tuple[Tensor, ...]
    rows: int
    columns: int
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return self.rows * self.columns * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class NormWeight:
    """An RMSNorm's weight in a backend's own form, made by its `pack_norm`; the last axis is
    normalised. `weight` and `floor` are meaningful to that backend alone."""

    weight: Tensor
    floor: Tensor


@dataclass(frozen=True, slots=True)
class AttentionShape:
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    block_tokens: int

    @property
    def group(self) -> int:
        """Query heads that share a key/value head."""
        return self.heads // self.kv_heads

    @property
    def kv_width(self) -> int:
        """Values of one position in one layer's cache."""
        return 2 * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence's rows of a step: rows `row` to `row + count - 1` hold positions `start` to
    `start + count - 1`. `blocks` covers every position up to the last, in order."""

    row: int
    count: int
    start: int
    blocks: Sequence[int]

    @property
    def end(self) -> int:
        """Positions that can be attended to after this step's write."""
        return self.start + self.count


class Workspace:
    """Scratch memory that one step's operators use in turn and the next step uses again. Grows,
    never shrinks; a tensor from it is valid until the next `take` of the same name and dtype.
    Single writer: the runner's thread."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised contiguous tensor of `shape`."""
        wanted = 1
        for size in shape:
            wanted *= size
        held = self._held.get((name, dtype))
        if held is None or held.numel() < wanted:
            held = torch.empty(wanted, dtype=dtype)
            self._held[name, dtype] = held
        return held[:wanted].view(shape)


class PackLinear(Protocol):
    def __call__(self, slices: Iterable[Tensor]) -> LinearWeight:
        """Takes a matrix [rows, columns] as slices of rows, in order. Each slice is copied before the
        next is asked for, so that a caller may fill one buffer again and again."""
        ...


class Linear(Protocol):
    def __call__(self, x: Tensor, weight: LinearWeight) -> Tensor:
        """[n, columns] -> [n, rows], both in the weight's dtype."""
        ...


class Logits(Protocol):
    def __call__(self, x: Tensor, weight: LinearWeight, out: Tensor) -> None:
        """As linear, into `out` [n, rows], which is wider than the weight or as wide."""
        ...


class GatedLinear(Protocol):
    def __call__(self, x: Tensor, gate: LinearWeight, up: LinearWeight, activation: Activation) -> Tensor:
        """act(x @ gate.T) * (x @ up.T): [n, h] -> [n, f] in the weights' dtype."""
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


class Rotate(Protocol):
    def __call__(self, heads: Tensor, turns: Tensor, norm: NormWeight | None) -> None:
        """Turns each head of `heads` [n, heads, d] by its row's angles, in place, after normalising it
        if `norm` is given. `turns` is complex [n, 1, d/2]; values 2i and 2i+1 of a head are pair i."""
        ...


class WriteKv(Protocol):
    def __call__(self, cache: Tensor, slots: Tensor, kv: Tensor) -> None:
        """Row r of `kv` [n, 2*G*d] goes to position `slots[r]` of `cache` [blocks, T*2*G*d], where a
        slot is block * T + offset. Rows must have distinct slots."""
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


class Attend(Protocol):
    def __call__(self, queries: Tensor, cache: Tensor, plan: Any) -> Tensor:
        """Queries [n, H, d] against one layer's `cache`, into which the step's own K and V are written
        already: [n, H*d] in the cache's dtype. Positions past a sequence's end are never used."""
        ...


@dataclass(frozen=True, slots=True)
class Kernels:
    """One backend's operators. `names` says for each what runs, for status."""

    pack_linear: PackLinear
    linear: Linear
    logits: Logits
    gated_linear: GatedLinear
    pack_norm: PackNorm
    rms_norm: RmsNorm
    add_rms_norm: AddRmsNorm
    rotate: Rotate
    write_kv: WriteKv
    plan_attention: PlanAttention
    attend: Attend
    names: Mapping[str, str]
