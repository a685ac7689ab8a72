"""Is a worker alive and moving? Judged by its progress counter, never by a fixed duration.

Pure: time and what was seen of the processes are arguments. Different silences are told apart: a worker
that rests because it has nothing to do, one that is wedged in a step, one that is slow, one that was
stopped, and a host that holds up everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from halogend.control.doing import Doing
from halogend.wire.control import Progress

SILENCE_S = 10.0
WEDGED_S = 60.0
PATIENCE_S = 180.0  # with what looks like the host's fault; then a restart is tried all the same
LATE_S = SILENCE_S / 2  # our own loop, by so much: what was said meanwhile is not heard yet
SPEAKING_S = 3.0  # workers speak at least once a second
NOTHING_SEEN: Mapping[str, Doing] = MappingProxyType({})

_THE_HOSTS_FAULT = frozenset({Doing.FROZEN, Doing.PAGES, Doing.STARVES})
_MAY_COME_BACK = frozenset({Doing.WORKS, Doing.DISK})


@dataclass
class Pulse:
    """One process's progress. Single writer: the generation that owns the process."""

    began: float
    stage: str = "starting"
    counter: int = -1
    busy: bool = False
    done: int = 0
    total: int = 0
    heard_at: float | None = None
    moved_at: float | None = None

    def hear(self, progress: Progress, now: float) -> None:
        moved = (progress.counter, progress.done, progress.stage) != (self.counter, self.done, self.stage)
        if moved or not progress.busy:
            self.moved_at = now
        self.stage, self.counter, self.busy = progress.stage, progress.counter, progress.busy
        self.done, self.total = progress.done, progress.total
        self.heard_at = now

    def silent_s(self, now: float) -> float:
        return now - (self.began if self.heard_at is None else self.heard_at)

    def still_s(self, now: float) -> float:
        """How long it has been busy without moving."""
        return now - (self.began if self.moved_at is None else self.moved_at)


def suspects(pulses: Mapping[str, Pulse], now: float) -> list[str]:
    """Those worth a look at what they do, early enough for two looks before anything is decided."""
    return [
        role
        for role, pulse in pulses.items()
        if pulse.silent_s(now) > SILENCE_S / 2 or (pulse.busy and pulse.still_s(now) > WEDGED_S / 2)
    ]


def verdict(
    pulses: Mapping[str, Pulse],
    now: float,
    host_late_s: float,
    doing: Mapping[str, Doing] = NOTHING_SEEN,
    *,
    others_speak: bool = False,
) -> tuple[str, str] | None:
    """(role, reason) of a serving worker that must be restarted, or None.

    When every worker is silent (`others_speak`: those of other generations are not), or our own loop
    was late, the host stalled: nobody is to blame, for as long as patience lasts. `doing` is what was
    seen of those that are under suspicion.
    """
    if host_late_s > LATE_S:
        return None
    silent = [role for role, pulse in pulses.items() if pulse.silent_s(now) > SILENCE_S]
    stalls = len(silent) == len(pulses) and not others_speak
    for role in silent:
        silent_s, seen = pulses[role].silent_s(now), doing.get(role)
        if silent_s > _silence_limit_s(seen, stalls=stalls):
            return role, _reason(role, f"has said nothing for {silent_s:.0f} s", seen)
    for role, pulse in pulses.items():
        still_s, seen = pulse.still_s(now), doing.get(role)
        if role not in silent and pulse.busy and still_s > _still_limit_s(seen):
            return role, _reason(role, f"has been busy without progress for {still_s:.0f} s", seen)
    return None


def _silence_limit_s(seen: Doing | None, *, stalls: bool) -> float:
    """A process that somebody stopped is silent by itself, whoever else is."""
    if seen is Doing.STOPPED:
        return SILENCE_S
    if stalls or seen in _THE_HOSTS_FAULT:
        return PATIENCE_S
    return WEDGED_S if seen in _MAY_COME_BACK else SILENCE_S


def _still_limit_s(seen: Doing | None) -> float:
    """It speaks, and no layer was done: a slow machine takes processor time for that, a loop too."""
    return PATIENCE_S if seen in _THE_HOSTS_FAULT or seen in _MAY_COME_BACK else WEDGED_S


def _reason(role: str, what: str, seen: Doing | None) -> str:
    return f"the {role} process {what}" + ("" if seen is None else f": it {seen}")
