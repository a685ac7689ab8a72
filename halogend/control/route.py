"""One model's route: what its requests are told, who answers them now, and how it stands.

Owns no request and decides no switch: the router writes it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from halogend.control.answer import Answer
from halogend.control.generation import Generation
from halogend.control.replica import Replica
from halogend.control.requests import ServedModel
from halogend.wire.requests import Sampling
from halogend.wire.specs import Limits

_KEPT_DURATIONS = 1000
_HEALTHY_SILENCE_S = 4.0  # workers speak once a second


class Ended(Protocol):
    def __call__(self, generation: int, *, is_error: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """What the router needs of a model's document entry, concrete. Replaced whole when live
    fields change. `sampling` is used where a request is silent, `classes` are those that one may name."""

    aliases: tuple[str, ...]
    weight: float
    sampling: Sampling
    limits: Limits
    max_queue: int
    queue_timeout_s: float
    classes: tuple[str, ...] = ()


@dataclass
class Route:
    """One model. Single writer: the router. `beside` takes requests too while replicas roll from
    `serving` to it. `ended`: see `Router.watch`. `gone` says why waiting would be in vain."""

    name: str
    settings: RouteSettings
    serving: Generation | None = None
    beside: Generation | None = None
    since: float = 0.0
    gone: str | None = None
    kept_aliases: tuple[str, ...] = ()
    waiting: int = 0
    credit: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: Ended | None = None
    durations: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_DURATIONS))

    def names(self) -> tuple[str, ...]:
        return (self.name, *self.settings.aliases, *self.kept_aliases)

    def alive(self) -> Generation | None:
        """What can take a request now: a dead generation serves nobody, whoever has heard of it."""
        return next((each for each in (self.serving, self.beside) if each is not None and each.is_alive), None)

    def roomiest(self, besides: Replica | None = None) -> Replica | None:
        """The replica that a request goes to."""
        there = [each.roomiest(besides) for each in (self.serving, self.beside) if each is not None]
        return min((each for each in there if each is not None), key=lambda each: each.crowding, default=None)

    def for_lease(self, answer: Answer) -> Replica | None:
        """The one with the most room; never the one that has just failed this request."""
        return self.roomiest(besides=answer.failed_on)

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def request_p99_s(self) -> float:
        """Of the last requests; 0 where there were none."""
        if not self.durations:
            return 0.0
        ordered = sorted(self.durations)
        return ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]

    def line(self) -> ServedModel:
        """As a list of models has it."""
        serving, limits = self.alive(), self.settings.limits
        return ServedModel(
            name=self.name,
            aliases=self.names()[1:],
            generation=0 if serving is None else serving.number,
            state=self.state,
            created=int(self.since),
            has_chat_template=serving is not None and serving.has_chat_template,
            max_model_len=limits.max_model_len,
            max_prompt_len=limits.max_prompt_len,
            max_decode_len=limits.max_decode_len,
        )

    @property
    def state(self) -> str:
        """serving, waiting or failed."""
        if self.alive() is not None:
            return "serving"
        return "failed" if self.gone else "waiting"

    def health(self, now: float) -> dict[str, Any]:
        """Its engines' progress, from what the workers last said; `now` is monotonic."""
        pulses = {} if self.serving is None else self.serving.pulses()
        workers = {
            role: {"stage": pulse.stage, "busy": pulse.busy, "silent_s": round(pulse.silent_s(now), 1)}
            for role, pulse in pulses.items()
        }
        silent = any(pulse.silent_s(now) > _HEALTHY_SILENCE_S for pulse in pulses.values())
        healthy = self.alive() is not None and not silent
        return {"healthy": healthy, "state": self.state, "workers": workers}
