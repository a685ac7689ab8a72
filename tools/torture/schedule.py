"""Which act comes when, and how fast the load may ask. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from torture.document import Checkpoint
from torture.messages import Asked, End

Act = tuple[str, Callable[[Checkpoint], Awaitable[None]]]
"""A name, and what is done; it gets the checkpoint that does not serve."""


def capacity_of(asked: Sequence[Asked], began_at: float, ended_at: float) -> float:
    """Answers a second, by the text that came in this time: answers that were under way count in part."""
    whole = [len(each.tokens_at) for each in asked if each.end is End.ANSWERED]
    seen = sum(began_at <= at <= ended_at for each in asked for at in each.tokens_at)
    return seen * len(whole) / (max(1, sum(whole)) * (ended_at - began_at))


def dealt(deck: list[Act], slots: int) -> list[list[Act]]:
    """Acts by slot: each act at least once, each slot at least one, in turn."""
    total = max(len(deck), slots)
    found: list[list[Act]] = [[] for _ in range(slots)]
    for number in range(total):
        found[number * slots // total].append(deck[number % len(deck)])
    return found
