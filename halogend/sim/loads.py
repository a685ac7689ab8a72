"""Who asks when. Every load is drawn from a seed, so that each policy gets the same trace."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from typing import Protocol

from halogend.sched.request import Caller
from halogend.sim.job import Job, Shape, answer, distinct_prompt

Draw = Callable[[int], Job]  # the job with this number, asked for in order


class Load(Protocol):
    """Asked for the next job whenever simulated time has come to it."""

    def due_s(self, now: float) -> float | None:
        """When the next job comes or came, or None while nobody will ask."""

    def take(self) -> Job:
        """The next job."""

    def ended(self, job: Job, now: float) -> None:
        """Whoever asked for it may ask again from `now` on."""


class ClosedLoop:
    """`clients`, each asking again `think_s` after its answer came (on average, exponentially distributed;
    0: at once). Each begins as if an answer had come at 0: without thinking, all at once."""

    def __init__(self, clients: int, draw: Draw, think_s: float = 0.0, seed: int = 0) -> None:
        self._draw = draw
        self._think_s = think_s
        self._random = random.Random(f"think {seed}")  # noqa: S311 (a trace, not a secret)
        self._due = sorted(self._thinks() for _ in range(clients))
        self._number = 0

    def due_s(self, now: float) -> float | None:
        return self._due[0] if self._due else None

    def take(self) -> Job:
        heapq.heappop(self._due)
        self._number += 1
        return self._draw(self._number - 1)

    def ended(self, job: Job, now: float) -> None:
        heapq.heappush(self._due, now + self._thinks())

    def _thinks(self) -> float:
        return self._random.expovariate(1 / self._think_s) if self._think_s else 0.0


class OpenLoop:
    """Jobs come at given times, whatever becomes of them."""

    def __init__(self, arrivals: Iterator[tuple[float, Job]]) -> None:
        self._arrivals = arrivals
        self._next = next(arrivals, None)

    def due_s(self, now: float) -> float | None:
        return None if self._next is None else self._next[0]

    def take(self) -> Job:
        if self._next is None:
            raise IndexError("nobody asks any more")
        job = self._next[1]
        self._next = next(self._arrivals, None)
        return job

    def ended(self, job: Job, now: float) -> None:
        pass


class HoldUse:
    """Asks whenever less than `share` of the pool is held and nobody waits: the pool stays that full
    whatever becomes of the requests. `held` says how full it is, `waits` how many wait; `over` is told what
    has ended."""

    def __init__(
        self,
        share: float,
        draw: Draw,
        over: Callable[[Job], None],
        held: Callable[[], float],
        waits: Callable[[], int],
    ) -> None:
        self._share = share
        self._draw = draw
        self._over = over
        self._held = held
        self._waits = waits
        self._number = 0

    def due_s(self, now: float) -> float | None:
        return now if self._held() < self._share and not self._waits() else None

    def take(self) -> Job:
        self._number += 1
        return self._draw(self._number - 1)

    def ended(self, job: Job, now: float) -> None:
        self._over(job)


def mixed(shapes: tuple[tuple[Shape, float], ...], seed: int, key: str = "") -> Draw:
    """Jobs of the shapes in proportion to their weights, none with a prefix in common."""
    draws = random.Random(f"mixed {seed}")  # noqa: S311 (a trace, not a secret)
    kinds, weights = [shape for shape, _ in shapes], [weight for _, weight in shapes]
    caller = Caller(key=key)

    def draw(number: int) -> Job:
        return of_shape(draws.choices(kinds, weights)[0], number, draws, caller)

    return draw


def of_shape(shape: Shape, number: int, draws: random.Random, caller: Caller) -> Job:
    """A job of this shape whose prompt nobody else has."""
    prompt = distinct_prompt(number, _length(shape.prompt_tokens, shape.spread, draws))
    said = answer(_length(shape.answer_tokens, shape.spread, draws), shape.max_tokens)
    return Job(shape.kind, prompt, said, max(shape.max_tokens, len(said)), caller)


def poisson(per_s: float, draw: Draw, seed: int) -> Iterator[tuple[float, Job]]:
    """Arrivals at a mean rate, for ever."""
    draws = random.Random(f"poisson {seed}")  # noqa: S311 (a trace, not a secret)
    now, number = 0.0, 0
    while True:
        now += draws.expovariate(per_s)
        yield now, draw(number)
        number += 1


def bursts(every_s: float, size: int, draw: Draw) -> Iterator[tuple[float, Job]]:
    """`size` jobs at once, again and again, for ever."""
    number = 0
    while True:
        for _ in range(size):
            yield number // size * every_s, draw(number)
            number += 1


def merged(*arrivals: Iterator[tuple[float, Job]]) -> Iterator[tuple[float, Job]]:
    """All of them, in the order of time."""
    return heapq.merge(*arrivals, key=lambda arrival: arrival[0])


def _length(tokens: int, spread: float, draws: random.Random) -> int:
    return max(1, round(tokens * draws.uniform(1 - spread, 1 + spread))) if spread else tokens
