"""How long a step will take, learnt from those that ran, and how much of a prompt fits beside streams.

A step's time is taken as a sum: a base, something for each decoding row and for each position that such a
row reads, something for each prompt token and for each position before it. The five figures are fitted to
the measured steps, newer ones counting more, none below zero (coordinate descent on the normal equations;
T. Hastie, R. Tibshirani, J. Friedman, "The Elements of Statistical Learning", 3.8.6). They are learnt slowly;
that everything is slower for a while, and how far single steps go astray, is `surprise`'s to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from halogend.sched.step import StepItem
from halogend.sched.surprise import Surprise

_MEMORY = 0.99  # what a step counts beside the next
_SWEEPS = 3
_NOTHING, _LITTLE = 1e-9, 0.1  # of evidence: with little of it, only steps that have some say what a thing costs
_UNITS = (1.0, 16.0, 16_384.0, 128.0, 131_072.0)  # brings the five to like size
_STEPS_TO_TRUST = 3  # with prompts in them, before the fit says how large a chunk may be
_FIRST_TOKENS, _FIRST_TOKENS_ALONE = 64, 256  # chunks until then
_MOST_SURPRISE = 4.0  # a step that took more than this times what was expected teaches no more than that
_LEAST_SHARE = 1 / 4  # of the gap is for prompts, however long streams take and whatever margin a rough machine wants
_BASE_SHARE = 1 / 16  # with nobody streaming a step is long enough that its base is at most this share of it


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a step's time depends on: decoding `rows` and the positions they read in all, prompt tokens and
    the positions before them in all."""

    rows: int = 0
    context: int = 0
    prompt: int = 0
    depth: float = 0.0


def work_of(items: Iterable[StepItem]) -> StepWork:
    rows = context = prompt = 0
    depth = 0.0
    for item in items:
        if (count := item.count) == 1 and item.samples:
            rows += 1
            context += item.start
        else:
            prompt += count
            depth += count * (item.start + count / 2)
    return StepWork(rows, context, prompt, depth)


class Pacer:
    """Learns from every measured step. Single writer: the scheduler."""

    def __init__(self) -> None:
        size = len(_UNITS)
        self._costs = [0.0] * size  # seconds for a unit of each
        self._products = [[0.0] * size for _ in range(size)]
        self._times = [0.0] * size
        self._prompt_steps = 0
        self._surprise = Surprise()

    def learn(self, work: StepWork, seconds: float) -> None:
        """A step did this work in so many seconds; 0 says nothing."""
        if seconds <= 0:
            return
        features = _features(work)
        usual = sum(map(_times, self._costs, features))
        if self.trusted and usual > 0:
            self._surprise.learn(seconds / usual)
            self._take_as_usual(self._surprise.settle())
            usual = sum(map(_times, self._costs, features))
            seconds = min(seconds / self.slowness, _MOST_SURPRISE * usual)
        self._fit(features, seconds)
        self._prompt_steps += work.prompt > 0

    @property
    def trusted(self) -> bool:
        return self._prompt_steps >= _STEPS_TO_TRUST

    @property
    def slowness(self) -> float:
        """What everything takes just now, as a multiple of what it usually takes."""
        return self._surprise.slowness

    def seconds(self, work: StepWork) -> float:
        """What a step with this work is expected to take."""
        return self.slowness * sum(map(_times, self._costs, _features(work)))

    def prompt_seconds(self, count: int, start: int) -> float:
        """What `count` prompt tokens from position `start` on add to a step."""
        return self._token_s * count + self._depth_s * count * (start + count / 2)

    def tokens_within(self, seconds: float, start: int) -> int:
        """How many prompt tokens from position `start` on add at most so much: the inverse of `prompt_seconds`."""
        each, bend = self._token_s + self._depth_s * start, self._depth_s / 2
        if seconds <= 0 or each <= 0:
            return 0
        return int(2 * seconds / (each + math.sqrt(each * each + 4 * bend * seconds)))

    def allowance(self, work: StepWork, max_gap_s: float, most: int) -> tuple[int, float]:
        """What prompts may add to a step that decodes `work`, in tokens (of at most `most`) and in seconds.
        A limit of 0 is off: the tokens alone count. A quarter of the gap is theirs in any case: with less of a
        step there would be more steps, and streams would wait as long for fewer prompts done."""
        if not max_gap_s:
            return most, math.inf
        if not self.trusted:
            return min(most, _FIRST_TOKENS if work.rows else _FIRST_TOKENS_ALONE), math.inf
        if work.rows:
            return most, max(_LEAST_SHARE * max_gap_s, max_gap_s / self._surprise.margin - self.seconds(work))
        base_s = self.seconds(StepWork())
        return most, max(max_gap_s, base_s / _BASE_SHARE) - base_s

    @property
    def _token_s(self) -> float:
        return self.slowness * self._costs[3] / _UNITS[3]

    @property
    def _depth_s(self) -> float:
        return self.slowness * self._costs[4] / _UNITS[4]

    def _take_as_usual(self, factor: float) -> None:
        """Everything has become so much slower for good."""
        self._costs = [factor * cost for cost in self._costs]
        self._times = [factor * time for time in self._times]

    def _fit(self, features: tuple[float, ...], seconds: float) -> None:
        for row, feature, products in zip(range(len(features)), features, self._products, strict=True):
            for column, other in enumerate(features):
                products[column] = _MEMORY * products[column] + feature * other
            self._times[row] = _MEMORY * self._times[row] + feature * seconds
        costs = self._costs
        for _ in range(_SWEEPS):
            for place, products in enumerate(self._products):
                if products[place] > (_NOTHING if features[place] else _LITTLE):  # else it stays as it was
                    rest = sum(map(_times, products, costs)) - products[place] * costs[place]
                    costs[place] = max(0.0, (self._times[place] - rest) / products[place])


def _features(work: StepWork) -> tuple[float, ...]:
    amounts = (1.0, float(work.rows), float(work.context), float(work.prompt), work.depth)
    return tuple(map(_over, amounts, _UNITS))


def _times(first: float, second: float) -> float:
    return first * second


def _over(first: float, second: float) -> float:
    return first / second
