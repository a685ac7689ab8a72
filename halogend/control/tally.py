"""Snapshots of several engines as one: what runs is added up, and counters never fall when one is gone.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from halogend.wire.messages import EngineStats

_OF_ONE = frozenset({"queue_s", "step_s"})  # single waits and steps: never summed
_PRESENT = frozenset({"running", "waiting", "blocks_total", "blocks_used", "pool_touched_bytes"})  # the rest only grows
_SUMMED = tuple(name for name in EngineStats.__struct_fields__ if name not in _OF_ONE)


def together(snapshots: Iterable[EngineStats], spoke: EngineStats | None = None) -> EngineStats:
    """The sums; of none, zeros. Single steps and waits are those of the one that has just spoken."""
    every = list(snapshots)
    total = EngineStats(**{name: sum(getattr(each, name) for each in every) for name in _SUMMED})
    if spoke is None:
        return total
    return msgspec.structs.replace(total, queue_s=spoke.queue_s, step_s=spoke.step_s)


def counters_of(snapshot: EngineStats) -> EngineStats:
    """What is left of an engine that is gone: its counters; nothing runs there any more."""
    return msgspec.structs.replace(snapshot, **dict.fromkeys(_PRESENT, 0), queue_s=(), step_s=())
