"""Rotary positions: the angle per position of each pair that is turned, and how long contexts stretch them.

Sources: Su and others 2021 (RoPE); Chen and others 2023 (linear scaling); Peng and others 2023 (YaRN);
Ding and others 2024 (LongRoPE); the Llama 3.1 model card's reference code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

MOST_POSITIONS = 1 << 31


@dataclass(frozen=True, slots=True)
class Rope:
    """Pair i of a head is turned by position times `frequencies[i]`; pairs beyond the last are not
    turned. Turned values are multiplied by `magnitude`. `divisors` names a vector of the checkpoint by
    which the frequencies are divided yet. Past `original_context` positions `beyond` holds. The angles
    were made for `made_for` positions, whatever length the file states beside them."""

    frequencies: tuple[float, ...]
    magnitude: float = 1.0
    divisors: str | None = None
    original_context: int | None = None
    beyond: Rope | None = None
    made_for: int | None = None

    def reaches(self, context: int) -> bool:
        """Whether requests of `context` positions go past the original one."""
        return self.original_context is not None and context > self.original_context

    def stretched(self, beyond: bool) -> Rope:
        """What holds within the original context, or `beyond` it."""
        return self.beyond if beyond and self.beyond is not None else self


def plain(base: float, turned: int) -> Rope:
    """`turned` values of each head are turned, two by two."""
    return Rope(tuple(base ** (-(index / turned)) for index in range(0, turned, 2)))


def magnified(rope: Rope, factor: float) -> Rope:
    """Turned values are multiplied by `factor` too."""
    beyond = None if rope.beyond is None else magnified(rope.beyond, factor)
    return replace(rope, magnitude=rope.magnitude * factor, beyond=beyond)


def linear(rope: Rope, factor: float) -> Rope:
    """Positions are pressed together by `factor`."""
    return replace(rope, frequencies=tuple(value / factor for value in rope.frequencies))


def llama3(rope: Rope, factor: float, low_factor: float, high_factor: float, original_context: int) -> Rope:
    """Waves longer than original_context / low_factor are stretched by `factor`, those shorter than
    original_context / high_factor are kept, between them it goes over smoothly."""

    def scaled(frequency: float) -> float:
        turns = original_context * frequency / (2 * math.pi)  # within the original context
        kept = min(1.0, max(0.0, (turns - low_factor) / (high_factor - low_factor)))
        return frequency * (kept + (1 - kept) / factor)

    return replace(rope, frequencies=tuple(scaled(value) for value in rope.frequencies))


@dataclass(frozen=True, slots=True)
class Yarn:
    """`beta_fast` and `beta_slow` are turns within the original context: pairs that turn more often
    than the first are kept, those less often than the second are stretched."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    magnitude: float | None = None

    def apply(self, base: float, turned: int) -> Rope:
        low, high = self._edge(self.beta_fast, base, turned), self._edge(self.beta_slow, base, turned)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, turned - 1)
        width = high - low or 0.001

        def blended(index: int, frequency: float) -> float:
            stretched = min(1.0, max(0.0, (index - low) / width))
            return frequency * (1 - stretched + stretched / self.factor)

        rope = plain(base, turned)
        magnitude = yarn_magnitude(self.factor) if self.magnitude is None else self.magnitude
        frequencies = tuple(blended(i, value) for i, value in enumerate(rope.frequencies))
        return Rope(frequencies, magnitude, made_for=min(int(self.original_context * self.factor), MOST_POSITIONS))

    def _edge(self, turns: float, base: float, turned: int) -> float:
        """The pair, counted in fractions, that turns so often."""
        return turned * math.log(self.original_context / (turns * 2 * math.pi)) / (2 * math.log(base))


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def longrope_magnitude(factor: float, original_context: int) -> float:
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original_context))


def longrope(
    rope: Rope, short: Sequence[float], long: Sequence[float], magnitude: float, original_context: int
) -> Rope:
    """A divisor for each pair: `short` up to the original context, `long` beyond it."""

    def divided(factors: Sequence[float]) -> tuple[float, ...]:
        return tuple(value / factor for value, factor in zip(rope.frequencies, factors, strict=True))

    beyond = Rope(divided(long), magnitude)
    return Rope(divided(short), magnitude, original_context=original_context, beyond=beyond)
