"""Clients that each send a request, read the answer to its end and send the next: short and long ones, mixed.

Every arm is given the same requests in the same order. The first of each client are not measured: they all come
at once. The load goes on until the last measured request has ended, so that none of them runs beside fewer.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from halogend.engine.bench.quantiles import quantile

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
    """Seconds on one clock; `tokens` that came."""

    sent_s: float
    first_s: float = 0.0
    last_s: float = 0.0
    tokens: int = 0


Ask = Callable[[Asked], AsyncIterator[tuple[float, int]]]
"""Sends a request; yields (time, how many tokens) as they come."""


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
    """`clients` of them; as many requests are measured as hold `least` of the first kind."""

    make: Callable[[int], Asked]
    clients: int
    counted: Kind
    least: int
    answers: dict[int, Answer] = field(default_factory=dict)
    arrivals: list[tuple[float, int]] = field(default_factory=list)

    def measured(self) -> range:
        """Numbers of the requests that count."""
        left = self.least
        for number in itertools.count(self.clients):
            left -= self.make(number).kind.name == self.counted.name
            if left == 0:
                return range(self.clients, number + 1)
        raise AssertionError

    async def run(self, ask: Ask) -> Measured:
        """Raises whatever `ask` raises, from the first client that meets it."""
        measured = self.measured()
        numbers = itertools.count()
        open_numbers = set(measured)
        done = asyncio.Event()

        async def client() -> None:
            while True:
                asked = self.make(next(numbers))
                await self._one(asked, ask)
                open_numbers.discard(asked.number)
                if not open_numbers:
                    done.set()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client()) for _ in range(self.clients)]
            waiting = asyncio.create_task(done.wait())
            await asyncio.wait((waiting, *tasks), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            for task in tasks:
                task.cancel()
        return self._measure(measured)

    async def _one(self, asked: Asked, ask: Ask) -> None:
        answer = self.answers[asked.number] = Answer(time.monotonic())
        async for at_s, tokens in ask(asked):
            if not answer.tokens:
                answer.first_s = at_s
                self.arrivals.append((at_s, len(asked.ids)))
            answer.last_s = at_s
            answer.tokens += tokens
            self.arrivals.append((at_s, tokens))

    def _measure(self, measured: range) -> Measured:
        answers = {number: self.answers[number] for number in measured}
        began = min(answer.sent_s for answer in answers.values())
        ended = max(answer.last_s for answer in answers.values())
        waits: dict[str, list[float]] = {}
        for number, answer in answers.items():
            waits.setdefault(self.make(number).kind.name, []).append(answer.first_s - answer.sent_s)
        tokens = sum(count for at_s, count in self.arrivals if began <= at_s <= ended)
        finished = sum(1 for answer in self.answers.values() if began <= answer.last_s <= ended)
        return Measured(ended - began, waits, tokens / (ended - began), finished / (ended - began))


@dataclass(frozen=True, slots=True)
class Measured:
    """`waits`: seconds to the first token, by kind. Rates are of everything that was delivered meanwhile: tokens
    of prompts (at their first token) and answers, and requests."""

    seconds: float
    waits: dict[str, list[float]]
    tokens_per_s: float
    requests_per_s: float

    def figures(self) -> dict[str, float]:
        row = {}
        for name in sorted(self.waits, reverse=True):
            row[f"{name} p50"] = quantile(self.waits[name], 0.5)
            row[f"{name} p99"] = quantile(self.waits[name], 0.99)
        counts = {f"{name} requests": float(len(waits)) for name, waits in self.waits.items()}
        return (
            row | {"tokens/s": self.tokens_per_s, "requests/s": self.requests_per_s, "seconds": self.seconds} | counts
        )
