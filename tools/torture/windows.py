"""Which gap between two tokens belongs to which step of which change."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torture.evidence import Serving, Window
from torture.messages import Asked

QUIET = "quiet"
JUDGED = ("load", "switch", "drain")
KILL, POLICY = "kill", "policy"
_BEFORE_SWITCH_S, _AFTER_SWITCH_S = 0.1, 1.0


def steps_of(receipts: Iterable[Mapping[str, Any]]) -> list[Window]:
    """Load, Switch and Drain, as the receipts time them. A switch is a moment: what a client sees of it is
    looked for in the second after it."""
    found = []
    for step in (step for receipt in receipts for model in receipt["models"] for step in model["steps"]):
        began, seconds = step["began_at"], step["seconds"]
        if step["name"] == "switch":
            found.append(Window("switch", began - _BEFORE_SWITCH_S, began + _AFTER_SWITCH_S))
        elif step["name"] in JUDGED and seconds is not None:
            found.append(Window(step["name"], began, began + seconds))
    return found


class Spans:
    """Times of one kind, merged."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._begins: list[float] = []
        self._ends: list[float] = []
        for each in sorted(windows, key=lambda window: window.began_at):
            if self._ends and each.began_at <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], each.ended_at)
            else:
                self._begins.append(each.began_at)
                self._ends.append(each.ended_at)

    def touch(self, began_at: float, ended_at: float) -> bool:
        """Is any moment of this among them?"""
        last = bisect.bisect_right(self._begins, ended_at) - 1
        return last >= 0 and self._ends[last] >= began_at


Gaps = dict[tuple[str, str], list[float]]
"""Seconds, by kind of checkpoint and window."""


def gaps_of(asked: Iterable[Asked], windows: Sequence[Window], servings: Sequence[Serving]) -> Gaps:
    """A gap counts for every window that it touches, for `policy` only if for no other, for `quiet` if for none,
    and for nothing while an engine was shot or came back: those that waited for it are served at once."""
    spans = {kind: Spans(w for w in windows if w.kind == kind) for kind in {w.kind for w in windows}}
    switched = [each.at for each in servings]
    found: Gaps = defaultdict(list)
    for each in asked:
        if not each.tokens_at:
            continue
        place = bisect.bisect_right(switched, each.tokens_at[0]) - 1
        checkpoint = servings[max(0, place)].kind if servings else ""
        for began, ended in zip(each.tokens_at, each.tokens_at[1:], strict=False):
            kinds = {kind for kind, span in spans.items() if span.touch(began, ended)}
            for kind in set() if KILL in kinds else (kinds - {POLICY} or kinds or {QUIET}):
                found[checkpoint, kind].append(ended - began)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
