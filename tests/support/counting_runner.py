"""A model small enough to check by hand: the next token is a sum over every token before it.

It keeps tokens in a pool of its own, block by block, so that wrong blocks or a wrong order show.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from halogend.engine.interface import Loaded
from halogend.sched.blocks import BLOCK_TOKENS
from halogend.sched.layout import KvLayout
from halogend.sched.step import StepPlan

VOCAB = 61
POISON = 60  # a forward pass that holds it raises
NOT_A_NUMBER = 59  # a row whose last token this is has no finite logits


def next_token(history: Sequence[int]) -> int:
    return sum((position % 7 + 1) * (token + 1) for position, token in enumerate(history)) % (VOCAB - 2)


def generate(prompt: Sequence[int], max_tokens: int) -> list[int]:
    history = list(prompt)
    for _ in range(max_tokens):
        history.append(next_token(history))
    return history[len(prompt) :]


class CountingRunner:
    """Implements `interface.Runner`. `broken`: every pass raises. While it is held a pass waits until
    it is allowed, so that a test decides what the loop finds when it comes back."""

    def __init__(self, blocks: int) -> None:
        self.vocab = VOCAB
        self.block_bytes = 64
        self.broken = False
        self.threads: list[int] = []
        self.pool_sizes: list[int] = []
        self.plans: list[StepPlan] = []
        self._turn = threading.Condition()
        self._allowed = math.inf
        self._pool = torch.zeros(blocks, BLOCK_TOKENS, dtype=torch.int64)

    def hold(self, passes: int = 0) -> None:
        """After so many more."""
        self._allow(passes)

    def release(self) -> None:
        self._allow(math.inf)

    def _allow(self, passes: float) -> None:
        with self._turn:
            self._allowed = passes
            self._turn.notify_all()

    def forward(self, plan: StepPlan, slot_tokens: torch.Tensor) -> torch.Tensor:
        with self._turn:
            self._turn.wait_for(lambda: self._allowed > 0)
            self._allowed -= 1
        self.plans.append(plan)
        for old, new in plan.copies:
            self._pool[new] = self._pool[old]
        rows = []
        for item in plan.items:
            if self.broken or POISON in item.tokens:
                raise RuntimeError("this pass cannot be done")
            tokens = [*item.tokens, *([int(slot_tokens[item.slot])] if item.from_slot else [])]
            for position, token in enumerate(tokens, start=item.start):
                self._pool[item.blocks[0][position // BLOCK_TOKENS], position % BLOCK_TOKENS] = token
            if item.samples:
                history = self._pool[list(item.blocks[0])].flatten()[: item.start + item.count].tolist()
                row = torch.zeros(VOCAB)
                row[next_token(history)] = 9.0
                rows.append(row * float("nan") if history[-1] == NOT_A_NUMBER else row)
        return torch.stack(rows) if rows else torch.empty(0, VOCAB)

    @property
    def touched_bytes(self) -> int:
        return self.pool_sizes[-1] * self.block_bytes if self.pool_sizes else 0

    def resize_pool(self, blocks: int, moves: Mapping[int, int]) -> None:
        self.pool_sizes.append(blocks)
        for old, new in moves.items():
            self._pool[new] = self._pool[old]
        self._pool[blocks:] = -1000

    def set_threads(self, threads: int) -> None:
        self.threads.append(threads)


EVERYTHING = KvLayout((None,))


def make_loaded(
    runner: CountingRunner,
    *,
    block_count: int,
    reserve_blocks: int,
    layout: KvLayout = EVERYTHING,
    **more: Any,
) -> Loaded:
    """The first table of `layout` must be of everything: it is the one the runner reads. `more` are fields of
    Loaded."""
    return Loaded(
        runner=runner,
        weights_bytes=0,
        pool_bytes=block_count * runner.block_bytes,
        layout=layout,
        block_bytes=runner.block_bytes,
        block_count=block_count,
        reserve_blocks=reserve_blocks,
        load_s=0.0,
        warmup_s=0.0,
        kernels={},
        **more,
    )
