"""Clients that each send a request, read the answer to its end, think and send the next: short and long ones, mixed.

Every arm is given the same requests in the same order. The first of each client are not measured: they all come
at once, or while some still think for the first time. The load goes on until the last measured request has ended, so
that none of them runs beside fewer.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from halogend.engine.bench.http_stream import AnswerError
from halogend.engine.bench.quantiles import quantile

_WARM_UP = 3  # requests of each client that thinks, before one is measured
_IDS = range(300, 20_300)  # past the control tokens and bytes of usual vocabularies


@dataclass(frozen=True, slots=True)
class Kind:
    """Lengths in tokens; `weight` is how often it comes beside others."""

    name: str
    prompt_tokens: int
    answer_tokens: int
    weight: int


@dataclass(frozen=True, slots=True)
class Asked:
    number: int
    kind: Kind
    ids: tuple[int, ...]


@dataclass(slots=True)
class Answer:
    """Seconds on one clock; `tokens` that came, and the longest time between two times that some came. An answer
    without a token has its end for its first."""

    sent_s: float
    first_s: float | None = None
    last_s: float = 0.0
    tokens: int = 0
    gap_s: float = 0.0

    def take(self, at_s: float, tokens: int) -> None:
        if self.tokens and tokens:
            self.gap_s = max(self.gap_s, at_s - self.last_s)
        if self.first_s is None:
            self.first_s = at_s
        self.last_s = at_s
        self.tokens += tokens


Ask = Callable[[Asked], AsyncIterator[tuple[float, int]]]
"""Sends a request; yields (time, how many tokens) as they come, and the end's with those that were not told of."""


def requests(kinds: Sequence[Kind], seed: int) -> Callable[[int], Asked]:
    """The request of each number: its kind by weight, its prompt of random ids, so that none begins as another."""
    weights = [kind.weight for kind in kinds]

    def make(number: int) -> Asked:
        rng = random.Random(seed * 1_000_003 + number)  # noqa: S311 (a load, not a secret)
        (kind,) = rng.choices(kinds, weights)
        return Asked(number, kind, tuple(rng.choices(_IDS, k=kind.prompt_tokens)))

    return make


@dataclass(slots=True)
class ClosedLoop:
    """`clients` of them, each of which thinks for `think_s` before it asks (on average, exponentially distributed; 0:
    not at all); as many requests are measured as hold `least` of the first kind."""

    make: Callable[[int], Asked]
    clients: int
    counted: Kind
    least: int
    think_s: float = 0.0
    answers: dict[int, Answer] = field(default_factory=dict)
    arrivals: list[tuple[float, int]] = field(default_factory=list)

    def measured(self) -> range:
        """Numbers of the requests that count."""
        first = after = self.clients * (_WARM_UP if self.think_s else 1)
        left = self.least
        while left > 0:
            left -= self.make(after).kind.name == self.counted.name
            after += 1
        return range(first, after)

    async def run(self, ask: Ask) -> Measured:
        """Raises whatever `ask` raises, from the first client that meets it, and AnswerError for an answer without
        an end."""
        measured = self.measured()
        numbers = itertools.count()
        open_numbers = set(measured)
        done = asyncio.Event()

        async def client(place: int) -> None:
            rng = random.Random(place)  # noqa: S311 (a load, not a secret)
            while True:
                if self.think_s:
                    await asyncio.sleep(rng.expovariate(1 / self.think_s))
                asked = self.make(next(numbers))
                await self._one(asked, ask)
                open_numbers.discard(asked.number)
                if not open_numbers:
                    done.set()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client(place)) for place in range(self.clients)]
            waiting = asyncio.create_task(done.wait())
            await asyncio.wait((waiting, *tasks), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            for task in tasks:
                task.cancel()
        return self._measure(measured)

    async def _one(self, asked: Asked, ask: Ask) -> None:
        answer = self.answers[asked.number] = Answer(time.monotonic())
        async for at_s, tokens in ask(asked):
            if answer.first_s is None:
                self.arrivals.append((at_s, len(asked.ids)))
            answer.take(at_s, tokens)
            self.arrivals.append((at_s, tokens))
        if answer.first_s is None:
            raise AnswerError(f"request {asked.number} was answered with nothing")

    def _measure(self, measured: range) -> Measured:
        answers = {number: self.answers[number] for number in measured}
        began = min(answer.sent_s for answer in answers.values())
        ended = max(answer.last_s for answer in answers.values())
        waits: dict[str, list[float]] = {}
        lengths: dict[str, list[int]] = {}
        for number, answer in answers.items():
            name = self.make(number).kind.name
            lengths.setdefault(name, []).append(answer.tokens)
            if answer.first_s is not None:
                waits.setdefault(name, []).append(answer.first_s - answer.sent_s)
        gaps = [answer.gap_s for answer in answers.values()]
        tokens = sum(count for at_s, count in self.arrivals if began <= at_s <= ended)
        finished = sum(1 for answer in self.answers.values() if began <= answer.last_s <= ended)
        return Measured(ended - began, waits, tokens, finished, lengths, gaps)


@dataclass(frozen=True, slots=True)
class Measured:
    """`waits`: seconds to the first token, by kind, and `lengths`: tokens of the answers. `tokens` and `requests` are
    everything that was delivered meanwhile: of prompts (at their first token) and answers. `gaps`: the longest time of
    each request between its tokens."""

    seconds: float
    waits: dict[str, list[float]]
    tokens: int
    requests: int
    lengths: dict[str, list[int]]
    gaps: list[float]

    @classmethod
    def of_all(cls, runs: Sequence[Self]) -> Self:
        """One run that lasted as long as all of them."""
        waits: dict[str, list[float]] = {}
        lengths: dict[str, list[int]] = {}
        for run in runs:
            for name, held in run.waits.items():
                waits.setdefault(name, []).extend(held)
            for name, counts in run.lengths.items():
                lengths.setdefault(name, []).extend(counts)
        return cls(
            sum(run.seconds for run in runs),
            waits,
            sum(run.tokens for run in runs),
            sum(run.requests for run in runs),
            lengths,
            [gap for run in runs for gap in run.gaps],
        )

    def figures(self) -> dict[str, float]:
        row = {}
        for name in sorted(self.waits, reverse=True):
            row[f"{name} p50"] = quantile(self.waits[name], 0.5)
            row[f"{name} p99"] = quantile(self.waits[name], 0.99)
            row[f"{name} answer"] = statistics.mean(self.lengths[name])
            row[f"{name} requests"] = float(len(self.waits[name]))
        return row | {
            "mean wait": statistics.mean(itertools.chain.from_iterable(self.waits.values())),
            "gap p99": quantile(self.gaps, 0.99),
            "gap": max(self.gaps),
            "tokens/s": self.tokens / self.seconds,
            "requests/s": self.requests / self.seconds,
            "seconds": self.seconds,
        }
