"""KV memory for people: what each generation's pool holds, what of prompts is reused, and how old that news is.

Asks nobody: an engine tells about once a second while anything changes in it, and between two steps only, so that
an answer from here never waits for a long one.
"""

from __future__ import annotations

from typing import Any

from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.unit import Unit
from halogend.wire.stats import EngineStats


def cache_view(house: House, now: float) -> dict[str, Any]:
    """JSON-ready; sizes in blocks of 16 tokens. `now` is in monotonic seconds. A generation that has said nothing
    yet is left out."""
    return {
        "models": {
            name: [
                _generation(each, role, stats, now)
                for role, each in _generations(unit)
                if (stats := each.stats) is not None
            ]
            for name, unit in house.units.items()
        }
    }


def _generations(unit: Unit) -> list[tuple[str, Generation]]:
    serving = [] if unit.serving is None else [("serving", unit.serving)]
    parked = [] if unit.parked is None else [("parked", unit.parked)]
    return serving + parked + [("draining", each) for each in unit.draining]


def _generation(generation: Generation, role: str, stats: EngineStats, now: float) -> dict[str, Any]:
    """Of all its replicas; `age_s` is of the one whose last snapshot is oldest."""
    told = [each.told_at for each in generation.everybody if each.stats is not None]
    return {
        "generation": generation.number,
        "role": role,
        "age_s": round(now - min(told), 1) if told else None,
        "busy": any(pulse.busy for name, pulse in generation.pulses().items() if name.startswith("engine")),
        "usage": _share(stats.blocks_used, stats.blocks_total),
        **_blocks(stats),
        "pool_touched_bytes": stats.pool_touched_bytes,
        "evictions": dict(sorted(stats.evictions.items())),
        "prefix": {
            "query_tokens": stats.prefix_query_tokens,
            "hit_tokens": stats.prefix_hit_tokens,
            "hit_rate": _share(stats.prefix_hit_tokens, stats.prefix_query_tokens),
        },
        "fragmentation": {
            "internal": round(stats.internal_fragmentation, 4),
            "external": round(stats.external_fragmentation, 4),
        },
        "running": stats.running,
        "running_long": stats.running_long,
        "waiting": stats.waiting,
        "waiting_long": stats.waiting_long,
        "preemptions": stats.preemptions,
        "largest_gap_s": round(stats.largest_gap_s, 4),
    }


def _blocks(stats: EngineStats) -> dict[str, int]:
    """Used are held or pinned; cached can be evicted; reserved is no part of the others."""
    return {
        "blocks_total": stats.blocks_total,
        "blocks_used": stats.blocks_used,
        "blocks_pinned": stats.blocks_pinned,
        "blocks_cached": stats.blocks_cached,
        "blocks_free": stats.blocks_total - stats.blocks_used - stats.blocks_cached,
        "blocks_reserved": stats.blocks_reserved,
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
