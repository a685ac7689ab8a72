"""A new generation's time on probation: what is counted of it while the one before stands by.

Owns the count and the verdict. What follows from it is convergence's business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from halogend.config.schema import ProbationConfig


class Probation:
    """Of the generation with this number. Only requests that it answered count: those that ended, and those
    that it let down. `failed` is the reason once it has failed, and `decided` is set then."""

    def __init__(self, config: ProbationConfig, generation: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.generation = generation
        self.requests = 0
        self.errors = 0
        self.failed = ""
        self.decided = asyncio.Event()
        self._config = config
        self._clock = clock
        self._until = clock() + config.s

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - self._clock())

    def record(self, generation: int, *, is_error: bool) -> None:
        """A request ended; `is_error`: with a 5xx, or with an error event in its stream."""
        if generation != self.generation:
            return
        self.requests += 1
        self.errors += is_error
        most = self._config.max_error_rate
        if self.requests >= self._config.min_requests and self.errors > most * self.requests:
            share = f"{self.errors} of {self.requests} requests"
            self.fail(f"{share} of generation {self.generation} failed, over max_error_rate {most:g}")

    def fail(self, reason: str) -> None:
        """Idempotent: the first reason stays."""
        self.failed = self.failed or reason
        self.decided.set()

    def view(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "generation": self.generation,
            "left_s": round(self.left_s, 1),
            "requests": self.requests,
            "errors": self.errors,
            "failed": self.failed or None,
        }
