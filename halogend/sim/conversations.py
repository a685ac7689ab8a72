"""Conversations that share a system prompt, and in which order their turns come."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from halogend.sched.request import Caller
from halogend.sim.job import FIRST_ID, Job

Order = Iterator[int]


@dataclass(frozen=True, slots=True)
class Talk:
    """What a conversation is made of, in tokens. After `turns` turns it is over and another, with another
    opening, takes its place; with 0 turns each question follows the opening alone, for ever."""

    system_tokens: int = 512
    opening_tokens: int = 768
    question_tokens: int = 48
    answer_tokens: int = 16
    turns: int = 16

    @property
    def own_tokens(self) -> int:
        """What one conversation has beside the system prompt, at the middle of its life."""
        return self.opening_tokens + max(self.turns, 1) * (self.question_tokens + self.answer_tokens) // 2


class Conversations:
    """`count` of them at a time; each call of `draw` is the next turn of one. They begin at different
    points of their lives."""

    def __init__(self, talk: Talk, count: int, order: Order) -> None:
        self._talk = talk
        self._order = order
        self._codes = itertools.count(FIRST_ID)
        self._system = self._text(talk.system_tokens)
        self._session = [f"{place}" for place in range(count)]
        self._history = [self._opened() for _ in range(count)]
        self._turn = [0] * count
        for place in range(count):
            for _ in range(place * talk.turns // count):
                self._advance(place)

    def draw(self, number: int) -> Job:
        place = next(self._order)
        caller = Caller(session=self._session[place])
        prompt, answer = self._advance(place)
        if self._talk.turns and self._turn[place] == self._talk.turns:
            self._turn[place] = 0
            self._history[place] = self._opened()
            self._session[place] = f"{place} from {number}"
        return Job("turn", prompt, answer, caller=caller)

    def _advance(self, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The prompt and the answer of the next turn."""
        prompt = (*self._history[place], *self._text(self._talk.question_tokens))
        answer = self._text(self._talk.answer_tokens)
        if self._talk.turns:
            self._turn[place] += 1
            self._history[place] = (*prompt, *answer)
        return prompt, answer

    def _opened(self) -> tuple[int, ...]:
        return (*self._system, *self._text(self._talk.opening_tokens))

    def _text(self, tokens: int) -> tuple[int, ...]:
        """Tokens that nobody else says."""
        return (next(self._codes),) * tokens


def zipf(count: int, exponent: float, seed: int) -> Order:
    """The n-th most frequent comes with a frequency in proportion to n to the minus `exponent`."""
    draws = random.Random(f"zipf {seed}")  # noqa: S311 (a trace, not a secret)
    weights = [(place + 1) ** -exponent for place in range(count)]
    while True:
        yield from draws.choices(range(count), weights, k=64)


def round_robin(count: int) -> Order:
    """One after the other."""
    return itertools.cycle(range(count))


ORDERS: dict[str, Callable[[int, int], Order]] = {
    "zipf": lambda count, seed: zipf(count, 1.0, seed),
    "round robin": lambda count, _: round_robin(count),
}
