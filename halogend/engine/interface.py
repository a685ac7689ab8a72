"""The seam between the loop and whatever computes logits: the loop sees a Runner, nothing more.

A runner never decides which tokens to compute or which blocks to use; the loop never sees a tensor
other than the logits and the slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from halogend.engine.memory import Rise
    from halogend.sched.layout import KvLayout
    from halogend.sched.step import StepPlan
    from halogend.wire.requests import Sampling


class Runner(Protocol):
    """A model with its weights and its KV pool. All calls come from one thread.

    A block holds BLOCK_TOKENS positions of one table's layers; block 0 is never handed out (zeros, for
    padding). `block_bytes` is the KV memory of one block.
    """

    @property
    def vocab(self) -> int: ...

    @property
    def block_bytes(self) -> int: ...

    def forward(self, plan: StepPlan, slot_tokens: torch.Tensor) -> torch.Tensor:
        """Copies blocks as the plan says, then computes its positions and writes their KV. Repeating a plan
        without its copies changes nothing; a copied block may have another holder by then.

        `slot_tokens` is int64 [slots]: what was sampled last into each slot, read for items with
        `from_slot`. Returns float32 logits [n, vocab], one row for each item with `samples`, in
        the plan's order. The caller may overwrite them. Where a model lies on a device the slots and the logits
        do too, and the logits are not there yet but on their way.
        """
        ...

    @property
    def touched_bytes(self) -> int:
        """What the KV pool takes of the device's memory now."""
        ...

    def resize_pool(self, blocks: int, moves: Mapping[int, int]) -> None:
        """Blocks are copied, old place to new; then blocks at or above `blocks` hold nothing any more: their
        memory goes back. Between two steps only; a later call may raise the limit again, up to the
        reserve."""
        ...

    def set_threads(self, threads: int) -> None:
        """Intra-operator threads of the calling thread from the next step on."""
        ...


@dataclass(frozen=True, slots=True)
class Want:
    """How the token of one row is to be chosen: that of a position, into a slot. No penalties."""

    row: int
    slot: int
    sampling: Sampling
    position: int


class Chosen(Protocol):
    """Tokens that are being chosen."""

    def wait(self) -> Sequence[int]:
        """One for each row that was wanted; -1 for one whose logits are not finite. Raises RuntimeError when the
        device has failed."""
        ...


class Chooser(Protocol):
    """Chooses tokens where the logits are, as the sampler does. `device` is where slots must lie."""

    @property
    def device(self) -> torch.device: ...

    def choose(self, logits: torch.Tensor, wants: Sequence[Want], slot_tokens: torch.Tensor) -> Chosen:
        """Rows of float32 logits [n, vocab]; what is chosen goes into the slots. Waits for nothing."""
        ...


class Recordings(Protocol):
    """Steps of one token for each of so many requests, recorded once and replayed; those that are not are launched as
    any other. Called by the runner's thread, between two steps."""

    def expect(self, rows: int) -> None:
        """Steps of up to so many rows are to come: larger ones need no recording any more."""
        ...

    def record(self) -> bool:
        """Records those of one size more, which takes as long as some steps; False where none is left."""
        ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """What loading brought. `mapped_bytes` of `weights_bytes` lie in mapped files. `layout` says how many blocks a
    request holds. `block_count` is the pool's first limit in blocks (block 0 included), `reserve_blocks` the most
    it can be raised to; `kernels` maps operator to implementation. `peak` has watched the largest steps.
    `chooser` chooses tokens on the model's device, if anything does; `steps_ahead` is how many steps may be planned
    before the one before them is known: 0 or 1. `recordings` are there where steps are recorded. `behind` is entered
    while the model serves: what the load did not wait for is read then."""

    runner: Runner
    weights_bytes: int
    pool_bytes: int
    layout: KvLayout
    block_bytes: int
    block_count: int
    reserve_blocks: int
    load_s: float
    warmup_s: float
    kernels: dict[str, str]
    peak: Rise | None = None
    mapped_bytes: int = 0
    chooser: Chooser | None = None
    steps_ahead: int = 0
    recordings: Recordings | None = None
    behind: AbstractContextManager[object] = field(default_factory=nullcontext)
