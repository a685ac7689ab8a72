"""Another value for each field of a model's policy, as a document would write it."""

from __future__ import annotations

from typing import Any

GOLD = {"class": "gold", "priority": 10, "pin_quota": 0.2, "ttl_s": 900}
OTHER: dict[str, dict[str, Any]] = {
    "max_queue_tokens": {"max_queue_tokens": 100_000},
    "prefill_timeout_ms": {"prefill_timeout_ms": 0},
    "max_gap_ms": {"max_gap_ms": 50},
    "long_prompt": {"long_prompt": "off"},
    "long_prompt.threshold": {"long_prompt": {"threshold": 16}},
    "long_prompt.max_concurrent": {"long_prompt": {"max_concurrent": 2}},
    "watermarks": {"watermarks": "off"},
    "watermarks.soft": {"watermarks": {"soft": 0.2}},
    "watermarks.hard": {"watermarks": {"hard": 0.8}},
    "kv_block_pool.autoscale": {"kv_block_pool": {"autoscale": False}},
    "kv_block_pool.min_free_ratio": {"kv_block_pool": {"min_free_ratio": 0.2}},
    "kv_block_pool.min_tokens": {"kv_block_pool": {"min_tokens": 1024}},
    "kv_block_pool.max_tokens": {"kv_block_pool": {"max_tokens": 2048}},
    "eviction.policy": {"eviction": {"policy": "priority_lru"}},
    "eviction.sessions[]": {"eviction": {"policy": "priority_lru", "sessions": [GOLD]}},
    "eviction.sessions[].class": {"eviction": {"policy": "priority_lru", "sessions": [GOLD | {"class": "silver"}]}},
    "eviction.sessions[].priority": {"eviction": {"policy": "priority_lru", "sessions": [GOLD | {"priority": -3}]}},
    "eviction.sessions[].pin_quota": {"eviction": {"policy": "priority_lru", "sessions": [GOLD | {"pin_quota": 0.1}]}},
    "eviction.sessions[].ttl_s": {"eviction": {"policy": "priority_lru", "sessions": [GOLD | {"ttl_s": 1}]}},
    "cache_scope": {"cache_scope": "shared"},
}
"""By field. Applied one after the other, each is a change; with none of them in between, too."""
