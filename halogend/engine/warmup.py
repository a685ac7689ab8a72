"""The largest steps there will be, gone through once before anybody waits for one.

What a kernel builds at its first use is built then, and working memory has been as much as it will be,
so that it can be measured. Nothing is gone through twice: a model's output matrix may take as long as all its layers.
Must never keep anything: blocks are used without a holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.layout import KvLayout
from halogend.sched.limits import SchedLimits
from halogend.sched.step import StepItem, StepPlan

_BATCH_CONTEXT_TOKENS = 512  # of each in a full batch: kernels that take sequences together are at their bounds
_HOST = torch.device("cpu")


class Rehearsing(Protocol):
    """As much of a runner as is asked for here."""

    def rehearse(self, plan: StepPlan, slot_tokens: Tensor) -> None: ...

    def forward(self, plan: StepPlan, slot_tokens: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Room:
    """`blocks` of the pool, block 0 included, and the most positions of one request. `device` is where slots lie."""

    blocks: int
    longest_tokens: int
    device: torch.device = _HOST


def most_rows(room: Room, limits: SchedLimits) -> int:
    """The most rows that a step has."""
    return min(max(limits.step_tokens, limits.max_batch + BLOCK_TOKENS), limits.max_batch * room.longest_tokens)


def rehearse_prompts(
    runner: Rehearsing, room: Room, layout: KvLayout, limits: SchedLimits, row_sizes: Sequence[int] = ()
) -> None:
    """Steps of each of `row_sizes` rows and a whole prompt chunk at the end of the longest request are rehearsed. The
    output matrix is not looked at."""
    blocks = _blocks(room, layout)
    slots = torch.zeros(limits.max_batch, dtype=torch.int64, device=room.device)

    def prompts(rows: int) -> tuple[StepItem, ...]:
        counts = [min(room.longest_tokens, rows - done) for done in range(0, rows, room.longest_tokens)]
        return tuple(
            StepItem(row, row, 0, (0,) * count, from_slot=False, blocks=blocks, samples=False)
            for row, count in enumerate(counts)
        )

    chunk = min(limits.request_step_tokens, room.longest_tokens)
    prompt = StepItem(0, 0, room.longest_tokens - chunk, (0,) * chunk, from_slot=False, blocks=blocks, samples=False)
    for number, rows in enumerate(row_sizes):
        runner.rehearse(StepPlan(number, prompts(rows)), slots)
    runner.rehearse(StepPlan(len(row_sizes), (prompt,)), slots)


def go_through(runner: Rehearsing, room: Room, layout: KvLayout, max_batch: int) -> None:
    """A full batch of tokens is rehearsed; then one token at the end of the longest request goes through everything,
    which is all that a batch of one has."""
    blocks, last = _blocks(room, layout), room.longest_tokens - 1
    slots = torch.zeros(max_batch, dtype=torch.int64, device=room.device)
    if max_batch > 1:
        batch = tuple(_token(row, min(last, _BATCH_CONTEXT_TOKENS), blocks) for row in range(max_batch))
        runner.rehearse(StepPlan(0, batch), slots)
    runner.forward(StepPlan(1, (_token(0, last, blocks),)), slots)


def _token(row: int, position: int, blocks: list[list[int]]) -> StepItem:
    return StepItem(row, row, position, (), from_slot=True, blocks=blocks, samples=True)


def _blocks(room: Room, layout: KvLayout) -> list[list[int]]:
    """Tables for the longest request. Where windows leave the pool smaller than that, blocks are used more
    than once: what they hold does not matter."""
    usable = room.blocks - 1
    logical = -(-room.longest_tokens // BLOCK_TOKENS)
    return [[1 + (table * logical + place) % usable for place in range(logical)] for table in range(layout.tables)]
