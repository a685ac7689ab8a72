"""What the scheduler counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedStats:
    """A snapshot; `preemptions` and the tokens only grow. `prompt_tokens` counts a prompt once, however often
    it is recomputed. `running_long` are prompts of the long lane that are being computed."""

    running: int
    waiting: int
    blocks_total: int
    blocks_used: int
    preemptions: int
    prompt_tokens: int
    generated_tokens: int
    running_long: int = 0
    waiting_long: int = 0
