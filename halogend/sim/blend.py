"""Sessions with a shared system prompt among requests that share nothing: a pool's everyday."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from halogend.sim.conversations import Conversations, Talk, zipf
from halogend.sim.job import Job, Shape
from halogend.sim.loads import mixed

TALK = Talk(answer_tokens=100)
SHORT, LONG = Shape("short", 200, 100, spread=0.5), Shape("long", 1800, 512, spread=0.5)
_SESSIONS = 60
_TURNS = 0.5  # of all requests; the others are short and long ones
_OTHERS = ((SHORT, 0.7), (LONG, 0.3))


class Blend:
    """Half of the requests are turns of sessions by Zipf's law, one at a time in each."""

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(f"blend {seed}")  # noqa: S311 (a trace, not a secret)
        self._others = mixed(_OTHERS, seed)
        self._busy: dict[str, int] = {}  # place by session
        free = (place for place in zipf(_SESSIONS, 1.0, seed) if place not in self._busy.values())
        self._conversations = Conversations(TALK, _SESSIONS, self._noted(free))
        self._place = 0

    def draw(self, number: int) -> Job:
        if self._draws.random() >= _TURNS or len(self._busy) == _SESSIONS:
            return self._others(number)
        job = self._conversations.draw(number)
        self._busy[job.caller.session] = self._place
        return job

    def over(self, job: Job) -> None:
        self._busy.pop(job.caller.session, None)

    def _noted(self, places: Iterable[int]) -> Iterator[int]:
        for place in places:
            self._place = place
            yield place
