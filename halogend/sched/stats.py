"""What the scheduler counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedStats:
    """A snapshot; the last three only grow. `prompt_tokens` counts a prompt once, however often
    it is recomputed."""

    running: int
    waiting: int
    blocks_total: int
    blocks_used: int
    preemptions: int
    prompt_tokens: int
    generated_tokens: int
