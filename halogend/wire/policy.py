"""Whose a request is, and by which rules an engine shares its memory and its steps among them.

Values of the messages. An engine turns the words here into numbers for its scheduler: a class whenever it is
asked for, so that its numbers can change while requests run; a scope when a request comes.
"""

from __future__ import annotations

from halogend.wire.base import Part


class Caller(Part, frozen=True, kw_only=True):
    """`key` is the name of the API key, empty where access is open; keys share by `weight`. `klass` is a class of
    the model's policy or empty, `session` the caller's own name of one conversation or empty."""

    key: str = ""
    weight: float = 1.0
    klass: str = ""
    session: str = ""


class SessionClass(Part, frozen=True, kw_only=True):
    """Requests of a class with a higher `priority` are admitted first and preempted last. What they leave in the
    cache is pinned for `ttl_s` after its last use, up to `pin_quota` of the pool."""

    name: str
    priority: int
    pin_quota: float
    ttl_s: float


class EnginePolicy(Part, frozen=True, kw_only=True):
    """What may change live about queue, lanes, memory and reuse. 0 is off where it says so.

    A prompt of `long_threshold_tokens` or more, or one whose chunks took `prefill_timeout_s` of steps, goes on in
    the long lane, `long_concurrent` at once. `soft` and `hard` are shares of the pool that is referenced or pinned;
    `min_free_ratio` of it is kept for short requests. With `autoscale` the pool keeps no more memory than it needs,
    and never less than `min_pool_bytes`."""

    max_queue_tokens: int = 0  # 0 is off
    prefill_timeout_s: float = 3.0
    max_gap_s: float = 0.25  # 0 is off
    long_threshold_tokens: int = 4096  # 0 is off
    long_concurrent: int = 1
    soft: float = 0.75  # 0 is off
    hard: float = 0.9  # 0 is off
    min_free_ratio: float = 0.03
    eviction: str = "lru"  # lru | priority_lru
    classes: tuple[SessionClass, ...] = ()
    cache_scope: str = "key"  # key | shared
    autoscale: bool = True
    min_pool_bytes: int = 0
