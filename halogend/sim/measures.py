"""What a simulated run is measured by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from halogend.sched.spans import SpanStep
from halogend.sim.job import Job


@dataclass(slots=True)
class Record:
    """One request, in simulated seconds."""

    job: Job
    asked_s: float
    first_s: float | None = None
    last_s: float = 0.0
    ended_s: float | None = None
    generated: int = 0
    reused: int = 0
    code: str | None = None


@dataclass(slots=True)
class Measures:
    """Of the requests number `first` to `first + count - 1`; those before warm up, those after keep the
    load as it is until the last measured one has ended. Single writer: the simulation."""

    first: int
    count: int
    asked: int = 0
    steps: int = 0
    generated: int = 0
    preemptions: int = 0
    largest_gap_s: float = 0.0
    longest_step_s: float = 0.0
    began_s: float = 0.0
    ended_s: float = 0.0
    live: dict[int, Record] = field(default_factory=dict)
    done: list[Record] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return len(self.done) >= self.count

    @property
    def measuring(self) -> bool:
        """Whether the measured time has begun."""
        return self.asked > self.first

    def ask(self, job: Job, at_s: float, now: float) -> int:
        """The number of a request that comes now."""
        number = self.asked
        self.asked += 1
        if number == self.first:
            self.began_s = now
        self.live[number] = Record(job, at_s)
        return number

    def token(self, number: int, now: float) -> None:
        record = self.live[number]
        record.generated += 1
        if self.measuring:
            self.generated += 1
            if record.first_s is not None:
                self.largest_gap_s = max(self.largest_gap_s, now - record.last_s)
        if record.first_s is None:
            record.first_s = now
        record.last_s = now

    def step(self, seconds: float, beside_streams: bool) -> None:
        self.steps += 1
        if beside_streams and self.measuring:
            self.longest_step_s = max(self.longest_step_s, seconds)

    def span(self, numbers: Iterable[int], steps: Sequence[SpanStep], now: float) -> None:
        """Each of `numbers` got a token in each of `steps`, the last of which ended now."""
        self.steps += len(steps)
        first_end, longest_s, gap_s = self._ends(steps, now)
        for number in numbers:
            record = self.live[number]
            record.generated += len(steps)
            if record.first_s is None:  # the last token of its prompt was alone
                record.first_s = record.last_s = first_end
            if self.measuring:
                self.generated += len(steps)
                self.largest_gap_s = max(self.largest_gap_s, first_end - record.last_s, gap_s)
            record.last_s = now
        if self.measuring:
            self.longest_step_s = max(self.longest_step_s, longest_s)

    @staticmethod
    def _ends(steps: Sequence[SpanStep], now: float) -> tuple[float, float, float]:
        """When the first step ended, the longest step, and the longest time between two ends."""
        ends = [*(step.start_s for step in steps[1:]), now]
        between = max((after - before for before, after in pairwise(ends)), default=0.0)
        return ends[0], max(step.seconds for step in steps), between

    def reuse(self, number: int, tokens: int) -> None:
        self.live[number].reused = tokens

    def end(self, number: int, now: float, code: str | None) -> Job:
        record = self.live.pop(number)
        record.ended_s = now
        record.code = code
        if self.first <= number < self.first + self.count:
            self.done.append(record)
            self.ended_s = now
        return record.job

    @property
    def tokens_per_s(self) -> float:
        """Generated, by whomever, while measured requests were there."""
        return self.generated / max(self.ended_s - self.began_s, 1e-9)

    @property
    def requests_per_s(self) -> float:
        return len(self.done) / max(self.ended_s - self.began_s, 1e-9)

    def kinds(self) -> list[str]:
        return sorted({record.job.kind for record in self.done})

    def first_token_s(self, kind: str, share: float) -> float:
        """The time to first token that `share` of this kind's requests did not exceed."""
        return quantile((_to_first(r) for r in self.done if r.job.kind == kind), share)

    @property
    def mean_first_s(self) -> float:
        """Time to first token, of all kinds as often as they came."""
        return sum(map(_to_first, self.done)) / len(self.done) if self.done else math.nan

    @property
    def hit_tokens(self) -> int:
        return sum(record.reused for record in self.done)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(record.job.prompt) for record in self.done)

    @property
    def refused(self) -> int:
        return sum(record.code is not None for record in self.done)


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed (nearest rank); nan of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def _to_first(record: Record) -> float:
    return math.inf if record.first_s is None else record.first_s - record.asked_s
