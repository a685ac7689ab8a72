"""The values that cross the seam. Letters in shapes are those of `seam`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True, eq=False)
class LinearWeight:
    """A matrix [rows, columns], cut by rows into `parts`, which are meaningful to the backend that
    packed it alone. Products with it are in `dtype`; `nbytes` is what is held, padding and scales too."""

    parts: tuple[Any, ...]
    rows: int
    columns: int
    dtype: torch.dtype
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredPart:
    """A matrix [rows, columns] as it lies somewhere, in one of the layouts of `formats`, which says what `planes`
    are called and how they are shaped. They may be of memory that must not be written."""

    layout: str
    rows: int
    columns: int
    planes: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """The feed-forwards of a mixture's E experts: expert e has gate[e] and up[e], [f, h], and down[e],
    [h, f]."""

    gate: tuple[LinearWeight, ...]
    up: tuple[LinearWeight, ...]
    down: tuple[LinearWeight, ...]

    @property
    def nbytes(self) -> int:
        return sum(weight.nbytes for weight in (*self.gate, *self.up, *self.down))


@dataclass(frozen=True, slots=True)
class NormWeight:
    """An RMSNorm's weight in a backend's own form, made by its `pack_norm`; the last axis is
    normalised. `weight` and `floor` are meaningful to that backend alone."""

    weight: Tensor
    floor: Tensor


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """A score is q . k * `scale`, softened to `softcap` * tanh(score / `softcap`) unless that is 0."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    block_tokens: int
    softcap: float = 0.0

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
    It lies on `device`. Single writer: the runner's thread."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = torch.device("cpu") if device is None else device
        self._held: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised contiguous tensor of `shape`."""
        wanted = 1
        for size in shape:
            wanted *= size
        held = self._held.get((name, dtype))
        if held is None or held.numel() < wanted:
            held = torch.empty(wanted, dtype=dtype, device=self.device)
            self._held[name, dtype] = held
        return held[:wanted].view(shape)

    def send(self, values: Tensor) -> Tensor:
        """`values`, of the host, on the device: numbers that a plan makes for a step. A workspace may send them
        without waiting, and to the same place in every step; it has read `values` when it returns."""
        return values.to(self.device)
