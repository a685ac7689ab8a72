"""Snapshots of several engines as one: what runs is added up, and counters never fall when one is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from halogend.wire.stats import EngineStats

_OF_ONE = frozenset({"queue_s", "step_s", "largest_gap_s"})  # single waits and steps: never summed
_SHARES = ("internal_fragmentation", "external_fragmentation")  # of the blocks that requests hold
_PRESENT = frozenset(
    {
        *("running", "waiting", "running_long", "waiting_long", "pool_touched_bytes"),
        *("blocks_total", "blocks_used", "blocks_cached", "blocks_pinned", "blocks_reserved"),
    }
)  # the rest only grows
_SUMMED = tuple(
    name for name in EngineStats.__struct_fields__ if name not in _OF_ONE and name not in (*_SHARES, "evictions")
)


class Tally:
    """What the engines of one generation have counted, those that are gone too. Single writer: the generation."""

    def __init__(self) -> None:
        self._past: list[EngineStats] = []

    def outlive(self, last: EngineStats | None) -> None:
        """An engine is gone, which had said this; None where it never spoke."""
        if last is not None:
            self._past = [together([*self._past, counters_of(last)])]

    def total(self, present: Iterable[EngineStats]) -> EngineStats | None:
        """With what those have said that are there; None before the first of all has spoken."""
        said = [*self._past, *present]
        return together(said) if said else None

    def told(self, present: Iterable[EngineStats], spoke: EngineStats) -> EngineStats:
        """The same as one of them has just spoken."""
        return together([*self._past, *present], spoke)


def together(snapshots: Iterable[EngineStats], spoke: EngineStats | None = None) -> EngineStats:
    """The sums, and of shares the mean by blocks in use; of none, zeros. Single steps and waits are those of the
    one that has just spoken."""
    every = list(snapshots)
    evictions: Counter[str] = Counter()
    for each in every:
        evictions.update(each.evictions)
    total = EngineStats(
        **{name: sum(getattr(each, name) for each in every) for name in _SUMMED},
        internal_fragmentation=_mean(every, "internal_fragmentation"),
        external_fragmentation=_mean(every, "external_fragmentation"),
        evictions=dict(evictions),
    )
    if spoke is None:
        return total
    return msgspec.structs.replace(total, **{name: getattr(spoke, name) for name in _OF_ONE})


def counters_of(snapshot: EngineStats) -> EngineStats:
    """What is left of an engine that is gone: its counters; nothing runs there any more."""
    gone = dict.fromkeys((*_PRESENT, *_SHARES), 0)
    return msgspec.structs.replace(snapshot, **gone, queue_s=(), step_s=(), largest_gap_s=0.0)


def _mean(snapshots: Sequence[EngineStats], name: str) -> float:
    used = sum(each.blocks_used for each in snapshots)
    return sum(each.blocks_used * getattr(each, name) for each in snapshots) / used if used else 0.0
