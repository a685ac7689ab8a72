"""What an engine counts and tells the daemon."""

from __future__ import annotations

import msgspec

from halogend.wire.base import Message


class EngineStats(Message, frozen=True, kw_only=True):
    """A snapshot, about once a second while anything changes. Counters only grow.

    `blocks_used` cannot be had: requests hold them, or (`blocks_pinned` of them) nothing but a pin. `blocks_cached`
    are kept and make room where it is wanted; the rest of `blocks_total` is free. `blocks_reserved` are no blocks
    yet: what running requests will probably take besides. `running` and `waiting` count every lane."""

    running: int
    waiting: int
    blocks_total: int
    blocks_used: int
    preemptions: int
    prompt_tokens: int
    generated_tokens: int
    steps: int
    prefill_step_s: float  # sum over steps that held a prompt chunk
    decode_step_s: float  # sum over the others
    pool_touched_bytes: int = 0
    blocks_cached: int = 0
    blocks_pinned: int = 0
    blocks_reserved: int = 0
    evictions: dict[str, int] = msgspec.field(default_factory=dict)  # blocks by reason, since the start
    prefix_query_tokens: int = 0  # of prompts that were looked up
    prefix_hit_tokens: int = 0  # of them found
    running_long: int = 0
    waiting_long: int = 0
    internal_fragmentation: float = 0.0  # unwritten slots / referenced slots
    external_fragmentation: float = 0.0  # 1 - share of long requests' tokens in runs of 128 and more
    largest_gap_s: float = 0.0  # between two tokens of one request, since the last snapshot
    queue_s: tuple[float, ...] = ()  # waits that ended since the last snapshot
    step_s: tuple[tuple[str, float], ...] = ()  # (kind, seconds) of steps since the last snapshot
