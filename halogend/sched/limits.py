"""What the scheduler may be told while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from halogend.sched.blocks import BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class SchedLimits:
    """`step_tokens` is the budget of one step over all requests, `prefill_chunk_tokens` the most
    one request takes of it (0: as much as is left). A time limit of 0 is off. Raises ValueError
    for values that would let nothing run."""

    max_batch: int
    max_queue: int
    queue_timeout_s: float
    request_timeout_s: float
    prefill_chunk_tokens: int
    step_tokens: int

    def __post_init__(self) -> None:
        for name, least in (("max_batch", 1), ("step_tokens", 1), ("max_queue", 0), ("prefill_chunk_tokens", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("queue_timeout_s", "request_timeout_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")

    @property
    def request_step_tokens(self) -> int:
        """The most positions of one request that a step computes. Beside decodes that fill the budget a
        prompt still moves by a block."""
        most = max(self.step_tokens, BLOCK_TOKENS)
        return min(most, self.prefill_chunk_tokens or most)
