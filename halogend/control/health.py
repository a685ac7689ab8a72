"""Is a worker alive and moving? Judged by its progress counter, never by a fixed duration.

Pure: time is an argument. Three different silences are told apart: a worker that rests because it
has nothing to do, one that is wedged in a step, and a host that stopped everybody.
"""

from __future__ import annotations

from dataclasses import dataclass

from halogend.wire.messages import Progress

SILENCE_S = 10.0
WEDGED_S = 60.0
SPEAKING_S = 3.0  # workers speak at least once a second


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


def verdict(
    pulses: dict[str, Pulse], now: float, host_late_s: float, *, others_speak: bool = False
) -> tuple[str, str] | None:
    """(role, reason) of a serving worker that must be restarted, or None.

    When every worker is silent (`others_speak`: those of other generations are not), or our own loop
    was late, the host stalled: nobody is to blame.
    """
    if host_late_s > SILENCE_S / 2:
        return None
    silent = [role for role, pulse in pulses.items() if pulse.silent_s(now) > SILENCE_S]
    if len(silent) == len(pulses) and not others_speak:
        return None
    if silent:
        role = silent[0]
        return role, f"the {role} process has said nothing for {pulses[role].silent_s(now):.0f} s"
    for role, pulse in pulses.items():
        if pulse.busy and pulse.still_s(now) > WEDGED_S:
            return role, f"the {role} process has been busy without progress for {pulse.still_s(now):.0f} s"
    return None
