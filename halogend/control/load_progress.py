"""How far a load has come: all engines of it together.

Pure: reads what the workers said last. Who is told of it, and when, is others' business.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from halogend.control.plan import mib
from halogend.control.replica import Replica
from halogend.control.workers import ENGINE

_SERVING = "serving"


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`stage` is that of the first engine that is not there yet, and None before one was started; bytes are those of
    all engines."""

    stage: str | None = None
    done_bytes: int = 0
    total_bytes: int = 0

    @property
    def words(self) -> str:
        """Such as `43 % (412 MiB of 958 MiB)`, or a stage that has no bytes."""
        if self.stage != "loading" or not self.total_bytes:
            return self.stage or "starting"
        share = 100 * self.done_bytes // self.total_bytes
        return f"{share} % ({mib(self.done_bytes)} of {mib(self.total_bytes)})"


def progress_of(replicas: Iterable[Replica]) -> LoadProgress:
    """Of these, in their order."""
    engines = [pulse for each in replicas if (pulse := each.pulses().get(ENGINE)) is not None]
    stages = [pulse.stage for pulse in engines]
    stage = next((each for each in stages if each != _SERVING), stages[0] if stages else None)
    return LoadProgress(stage, sum(pulse.done for pulse in engines), sum(pulse.total for pulse in engines))
