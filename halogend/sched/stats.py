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


@dataclass(frozen=True, slots=True)
class ReuseStats:
    """A snapshot. Requests asked for `query_tokens` when they began and found `hit_tokens` of them; both only grow,
    as does `evictions`, in blocks by reason: window, superseded, age, shrink. `blocks_cached` can be evicted;
    `blocks_pinned` are held for a class and by nobody else."""

    query_tokens: int
    hit_tokens: int
    evictions: dict[str, int]
    blocks_cached: int
    blocks_pinned: int
    sessions: int
