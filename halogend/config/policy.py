"""How a model's requests share its queue, its steps and its KV memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from halogend.config.fields import IDENTITY, LIVE, setting
from halogend.config.kinds import Name, Tokens
from halogend.config.section import Section
from halogend.config.values import DAY_S

MOST_CLASSES = 64


class PoolConfig(Section):
    """The bounds of a KV pool, which grows and shrinks in chunks between them."""

    autoscale: Literal["auto"] | bool = setting(
        "Whether a pool at rest gives memory back: after a minute without a request what is free, after ten what is "
        "cached, but for pins. It is taken again when it is used. While requests come in shorter turns it keeps what "
        "it has grown to, as it always does without this. `auto` does on host memory.",
        LIVE,
        default="auto",
    )
    min_free_ratio: float = setting(
        "Share of the pool that long prompts leave to short requests.", LIVE, default=0.03, ge=0, le=0.5
    )
    min_tokens: Tokens | None = setting(
        "What the pool starts with and never falls below, in positions of KV memory.",
        LIVE,
        default=None,
        unit="tokens",
        unset="one full request",
    )
    max_tokens: Tokens | None = setting(
        "What it never grows over, whatever kv_cache_ratio or kv_cache_bytes allow.",
        LIVE,
        default=None,
        unit="tokens",
        unset="kv_cache_ratio or kv_cache_bytes alone",
    )


class WatermarkConfig(Section):
    """Shares of the pool that is used: blocks that requests hold and blocks that are pinned. Cached blocks that can
    be evicted count as free."""

    soft: float = setting(
        "Above it smaller requests, and requests close to their end, are admitted first.",
        LIVE,
        default=0.75,
        gt=0,
        le=1,
    )
    hard: float = setting(
        "Above it nothing new is admitted, unless nothing runs. Below again by 0.02, it is.",
        LIVE,
        default=0.9,
        gt=0,
        le=1,
    )


class LongPromptConfig(Section):
    """Prompts that short requests pass by."""

    threshold: Tokens = setting("Prompts of so many tokens start in the long lane.", LIVE, default=4096, unit="tokens")
    max_concurrent: int = setting(
        "Long prompts that are computed at once; the others of the lane wait.",
        LIVE,
        default=1,
        unit="requests",
        ge=1,
        le=4096,
    )


class SessionClassConfig(Section):
    """A class that requests name in `X-Halogen-Class`."""

    klass: Name = setting("Its name.", IDENTITY, alias="class")
    priority: int = setting(
        "Higher is admitted first, preempted last and evicted last. Requests without a class have 0.",
        LIVE,
        default=0,
        ge=-1000,
        le=1000,
    )
    pin_quota: float = setting(
        "Share of the pool that may be kept for what its requests leave in the cache.", LIVE, default=0.0, ge=0, le=1
    )
    ttl_s: float = setting(
        "How long that is kept after its last use.", LIVE, default=600.0, unit="s", gt=0, le=30 * DAY_S
    )


class EvictionConfig(Section):
    """What of the cache makes room first."""

    policy: Literal["lru", "priority_lru"] = setting(
        "`lru` evicts by age and by what it would cost to compute again, ends of conversations before what they "
        "share. `priority_lru` heeds classes before that.",
        LIVE,
        default="lru",
    )
    sessions: tuple[SessionClassConfig, ...] = Field(
        default=(), description="Classes, for `priority_lru`.", max_length=MOST_CLASSES
    )

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(each.klass for each in self.sessions)
