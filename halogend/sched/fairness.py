"""Whose turn it is among keys of one class: start-time fair queueing on tokens.

A request is tagged with the virtual time at which its key's share would let it begin (P. Goyal, H. Vin,
H. Cheng, "Start-time Fair Queueing", SIGCOMM 1996); smaller tags go first. A key alone is served in the
order of arrival; a key that floods the queue waits behind its own requests, not before anybody else's.
"""

from __future__ import annotations

from dataclasses import dataclass

from halogend.sched.request import Caller

_MOST_IDLE_KEYS = 1024


@dataclass(slots=True)
class _Share:
    start: float = 0.0  # the last tag given
    finish: float = 0.0  # when the work that was asked for will have been served


class FairShares:
    """Virtual time in tokens for each class and each key in it. Single writer: the scheduler."""

    def __init__(self) -> None:
        self._served: dict[int, float] = {}
        self._shares: dict[tuple[int, str], _Share] = {}

    def tag(self, priority: int, caller: Caller, tokens: float) -> float:
        """Asks for `tokens` of the caller's share; never smaller than the key's last tag."""
        if len(self._shares) > _MOST_IDLE_KEYS:
            self._forget_idle()
        share = self._shares.setdefault((priority, caller.key), _Share())
        share.start = max(self._served.get(priority, 0.0), share.start, share.finish)
        share.finish = share.start + tokens / caller.weight
        return share.start

    def serve(self, priority: int, tag: float) -> None:
        """A request with this tag begins, and nobody of an earlier one is passed: whoever comes from now on is not
        tagged before it."""
        self._served[priority] = max(self._served.get(priority, 0.0), tag)

    def correct(self, priority: int, caller: Caller, tokens: float) -> None:
        """It took so many more (or less) than it asked for."""
        share = self._shares.get((priority, caller.key))
        if share is not None:
            share.finish += tokens / caller.weight

    def _forget_idle(self) -> None:
        """Keys that no tag distinguishes from new ones."""
        self._shares = {
            place: share
            for place, share in self._shares.items()
            if max(share.start, share.finish) > self._served.get(place[0], 0.0)
        }
